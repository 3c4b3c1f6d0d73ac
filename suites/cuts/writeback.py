"""A program appends to a log whose disk fills meanwhile, so that the kernel cannot write it back: is every acknowledged record there in
the end?

The disk is a `thin` one. Under Forebay the program's syncs succeed before the supervisor's do: what these could not write back the pool
has still, and the supervisor writes it again, or a recovery does. That it is on the disk then, the page cache does not say: the file
system is unmounted and mounted before the log (`appends`) is read.

When room is made is chosen at random: while the run goes on, after it, or after a recovery that was refused for the lack of it. Now and
then the run is killed while its write-back fails. Then the file system is left as it is, or unmounted in the orderly way, which writes
back what it can, and mounted again in this boot or the next, or it is shut down as well. Or the kernel evicts what it takes for clean, as
it does when memory is short. A recovery that says what to do is given that, and asked again: room, a file system that is mounted anew, or
`--force`, since nothing but the run has written to the log (docs/operations.md).

Without Forebay a program loses records that way on ext4 if it writes again what could not be synced, and takes the next sync's word for
it.

Promise (disks): Every acknowledged record of a log whose disk fills is on the disk once there is room and it was recovered, whoever is
killed meanwhile and whichever boot recovers.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid

from .. import processes
from ..place import ROOT, create_pool, with_failpoints
from . import appends, rounds
from .thin import ThinDisk

NAME = "writeback"
ABOUT = "a log whose disk fills, so that it cannot be written back; room is made, or the run is killed; unmounted, mounted and read"
START_LIMIT_S = 60.0
# How long a write-back that fails is waited for (twice), a sync that succeeds once there is room, and a run that ends.
FAILS_LIMIT_S = 5.0
SUCCEEDS_LIMIT_S = 8.0
ENDS_LIMIT_S = 60.0
RECOVERY_LIMIT_S = 60.0
# Recoveries of one round: the first may lack room, the second may find a file system that takes nothing more until it is mounted anew.
RECOVERIES = 4
# What a recovery says that wants to be told whether the file is right or the pool. After a failed sync it may, in the same boot.
WANTS_DECISION = "holds something else than the pool says"
# And one that takes what the run itself wrote for another's: a kill came between the writing and putting back the time that the file had.
SEES_CHANGE = " was changed "
# When room is made.
MEANWHILE, AFTERWARDS, AFTER_REFUSAL = "room while it runs", "room after the run", "room after a recovery"
# What becomes of the run, and of the file system before the recovery.
ENDED, KILLED, CUT = "ended", "killed", "killed, cut"
EVICTED, MOUNTED, REBOOTED = "killed, evicted", "killed, mounted again", "killed, rebooted"
ENDS = (ENDED, ENDED, ENDED, KILLED, CUT, EVICTED, MOUNTED, REBOOTED)

# A disk that was full once is not as it was.
ROUNDS_OF_ONE_DISK = 1
# By variant: rounds in which a recovery wanted to be told what is right.
DECISIONS: dict[str, list[int]] = collections.defaultdict(list)


@dataclasses.dataclass(frozen=True)
class Variant(rounds.Variant):
    """The file system, and who sees to it that all is there."""

    kind: str
    # One of them, by choice.
    options: tuple[str, ...] = ("defaults",)
    under_forebay: bool = True
    styles: tuple[str, ...] = appends.STYLES


VARIANTS = [
    Variant("ext4 under Forebay, failing", "ext4", options=("errors=continue", "errors=remount-ro")),
    Variant("xfs under Forebay, failing", "xfs"),
    Variant("ext4, written again", "ext4", under_forebay=False, styles=(appends.REWRITE,), must_lose=True, share=0.1),
]


def _summary(variant: Variant, tally: rounds.Tally) -> str:
    return (
        f"{tally.done} rounds, in {tally.counted} of which the write-back failed, {tally.bad}, "
        f"{tally.acknowledged:,} records acknowledged, {len(DECISIONS[variant.name])} recoveries with --force"
    )


LOOP = rounds.Loop(
    NAME,
    ABOUT,
    VARIANTS,
    lambda variant, home, seed, first: Epoch(variant, home, f"{seed} {variant.name} {first}", DECISIONS[variant.name]),
    _summary,
    f"ext4 (errors=continue, errors=remount-ro) and XFS; programs after a failed sync: {', '.join(appends.STYLES)}",
    ROUNDS_OF_ONE_DISK,
)


class Epoch:
    """A disk, a log and a pool."""

    def __init__(self, variant: Variant, home: pathlib.Path, seed: str, decisions: list[int]):
        self.variant, self.home, self.seed = variant, home, seed
        self.rng = random.Random(seed)
        self.options = self.rng.choice(variant.options)
        self.style = self.rng.choice(variant.styles)
        self.about = "made"
        self.acknowledged = 0
        # Rounds in which the write-back failed.
        self.counted = 0
        # Rounds in which a recovery wanted to be told what is right.
        self.decisions = decisions
        self.boot = uuid.UUID(int=self.rng.getrandbits(128))
        self.said, self.ledger, self.pool = home / "said", home / "ledger", home / "pool"
        self.disk = ThinDisk(home, variant.kind, self.options)
        self.log = self.disk.mounted / "a.log"
        try:
            if variant.under_forebay:
                # A small one is full soon, and then a write waits for the disk.
                segment, size = self.rng.choice([("64KiB", "1MiB"), ("64KiB", "8MiB"), ("1MiB", "32MiB")])
                create_pool(self.pool, size=size, segment=segment, lanes=4)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        processes.stop_all()
        self.disk.close()

    def round(self, number: int) -> list[str]:
        """Writes until the write-back fails, makes room, ends, recovers: what is lost then."""
        room = self.rng.choice([MEANWHILE, AFTERWARDS, AFTER_REFUSAL]) if self.variant.under_forebay else MEANWHILE
        end = self.rng.choice(ENDS) if self.variant.under_forebay else ENDED
        self.about = ", ".join([self.options, f"the program: {self.style}", room, end])
        child = self._start()
        fails = self._fail(child)
        self.counted += fails
        # The supervisor tries again every second.
        time.sleep(self.rng.choice([0, self.rng.uniform(0, 2.5)]))
        if room == MEANWHILE:
            self.disk.make_room()
            self._go_on(child)
        wrong = self._end(child, end)
        self.acknowledged = self._acknowledged() + 1
        if room == AFTERWARDS:
            self.disk.make_room()
        if end == EVICTED:
            self._evict()
        if end in (MOUNTED, REBOOTED, CUT):
            self._mount_again()
        if end in (REBOOTED, CUT):
            self.boot = uuid.UUID(int=self.rng.getrandbits(128))
        if self.variant.under_forebay:
            wrong += self._recover(number)
        self.disk.make_room()
        self.disk.mount_again()
        return wrong + appends.faults(self.log, self.seed, self.acknowledged - 1)

    def _start(self) -> subprocess.Popen:
        """The program at work: it has acknowledged something."""
        command = [sys.executable, "-m", "suites.cuts.appends", str(self.log), self.seed, self.style]
        if self.variant.under_forebay:
            command = [with_failpoints(), "run", "--pool", str(self.pool), "--profile", "generic", "--absorb", "*.log", "--", *command]
        with open(self.ledger, "ab") as out, open(self.said, "ab") as errors:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=self._env(), cwd=ROOT)
        deadline = time.monotonic() + START_LIMIT_S
        while self._acknowledged() < 0:
            if child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the program does not begin (status {child.poll()}): {self.said.read_text(errors='replace')[-500:]}")
            time.sleep(0.005)
        return child

    def _env(self) -> dict[str, str]:
        """In this boot, with a pool that lived through the cut."""
        run = self.home / "run"
        run.mkdir(exist_ok=True)
        return {**os.environ, "FOREBAY_TEST_BOOT_ID": str(self.boot), "FOREBAY_TEST_POOL_SURVIVED": "1", "FOREBAY_RUN_DIR": str(run)}

    def _acknowledged(self) -> int:
        """The last record that was."""
        lines = self.ledger.read_text().split("\n")[:-1]
        return max((int(line.split()[1]) for line in lines if line.startswith("ack ")), default=-1)

    def _has_failed(self) -> bool:
        """The supervisor says so, or the program."""
        return "cannot be synced" in self.said.read_text(errors="replace") or "failed " in self.ledger.read_text()

    def _fail(self, child: subprocess.Popen) -> bool:
        """Fills the disk, and waits until the write-back fails."""
        time.sleep(self.rng.choice([0, self.rng.uniform(0, 0.3)]))
        # A program that writes slowly does not fill what is left in the first place.
        for left_bytes in (self.rng.choice([64 << 10, 256 << 10, 1 << 20, 2 << 20]), 0):
            self.disk.fill(left_bytes)
            deadline = time.monotonic() + FAILS_LIMIT_S
            while time.monotonic() < deadline and child.poll() is None:
                if self._has_failed():
                    return True
                time.sleep(0.01)
        return self._has_failed()

    def _go_on(self, child: subprocess.Popen) -> None:
        """Waits until more is acknowledged, if the program goes on, and a while longer."""
        before, deadline = self._acknowledged(), time.monotonic() + SUCCEEDS_LIMIT_S
        while self._acknowledged() == before and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(self.rng.choice([0, self.rng.uniform(0, 2.5)]))

    def _end(self, child: subprocess.Popen, end: str) -> list[str]:
        """Ends the run: what is wrong with that."""
        if end == ENDED:
            processes.signal_to(child.pid, signal.SIGTERM)
            try:
                child.wait(ENDS_LIMIT_S)
            except subprocess.TimeoutExpired:
                return [f"the run does not end in {ENDS_LIMIT_S:.0f} s"]
            finally:
                processes.stop_all()
            return []
        # All at once, or the supervisor first: then the program does for a moment what it does without one.
        if end == CUT or self.rng.random() < 0.5:
            self.about += " at once"
            # Not in the middle of a sync (see `loop`).
            processes.pause(processes.descendants())
        if end == CUT:
            self.disk.cut()
        processes.stop_all()
        child.wait()
        return []

    def _evict(self) -> None:
        """The page cache keeps only what is dirty."""
        with open(self.log, "rb") as log:
            os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _mount_again(self) -> None:
        """A file system that has no room for what mounting it writes is given some."""
        try:
            self.disk.mount_again()
        except RuntimeError:
            self.disk.make_room()
            self.disk.mount_again()

    def _recover(self, number: int) -> list[str]:
        """Recovers as often as it says what to do before: what is wrong with that."""
        command = [with_failpoints(), "recover", "--pool", str(self.pool)]
        for attempt in range(RECOVERIES):
            done = subprocess.run(command, capture_output=True, text=True, timeout=RECOVERY_LIMIT_S, env=self._env())
            said = f"recover ends with {done.returncode}: {' '.join((done.stdout + done.stderr).split())}"
            with open(self.said, "a") as file:
                print(said, file=file)
            if done.returncode == 0:
                self.about += f", recovered at attempt {attempt + 1}"
                return []
            if (WANTS_DECISION in said or SEES_CHANGE in said) and "--force" not in command:
                self.about += ", with --force"
                self.decisions.append(number)
                command.append("--force")
                continue
            self.disk.make_room()
            if attempt:
                self.disk.mount_again()
        return [said]

    def keep(self, to: pathlib.Path, faults: list[str]) -> None:
        """Copies what is there, for who looks for the reason."""
        processes.stop_all()
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        (to / "faults").write_text("\n".join([self.about, *faults]))
        for path in [self.said, self.ledger, self.pool, self.log]:
            if path.exists():
                shutil.copy2(path, to)
        extents = subprocess.run(["filefrag", "-v", str(self.log)], capture_output=True, text=True)
        (to / "extents").write_text(extents.stdout + extents.stderr)
