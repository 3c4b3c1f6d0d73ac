"""Tests of what this laboratory reads, judges and tells; of its machines only that a script of the guest is one that bash reads."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import unittest

from lab.systemd.image import Failure
from lab.systemd.lives import WriteRecord

from . import report, speed
from .contestants import ALL, BCACHE, FOREBAY_PMEM, PLAIN, WRITECACHE_SSD
from .guest import commits
from .losses import Loss, is_enough, judged

COUNTS = {"redis": 100, "sqlite": 10}
SAID = """measured begin 1000 500
redis 1 "SET","250.5","4.0","1.0","3.5","5.0","9.25","20.0"
measured one 3000 10500
redis 8 "SET","1000","4.0","1.0","3.5","5.0","9.25","20.0"
measured eight 4000 30500
measured end 7000 0
measured begin 7000 40000
sqlite 1 300.0 3100.5 9000.0
measured one 8000 41000
measured eight 8000 41000
measured end 12000 0"""


def record_of(*numbers: int) -> WriteRecord:
    record = WriteRecord()
    record.acknowledged = set(numbers)
    return record


class ReadFigures(unittest.TestCase):
    def test_figures_and_bytes_are_read(self):
        one, eight, sqlite = speed.parsed(PLAIN, "drive", COUNTS, SAID)
        self.assertEqual((one.clients, one.writes_per_s, one.p50_us, one.p99_us), (1, 1002.0, 875.0, 2312.5))
        self.assertEqual((one.fast_bytes, eight.fast_bytes), (100.0, 100.0))
        # The disk's are of both, and of what comes until all is at rest.
        self.assertEqual((one.disk_bytes, eight.disk_bytes), (20.0, 20.0))
        self.assertEqual((sqlite.database, sqlite.p50_us, sqlite.fast_bytes, sqlite.disk_bytes), ("sqlite", 775.125, 100.0, 500.0))

    def test_a_database_that_says_nothing_is_a_failure(self):
        with self.assertRaisesRegex(Failure, "plain was not measured"):
            speed.parsed(PLAIN, "drive", COUNTS, SAID[: SAID.index("sqlite")])

    def test_half_and_99_of_100_are_those(self):
        rate, half, most = commits.figures([1000.0] * 97 + [5000.0, 7000.0, 9000.0])
        self.assertEqual((half, most), (1000.0, 7000.0))
        self.assertAlmostEqual(rate, 1e6 * 100 / 118_000)

    def test_scripts_of_all_contestants_are_read_by_bash(self):
        for contestant in ALL.values():
            done = subprocess.run(["bash", "-n"], input=speed.script(contestant, "drive", COUNTS), text=True, capture_output=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), contestant.name)


class JudgeLosses(unittest.TestCase):
    def test_what_is_missing_was_acknowledged(self):
        self.assertEqual(judged(record_of(1, 2, 3), [1, 2, 3, 4]), (0, True))
        self.assertEqual(judged(record_of(1, 2, 3), [1]), (2, True))
        self.assertEqual(judged(record_of(1, 2, 3), [1, 3]), (1, False))
        self.assertEqual(judged(record_of(1, 2, 3), []), (3, True))
        self.assertEqual(judged(record_of(1), None), (None, False))

    def test_twice_is_no_prefix(self):
        self.assertEqual(judged(record_of(1, 2), [1, 2, 2]), (0, False))

    def test_enough_is_enough_of_each(self):
        self.assertTrue(is_enough({"other": 500, "redis": 100, "sqlite": 100}))
        self.assertFalse(is_enough({"other": 500, "redis": 100, "sqlite": 99}))
        self.assertFalse(is_enough({"other": 1, "redis": 100, "sqlite": 100}))


class Tell(unittest.TestCase):
    def loss(self, name: str, database: str, is_mounted: bool, missing: int | None, is_prefix: bool = True, is_mended: bool = False) -> Loss:
        return Loss(name, "cut", database, is_mounted, name == WRITECACHE_SSD.name, 120, missing, is_prefix, is_mended, "")

    def test_losses_are_told_apart(self):
        rows = [
            *(self.loss(BCACHE.name, database, False, None) for database in report.NAMES),
            self.loss(WRITECACHE_SSD.name, "redis", True, 100),
            self.loss(WRITECACHE_SSD.name, "postgres", True, None),
            self.loss(WRITECACHE_SSD.name, "sqlite", True, 3, is_prefix=False),
            *(self.loss(FOREBAY_PMEM.name, database, True, 0, is_mended=True) for database in report.NAMES),
        ]
        lines = report.loss_table(rows).splitlines()
        self.assertEqual(lines[2], f"| {WRITECACHE_SSD.title} | cut | 1 | damaged, repaired | 100 of 120 lost | does not start | 3 of 120 lost, with holes | – |")
        self.assertEqual(lines[3], f"| {BCACHE.title} | cut | 1 | gone | gone | gone | gone | gone |")
        self.assertEqual(lines[4], f"| {FOREBAY_PMEM.title} | cut | 1 | whole | all 120, repaired | all 120, repaired | all 120, repaired | all 120, repaired |")

    def test_lines_of_json_are_the_same_rows(self):
        rows = [*speed.parsed(PLAIN, "drive", COUNTS, SAID), self.loss(BCACHE.name, "redis", False, None)]
        lines = "\n".join(json.dumps(dataclasses.asdict(row)) for row in rows)
        self.assertEqual(report.rows_of(f"{lines}\n{lines}"), [*rows, rows[-1]])

    def test_the_worst_of_several_trials_is_told(self):
        missing = [self.loss(BCACHE.name, "redis", True, count) for count in (3, 7, 5)]
        self.assertIn("| cut | 3 | whole | 7 of 120 lost | – | – | – |", report.loss_table(missing))
        self.assertIn("| cut | 4 | gone | gone | – | – | – |", report.loss_table([*missing, self.loss(BCACHE.name, "redis", False, None)]))

    def test_figures_of_some_databases_alone_are_a_table(self):
        figures = speed.parsed(PLAIN, "drive", COUNTS, SAID)
        rates, waits, sizes = (text.splitlines() for text in report.speed_tables(figures))
        self.assertEqual(rates[0], "| drive: writes a second | Redis, 1 | Redis, 8 | SQLite |")
        self.assertEqual(rates[2], f"| {PLAIN.title} | 1,002 | 4,000 | 1,200 |")
        self.assertEqual(waits[2].split(" | ")[1], "0.88, 2.31")
        self.assertEqual(sizes[2].split(" | ")[3], "100, 500 |")


if __name__ == "__main__":
    unittest.main()
