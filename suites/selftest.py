"""The runner's own tests: `python3 -m unittest suites.selftest`, a part of `make test`."""

import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time
import unittest

from . import processes
from .cuts import appends, database, definitions, mariadb, worker
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

    def test_the_page_keeps_what_is_said_of_suites_that_have_no_result(self):
        old = [Result("r", "of r", [Case("c", ["a"], ["a"])], notes=["kept"]), Result("s", "", [Case("c", ["a"], ["b"])], notes=["dropped"])]
        earlier = to_markdown(old, {})
        page = to_markdown([Result("s", "", [Case("c", ["a"], ["a"])])], {}, earlier, ["s", "r", "t"])
        self.assertIn("\n* kept\n", page)
        self.assertNotIn("dropped", page)
        self.assertLess(page.index("| s |"), page.index("| r | of r | 1 | 1 |"))
        self.assertEqual(to_markdown(old, {}, earlier, ["r", "s"]), earlier)


class Counting(unittest.TestCase):
    def test_absorbed_writes_are_summed_over_each_programs_table(self):
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


class Definitions(unittest.TestCase):
    WAS = {"table d.a": "a INT", "view d.v": "select 1", "rows of d.a": "3"}

    def test_what_is_as_it_was_acknowledged_differs_in_nothing(self):
        self.assertEqual(definitions.differences(self.WAS, dict(reversed(self.WAS.items()))), [])

    def test_lost_changed_stray_and_unreadable_definitions_are_found(self):
        without = {name: said for name, said in self.WAS.items() if name != "view d.v"}
        error = "ERROR 1146 (42S02) at line 2: Table 'd.a' doesn't exist"
        for now, found in (
            (without, "view d.v is gone"),
            ({**self.WAS, "table d.a": "b INT"}, "table d.a: acknowledged as 'a INT', now 'b INT'"),
            ({**self.WAS, "table d.b": "c INT"}, "table d.b is there, which no statement left"),
            ({**self.WAS, "table d.a": error}, "table d.a: acknowledged as 'a INT', now"),
        ):
            wrong = definitions.differences(self.WAS, now)
            self.assertEqual(len(wrong), 1)
            self.assertIn(found, wrong[0])
        # An error is none the less one because it was there before.
        self.assertEqual(len(definitions.differences({"table d.a": error}, {"table d.a": error})), 1)

    def test_statements_drop_what_is_there_and_create_what_is_not(self):
        changes, there = definitions.SchemaChanges(random.Random(1)), {"innodb0", "aria0", "e0"}
        kinds = set()
        for _ in range(1000):
            statement = changes.next()
            kinds.add(re.sub(r"\d+", "", statement))
            if made := re.match(r"(CREATE|DROP) (?:TABLE|DATABASE|USER) (?:d\.)?(\w+)", statement):
                self.assertEqual(made[2] in there, made[1] == "DROP", statement)
                there ^= {made[2]}
        self.assertGreaterEqual(len(kinds), len(definitions.KINDS))

    def test_each_statement_has_its_answer_and_an_ended_server_none(self):
        said = f"{mariadb.ANSWER}0\n1\ta\n2\tb\n{mariadb.ANSWER}1\nERROR 1146 at line 4\n{mariadb.ANSWER}2\n"
        self.assertEqual(mariadb.answers_in(said, 4), ["1\ta\n2\tb", "ERROR 1146 at line 4", "", mariadb.NO_ANSWER])


class AppendedRecords(unittest.TestCase):
    def test_a_lost_a_zeroed_and_a_changed_record_are_each_found(self):
        with tempfile.TemporaryDirectory() as home:
            log = pathlib.Path(home) / "a.log"
            length, _ = appends.shape("seed")
            whole = b"".join(appends.record("seed", number) for number in range(5))
            log.write_bytes(whole)
            self.assertEqual(appends.faults(log, "seed", 4), [])
            # What is behind the last acknowledged record is nobody's business.
            self.assertEqual(appends.faults(log, "seed", 2), [])
            self.assertIn("1 of 6 acknowledged records", appends.faults(log, "seed", 5)[0])
            for bytes_there, found in ((bytes(length), "zeros"), (b"x" * length, "other bytes")):
                log.write_bytes(whole[:length] + bytes_there + whole[2 * length :])
                self.assertIn(found, appends.faults(log, "seed", 4)[0])
            log.unlink()
            self.assertIn("not there", appends.faults(log, "seed", 4)[0])


if __name__ == "__main__":
    unittest.main()
