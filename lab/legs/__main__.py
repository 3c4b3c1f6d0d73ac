"""Loses machines, legs and networks at random under databases whose pool is in other machines' memory; `make test-legs` does it."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

from lab.programs.session import Failure
from suites import processes
from suites.cuts.disk import why_not
from suites.place import ROOT, has_failpoints, target, with_failpoints

from . import controls, scenes, speed, takeover
from .databases import PROGRAMS
from .epoch import LegsEpoch, ServerDied
from .network import Network, enter

# Rounds on one volume: what is looked for grows with them.
ROUNDS_OF_EPOCH = 8


def main() -> int:
    names = [program.name for program in PROGRAMS]
    parser = argparse.ArgumentParser(prog="python3 -m lab.legs", description=__doc__)
    parser.add_argument("--only", action="append", choices=names, help="this database (may be given several times)")
    parser.add_argument("--rounds", type=int, default=12, help="of all databases together (default: 12)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin behind so many: with the first of an epoch its rounds are played again")
    parser.add_argument("--scene", action="append", choices=sorted(scenes.SCENES), help="only this scene (may be given several times)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--trial", action="append", default=[], metavar="TEXT", help="of controls and takeovers only those that have this in their name")
    parser.add_argument("--quick", action="store_true", help="of the takeovers only two, which --seed chooses")
    parser.add_argument("--no-controls", action="store_true", help="without those that must lose")
    parser.add_argument("--no-takeovers", action="store_true", help="without those of machines that are alive")
    parser.add_argument("--speed", action="store_true", help="measure instead")
    parser.add_argument("--measure", action="append", choices=["commits", "databases"], help="only these (default: all)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (default: 10)")
    parser.add_argument("--round-trip", type=int, default=100, metavar="US", help="what legs answer takes so much longer in measurements (default: 100)")
    parser.add_argument("--results", type=pathlib.Path, help="add a line of JSON for each round to this file")
    parser.add_argument("--keep", type=pathlib.Path, help="copy what was said in a round that failed to this directory")
    options = parser.parse_args()
    if why := why_not():
        parser.error(why)
    chosen = [program for program in PROGRAMS if program.name in (options.only or names)]
    for program in chosen:
        if lacking := [*program.lacking(), *(name for name in ("nbdkit", "nft", "ip", "openssl") if not shutil.which(name))]:
            parser.error(f"{program.name}: {', '.join(lacking)} is not there: scripts/setup.sh test-legs")
    if not options.speed and not has_failpoints(with_failpoints()):
        parser.error(f"{with_failpoints()} cannot be told to wait less for the dead: make failpoints")
    enter([sys.executable, "-m", "lab.legs", *sys.argv[1:], *([] if "--seed" in sys.argv else ["--seed", str(options.seed)])])
    processes.adopt_orphans()
    # What is measured is a disk.
    above = target().resolve() if options.speed else pathlib.Path("/dev/shm")
    home = pathlib.Path(tempfile.mkdtemp(prefix="legs-", dir=above))
    home.chmod(0o755)
    try:
        if options.speed:
            print(speed.measure(Network(home, options.round_trip), home, options.round_trip, options.seconds, options.measure or ["commits", "databases"]))
            return 0
        return Trials(options, chosen, home).run()
    finally:
        processes.stop_all()
        shutil.rmtree(home, ignore_errors=True)


class Trials:
    """All that was asked for, and what became of it."""

    def __init__(self, options: argparse.Namespace, programs: list, home: pathlib.Path):
        self.options, self.programs, self.home = options, programs, home
        self.passed = self.failed = self.acknowledged = 0
        # Each database has its share of few rounds, too.
        self.rounds_of_epoch = max(1, min(ROUNDS_OF_EPOCH, options.rounds // len(programs)))
        self.network = Network(home)

    def run(self) -> int:
        processes.say(f"legs: seed {self.options.seed}")
        if not self.options.no_controls:
            for name, control in controls.CONTROLS.items():
                self._trial(f"control {name}", control)
        if not self.options.no_takeovers:
            chosen = random.Random(self.options.seed).sample(sorted(takeover.TRIALS), 2) if self.options.quick else list(takeover.TRIALS)
            for name in chosen:
                self._trial(f"takeover {name}", takeover.TRIALS[name])
        if not self.options.quick and not self.options.no_takeovers:
            for database in ("redis", "postgres"):
                self._trial(f"example {database}", lambda *_, database=database: example(database))
        number = self.options.first
        while number < self.options.first + self.options.rounds:
            number += self._rounds(number)
        print(f"{self.passed} passed, {self.failed} failed; {self.acknowledged:,} acknowledged writes; seed {self.options.seed}")
        return 1 if self.failed else 0

    def _note(self, what: str, began: float, fault: str, **more: object) -> None:
        self.passed, self.failed = self.passed + (not fault), self.failed + bool(fault)
        seconds = time.monotonic() - began
        shown = "".join(f", {name} {value}" for name, value in more.items())
        processes.say(f"{what}{shown}, {seconds:.1f} s" + (f": FAILED: {fault}" if fault else ""))
        if self.options.results:
            line = {"seed": self.options.seed, "what": what, **more, "seconds": round(seconds, 2), "fault": fault}
            with open(self.options.results, "a", encoding="utf-8") as results:
                results.write(json.dumps(line) + "\n")

    def _epoch_home(self) -> pathlib.Path:
        return pathlib.Path(tempfile.mkdtemp(prefix="epoch-", dir=self.home))

    def _trial(self, what: str, trial) -> None:
        """One that makes an epoch of its own, and says what is wrong."""
        if self.options.trial and not any(text in what for text in self.options.trial):
            return
        began, home = time.monotonic(), self._epoch_home()
        rng = random.Random(f"{self.options.seed} {what}")
        try:
            fault = trial(self.network, home, rng)
        except Failure as failure:
            fault = str(failure)
        except ServerDied as died:
            processes.say(f"{what}: again: {died}")
            shutil.rmtree(home, ignore_errors=True)
            return self._trial(what, trial)
        self._note(what, began, fault)
        self._keep(home, fault, what)

    def _keep(self, home: pathlib.Path, fault: str, what: str) -> None:
        # Of several tries the last one.
        home = max(home.glob("try-*"), default=home)
        if fault and self.options.keep and (home / "said").exists():
            self.options.keep.mkdir(parents=True, exist_ok=True)
            kept = self.options.keep / f"{self.options.seed}-{what.replace(' ', '-')}"
            shutil.copy(home / "said", kept.with_suffix(".said"))
            if (home / "disk").exists():
                subprocess.run(["cp", "--sparse=always", home / "disk", kept.with_suffix(".volume")], check=False)
        shutil.rmtree(home, ignore_errors=True)

    def _rounds(self, first: int) -> int:
        """Rounds of one epoch, until one fails: how many."""
        rng = random.Random(f"{self.options.seed} {first}")
        program = self.programs[first // self.rounds_of_epoch % len(self.programs)]
        home = self._epoch_home()
        epoch = LegsEpoch(program, self.network, home, rng)
        done, fault = 0, ""
        try:
            while done < self.rounds_of_epoch and first + done < self.options.first + self.options.rounds and not fault:
                scene = rng.choice(self.options.scene or list(scenes.SCENES))
                end, began, noted = rng.choice(scenes.ENDS), time.monotonic(), 0
                try:
                    noted = scenes.play(epoch, scene, end)
                    epoch.check_servers()
                except Failure as failure:
                    fault = str(failure)
                    # Otherwise it is not the scene's.
                    epoch.check_servers()
                done += 1
                self.acknowledged += noted
                played = {"program": program.name, "scene": scene, "end": end, "here": epoch.here.name, "tls": epoch.tls.query.split("=")[0] if epoch.tls else "none"}
                self._note(f"round {first + done}", began, fault, **played, acknowledged=noted)
            if not fault:
                began = time.monotonic()
                try:
                    epoch.start()
                    epoch.check()
                except Failure as failure:
                    fault = str(failure)
                    self._note(f"after round {first + done}", began, fault, program=program.name)
        except ServerDied as died:
            processes.say(f"round {first + done + 1} does not count, nor does its epoch go on: {died}")
            fault, done = "", done or 1
        finally:
            epoch.close()
            self._keep(home, fault, f"round {first + done}")
        return done


def example(database: str) -> str:
    """What is wrong with examples/outlive: nothing that it acknowledged may be missing."""
    env = {**os.environ, "DATABASE": database, "FOREBAY": with_failpoints()}
    done = subprocess.run([str(ROOT / "examples/outlive/run.sh")], capture_output=True, text=True, env=env, timeout=300, stdin=subprocess.DEVNULL)
    found = re.search(r"acknowledged +(\d+)\nmissing +0\n", done.stdout)
    return "" if done.returncode == 0 and found and int(found[1]) > 0 else f"status {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}"


if __name__ == "__main__":
    sys.exit(main())
