"""A database's life in containers: started, written to, killed while it is written to, and started again by another container with the same volumes.

Numbers count as acknowledged when the client's line was read outside the container. A step that finds something else than it must raises `Failure`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable

from ..systemd.image import Failure
from ..systemd.lives import NUMBER, WriteRecord
from .databases import Served
from .engine import RUN, Podman

READY_LIMIT_S = 60.0
# For so many writes as are acknowledged before an end.
WRITES_LIMIT_S = 300.0
WRITES = 200
# Acknowledged after so many, the container goes.
KILL_AFTER = 150
USER = 999
POOL_OPTIONS = {"disk": "--disk --size 64MiB", "memory": "--emulated --size 64MiB", "layer": "--disk --size 64MiB"}
# By which a directory says which pools have records of its files.
MARK = "user.forebay.pools"


@dataclasses.dataclass(frozen=True)
class Trial:
    """What is special of a container."""

    name: str
    # Of `podman run`.
    options: tuple[str, ...] = ()
    # Where the pool lies: on a volume on a disk, on one in memory, in the container's own /dev/shm, or, with the data and without a volume, in its own layer.
    pool: str = "disk"
    # What the run has to say of it, as a pattern.
    says: str = ""
    # True if nothing is absorbed here, of which `says` has the reason.
    is_plain: bool = False
    # The status of pool and data as a volume with a group of its own has it (Kubernetes's fsGroup).
    has_group: bool = False
    # True if it is restarted and stopped in order besides.
    restarts: bool = False


def end_behind(ended: subprocess.Popen[bytes], writer: subprocess.Popen[bytes]) -> None:
    """`podman exec` may wait for ever when its container was started again meanwhile."""
    ended.wait()
    time.sleep(2.0)
    writer.kill()


class ContainerLife:
    """One database with volumes of its own, in one container after the other."""

    def __init__(self, podman: Podman, database: Served, trial: Trial, scratch: pathlib.Path) -> None:
        self.podman, self.database, self.trial = podman, database, trial
        self.name = f"{database.name}-{re.sub('[^a-z0-9]+', '-', trial.name.lower()).strip('-')}"
        self.record = WriteRecord()
        self.home = scratch / "volumes" / self.name
        self.data, self.pool = self.home / "data", self.home / "pool"
        # What was found, for the table.
        self.found: list[str] = []

    def say(self, text: str) -> None:
        print(f"{self.name:36} {text}", flush=True)

    def lay_volumes(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        for place in (self.data, self.pool):
            place.mkdir(parents=True)
        if self.trial.pool == "memory":
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "pool", str(self.pool)], check=True)
        for place in (self.data, self.pool):
            os.chown(place, 0 if self.trial.has_group else USER, USER)
            place.chmod(0o2775 if self.trial.has_group else 0o755)

    def drop_volumes(self) -> None:
        subprocess.run(["umount", "--quiet", str(self.pool)], check=False, capture_output=True)
        shutil.rmtree(self.home, ignore_errors=True)

    def remove(self) -> None:
        """Its container, and its volumes."""
        self.podman.remove(self.name)
        self.drop_volumes()

    def tried(self) -> str:
        """Runs it, and removes it: what it found, in a few words."""
        try:
            self.run()
        finally:
            self.remove()
        return "; ".join(dict.fromkeys(self.found))

    def volumes(self) -> list[str]:
        if self.trial.pool == "layer":
            return []
        mapped = ":U" if any(option.startswith("--uidmap") for option in self.trial.options) else ""
        return ["--volume", f"{self.data}:/data{mapped}", "--volume", f"{self.pool}:/pool{mapped}"]

    def creating(self) -> str:
        """The arguments by which forebay makes the pool."""
        return f"pool create {self.database.pool} {POOL_OPTIONS[self.trial.pool]} --segment-size 1MiB"

    def make_pool(self) -> None:
        if self.trial.pool in ("shm", "layer"):
            return
        words = self.creating().split()
        self.podman.call(*RUN, "--rm", *self.trial.options, *self.volumes(), "--entrypoint", "forebay", self.database.image, *words)
        if self.trial.has_group:
            (self.pool / pathlib.Path(self.database.pool).name).chmod(0o660)

    def start(self, command: list[str] | None = None) -> None:
        self.podman.remove(self.name)
        entry: list[str] = []
        if self.trial.pool in ("shm", "layer"):
            inspected = json.loads(self.podman.call("inspect", "--format", "{{json .Config}}", self.database.image))
            words = inspected["Entrypoint"] + inspected["Cmd"]
            if self.trial.pool == "shm":
                at = words.index("--pool")
                words[at : at + 2] = ["--emulated", "16MiB"]
            else:
                # No other container can make it there.
                words = ["bash", "-c", f'test -e {self.database.pool} || forebay {self.creating()}; exec "$@"', "bash", *words]
            entry, command = ["--entrypoint", words[0]], words[1:]
        self.podman.call(*RUN, "--detach", "--name", self.name, *self.trial.options, *self.volumes(), *entry, self.database.image, *(command or []))

    def start_anew(self) -> str:
        """After an end: another container with the same volumes, or the same one where it has none. Says which."""
        if self.trial.pool == "layer":
            self.podman.call("start", self.name)
            return "the same container"
        self.start()
        return "another container with the same volumes"

    def marks(self) -> list[str]:
        """The directories of the container's own layer that have a mark."""
        upper = pathlib.Path(self.podman.call("inspect", "--format", "{{.GraphDriver.Data.UpperDir}}", self.name)) / "data"
        return [str(place) for place, _, _ in os.walk(upper) if MARK in os.listxattr(place)]

    def log(self) -> str:
        return self.podman.ask("logs", self.name)[1]

    def wait_ready(self, how: str) -> None:
        until = time.monotonic() + READY_LIMIT_S
        while time.monotonic() < until:
            if self.podman.inside(self.name, f"({self.database.is_ready}) >/dev/null 2>&1")[0] == 0:
                return
            if not self.podman.state(self.name)["Running"]:
                break
            time.sleep(0.1)
        raise Failure(f"{self.name} is not ready ({how}):\n{self.log()[-3000:]}")

    def begin(self) -> None:
        """The first writes to a new database."""
        status, said = self.podman.inside(self.name, self.database.begin_log)
        if status != 0:
            raise Failure(f"{self.name}: {self.database.begin_log}: {said}")
        self.write(WRITES)

    def write(self, count: int) -> None:
        last = self.record.next + count - 1
        status, said = self.podman.inside(self.name, self.database.writing(self.record.next, last))
        noted = sum(self.record.note(line) for line in said.splitlines())
        if noted != count:
            raise Failure(f"{self.name}: of {count} writes {noted} were acknowledged ({status}): {said[-1000:]}\n{self.log()[-2000:]}")
        self.record.next = last + 1

    def write_until(self, end: str, *words: object, before: Callable[[], None] = lambda: None) -> None:
        """Writes, and ends the container by a command of podman in the midst of it, behind what is done before. The writer's output is read all the while."""
        writer = self.podman.spawn("exec", self.name, "bash", "-c", self.database.writing(self.record.next))
        # A database that hangs acknowledges nothing, and its client waits for ever.
        limit = threading.Timer(WRITES_LIMIT_S, writer.kill)
        limit.start()
        count, ended, said = 0, None, []
        for line in writer.stdout:
            said.append(line.decode(errors="replace").strip())
            count += self.record.note(said[-1])
            if count == KILL_AFTER and ended is None:
                limit.cancel()
                before()
                ended = self.podman.spawn(end, *words, self.name)
                threading.Thread(target=end_behind, args=(ended, writer), daemon=True).start()
        writer.wait()
        limit.cancel()
        if ended is None:
            raise Failure(f"{self.name}: only {count} writes were acknowledged before {end}: {said[-10:]}\n{self.log()[-2000:]}")
        told = ended.communicate()[0].decode(errors="replace")
        if ended.returncode != 0:
            raise Failure(f"{self.name}: podman {end}: {told}")

    def check(self, when: str) -> None:
        """All acknowledged numbers are there, each once."""
        status, said = self.podman.inside(self.name, self.database.read)
        found = [int(line) for line in said.split() if NUMBER.fullmatch(line)]
        fault = self.record.fault(found)
        if status != 0 or fault:
            raise Failure(f"{self.name}: {when}, {fault or said[-1000:]}\n{self.log()[-2000:]}")
        self.record.next = max([self.record.next, *(number + 1 for number in found)])
        self.say(f"{when}: all {len(self.record.acknowledged)} acknowledged writes are there")

    def runs(self) -> list[dict]:
        return self.parsed(*self.podman.ask("exec", self.name, "forebay", "status", "--json"))

    def parsed(self, status: int, said: str) -> list[dict]:
        lines = [json.loads(line) for line in said.splitlines() if line.startswith(("[", "{"))]
        if not lines or not isinstance(lines[-1], list):
            raise Failure(f"{self.name}: forebay status: {status}: {said[-1000:]}")
        return lines[-1]

    def check_standing(self) -> None:
        """It absorbs, or it says why not: as the trial has it."""
        log = self.log()
        said = re.search(self.trial.says, log)
        if said is None:
            raise Failure(f"{self.name}: it does not say {self.trial.says!r}:\n{log[-3000:]}")
        runs = [run for run in self.runs() if "files" in run]
        absorbed = [file for run in runs for file in run["files"] if self.database.absorbed in file["path"] and file["bytes"] > 0 and not file["retired"]]
        if self.trial.is_plain == bool(absorbed) or (not absorbed and not self.trial.is_plain):
            raise Failure(f"{self.name}: {'something' if absorbed else 'nothing'} is absorbed: {json.dumps(runs)[:3000]}\n{log[-2000:]}")
        if absorbed:
            syncs, size = sum(file["syncs"] for file in absorbed), sum(file["bytes"] for file in absorbed)
            self.found.append(f"absorbed, {runs[0]['outside_writer'].replace('_', ' ')}")
            if self.trial.pool == "layer" and not self.marks():
                raise Failure(f"{self.name}: no directory of its own layer has the extended attribute {MARK}")
            self.say(f"absorbed: {size} bytes, {syncs} syncs saved ({runs[0]['survives'] if 'survives' in runs[0] else runs[0].get('persistence')})")
        else:
            self.found.append("plain")
            self.say(f"plain: {said[0]}")

    def run(self) -> None:
        """The whole life."""
        self.lay_volumes()
        self.make_pool()
        self.start()
        self.wait_ready("at first")
        self.begin()
        self.check_standing()
        self.write_until("kill", "--signal", "KILL")
        which = self.start_anew()
        self.wait_ready(f"killed, {which}")
        self.check(f"killed, {which}")
        self.write(20)
        self.check_standing()
        if self.trial.restarts:
            self.restart_and_stop()
        self.found.append("0 lost")

    def restart_and_stop(self) -> None:
        self.write_until("restart", "--time", 60)
        self.wait_ready("restarted")
        self.check("podman restart while writing")
        self.podman.call("stop", "--time", 60, self.name)
        ended = self.podman.state(self.name)["ExitCode"]
        self.start()
        self.wait_ready("stopped")
        self.check(f"podman stop (status {ended})")
