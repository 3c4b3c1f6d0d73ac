"""What takes more than one container, or another end than a kill: a limit of memory, a cut-off disk, a shared pool, musl, and the pods of examples/kubernetes."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import time
from collections.abc import Callable

from suites.cuts.disk import Disk

from ..systemd.image import Failure
from . import images
from .databases import POSTGRES, REDIS, Served
from .engine import RUN, Podman
from .life import USER, ContainerLife, Trial
from .memory import memory_of
from .pods import pod_of
from .rootless import rootless_of

MIB = 1 << 20
# What a server without the pool says of the files that a cut left, and what that means.
REFUSALS = {"held-by-forebay": "the guard keeps the server from starting", "Bad file format": "the server finds its log damaged"}
# Of each pool in the table of memory.
POOL_MIB = 64


def all_scenes(scratch: pathlib.Path, musl_program: pathlib.Path | None) -> dict[str, Callable[[Podman], str]]:
    """By name."""
    scenes: dict[str, Callable[[Podman], str]] = {}
    for database in (REDIS, POSTGRES):
        scenes[f"{database.name}: its disk is cut off"] = lambda podman, database=database: cut(podman, database, scratch)
        scenes[f"{database.name}: rootless podman"] = lambda podman, database=database: rootless_of(podman, database)
        scenes[f"{database.name}: pod of examples/kubernetes"] = lambda podman, database=database: pod_of(podman, database, scratch)
    scenes["redis: two containers share a pool"] = lambda podman: shared(podman, scratch)
    scenes["redis: killed for its memory limit"] = lambda podman: out_of_memory(podman, scratch)
    scenes["postgres: a backend killed for the memory limit"] = lambda podman: backend_out_of_memory(podman, scratch)
    for pool in ("disk", "memory", "shm"):
        scenes[f"redis: memory of a pool ({pool})"] = lambda podman, pool=pool: memory(podman, pool, scratch)
    if musl_program:
        scenes["musl: an image without the GNU C library"] = lambda podman: musl(podman, musl_program, scratch)
    return scenes


class DiskLife(ContainerLife):
    """With data and pool on disks of their own; that of the data can be cut off."""

    def lay_volumes(self) -> None:
        super().lay_volumes()
        self.disks = {}
        for name in ("data", "pool"):
            home = self.home / f"{name}-disk"
            home.mkdir()
            self.disks[name] = Disk(home, "ext4")
            setattr(self, name, self.disks[name].mounted)
            shutil.chown(self.disks[name].mounted, USER, USER)

    def drop_volumes(self) -> None:
        for disk in getattr(self, "disks", {}).values():
            # Another mount namespace that was made meanwhile may hold it a little longer: it goes with that.
            with contextlib.suppress(RuntimeError):
                disk.close()
        super().drop_volumes()

    def cut_while_writing(self) -> None:
        """What was not synced to the disk of the data is gone, as after a power cut; then the container is killed."""
        self.write_until("kill", "--signal", "KILL", before=self.disks["data"].cut)
        self.podman.remove(self.name)


def cut(podman: Podman, database: Served, scratch: pathlib.Path) -> str:
    """The disk with the data loses what was not synced; the pool, on another disk, has it. Without the pool it would be lost."""
    life = DiskLife(podman, database, Trial("cut"), scratch)
    try:
        life.lay_volumes()
        life.make_pool()
        life.start()
        life.wait_ready("at first")
        life.begin()
        life.check_standing()
        life.cut_while_writing()
        life.disks["data"].mount_again()
        missing = without_pool(life)
        life.start()
        life.wait_ready("its disk was cut off")
        life.check("the data's disk cut off while writing")
        return f"{missing}; 0 lost with the pool"
    finally:
        life.remove()


def without_pool(life: ContainerLife) -> str:
    """What a server without Forebay makes of a copy of the files that the cut left: it must lack acknowledged writes, or refuse to start."""
    copy = life.home / "copy"
    shutil.copytree(life.data, copy, symlinks=True)
    for path in (copy, *copy.rglob("*")):
        shutil.chown(path, USER, USER)
    name = f"{life.name}-plain"
    words = {"redis": ["redis-server", "--dir", "/data", "--appendonly", "yes", "--save", ""], "postgres": ["postgres"]}[life.database.name]
    life.podman.call(*RUN, "--detach", "--name", name, "--volume", f"{copy}:/data", "--entrypoint", words[0], life.database.image, *words[1:])
    try:
        until = time.monotonic() + 20.0
        while time.monotonic() < until and life.podman.state(name)["Running"]:
            if life.podman.inside(name, life.database.is_ready)[0] == 0:
                said = life.podman.inside(name, life.database.read)[1]
                lost = life.record.acknowledged - {int(line) for line in said.split() if line.isdigit()}
                if not lost:
                    raise Failure(f"{life.name}: the cut lost nothing, so it shows nothing")
                return f"{len(lost)} of {len(life.record.acknowledged)} lost without the pool"
            time.sleep(0.1)
        log = life.podman.ask("logs", name)[1]
        for pattern, meaning in REFUSALS.items():
            if pattern in log:
                return f"without the pool {meaning}"
        raise Failure(f"{name}: it does not start, for no reason that is known:\n{log[-2000:]}")
    finally:
        life.podman.remove(name)


def shared(podman: Podman, scratch: pathlib.Path) -> str:
    """Each has its own data and namespaces, and both one pool: one is killed and comes back while the other goes on."""
    lives = [ContainerLife(podman, REDIS, Trial(f"shares a pool {number}"), scratch) for number in (1, 2)]
    first, second = lives
    try:
        first.lay_volumes()
        second.lay_volumes()
        second.pool = first.pool
        first.make_pool()
        for life in lives:
            life.start()
            life.wait_ready("at first")
            life.write(100)
            life.check_standing()
        first.write_until("kill", "--signal", "KILL")
        second.write(100)
        first.start()
        first.wait_ready("killed beside the other")
        first.check("killed beside the other")
        second.write(100)
        second.write_until("kill", "--signal", "KILL")
        first.write(100)
        for life in lives:
            life.start()
            life.wait_ready("both anew")
            life.check("both anew")
        return "each absorbed; 0 lost"
    finally:
        for life in lives:
            life.remove()


def out_of_memory(podman: Podman, scratch: pathlib.Path) -> str:
    """The kernel kills the server for the container's limit; the supervisor syncs the rest, and nothing that was acknowledged is missing."""
    limit = ("--memory", "128m", "--memory-swap", "128m")
    life = ContainerLife(podman, REDIS, Trial("oom", limit), scratch)
    try:
        life.lay_volumes()
        life.make_pool()
        life.start()
        life.wait_ready("at first")
        life.write(200)
        fill = "head -c 1000000 /dev/zero | tr '\\0' x >/tmp/value; for n in $(seq 400); do redis-cli -x set filler:$n </tmp/value >/dev/null || break; redis-cli rpush lab $((100000 + n)) >/dev/null && echo $((100000 + n)); done"
        acknowledged = podman.inside(life.name, fill)[1]
        count = sum(life.record.note(line) for line in acknowledged.splitlines())
        until = time.monotonic() + 30.0
        while podman.state(life.name)["Running"] and time.monotonic() < until:
            time.sleep(0.1)
        state = podman.state(life.name)
        if state["Running"] or count in (0, 400):
            raise Failure(f"{life.name}: it was not killed for its memory ({count} writes): {state}\n{life.log()[-2000:]}")
        life.say(f"killed after {count} MB: {'OOMKilled' if state['OOMKilled'] else 'status'} {state['ExitCode']}")
        life.trial = Trial("oom")
        life.start()
        life.wait_ready("killed for its memory")
        life.check("killed for its memory limit, another container without")
        return f"the kernel ended it after {count} MB of values (status {state['ExitCode']}); 0 lost"
    finally:
        life.remove()


def backend_out_of_memory(podman: Podman, scratch: pathlib.Path) -> str:
    """The kernel kills one backend for the container's limit, and the postmaster ends the others and recovers within the run, which goes on to absorb."""
    life = ContainerLife(podman, POSTGRES, Trial("oom", ("--memory", "400m", "--memory-swap", "400m")), scratch)
    try:
        life.lay_volumes()
        life.make_pool()
        life.start()
        life.wait_ready("at first")
        life.begin()
        # A backend whose array has some hundred bytes for each of its elements.
        status, said = podman.inside(life.name, "psql -qAtXc \"select length(array_agg(repeat(md5(n::text), 30))::text) from generate_series(1, 2000000) n\"")
        log = life.log()
        if status == 0 or "was terminated by signal 9" not in log:
            raise Failure(f"{life.name}: no backend was killed for its memory ({status}): {said[-500:]}\n{log[-2000:]}")
        life.wait_ready("a backend killed for its memory")
        life.check("a backend killed for the memory limit, the same run")
        life.write(20)
        life.check_standing()
        life.write_until("kill", "--signal", "KILL")
        life.start()
        life.wait_ready("killed after that")
        life.check("killed after that")
        return "the kernel killed a backend, and the server recovered in the run; absorbed; 0 lost"
    finally:
        life.remove()


def memory(podman: Podman, pool: str, scratch: pathlib.Path) -> str:
    """What of the pool counts to the container's memory, before and after the server wrote some times its size."""
    life = ContainerLife(podman, REDIS, Trial(f"memory {pool}", ("--memory", "1g", "--shm-size", "128m"), pool=pool), scratch)
    try:
        life.lay_volumes()
        life.make_pool()
        life.start()
        life.wait_ready("at first")
        before = memory_of(podman, life.name)
        podman.inside(life.name, f"redis-benchmark -q -t set -d 4096 -n {3 * POOL_MIB * MIB // 4096} -c 8 -r 10")
        after = memory_of(podman, life.name)
        shown = [f"{kind} {before[kind] // MIB} → {after[kind] // MIB} MiB" for kind in before]
        life.say(", ".join(shown))
        return ", ".join(shown)
    finally:
        life.remove()


def musl(podman: Podman, program: pathlib.Path, scratch: pathlib.Path) -> str:
    """Without the GNU C library the command does not start; with it beside musl an agent serves the program, where it may."""
    images.musl(podman, scratch, program)
    life = ContainerLife(podman, Served("musl", f"{images.MUSL}-with-libraries", "/pool/musl.pool", ".aof", "", "", ""), Trial("musl"), scratch)
    try:
        life.lay_volumes()
        status, said = podman.ask(*RUN, "--rm", f"{images.MUSL}-three-lines", "true")
        if status == 0 or "no such file" not in said.lower():
            raise Failure(f"musl: the command starts without its loader: {status}: {said}")
        life.make_pool()
        words = [*RUN, "--rm", *life.volumes(), "--cap-add", "SYS_PTRACE", life.database.image, f"/usr/bin/{program.name}", "/data/numbers.aof", 1, 500]
        said = podman.call(*words)
        if "agent" not in said or not re.search(r"^500$", said, re.M):
            raise Failure(f"musl: no agent serves the program: {said[-2000:]}")
        written = (life.data / "numbers.aof").read_text().split()
        if written != [str(number) for number in range(1, 501)]:
            raise Failure(f"musl: {len(written)} of 500 numbers are in the file")
        life.say(next(line for line in said.splitlines() if "agent" in line))
        return "with the loader and libraries an agent serves it; without, the command does not start"
    finally:
        life.drop_volumes()
