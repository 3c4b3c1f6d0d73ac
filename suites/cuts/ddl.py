"""MariaDB's definitions are changed and its file systems are cut, again and again: is every acknowledged change there?

A server keeps definitions in files beside InnoDB's own dictionary (`.frm`, `.TRG`, `.par`, a view's), which it creates, renames and
removes. A sync of its binary log makes these changes durable on ext4 and XFS, as `definitions` says; with the log absorbed that sync is
no real one, and it must be so all the same. InnoDB's dictionary is recovered from the redo log, which lies in the pool: where one is
older than the other, a table cannot be opened, or the server does not start.

Each round makes some random changes, then commits slowly for a while or does not, and cuts. After `forebay recover` (or without: the next
run does the same) the server starts, and every definition and checksum is compared with what was read before the cut.

Promise (order): Each definition of a MariaDB server with a binary log is as it was acknowledged after a power cut, every table passes
`CHECK TABLE`, and the server starts, also behind a flash cache.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random
import shutil
import subprocess
import time

from .. import processes
from ..place import with_failpoints
from . import definitions, mariadb, rounds
from .epoch import ServerEpoch

NAME = "ddl-cuts"
ABOUT = "MariaDB's tables, views, triggers, databases and users, changed; killed, the file system shut down, recovered in another boot"
ROUNDS_OF_ONE_SERVER = 8
RECOVERY_LIMIT_S = 60.0
# Hardly more than the four groups that a cache must have.
FLASH_SIZE = "4506KiB"
# Between two commits of the slow load. The drain is never idle then, and fills no segment.
COMMIT_EVERY_S = 0.05
SYNCED = ("--sync-binlog=1",)


@dataclasses.dataclass(frozen=True)
class Variant(rounds.Variant):
    """What stands before the server, and what it syncs."""

    kind: str
    under_forebay: bool = False
    behind_flash: bool = False
    options: tuple[str, ...] = SYNCED


VARIANTS = [
    Variant("ext4 under Forebay", "ext4", under_forebay=True),
    Variant("xfs under Forebay", "xfs", under_forebay=True),
    Variant("ext4 under Forebay behind flash", "ext4", under_forebay=True, behind_flash=True, options=(*SYNCED, "--innodb-doublewrite=0")),
    Variant("ext4", "ext4", share=0.2),
    Variant("xfs", "xfs", share=0.2),
    Variant("ext4, logs not synced", "ext4", options=("--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0"), must_lose=True, share=0.1),
]


LOOP = rounds.Loop(
    NAME,
    ABOUT,
    VARIANTS,
    lambda variant, home, seed, first: Epoch(variant, home, random.Random(f"{seed} {variant.name} {first}")),
    lambda _, tally: f"{tally.done} cuts, {tally.bad}, {tally.acknowledged:,} statements acknowledged and {tally.counted:,} commits of the slow load",
    f"{len(definitions.KINDS)} kinds of statements; left out, since a plain server loses them as well: db.opt, new sequences",
    ROUNDS_OF_ONE_SERVER,
    lacking=mariadb.missing,
)


class Epoch(ServerEpoch):
    """A disk (two, if one is flash), a data directory and a pool; some rounds on them."""

    def __init__(self, variant: Variant, home: pathlib.Path, rng: random.Random):
        super().__init__(home, rng)
        self.variant = variant
        self.changes = definitions.SchemaChanges(rng)
        # The statements of the round.
        self.statements: list[str] = []
        # Commits of the slow load, in all rounds, are what is counted.
        kinds = {"data": variant.kind} | ({"flash": "ext4"} if variant.behind_flash else {})
        # What is made here was not synced as what a round makes.
        self._make(kinds, rng.choice(["1MiB", "8MiB"]) if variant.under_forebay else None, definitions.TABLES, is_on_disk=True)

    def _start(self) -> mariadb.Server:
        front = []
        if self.variant.under_forebay:
            front = [with_failpoints(), "run", "--pool", str(self.pool)]
            if self.variant.behind_flash:
                front += ["--flash", str(self.disks[1].mounted / "cache"), "--flash-size", FLASH_SIZE]
            front.append("--")
        options = ["--innodb-log-file-size=16M", *self.variant.options]
        return mariadb.Server(front, self.data, self.socket, options, self._env(), self.said)

    def round(self, _number: int) -> list[str]:
        """Changes, cuts, recovers, starts: what is wrong then."""
        self.statements, self.acknowledged = [], 0
        try:
            acknowledged = self._change()
        except RuntimeError as error:
            return [str(error)]
        self._cut()
        try:
            if wrong := self._recover():
                return wrong
            self.server = self._start()
            found = definitions.read_all(self.server)
            wrong = definitions.differences(acknowledged, found) + definitions.failed_checks(self.server)
            commits = self.server.ask(f"SELECT COUNT(*) FROM {definitions.LOAD}.commits")
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return [str(error)]
        if commits != str(self.counted):
            wrong.append(f"{self.counted} commits of the slow load were acknowledged, and {commits or 'none'} are there")
        return wrong

    def _change(self) -> dict[str, str]:
        """Makes some changes, and goes on for a while: what was read of all of them in between."""
        if self.rng.random() < 0.4:
            # The drain rests, and the journal is written.
            time.sleep(1.5)
        client = mariadb.Client(self.server, self.said)
        try:
            for _ in range(self.rng.randint(1, 7)):
                self.statements.append(self.changes.next())
                client.call(self.statements[-1])
                self.acknowledged += 1
            read = definitions.read_all(self.server)
            load_s = self.rng.choice([0, 0, self.rng.uniform(0.5, 4)])
            delay_s = self.rng.choice([0, self.rng.uniform(0, 0.3)])
            self.about = f"after {'; '.join(reversed(self.statements))}; {load_s:.1f} s of slow load, {delay_s:.2f} s of nothing"
            until = time.monotonic() + load_s
            while time.monotonic() < until:
                client.call(f"INSERT INTO {definitions.LOAD}.commits VALUES ({self.counted + 1})")
                self.counted += 1
                time.sleep(COMMIT_EVERY_S)
            time.sleep(delay_s)
        finally:
            client.close()
        return read

    def _recover(self) -> list[str]:
        if not self.variant.under_forebay or self.rng.random() < 0.3:
            return []
        command = [with_failpoints(), "recover", "--pool", str(self.pool)]
        done = processes.run(command, cwd=self.home, limit_s=RECOVERY_LIMIT_S, env=self._env())
        return [] if done.status == 0 else [f"forebay recover: {done.outcome}: {' '.join((done.output + done.errors).split())}"]

    def keep(self, to: pathlib.Path, faults: list[str]) -> None:
        """Copies what is there, for who looks for the reason."""
        processes.stop_all()
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.data, to / "data")
        (to / "faults").write_text("\n".join([*faults, "", *self.statements]))
        caches = self.disks[1].mounted.glob("cache*") if self.variant.behind_flash else []
        for path in [self.said, self.pool, *caches]:
            if path.exists():
                shutil.copy2(path, to)
