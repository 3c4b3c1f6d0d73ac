"""What each database's unit goes through: switched on, killed, cut off, restarted, upgraded under, and switched off with the proof.

Each step says what was done and what it found; a step that finds something else than it must raises `Failure`.
"""

from __future__ import annotations

import json
import re
import shlex
import time

from .databases import Database
from .image import Failure
from .machine import Machine

NUMBER = re.compile(r"\d+")
READY_LIMIT_S = 120
WRITES = 200
# Acknowledged after so many, the power goes.
CUT_AFTER = 150
# The machine reboots itself after so many.
REBOOT_AFTER = 20


class WriteRecord:
    """What one database was given, in all lives of its unit: its files stay from one to the next."""

    def __init__(self) -> None:
        # All numbers that were acknowledged.
        self.acknowledged: set[int] = set()
        self.next = 1
        self.is_prepared = False

    def note(self, line: str) -> bool:
        """True if the line acknowledges a number that was not yet."""
        if not NUMBER.fullmatch(line.strip()) or int(line) in self.acknowledged:
            return False
        self.acknowledged.add(int(line))
        return True

    def fault(self, found: list[int]) -> str:
        """What is wrong of the numbers that the database has: none may be missing of those that were acknowledged, nor be there twice."""
        lost = self.acknowledged - set(found)
        if lost:
            return f"{len(lost)} of {len(self.acknowledged)} acknowledged writes are LOST: {sorted(lost)[:20]}"
        return "writes are there twice" if len(found) != len(set(found)) else ""


class UnitLife:
    """One database's unit in one machine, with a pool in one place."""

    def __init__(self, machine: Machine, database: Database, pool: str, record: WriteRecord) -> None:
        self.machine = machine
        self.database = database
        self.pool = pool
        self.unit = database.unit
        self.record = record

    def say(self, text: str) -> None:
        print(f"{self.database.name:9}{text}", flush=True)

    def run(self) -> None:
        """All steps, in their order."""
        self.wait_ready("plainly")
        if not self.record.is_prepared:
            self.machine.sh(self.database.prepare)
            self.record.is_prepared = True
        self.check("plainly")
        self.write(20)
        self.enable_without_restart()
        self.enable()
        self.write(WRITES)
        self.check_absorbed()
        for whom in ("all", "main"):
            self.kill(whom)
        for how in ("cut", "reboot"):
            self.cut(how)
        self.restart_while_writing()
        self.reload()
        self.upgrade()
        self.disable()

    def wait_ready(self, how: str) -> None:
        script = f"for i in $(seq {READY_LIMIT_S * 4}); do ({self.database.is_ready}) >/dev/null 2>&1 && exit 0; sleep 0.25; done; exit 1"
        status, _ = self.machine.ask(script, READY_LIMIT_S * 3)
        if status != 0:
            _, said = self.machine.ask(f"systemctl status --no-pager -l {self.unit}; journalctl -b --no-pager -n 40 -u {self.unit} -u 'forebay-recover@*'")
            raise Failure(f"{self.unit} is not ready ({how}):\n{said}")

    def write(self, count: int) -> None:
        last = self.record.next + count - 1
        noted = sum(self.record.note(line) for line in self.machine.lines(self.database.writing(self.record.next, last)))
        if noted != count:
            raise Failure(f"{self.unit}: of {count} writes {noted} were acknowledged")
        self.record.next = last + 1

    def check(self, when: str) -> None:
        """All acknowledged numbers are there, each once."""
        found = [int(line) for line in self.machine.sh(self.database.read).split()]
        fault = self.record.fault(found)
        if fault:
            raise Failure(f"{self.unit}: {when}, {fault}")
        self.record.next = max([self.record.next, *(number + 1 for number in found)])
        self.say(f"{when}: all {len(self.record.acknowledged)} acknowledged writes are there")

    def status(self) -> dict:
        """What the unit's run says of itself."""
        _, said = self.machine.ask("forebay status --all --json 2>/dev/null")
        runs = [run for run in json.loads(said) if run.get("run_dir") == f"/run/forebay-{self.unit}"]
        if len(runs) != 1:
            raise Failure(f"{self.unit}: {len(runs)} runs in status: {said}")
        return runs[0]

    def check_absorbed(self) -> None:
        run = self.status()
        files = [file for file in run["files"] if self.database.absorbed in file["path"] and file["bytes"] > 0 and not file["retired"]]
        if not files or run["degraded"]:
            raise Failure(f"{self.unit}: nothing is absorbed: {json.dumps(run, indent=1)}")
        absorbed = sum(file["bytes"] for file in files), sum(file["syncs"] for file in files)
        self.say(f"absorbed: {absorbed[0]} bytes, {absorbed[1]} syncs saved ({run['medium']})")

    def properties(self) -> dict[str, str]:
        shown = self.machine.sh(f"systemctl show {self.unit} -p Type,MainPID,ActiveState,SubState,NRestarts,Result,StatusText,DropInPaths")
        return dict(line.split("=", 1) for line in shown.splitlines())

    def check_under(self) -> None:
        """The unit is active, and its main process is forebay's."""
        shown = self.properties()
        comm = self.machine.sh(f"cat /proc/{shown['MainPID']}/comm")
        if (shown["ActiveState"], comm) != ("active", "forebay"):
            raise Failure(f"{self.unit} is not active under forebay: {comm}: {shown}")

    def enable(self) -> None:
        words = f"forebay enable {self.unit} {self.database.options} {self.pool}"
        before = self.machine.sh(LISTED)
        shown = self.machine.sh(f"{words} --dry-run")
        if self.machine.sh(LISTED) != before or "zz-forebay.conf (to be written)" not in shown:
            raise Failure(f"{self.unit}: --dry-run changed something, or shows nothing:\n{shown}")
        status, said = self.machine.ask(f"{words} </dev/null")
        if status == 0 or "Nothing was changed" not in said or self.machine.sh(LISTED) != before:
            raise Failure(f"{self.unit}: without a terminal and --yes: {status}: {said}")
        said = self.machine.sh(f"{words} --yes")
        self.wait_ready("after enable")
        self.check_under()
        self.check("enabled")
        self.say(said.splitlines()[-1])

    def enable_without_restart(self) -> None:
        """The unit runs on plainly, and under forebay once it is restarted as it was said."""
        before = self.properties()["MainPID"]
        said = self.machine.sh(f"forebay enable {self.unit} {self.database.options} {self.pool} --yes --no-restart")
        shown = self.properties()
        if shown["MainPID"] != before or shown["ActiveState"] != "active" or f"systemctl restart {self.unit}" not in said:
            raise Failure(f"{self.unit}: enable --no-restart restarted it, or does not say how: {said}: {shown}")
        self.write(20)
        self.machine.sh(f"systemctl restart {self.unit}")
        self.wait_ready("restarted after enable --no-restart")
        self.check_under()
        self.write(20)
        self.machine.sh(f"forebay disable {self.unit} --yes")
        self.wait_ready("disabled again")
        self.check("enabled with --no-restart, restarted, disabled")

    def kill(self, whom: str) -> None:
        """Kills while writes come, all processes or the supervisor alone: it comes back by itself, or is started."""
        self.begin_writer()
        self.machine.sh(f"systemctl kill --kill-whom={whom} -s KILL {self.unit}; sleep 1")
        again = "by itself"
        if not self.database.restarts:
            again = "by systemctl start"
            self.machine.sh(f"until systemctl show -p ActiveState {self.unit} | grep -qE 'failed|inactive'; do sleep 0.1; done; systemctl start {self.unit}")
        self.wait_ready(f"killed, {whom}")
        self.end_writer()
        self.check_under()
        self.check(f"killed ({whom} processes), started again {again}")
        self.write(20)
        self.check_absorbed()

    def begin_writer(self) -> None:
        """Begins one in the background, in a session of its own, and waits until it writes, however slow the machine is."""
        script = f"cat >/run/writer.sh <<'END'\n{self.database.writing(self.record.next)}\nEND\n"
        self.machine.sh(script + ">/run/acks; setsid bash /run/writer.sh >/run/acks 2>/dev/null </dev/null & echo $! >/run/writer; until [ $(wc -l </run/acks) -ge 5 ]; do sleep 0.1; done")

    def end_writer(self) -> None:
        """Ends it, and counts what it got."""
        said = self.machine.sh("pkill -KILL -s $(cat /run/writer) || true; sleep 0.5; cat /run/acks")
        if not sum(self.record.note(line) for line in said.splitlines()):
            raise Failure(f"{self.unit}: nothing was written meanwhile: {said}")

    def cut(self, how: str) -> None:
        """The machine goes while writes come, by a power cut or `reboot -f`, and the unit comes back at boot."""
        count = 0
        script = self.database.writing(self.record.next)
        if how == "reboot":
            # Amid writes, however slow the machine is.
            amid = f"until [ $(wc -l </run/acks) -ge {REBOOT_AFTER} ]; do sleep 0.1; done; reboot -f"
            script = f">/run/acks; ({amid}) & {{ {script}; }} | tee /run/acks"
        said = []
        for line in self.machine.lines(script):
            said.append(line)
            count += self.record.note(line)
            if how == "cut" and count >= CUT_AFTER:
                break
        self.machine.cut() if how == "cut" else self.machine.wait_end()
        # A cut that comes when the writer has ended already is none amid writes.
        if count < (CUT_AFTER if how == "cut" else 1):
            raise Failure(f"{self.unit}: only {count} writes were acknowledged before {how}: {said[-20:]}")
        self.machine.boot()
        self.wait_ready(f"after {how}")
        self.check_under()
        self.check("after a power cut while writing" if how == "cut" else "after reboot -f while writing")
        self.write(20)
        self.check_absorbed()

    def restart_while_writing(self) -> None:
        self.begin_writer()
        began = time.monotonic()
        self.machine.sh(f"systemctl restart {self.unit}")
        self.wait_ready("restarted")
        took = time.monotonic() - began
        self.end_writer()
        self.check_under()
        self.check(f"systemctl restart while writing ({took:.1f} s)")

    def reload(self) -> None:
        """A unit that can be reloaded is, as it is without forebay."""
        if self.machine.sh(f"systemctl show -p CanReload --value {self.unit}") != "yes":
            return
        pid = self.properties()["MainPID"]
        self.machine.sh(f"systemctl reload {self.unit}")
        self.write(20)
        self.check_under()
        if self.properties()["MainPID"] != pid:
            raise Failure(f"{self.unit}: a reload restarted it")
        self.check("systemctl reload")

    def upgrade(self) -> None:
        pid = self.properties()["MainPID"]
        self.machine.sh("dpkg -i /parcel/new.deb")
        self.write(50)
        if self.properties()["MainPID"] != pid:
            raise Failure(f"{self.unit}: an upgrade of the package restarted it")
        self.check_absorbed()
        status, said = self.machine.ask("dpkg -r forebay")
        if status == 0 or f"forebay disable {self.unit}" not in said:
            raise Failure(f"{self.unit}: the package's removal is not refused: {said}")
        self.check("package upgraded under it, removal refused")
        self.machine.sh("dpkg -i /parcel/old.deb")

    def disable(self) -> None:
        status, said = self.machine.ask(f"forebay disable {self.unit} </dev/null")
        if status == 0 or "Nothing was changed" not in said:
            raise Failure(f"{self.unit}: disable without a terminal and --yes: {status}: {said}")
        report = json.loads(self.machine.sh(f"forebay disable {shlex.quote(self.unit)} --yes --json 2>/dev/null"))
        if not (report["is_proven"] and report["is_started"]):
            raise Failure(f"{self.unit}: {report}")
        self.wait_ready("after disable")
        shown = self.properties()
        comm = self.machine.sh(f"cat /proc/{shown['MainPID']}/comm")
        if shown["ActiveState"] != "active" or comm == "forebay" or "zz-forebay" in shown["DropInPaths"]:
            raise Failure(f"{self.unit} does not run plainly: {comm}: {shown}")
        self.check(f"disabled, proven, runs plainly as {comm}")
        self.write(20)
        self.machine.sh(f"systemctl restart {self.unit}")
        self.wait_ready("restarted plainly")
        self.check("restarted plainly")


# All that `forebay enable` and `disable` may change.
LISTED = "find /etc/systemd /run/systemd/system /var/lib/forebay /fast /mnt -xdev \\( -type f -o -type l \\) | sort | xargs -r stat -c '%n %s %Y %u %a'"
