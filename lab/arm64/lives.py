"""What each database goes through: killed, without its supervisor, cut off, and written to plainly at the end. What is found otherwise raises `Failure`."""

from __future__ import annotations

import json
import re
import time

from lab.systemd.image import Failure
from lab.systemd.lives import WriteRecord
from lab.systemd.machine import Machine

from .databases import Database

READY_LIMIT_S = 300.0
WRITES = 50
# Acknowledged after so many while a client writes, it is killed, or the power goes.
KILL_AFTER = 10
CUT_AFTER = 20
POOL_BYTES = "64MiB"
# All processes below one: PostgreSQL's have sessions of their own.
TREE = "tree() { echo $1; for child in $(pgrep -P $1); do tree $child; done; }; "


class DatabaseLife:
    """One database in the machine, and what it acknowledged."""

    def __init__(self, machine: Machine, database: Database) -> None:
        self.machine = machine
        self.database = database
        self.record = WriteRecord()

    def say(self, text: str) -> None:
        print(f"{self.database.name:9}{text}", flush=True)

    def as_user(self, command: str) -> str:
        user = self.database.user
        return command if user == "root" else f"setpriv --reuid {user} --regid {user} --clear-groups {command}"

    def make(self) -> None:
        one = self.database
        self.machine.sh(f"mkdir -p /data/{one.name} {one.run_dir}; chown {one.user} /data/{one.name} {one.run_dir}; chmod 1777 /fast; cd /")
        self.machine.sh(f"cd /; {self.as_user(f'forebay pool create {one.pool} --disk --size {POOL_BYTES}')}; {self.as_user(one.before)}", 1200.0)

    def start(self, how: str, is_plain: bool = False) -> None:
        """Starts it, and waits until it answers."""
        one = self.database
        under = "" if is_plain else f"forebay run --pool {one.pool} {one.options} -- "
        self.machine.sh(f"mkdir -p {one.run_dir}; chown {one.user} {one.run_dir}; cd /data/{one.name}; FOREBAY_RUN_DIR={one.run_dir} {self.as_user(under + one.server)} >>/data/{one.name}.said 2>&1 </dev/null & echo $! >/run/{one.name}.pid")
        until = time.monotonic() + READY_LIMIT_S
        while self.machine.ask(f"({one.is_ready}) >/dev/null 2>&1")[0] != 0:
            has_ended = self.machine.ask(f"kill -0 $(cat /run/{one.name}.pid)")[0] != 0
            if has_ended or time.monotonic() > until:
                said = self.machine.ask(f"tail -n 30 /data/{one.name}.said /data/{one.name}/log 2>/dev/null")[1]
                raise Failure(f"{one.name} {'has ended' if has_ended else 'does not answer'} ({how}):\n{said}")
            time.sleep(1.0)

    def write(self, count: int) -> None:
        last = self.record.next + count - 1
        noted = sum(self.record.note(line) for line in self.machine.lines(self.database.writing(self.record.next, last)))
        if noted != count:
            raise Failure(f"{self.database.name}: of {count} writes {noted} were acknowledged")
        self.record.next = last + 1

    def found(self) -> list[int]:
        found = [int(line) for line in self.machine.sh(self.database.read).split()]
        self.record.next = max([self.record.next, *(number + 1 for number in found)])
        return found

    def check(self, when: str) -> None:
        """All acknowledged numbers are there, each once."""
        fault = self.record.fault(self.found())
        if fault:
            raise Failure(f"{self.database.name}: {when}, {fault}")
        self.say(f"{when}: all {len(self.record.acknowledged)} acknowledged writes are there")

    def check_absorbed(self) -> None:
        _, said = self.machine.ask("forebay status --all --json 2>/dev/null")
        runs = [run for run in json.loads(said) if run.get("run_dir") == self.database.run_dir]
        files = [file for run in runs for file in run["files"] if self.database.absorbed in file["path"] and file["bytes"] > 0 and not file["retired"]]
        if len(runs) != 1 or not files or runs[0]["degraded"]:
            raise Failure(f"{self.database.name}: nothing is absorbed: {json.dumps(runs, indent=1)}")
        self.say(f"absorbed: {sum(file['bytes'] for file in files)} bytes, {sum(file['syncs'] for file in files)} syncs saved ({runs[0]['medium']})")

    def kill(self, whom: str) -> None:
        """Kills all of its processes, or the supervisor first, while a client writes."""
        one = self.database
        writer = f"cat >/run/writer.sh <<'END'\n{one.writing(self.record.next)}\nEND\n"
        self.machine.sh(f"{writer}: >/run/acks; setsid bash /run/writer.sh >>/run/acks 2>/dev/null </dev/null & echo $! >/run/writer; for i in $(seq 300); do [ $(wc -l </run/acks) -lt {KILL_AFTER} ] || break; sleep 0.2; done")
        pause = "; sleep 3" if whom == "the supervisor" else ""
        self.machine.ask(f"{TREE}pid=$(cat /run/{one.name}.pid); all=$(tree $pid); kill -KILL $pid{pause}; kill -KILL $all 2>/dev/null; sleep 0.5; pkill -KILL -s $(cat /run/writer)")
        acks = self.machine.sh("sleep 0.5; cat /run/acks").splitlines()
        if not sum(self.record.note(line) for line in acks):
            raise Failure(f"{self.database.name}: nothing was acknowledged meanwhile: {acks[-5:]}")
        self.start(f"{whom} killed")
        self.check(f"{whom} killed while a client wrote, started again")

    def end(self) -> None:
        """Ends it in the orderly way; nothing is left in the pool; it runs plainly and has everything."""
        one = self.database
        self.machine.sh(f"pid=$(cat /run/{one.name}.pid); kill -TERM $pid; for i in $(seq 600); do [ -e /proc/$pid ] || exit 0; sleep 0.2; done; exit 1")
        report = self.machine.sh(f"forebay pool check --json {one.pool} 2>/dev/null")
        if not json.loads(report)["whole"] or any(int(records) for records in re.findall(r'"records": *(\d+)', report)):
            raise Failure(f"{one.name}: after an orderly end the pool is not empty: {report}")
        self.start("plainly", is_plain=True)
        self.check("ended, nothing left in the pool, started plainly")


def cut(lives: list[DatabaseLife]) -> None:
    """The power goes while clients write to all databases; the machine boots again."""
    machine = lives[0].machine
    writers = [f"({life.database.writing(life.record.next)}) 2>/dev/null | stdbuf -oL sed 's/^/{life.database.name} /' &" for life in lives]
    counts = {life.database.name: 0 for life in lives}
    by_name = {life.database.name: life for life in lives}
    for line in machine.lines("\n".join([*writers, "wait"])):
        name, _, number = line.partition(" ")
        if name in by_name:
            counts[name] += by_name[name].record.note(number)
        if min(counts.values()) >= CUT_AFTER:
            break
    if min(counts.values()) < CUT_AFTER:
        raise Failure(f"only so many writes were acknowledged before the cut: {counts}")
    machine.cut()
    machine.boot()
