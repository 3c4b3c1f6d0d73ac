"""The runner's own tests: `python3 -m unittest suites.selftest`, a part of `make test`."""

import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from . import processes
from .cuts import database, worker
from .place import absorbed_writes
from .report import DIFFERENT, FLAKY, SAME, Case, Result, to_markdown

EXPLAINED = """\
forebay: profile generic: files that match * are absorbed; all others are left as they are
file             writes      bytes  syncs that cost nothing     state
/tmp/a           2,000  195.3 KiB                        0  absorbed
and 3 more           7    6 bytes                        0  absorbed
1 real syncs behind, 0.00 s in all
"""


class Verdicts(unittest.TestCase):
    def test_what_differs_each_time_is_different(self):
        self.assertEqual(Case("c", ["passed"] * 4, ["failed"] * 4).verdict, DIFFERENT)
        self.assertEqual(Case("c", ["passed"] * 4, ["failed", "passed", "failed", "passed"]).verdict, DIFFERENT)
        self.assertEqual(Case("c", ["sound"], ["malformed"]).verdict, DIFFERENT)

    def test_what_differs_once_or_from_itself_is_flaky(self):
        self.assertEqual(Case("c", ["passed"] * 4, ["failed", "passed", "passed", "passed"]).verdict, FLAKY)
        self.assertEqual(Case("c", ["passed", "failed", "passed", "passed"], ["failed"] * 4).verdict, FLAKY)

    def test_a_suite_is_well_only_if_it_ran_and_nothing_differs(self):
        same, different = Case("c", ["passed"], ["passed"]), Case("d", ["passed"], ["failed"])
        self.assertEqual(same.verdict, SAME)
        self.assertTrue(Result("s", "", [same]).well)
        self.assertFalse(Result("s", "", [same, different]).well)
        self.assertFalse(Result("s", "").well)
        self.assertFalse(Result("s", "", [same], missing="no root").well)

    def test_the_page_names_what_differs_and_why_a_suite_was_not_run(self):
        page = to_markdown([Result("s", "", [Case("the | case", ["a"], ["b"])]), Result("t", "", missing="no root")], {})
        self.assertIn("the | case", page)
        self.assertIn("Not run: no root", page)


class Counting(unittest.TestCase):
    def test_absorbed_writes_are_summed_over_the_table_of_each_program(self):
        self.assertEqual(absorbed_writes(EXPLAINED), 2007)
        self.assertEqual(absorbed_writes("noise\n" + EXPLAINED + "more\n" + EXPLAINED), 4014)
        self.assertEqual(absorbed_writes("no file was absorbed\n"), 0)


class Processes(unittest.TestCase):
    def test_a_program_past_its_time_ends_with_all_that_it_started(self):
        processes.adopt_orphans()
        with tempfile.TemporaryDirectory() as home:
            done = processes.run(["sh", "-c", "setsid sleep 300 & echo $!; sleep 300"], cwd=pathlib.Path(home), limit_s=0.5)
            self.assertTrue(done.timed_out)
            self.assertEqual(done.status, -signal.SIGKILL)
            deadline = time.monotonic() + 10
            left = pathlib.Path("/proc") / done.output.strip()
            while left.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertFalse(left.exists())


class Databases(unittest.TestCase):
    def test_a_lost_a_torn_and_a_changed_transaction_are_each_found(self):
        with tempfile.TemporaryDirectory() as home:
            path = pathlib.Path(home) / "a.db"
            database.create(path, "delete", ["w"])
            command = ["/usr/bin/python3", worker.__file__, str(path), "delete", "w", "1", "OFF"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
                for line in writer.stdout:
                    last = int(line.split()[-1])
                    if last >= 20:
                        writer.kill()
            self.assertEqual(database.faults(path, {"w": last}), [])
            self.assertIn("were acknowledged and are gone", database.faults(path, {"w": last + 9})[0])
            for change, found in (
                ("UPDATE rows SET payload = x'00' WHERE seq = 1 AND part = 0", "other bytes"),
                ("DELETE FROM rows WHERE seq = 1 AND part = 0", "are missing"),
                ("INSERT INTO rows VALUES ('w', 1000000, 0, x'')", "of no transaction"),
            ):
                subprocess.run(["sqlite3", str(path), change], check=True)
                self.assertTrue(any(found in fault for fault in database.faults(path, {"w": last})), found)


if __name__ == "__main__":
    unittest.main()
