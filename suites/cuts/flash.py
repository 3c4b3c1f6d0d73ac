"""MariaDB behind a flash cache is killed and its file systems are cut, again and again. docs/suites.md has what came of it.

Data and flash are file systems of their own (`disk`), shut down one after the other with nothing written back. The pool, with the redo log and the
binary log, lies outside of both, in memory, and plays the persistent memory. In the next boot the server goes on with the warm cache, or `forebay flash flush`
brings all pages home first: that is cut up to twice as well, and then `innochecksum` looks at the files before any server has mended anything. At
last every transaction that was acknowledged must be there, whole (`mariadb`).

Promise (flash-run): MariaDB behind a flash cache has every acknowledged transaction, whole, after
many cuts of both file systems in a row, with `forebay flash flush` cut in between.
Promise: as `pages_are_durable_before_a_checkpoint_not_before_log_records`.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import random
import shutil
import subprocess
import time

from .. import processes
from ..place import with_failpoints
from . import mariadb, rounds
from .epoch import ServerEpoch

NAME = "flash-cuts"
ABOUT = "MariaDB behind a flash cache; killed, both file systems shut down, warm or flushed in another boot"
# Rounds on one data directory and one cache, which age so.
ROUNDS_OF_ONE_SERVER = 20
FLUSH_LIMIT_S = 120.0
# Hardly more than the four groups that a cache must have: its queue turns within a round.
FLASH_SIZE = "4506KiB"


@dataclasses.dataclass(frozen=True)
class Variant(rounds.Variant):
    """What stands before the server."""

    under_forebay: bool
    options: tuple[str, ...] = ()


VARIANTS = [
    Variant("behind flash", under_forebay=True, options=("--innodb-doublewrite=0",)),
    Variant("MariaDB alone", under_forebay=False, share=0.1),
    Variant("MariaDB alone, log not synced", under_forebay=False, options=("--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"), must_lose=True, share=0.05),
]


LOOP = rounds.Loop(
    NAME,
    ABOUT,
    VARIANTS,
    lambda variant, home, seed, first: Epoch(variant, home, random.Random(f"{seed} {variant.name} {first}")),
    lambda _, tally: f"{tally.done} rounds, {tally.counted} cuts, {tally.bad}, {tally.acknowledged:,} transactions acknowledged",
    f"ext4, flash of {FLASH_SIZE}, a buffer pool of 6 MiB, 10 MiB of pages that are written",
    ROUNDS_OF_ONE_SERVER,
    lacking=mariadb.missing,
)


class Epoch(ServerEpoch):
    """Two disks, a data directory, a cache and a pool; some rounds on them."""

    def __init__(self, variant: Variant, home: pathlib.Path, rng: random.Random):
        super().__init__(home, rng)
        self.variant = variant
        # The last transaction that was acknowledged, and the last one that was sent.
        self.last = self.sent = 0
        # A small redo log makes checkpoints, a large one recoveries.
        self.options = [f"--innodb-log-file-size={rng.choice(['4M', '16M'])}", "--sync-binlog=1", *variant.options]
        self.options += rng.choice([["--innodb-max-dirty-pages-pct=0"], ["--innodb-max-dirty-pages-pct=99", "--innodb-io-capacity=100"]])
        self._make({"data": "ext4", "flash": "ext4"}, "8MiB" if variant.under_forebay else None, mariadb.TABLES, is_on_disk=False)

    @property
    def cache(self) -> pathlib.Path:
        return self.disks[1].mounted / "cache"

    def _start(self) -> mariadb.Server:
        front = []
        if self.variant.under_forebay:
            front = [with_failpoints(), "run", "--pool", str(self.pool), "--flash", str(self.cache), "--flash-size", FLASH_SIZE, "--"]
        return mariadb.Server(front, self.data, self.socket, self.options, self._env(), self.said)

    def round(self, _number: int) -> list[str]:
        """Writes, cuts, flushes or not, starts: what is wrong then."""
        self._write()
        self._cut()
        self.about = self.rng.choice(["warm", "flush", "flush"]) if self.variant.under_forebay else "recovered"
        try:
            if self.about == "flush" and (wrong := self._flush()):
                return wrong
            self.server = self._start()
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return [str(error)]
        if wrong := self.server.faults(self.last):
            return wrong
        self.sent = self.last = self.server.last()
        return []

    def _write(self) -> None:
        """Transactions for some seconds; one may be under way at the end."""
        self.acknowledged = 0
        client = mariadb.Client(self.server, self.said)
        until = time.monotonic() + self.rng.uniform(0.3, 5)
        while time.monotonic() < until:
            if self.rng.random() < 0.25:
                client.call(self.rng.choice(mariadb.FILES))
            self.sent += 1
            client.call(mariadb.transaction(self.sent, self.rng))
            self.last = self.sent
            self.acknowledged += 1
        if self.rng.random() < 0.3:
            # Pages go on leaving the buffer pool, and the cache.
            time.sleep(self.rng.uniform(0, 2))
        if self.rng.random() < 0.5:
            self.sent += 1
            client.send(mariadb.transaction(self.sent, self.rng))
            time.sleep(self.rng.uniform(0, 0.05))
        self.client = client

    def _cut(self) -> None:
        super()._cut()
        self.counted += 1

    def _flush(self) -> list[str]:
        """Brings all pages home, at the third attempt if two are cut."""
        command = [with_failpoints(), "flash", "flush", "--flash", str(self.cache)]
        for _ in range(self.rng.choice([0, 1, 2, 2])):
            with open(self.said, "ab") as output:
                subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **self._env()})
            time.sleep(self.rng.uniform(0.01, 0.25))
            self._cut()
            self.about += ", cut"
        done = processes.run(command, cwd=self.home, limit_s=FLUSH_LIMIT_S, env=self._env())
        if done.status != 0:
            return [f"forebay flash flush: {done.outcome}: {' '.join((done.output + done.errors).split())}"]
        # Of a file that was being made at the cut nothing was promised yet.
        for name in ("ibdata1", "test/wide.ibd", "test/tx.ibd"):
            checked = processes.run([mariadb.program("innochecksum"), str(self.data / name)], cwd=self.home, limit_s=FLUSH_LIMIT_S)
            if checked.status != 0:
                return [f"innochecksum {name}: {' '.join((checked.output + checked.errors).split())}"]
        return []

    def keep(self, to: pathlib.Path, faults: list[str]) -> None:
        """Copies what is there, for who looks for the reason."""
        processes.stop_all()
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.data, to / "data")
        (to / "faults").write_text("\n".join(faults))
        for path in [self.said, self.pool, *self.cache.parent.glob("cache*")]:
            if path.exists():
                shutil.copy2(path, to)
