"""What each program goes through: killed, its supervisor killed, both, and cut off, while it is written to.

Promise (programs): ZooKeeper, RabbitMQ, BookKeeper, OpenSearch, Tarantool, Valkey with a module,
Firebird, WiredTiger, DuckDB, Derby, Berkeley DB, and SQLite inside Python, Java or Node.js have
every acknowledged write after kills and cuts.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import time

from lab.systemd.lives import WriteRecord
from suites import processes
from suites.cuts.epoch import CutEpoch
from suites.place import create_pool, with_failpoints

from .program import Home, Program
from .session import Failure, Running

FOREBAY, PLAIN, EATMYDATA = "forebay", "plain", "eatmydata"
KILLS = ("program", "supervisor", "all")
CUT = "cut"
# What a session is told to write: it is killed long before.
MANY = 1_000_000
FIRST_WRITE_LIMIT_S = 30.0


def steps(variant: str, rounds: int) -> list[str]:
    """How each round of a variant ends."""
    kinds = {FOREBAY: [*KILLS, CUT, CUT], PLAIN: ["program", CUT], EATMYDATA: [CUT]}[variant]
    return [kinds[number % len(kinds)] for number in range(max(rounds, len(kinds)))]


def eatmydata() -> str:
    return f"/usr/lib/{os.uname().machine}-linux-gnu/libeatmydata.so"


def before_program(variant: str, forebay: str, pool: pathlib.Path, program: Program) -> tuple[list[str], dict[str, str]]:
    """The words before a program in that variant, and what its environment has besides."""
    if variant == FOREBAY:
        return [forebay, "run", "--pool", str(pool), *program.options, "--"], {}
    return [], {"LD_PRELOAD": eatmydata()} if variant == EATMYDATA else {}


class ProgramEpoch(CutEpoch):
    """A program on a disk that is cut, with all its rounds."""

    def __init__(self, program: Program, variant: str, home: pathlib.Path, rng: random.Random):
        super().__init__(home, rng)
        self.program, self.variant = program, variant
        self.record = WriteRecord()
        self.saved = 0
        try:
            self.add_disk("data", "ext4")
            data = self.disks[0].mounted / "data"
            data.mkdir()
            beside = home / "beside"
            beside.mkdir()
            self.place = Home(data, beside, has_small_logs=True)
            if variant == FOREBAY:
                create_pool(self.pool, size="64MiB", segment="1MiB", lanes=8)
        except BaseException:
            self.close()
            raise

    def start(self) -> Running:
        front, env = before_program(self.variant, with_failpoints(), self.pool, self.program)
        return Running(self.program, self.place, front, self._env() | env, self.said)

    def check(self, running: Running) -> None:
        """All that was acknowledged is there, each once."""
        found = running.sessions[0].numbers()
        if fault := self.record.fault(found):
            raise Failure(fault)
        self.record.next = max([self.record.next, *(number + 1 for number in found)])

    def round(self, how: str) -> None:
        """Starts, checks, writes, and ends that way amid writes."""
        running = self.start()
        self.check(running)
        if self.variant == EATMYDATA or not (self.program.is_made_durably or self.record.acknowledged):
            # What is written from now on may be lost, and not the whole database.
            self.disks[0].write_back()
        before = len(self.record.acknowledged)
        running.sessions[0].begin_writing(self.record.next, MANY)
        self._wait_first(running)
        time.sleep(self.rng.uniform(0.1, 1.0))
        if self.variant == FOREBAY:
            self._check_absorbed()
        self._end(running, how)
        self.record.acknowledged |= running.acknowledged
        self.acknowledged = len(self.record.acknowledged) - before
        self.record.next = max(self.record.acknowledged) + 1

    def _wait_first(self, running: Running) -> None:
        deadline = time.monotonic() + FIRST_WRITE_LIMIT_S
        while not running.acknowledged:
            if time.monotonic() > deadline or running.process.poll() is not None:
                raise Failure(f"nothing is acknowledged: {running.last_words()}")
            time.sleep(0.01)

    def _ask(self, *words: str) -> str:
        """What `forebay` says to that, in this boot."""
        done = subprocess.run([with_failpoints(), *words], capture_output=True, text=True, env={**os.environ, **self._env()}, timeout=60)
        if done.returncode != 0:
            raise Failure(f"forebay {' '.join(words)}: {done.stderr}")
        return done.stdout

    def _check_absorbed(self) -> None:
        """What is to be absorbed of it is, and nothing else."""
        said = self._ask("status", "--json")
        runs = json.loads(said)
        files = [file for run in runs for file in run["files"] if file["syncs"] > 0]
        if len(runs) != 1 or runs[0]["degraded"]:
            raise Failure(f"no run that absorbs: {said}")
        mine = [file for file in files if self.program.absorbed and self.program.absorbed in file["path"]]
        if len(mine) != len(files) or bool(self.program.absorbed) != bool(mine):
            raise Failure(f"absorbed is something else than {self.program.absorbed}: {[file['path'] for file in files]}")
        self.saved += sum(file["syncs"] for file in mine)

    def _end(self, running: Running, how: str) -> None:
        if how == CUT:
            self._cut()
            self.counted += 1
        elif how == "all":
            processes.pause(processes.descendants())
        elif how == "supervisor":
            running.kill([running.process.pid])
            # It goes on by itself for a while, plainly or not at all.
            time.sleep(self.rng.uniform(0.0, 0.5))
        elif self.variant == FOREBAY:
            running.kill(processes.descendants(running.process.pid))
            self._wait_end(running)
        else:
            running.kill([running.process.pid])
        running.stop()

    def _wait_end(self, running: Running) -> None:
        """Forebay brings home what its program left behind."""
        try:
            running.process.wait(60)
        except subprocess.TimeoutExpired:
            raise Failure(f"forebay does not end after its program: {running.last_words()}") from None

    def last_check(self) -> None:
        """After all rounds: ends it in the orderly way, and it has all without Forebay."""
        running = self.start()
        self.check(running)
        running.end()
        if self.variant != FOREBAY:
            return
        said = self._ask("pool", "status", str(self.pool), "--json")
        if json.loads(said)["owners"]:
            raise Failure(f"the pool holds something after an orderly end: {said}")
        self.variant = PLAIN
        running = self.start()
        self.check(running)
        running.end()
