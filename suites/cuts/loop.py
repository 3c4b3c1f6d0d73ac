"""Rounds of writing, killing, cutting, recovering and looking.

Promise (processes): Several processes on one SQLite database, in one run, in two and beside plain
ones, leave it sound with every acknowledged transaction, whatever is killed and cut.
Promise: as `an_outsiders_bytes_survive_by_any_name_and_mount_namespace`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import select
import shutil
import signal
import subprocess
import time
import uuid

from .. import processes
from ..place import create_pool, forebay
from . import database, rounds, worker
from .disk import Disk

NAME = "cuts"
ABOUT = "several processes on one SQLite database; killed, the file system shut down, recovered in another boot"
# Rounds on one database: what a recovery left is written on, by the next round's processes, in the next boot.
ROUNDS_OF_ONE_DATABASE = 8
START_LIMIT_S = 60.0
PAUSE_LIMIT_S = 5.0
# After which a round ends that has not written as many transactions as it was to; where one was killed, the others may wait for long.
WRITE_LIMIT_S = 5.0


@dataclasses.dataclass(frozen=True)
class Variant(rounds.Variant):
    """Who writes. A group is what one `forebay run` (or nothing, for a plain one) starts: a number of workers."""

    # Workers of each run under Forebay, by choice. Of several that open the log for writing in one run none may absorb it.
    runs: tuple[tuple[int, ...], ...]
    # Workers beside them.
    plain: int


VARIANTS = [
    Variant("one run", runs=((2, 3),), plain=0),
    Variant("two runs", runs=((1, 2), (1,)), plain=0),
    Variant("plain beside a run", runs=((1, 1, 2),), plain=1),
    Variant("plain", runs=(), plain=2, share=0.2),
    Variant("plain, nothing synced", runs=(), plain=2, must_lose=True, share=0.05),
]


LOOP = rounds.Loop(
    NAME,
    ABOUT,
    VARIANTS,
    lambda variant, home, seed, first: Epoch(variant, home, seed, first),
    lambda _, tally: f"{tally.done} cuts, {tally.bad}, {tally.acknowledged:,} transactions acknowledged, {tally.counted} recoveries with anything to do",
    "ext4 and XFS, journal modes WAL and DELETE",
    ROUNDS_OF_ONE_DATABASE,
    lacking=lambda: [tool for tool in ("mkfs.xfs", "mkfs.ext4", "unshare", "mount") if shutil.which(tool) is None],
)


class Epoch:
    """A disk, its database, and the pools; some rounds on them."""

    def __init__(self, variant: Variant, home: pathlib.Path, seed: int, first: int):
        self.variant, self.home, self.seed = variant, home, seed
        rng = random.Random(f"{seed} {variant.name} {first}")
        self.kind = rng.choice(["ext4", "xfs"])
        self.mode = rng.choice(["wal", "delete"])
        shared_pool = rng.random() < 0.5
        # Small segments turn often, large ones keep old records.
        segment, size = rng.choice([("64KiB", "4MiB"), ("1MiB", "24MiB")])
        self.about = f"{self.kind}, {self.mode}, segments of {segment}" + (", a shared pool" if shared_pool and len(variant.runs) > 1 else "")
        self.disk = Disk(home, self.kind)
        self.database = self.disk.mounted / "a.db"
        self.boot = uuid.uuid4()
        self.pools = [home / "pool-0" if shared_pool else home / f"pool-{number}" for number in range(len(variant.runs))]
        self.ledger: dict[str, int] = {}
        self.acknowledged = 0
        # Recoveries with anything to do.
        self.counted = 0
        self.errors: list[str] = []
        self.is_cut = False
        self.heard: set[str] = set()
        self.recovered: list[str] = []
        try:
            for pool in set(self.pools):
                create_pool(pool, size=size, segment=segment, lanes=16)
            counts = (*(rng.choice(run) for run in variant.runs), variant.plain)
            self.names = [[f"w{group}{member}" for member in range(count)] for group, count in enumerate(counts)]
            database.create(self.database, self.mode, [name for group in self.names for name in group])
            self.disk.write_back()
        except BaseException:
            self.disk.close()
            raise

    def close(self) -> None:
        self.disk.close()

    def round(self, number: int) -> list[str]:
        """Writes, kills, cuts, recovers: what is wrong then."""
        rng = random.Random(f"{self.seed} {self.variant.name} {number} round")
        self.errors, self.recovered, self.heard, self.acknowledged = [], [], set(), 0
        self.is_cut = False
        group = Group(self.home / "errors")
        try:
            commands = [
                (names, self._in_this_boot(self._run_command(pool, self._workers(names, number)))) for pool, names in zip(self.pools, self.names)
            ]
            if self.variant.plain:
                commands.append((self.names[-1], self._workers(self.names[-1], number)))
            self._start(group, commands, rng)
            self._write(group, rng)
            # Now and then the device goes away under the living: what they are told fails from then on is their business. Not in the middle of a
            # sync: one that the shutdown overtakes may return 0, on XFS and ext4, and what it was to sync is gone; so it is without Forebay.
            if rng.random() < 0.25:
                self._read(group, 0.0)
                paused = group.pause()
                self.disk.cut()
                self.is_cut = True
                group.go_on(paused)
                self._wait(group, rng.uniform(0.0, 0.2))
        finally:
            group.kill()
        if not self.is_cut:
            self.disk.cut()
        self._read(group, 0.0, to_the_end=True)
        self.disk.mount_again()
        self.boot = uuid.uuid4()
        pools = sorted(set(self.pools))
        rng.shuffle(pools)
        refused = [why for pool in pools if (why := self._recover(pool))]
        self.counted += any("nothing to recover" not in said for said in self.recovered)
        return self.errors + refused + database.faults(self.database, self.ledger)

    def _start(self, group: Group, commands: list[tuple[list[str], list[str]]], rng: random.Random) -> None:
        """Starts them in any order, all at once or each when those before it are at work; returns when all are."""
        rng.shuffle(commands)
        one_by_one = rng.random() < 0.6
        wanted: set[str] = set()
        for names, command in commands:
            group.start(command)
            wanted |= set(names)
            if one_by_one:
                self._hear(group, wanted)
        self._hear(group, wanted)

    def _hear(self, group: Group, wanted: set[str]) -> None:
        """Waits until each of these writers has committed something in this round."""
        deadline = time.monotonic() + START_LIMIT_S
        while not wanted <= self.heard and time.monotonic() < deadline and not self.errors:
            self._read(group, 0.05)
        if not wanted <= self.heard and not self.errors:
            self.errors.append(f"{sorted(wanted - self.heard)} committed nothing in {START_LIMIT_S:.0f} s")

    def _write(self, group: Group, rng: random.Random) -> None:
        """Lets them write some transactions; meanwhile the kernel writes back, or one of the processes is killed before the others."""
        begun, number = self.acknowledged, rng.randint(2, 250)
        write_back_at = rng.randint(0, number) if rng.random() < 0.3 else None
        kill_at = rng.randint(0, number) if rng.random() < 0.25 else None
        deadline = time.monotonic() + WRITE_LIMIT_S
        while (done := self.acknowledged - begun) < number and time.monotonic() < deadline and not self.errors:
            if write_back_at is not None and done >= write_back_at:
                self.disk.write_back()
                write_back_at = None
            if kill_at is not None and done >= kill_at:
                group.kill_one(rng)
                kill_at = None
            self._read(group, 0.01)

    def _wait(self, group: Group, seconds: float) -> None:
        """Lets them go on for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._read(group, 0.01)

    def _read(self, group: Group, wait_s: float, to_the_end: bool = False) -> None:
        """Enters into the ledger what was acknowledged, and the writers that were heard of."""
        for line in group.lines(wait_s, to_the_end):
            kind, _, rest = line.partition(" ")
            if kind == "ack":
                name, seq = rest.split()
                self.ledger[name] = max(self.ledger.get(name, 0), int(seq))
                self.acknowledged += 1
                self.heard.add(name)
            elif kind == "error" and not self.is_cut:
                self.errors.append(f"a writer failed: {rest}")

    def _workers(self, names: list[str], number: int) -> list[str]:
        script = str(pathlib.Path(worker.__file__))
        extra = "OFF" if self.variant.must_lose else worker.SYNCHRONOUS[self.mode]
        each = " & ".join(f'"$@" {name} {self.seed}-{number}-{name} {extra}' for name in names)
        return ["sh", "-c", f"{each} & wait", "sh", "/usr/bin/python3", script, str(self.database), self.mode]

    def _run_command(self, pool: pathlib.Path, argv: list[str]) -> list[str]:
        return [forebay(), "run", "--pool", str(pool), "--profile", "sqlite", "--", *argv]

    def _in_this_boot(self, argv: list[str]) -> list[str]:
        """The program in a mount namespace with the boot id of the time."""
        path = self.home / f"boot-{self.boot}"
        path.write_text(f"{self.boot}\n")
        script = 'mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, "sh", str(path), *argv]

    def _recover(self, pool: pathlib.Path) -> str | None:
        """Recovers a pool. Why that was refused, if for another reason than that the pool is emulated (it only plays persistent memory)."""
        command = self._in_this_boot([forebay(), "recover", "--pool", str(pool)])
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0 and "emulated" in done.stdout + done.stderr:
            self.recovered.append(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}")
            command.append("--force")
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.recovered.append(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}")
        if done.returncode == 0:
            return None
        return f"recover {pool.name}: status {done.returncode}: {' '.join((done.stdout + done.stderr).split())}"

    def keep(self, to: pathlib.Path, faults: list[str]) -> None:
        """Copies what is there, for who looks for the reason."""
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        for path in [*set(self.pools), self.home / "errors", *self.disk.mounted.glob("a.db*")]:
            if path.exists():
                shutil.copy2(path, to)
        text = {"about": self.about, "faults": faults, "acknowledged": self.ledger, "recovery": self.recovered}
        (to / "round.json").write_text(json.dumps(text, indent=1))


def _read_proc(pid: int, name: str) -> bytes:
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


class Group:
    """The processes of a round: one process group, so that one signal ends all of them at once; one pipe, which is the ledger."""

    def __init__(self, errors: pathlib.Path) -> None:
        # What they say on standard error, in the end of the file for each round.
        self.errors = open(errors, "ab")
        self.ledger, self.ledger_in = os.pipe()
        self.started: list[subprocess.Popen] = []
        self.rest = b""

    def start(self, argv: list[str]) -> None:
        leader = self.started[0].pid if self.started else 0
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.ledger_in, stderr=self.errors, process_group=leader)
        self.started.append(child)

    def members(self) -> list[int]:
        """All processes of the group but the leader, which keeps the group's number."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                if int(fields[2]) == self.started[0].pid and int(entry.name) != self.started[0].pid:
                    found.append(int(entry.name))
        return found

    def kill_one(self, rng: random.Random) -> None:
        """Kills one of them before the others: a worker, a shell, a supervisor."""
        if members := sorted(self.members()):
            try:
                os.kill(rng.choice(members), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def pause(self) -> list[int]:
        """Stops all of them, each between two system calls: first the writers, who may wait for the supervisors, then those."""
        members = self.members()
        writers = [pid for pid in members if b"worker.py" in _read_proc(pid, "cmdline") and b"forebay" not in _read_proc(pid, "comm")]
        others = [pid for pid in members if pid not in writers]
        for group in (writers, others):
            processes.pause(group, PAUSE_LIMIT_S)
        return members

    def go_on(self, paused: list[int]) -> None:
        """Undoes `pause`."""
        for pid in paused:
            processes.signal_to(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kills them all at once, and waits until none is there."""
        if self.started:
            os.killpg(self.started[0].pid, signal.SIGKILL)
        for child in self.started:
            child.wait()
        processes.stop_all()
        os.close(self.ledger_in)
        self.errors.close()

    def lines(self, wait_s: float, to_the_end: bool) -> list[str]:
        """Whole lines of the ledger that are there by now."""
        more = b""
        while select.select([self.ledger], [], [], wait_s)[0]:
            chunk = os.read(self.ledger, 1 << 16)
            more += chunk
            if not chunk or not to_the_end:
                break
        if to_the_end:
            os.close(self.ledger)
        *whole, self.rest = (self.rest + more).split(b"\n")
        return [line.decode() for line in whole]
