"""Programs that note a change of names, sizes or attributes in a log, killed and cut: is the change there that a record speaks of?

On ext4 and XFS a plain sync of a log that grew commits the journal, and with it every earlier change of metadata, of whatever file. So a record that
is found after a cut, acknowledged or not, speaks of a change that is there. Who makes the changes, of which kinds, and how the log is written, is
`changes`. docs/durability.md, "Order with other files".

Promise (order): Each record of a log that is found after a power cut, acknowledged or not, speaks
of a change that is there, and no acknowledged record is missing.
"""

from __future__ import annotations

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
from ..place import create_pool, with_failpoints
from . import changes, rounds
from .disk import Disk

NAME = "order"
ABOUT = "changes of names, sizes and attributes, each noted in a synced log; killed, the file system shut down, recovered in another boot"
# Of a variant: fewer rounds of the control, which has to lose something, may lose nothing.
ROUNDS_MIN = 6
ROUNDS_OF_ONE_DISK = 20
START_LIMIT_S = 60.0
ROUND_LIMIT_S = 30.0


@dataclasses.dataclass(frozen=True)
class Variant(rounds.Variant):
    """What stands before the program."""

    kind: str
    under_forebay: bool
    styles: tuple[str, ...] = changes.Log.STYLES


VARIANTS = [
    Variant("ext4 under Forebay", "ext4", under_forebay=True),
    Variant("xfs under Forebay", "xfs", under_forebay=True),
    Variant("ext4", "ext4", under_forebay=False, share=0.3),
    Variant("xfs", "xfs", under_forebay=False, share=0.3),
    Variant("ext4, the log written in place", "ext4", under_forebay=False, styles=(changes.Log.IN_PLACE,), must_lose=True, share=0.1),
]


LOOP = rounds.Loop(
    NAME,
    ABOUT,
    VARIANTS,
    lambda variant, home, seed, first: Epoch(variant, home, f"{seed} {variant.name} {first}"),
    lambda _, tally: f"{tally.done} cuts, {tally.bad}, {tally.acknowledged:,} changes noted and acknowledged",
    f"{len(changes.KINDS)} kinds of change, {len(changes.Log.STYLES)} ways to write and sync the log",
    ROUNDS_OF_ONE_DISK,
    rounds_min=ROUNDS_MIN,
)


class Epoch:
    """A disk and a pool; some rounds on them, each in a directory of its own."""

    def __init__(self, variant: Variant, home: pathlib.Path, seed: str):
        self.variant, self.home, self.seed = variant, home, seed
        self.rng = random.Random(seed)
        self.about = "made"
        self.acknowledged = 0
        # Records that were found beyond those acknowledged.
        self.counted = 0
        self.boot = uuid.UUID(int=self.rng.getrandbits(128))
        self.disk = Disk(home, variant.kind)
        if variant.under_forebay:
            create_pool(home / "pool", size="16MiB")

    def close(self) -> None:
        processes.stop_all()
        self.disk.close()

    def keep(self, to: pathlib.Path, faults: list[str]) -> None:
        shutil.copytree(self.disk.mounted, to / "files", symlinks=True, ignore=lambda d, names: [n for n in names if not _is_plain(d, n)])
        (to / "faults").write_text("\n".join(faults))

    def round(self, number: int) -> list[str]:
        """Changes, cuts, recovers: which records speak of what is not there."""
        style = self.rng.choice(self.variant.styles)
        seed = f"{self.seed} {number}"
        directory = self.disk.mounted / f"{number}"
        directory.mkdir()
        changes.prepare(str(directory), seed)
        self.disk.write_back()
        last = self._write(directory, seed, style)
        self.acknowledged = last + 1
        self.about = f"{style}, {last + 1} acknowledged"
        recovered = self._recover()
        if recovered:
            return recovered
        found = changes.records(str(directory))
        self.counted += max(0, len(found) - last - 1)
        wrong = [f"{last + 1 - len(found)} acknowledged records are gone"] if len(found) <= last else []
        for step, kind in found:
            if not _is_made(kind, changes.object_of(str(directory), step)):
                wrong.append(f"record {step} of {len(found)} says {kind!r}, which is not there")
        shutil.rmtree(directory)
        return wrong

    def _write(self, directory: pathlib.Path, seed: str, style: str) -> int:
        """Runs the program for a while and cuts: the last step that was acknowledged."""
        program = [sys.executable, "-m", "suites.cuts.changes", str(directory), seed, style]
        command, env = program, dict(os.environ)
        if self.variant.under_forebay:
            command = [with_failpoints(), "run", "--pool", str(self.home / "pool"), "--profile", "generic", "--absorb", "*.log", "--", *program]
            env |= self._env()
        root = pathlib.Path(__file__).resolve().parent.parent.parent
        ledger = self.home / "ledger"
        with open(ledger, "wb") as out:
            child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=env, cwd=root, start_new_session=True)
        try:
            deadline = time.monotonic() + START_LIMIT_S
            while not ledger.stat().st_size and child.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(self.rng.choice([0.0, self.rng.uniform(0, 0.05), self.rng.uniform(0, 0.6)]))
            if not self.variant.under_forebay:
                # The kernel says of a sync that the shutdown overtakes that it succeeded (see `loop`). Forebay asks again.
                processes.pause(processes.descendants())
            self.disk.cut()
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        steps = ledger.read_text().split("\n")[:-1]
        return int(steps[-1]) if steps else -1

    def _env(self) -> dict[str, str]:
        (self.home / "run").mkdir(exist_ok=True)
        return {"FOREBAY_TEST_BOOT_ID": str(self.boot), "FOREBAY_TEST_POOL_SURVIVED": "1", "FOREBAY_RUN_DIR": str(self.home / "run")}

    def _recover(self) -> list[str]:
        self.disk.mount_again()
        self.boot = uuid.UUID(int=self.rng.getrandbits(128))
        if not self.variant.under_forebay:
            return []
        command = [with_failpoints(), "recover", "--pool", str(self.home / "pool")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ROUND_LIMIT_S, env={**os.environ, **self._env()})
        return [] if done.returncode == 0 else [f"recover ends with {done.returncode}: {done.stdout} {done.stderr}"]


def _is_made(kind: str, path: str) -> bool:
    try:
        return changes.KINDS[kind].is_made(path)
    except OSError:
        return False


def _is_plain(directory: str, name: str) -> bool:
    path = pathlib.Path(directory, name)
    return path.is_dir() or path.is_file()
