"""The comparison at toy size: every store holds what was put, and the table has all of them."""

import pathlib
import tempfile
import unittest

from .__main__ import TARGET, newest_wheel
from .rounds import Load, WrongAnswer, measure, run, table
from .stores import STORES, SqliteStore, use_wheel


class ForgetfulStore(SqliteStore):
    name = "forgetful"

    def put(self, key, value, sync):
        super().put(key, value[1:] if sync else value, sync)


class ComparisonTest(unittest.TestCase):
    def setUp(self):
        # On a disk: the pool is one there.
        scratch = tempfile.TemporaryDirectory(prefix="lab-python-", dir=TARGET)
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.load = Load(pairs=400, synced=20, value_bytes=100, rounds=2)

    def test_each_store_has_its_turn(self):
        use_wheel(newest_wheel(), self.scratch / "wheel")
        rates = run(self.load, self.scratch)
        shown = table(rates, self.load)
        self.assertEqual(len(rates), 5)
        for operation, by_store in rates.items():
            self.assertIn(operation, shown)
            self.assertEqual(sorted(by_store), sorted(kind.name for kind in STORES))
            for measured in by_store.values():
                self.assertEqual(len(measured), 2)
                self.assertGreater(min(measured), 0)

    def test_a_store_that_forgets_is_found_out(self):
        with self.assertRaises(WrongAnswer):
            measure(ForgetfulStore, self.load, 1, self.scratch / "store")


if __name__ == "__main__":
    unittest.main()
