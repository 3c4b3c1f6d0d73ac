"""What is left of databases when the fast device is gone: after an orderly stop, and after a cut amid writes."""

from __future__ import annotations

import dataclasses
import pathlib
import time

from lab.arm64.databases import MANY, POSTGRES, REDIS, SQLITE, Database
from lab.systemd.image import Failure
from lab.systemd.lives import WriteRecord

from .contestants import Contestant
from .image import CLUSTER
from .machine import LosingMachine

DATABASES = (REDIS, POSTGRES, SQLITE)
HOWS = ("cut", "stop")
OTHER = "other"
READY_LIMIT_S = 180.0
# What the databases write before the fast device is brought to rest, and afterwards at least; so much another program writes meanwhile: more than
# the cache holds, so that it has to write home.
FIRST = 20
AFTERWARDS = 100
OTHER_MIB = 100
OTHER_AT_ONCE_MIB = 4
# What a database's own documentation says to do if it does not start, but for what gives up more than a log's end.
REPAIRS = {"redis": "cd /data/redis/appendonlydir && yes | redis-check-aof --fix appendonly.aof.manifest"}


@dataclasses.dataclass(frozen=True)
class Loss:
    """One database, or the other program's files, after one loss."""

    contestant: str
    how: str
    database: str
    # False if the file system is gone.
    is_mounted: bool
    # True if e2fsck found damage that it does not mend unasked.
    is_repaired: bool
    acknowledged: int
    # None if it does not start.
    missing: int | None
    # True if what is there is all up to one moment.
    is_prefix: bool
    # It started only after its own repair.
    is_mended: bool
    said: str


def judged(record: WriteRecord, found: list[int] | None) -> tuple[int | None, bool]:
    """How many acknowledged numbers are missing, and whether those that are there are all up to one of them."""
    if found is None:
        return None, False
    return len(record.acknowledged - set(found)), sorted(found) == list(range(1, len(found) + 1))


class LossTrial:
    """One contestant with three databases, whose fast device goes."""

    def __init__(self, contestant: Contestant, machine: LosingMachine) -> None:
        self.contestant = contestant
        self.machine = machine
        self.records = {database.name: WriteRecord() for database in DATABASES}
        # Files that the other program synced, and the checksum of each.
        self.other_files = 0
        self.other_sum = ""

    def sh(self, text: str, limit_s: float = 900.0) -> str:
        return self.machine.sh(self._script(text), limit_s)

    def ask(self, text: str, limit_s: float = 900.0) -> tuple[int, str]:
        return self.machine.ask(self._script(text), limit_s)

    def _script(self, text: str) -> str:
        return f"DISK=/dev/vdc1 FAST=/dev/vdd1\n. /parcel/stack.sh\n{text}"

    def run(self, how: str) -> list[Loss]:
        """Writes, loses the device as `how` says, and looks."""
        self.machine.boot()
        self.sh(self.contestant.make)
        self._make()
        for database in DATABASES:
            self._start(database)
            self.sh(database.after)
            self._write(database, FIRST)
        self._stop_all()
        self.sh(self.contestant.settle)
        for database in DATABASES:
            self._start(database)
        self._write_all(how)
        if how == "stop":
            self._stop_all()
            self.sh(f"cd /; {self.contestant.stop}; sync")
        self.machine.cut()
        self.machine.lose()
        self.machine.boot()
        return self._look(how)

    def _make(self) -> None:
        for one in DATABASES:
            self.sh(f"mkdir -p /data/{one.name} {one.run_dir}; chown {one.user} /data/{one.name} {one.run_dir}")
            if self.contestant.pool:
                self.sh(f"{self._as(one)} forebay pool create {one.pool} {self.contestant.pool}")
        self.other_sum = self.sh(f"cp -a {CLUSTER} /data/postgres/base; mkdir /data/other; head -c {OTHER_AT_ONCE_MIB}M /dev/urandom >/tmp/block; md5sum </tmp/block").split()[0]

    def _as(self, database: Database) -> str:
        user = database.user
        return "env" if user == "root" else f"setpriv --reuid {user} --regid {user} --clear-groups env"

    def _start(self, database: Database, is_plain: bool = False) -> None:
        under = "" if is_plain else self.contestant.under.format(pool=database.pool)
        started = f"mkdir -p {database.run_dir}; chown {database.user} {database.run_dir}; cd /data/{database.name}; {self._as(database)} FOREBAY_RUN_DIR={database.run_dir} {under}{database.server} >/run/{database.name}.said 2>&1 </dev/null & echo $! >/run/{database.name}.pid"
        self.sh(started)
        until = time.monotonic() + READY_LIMIT_S
        while self.ask(f"({database.is_ready}) >/dev/null 2>&1")[0] != 0:
            has_ended = self.ask(f"kill -0 $(cat /run/{database.name}.pid)")[0] != 0
            if has_ended or time.monotonic() > until:
                said = self.ask(f"tail -n 20 /run/{database.name}.said /data/{database.name}/log 2>/dev/null")[1]
                raise Failure(f"{database.name} does not start: {said}")
            time.sleep(0.5)

    def _write(self, database: Database, count: int) -> None:
        record = self.records[database.name]
        last = record.next + count - 1
        noted = sum(record.note(line) for line in self.machine.lines(self._script(database.writing(record.next, last))))
        if noted != count:
            raise Failure(f"{database.name}: of {count} writes {noted} were acknowledged")
        record.next = last + 1

    def _write_all(self, how: str) -> None:
        """All databases are written to, beside another program: until enough is acknowledged of each, and to the end if they are to be stopped."""
        last = {name: record.next + AFTERWARDS - 1 for name, record in self.records.items()} if how == "stop" else {}
        writers = [f"({one.writing(self.records[one.name].next, last.get(one.name, MANY))}) 2>/dev/null | stdbuf -oL sed 's/^/{one.name} /' &" for one in DATABASES]
        times = OTHER_MIB // OTHER_AT_ONCE_MIB if how == "stop" else MANY
        other = f"(for n in $(seq {times}); do dd if=/tmp/block of=/data/other/$n bs=1M conv=fsync status=none; echo other $n; done) &"
        counts = {name: 0 for name in [*self.records, "other"]}
        for line in self.machine.lines(self._script("\n".join([*writers, other, "wait"])), 1800.0):
            name, _, number = line.partition(" ")
            if name == "other":
                counts[name] += OTHER_AT_ONCE_MIB
                self.other_files = int(number)
            elif name in self.records:
                counts[name] += self.records[name].note(number)
            if how == "cut" and is_enough(counts):
                return
        if not is_enough(counts):
            raise Failure(f"the writers ended: {counts}")

    def _stop_all(self) -> None:
        for one in DATABASES:
            self.sh(f"pid=$(cat /run/{one.name}.pid); kill -TERM $pid; for i in $(seq 900); do [ -e /proc/$pid ] || exit 0; sleep 0.2; done; exit 1")

    def _look(self, how: str) -> list[Loss]:
        status, said = self.ask(f"{{ {self.contestant.without}; }} 2>&1")
        is_mounted = status == 0 and self.ask("mountpoint -q /data")[0] == 0
        losses = []
        for one in DATABASES:
            found, is_mended, more = self._found(one) if is_mounted else (None, False, "")
            missing, is_prefix = judged(self.records[one.name], found)
            losses.append(Loss(self.contestant.name, how, one.name, is_mounted, "-fy" in said, len(self.records[one.name].acknowledged), missing, is_prefix, is_mended, f"{said}\n{more}".strip()))
        losses.append(self._other_files(how, said, is_mounted))
        return losses

    def _other_files(self, how: str, said: str, is_mounted: bool) -> Loss:
        """What became of files that a program synced which Forebay does not know, nor anybody else."""
        whole = int(self.ask(f"cd /data/other && md5sum $(seq {self.other_files}) 2>/dev/null | grep -c {self.other_sum}")[1] or 0) if is_mounted else 0
        return Loss(self.contestant.name, how, OTHER, is_mounted, "-fy" in said, self.other_files, self.other_files - whole if is_mounted else None, True, False, said)

    def _found(self, database: Database) -> tuple[list[int] | None, bool, str]:
        """The numbers that a database has without the fast device, or None if it does not start; whether it had to be repaired; and what was said on the way."""
        said = ""
        if self.contestant.under:
            said = self.ask(f"cd /; forebay recover --for /data/{database.name} 2>&1; echo status $?; forebay recover --for /data/{database.name} --lift 2>&1")[1]
        for repair in ("", REPAIRS.get(database.name)):
            if repair is None:
                break
            said += self.ask(f"{repair} 2>&1")[1] if repair else ""
            try:
                self._start(database, is_plain=True)
                return [int(line) for line in self.sh(database.read).split()], bool(repair), said
            except (Failure, ValueError) as failure:
                said += f"\n{failure}\n"
        return None, False, said


def is_enough(counts: dict[str, int]) -> bool:
    return counts["other"] >= OTHER_MIB and all(count >= AFTERWARDS for name, count in counts.items() if name != "other")


def lose(contestant: Contestant, how: str, scratch: pathlib.Path, brought: dict[str, pathlib.Path]) -> list[Loss]:
    """One contestant, in a machine of its own."""
    with LosingMachine(scratch, brought) as machine:
        return LossTrial(contestant, machine).run(how)
