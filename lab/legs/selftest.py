"""The lab's own tests: `python3 -m unittest lab.legs.selftest`, a part of `make test`."""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

from lab.systemd.lives import WriteRecord

from . import scenes, speed
from .commits import log
from .databases import PROGRAMS, as_user
from .epoch import LegsEpoch

HERE = pathlib.Path(__file__).parent


class FakeLeg:
    """A leg of which only its loss is asked."""

    def __init__(self, url: str, is_lost: bool):
        self.url, self.is_lost = url, is_lost

    def fault(self) -> str:
        return ""


def recovering(answers: dict[tuple[str, ...], tuple[int, str]], legs: list[FakeLeg]) -> LegsEpoch:
    """An epoch whose `forebay recover` answers so."""
    epoch = object.__new__(LegsEpoch)
    epoch.legs, epoch.pool, epoch.rng = legs, pathlib.Path("p"), random.Random(1)
    epoch.record, epoch.program = WriteRecord(), PROGRAMS[1]
    epoch.forebay = lambda *words: answers[words[3:]]
    return epoch


class Recoveries(unittest.TestCase):
    def test_a_leg_is_given_up_only_if_its_memory_is_gone(self):
        refusal = (1, "nbd://b has newer records perhaps: --lost-leg")
        answers = {(): refusal, ("--lost-leg", "nbd://b"): (0, "")}
        lost = recovering(answers, [FakeLeg("nbd://b", True), FakeLeg("nbd://c", False)])
        self.assertEqual(lost.recover(first=True), "nbd://b")
        kept = recovering(answers, [FakeLeg("nbd://b", False), FakeLeg("nbd://c", True)])
        with self.assertRaisesRegex(Exception, "called lost that is not"):
            kept.recover(first=True)

    def test_a_recovery_that_is_refused_is_a_failure(self):
        with self.assertRaisesRegex(Exception, "not recovered: changed since"):
            recovering({(): (1, "changed since")}, [FakeLeg("nbd://b", False)]).recover(first=True)


class Scenes(unittest.TestCase):
    def test_each_scene_says_what_it_is(self):
        for name, scene in scenes.SCENES.items():
            self.assertTrue(scene.__doc__, name)

    def test_every_moment_is_one_of_the_code(self):
        code = (HERE.parent.parent / "crates/pool/src/legs").glob("*.rs")
        text = "".join(path.read_text() for path in code)
        for moment in scenes.MOMENTS:
            self.assertIn(f'"{moment}"', text)


class Figures(unittest.TestCase):
    def test_times_of_commits_are_printed(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = str(pathlib.Path(scratch, "log"))
            said = subprocess.run([sys.executable, str(HERE / "commits.py"), "log", path, "10", "20"], capture_output=True, text=True, check=True)
            self.assertGreater(json.loads(said.stdout)["p99_us"], 0.0)
            self.assertEqual(pathlib.Path(path).stat().st_size, 200)
            self.assertEqual(len(log(path, 10, 5)), 5)
        self.assertIn("99 %: 3 µs", speed.percentiles('{"p50_us": 2.0, "p99_us": 3.0}'))

    def test_rates_are_of_databases_that_are_tried(self):
        self.assertLessEqual(set(speed.RATES), set(PROGRAMS))
        self.assertEqual(as_user(0, ["x"]), ["x"])
        self.assertEqual(as_user(7, ["x"])[-1], "x")


if __name__ == "__main__":
    unittest.main()
