"""The lab's own tests: `python3 -m unittest lab.programs.selftest`, a part of `make test`."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

from lab.systemd.lives import WriteRecord

from . import life, speed
from .program import PROGRAMS, SESSIONS, Home, Program
from .session import Failure, Running, Session

# A program that keeps numbers in memory, and forgets those that divide by seven.
FORGETFUL = f"""
import sys
sys.path.insert(0, {str(SESSIONS)!r})
import protocol
class Store:
    kept = []
    def write(self, number):
        self.kept.append(number)
    def numbers(self):
        return [number for number in self.kept if number % 7]
protocol.serve(Store())
"""


def session_of(script: str) -> Session:
    return Session(subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))


class Sessions(unittest.TestCase):
    def test_a_line_that_a_kill_cut_off_acknowledges_nothing(self):
        session = session_of("print('ready'); print('ack 41'); print('ack 4', end='')")
        session.wait_ready()
        session.process.wait()
        session.end()
        session.reader.join()
        self.assertEqual(list(session.acknowledged), [41])
        session.process.stdout.close()

    def test_a_session_that_ends_instead_of_answering_is_a_failure(self):
        session = session_of("raise SystemExit(3)")
        with self.assertRaisesRegex(Failure, "status 3"):
            session.wait_ready()
        session.end()
        session.reader.join()
        session.process.stdout.close()

    def test_what_was_acknowledged_and_is_gone_is_called_lost(self):
        program = Program("forgetful", None, (), lambda home: [sys.executable, "-c", FORGETFUL])
        with tempfile.TemporaryDirectory() as scratch:
            home = pathlib.Path(scratch)
            running = Running(program, Home(home, home), [], {}, home / "said")
            running.sessions[0].begin_writing(1, 10)
            epoch = object.__new__(life.ProgramEpoch)
            epoch.record = WriteRecord()
            epoch.record.acknowledged = set(range(1, 7))
            epoch.check(running)
            self.assertEqual(epoch.record.next, 11)
            epoch.record.acknowledged.add(7)
            with self.assertRaisesRegex(Failure, r"1 of 7 acknowledged writes are LOST: \[7\]"):
                epoch.check(running)
            self.assertEqual(running.acknowledged, set(range(1, 11)))
            running.sessions[0].end()
            running.sessions[0].process.stdout.close()


class Rounds(unittest.TestCase):
    def test_few_rounds_have_every_kill_and_a_cut(self):
        for variant in (life.FOREBAY, life.PLAIN, life.EATMYDATA):
            self.assertIn(life.CUT, life.steps(variant, 1))
        self.assertLessEqual({*life.KILLS, life.CUT}, set(life.steps(life.FOREBAY, 1)))
        self.assertEqual(len(life.steps(life.FOREBAY, 20)), 20)

    def test_no_two_programs_have_one_name(self):
        self.assertEqual(len({program.name for program in PROGRAMS}), len(PROGRAMS))


class Speed(unittest.TestCase):
    def test_the_table_has_medians_and_ratios(self):
        rates = {"p": {"plain": [1, 100, 200], "eatmydata": [400.0], "forebay": [300.0]}}
        self.assertIn("| p | 100 | 400 | 300 | 3.00 | 0.75 |", speed.table(rates, speed.Load()))


if __name__ == "__main__":
    unittest.main()
