"""A container in the machine's place: the same Debian and its systemd, on the kernel of this machine, at its speed.

Its disks are loop devices. A cut kills all its processes at one moment; what the kernel had of their files survives, and for Forebay it is the
same boot. It needs root, and no KVM.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

from .image import HERE, Failure, call, disks

BOOT_LIMIT_S = 120.0
CGROUPS = (pathlib.Path("/sys/fs/cgroup/unified"), pathlib.Path("/sys/fs/cgroup"))


class Container:
    """One, with its disks in `scratch`."""

    def __init__(self, scratch: pathlib.Path, debs: dict[str, pathlib.Path]) -> None:
        self.scratch = scratch
        scratch.mkdir(parents=True, exist_ok=True)
        self.root = scratch / "root"
        self.root.mkdir(exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None
        self.init = 0
        self.mounted: list[pathlib.Path] = []
        cgroups = [place for place in CGROUPS if (place / "cgroup.procs").exists()]
        if not cgroups:
            raise Failure("a container needs the unified control groups (cgroup2), which are not mounted here")
        self.cgroup = cgroups[0] / f"forebay-lab-{os.getpid()}"
        images = disks(scratch, debs)
        try:
            for image, place in zip(images, ("", "fast", "parcel"), strict=True):
                call("mount", "-o", "loop", image, self.root / place)
                self.mounted.append(self.root / place)
        except Failure:
            self._unmount()
            raise
        (self.root / "etc/fstab").write_text("")
        (self.root / "etc/systemd/system/multi-user.target.wants/lab-agent.service").unlink()
        # Persistent memory is a directory like any other here.
        shutil.rmtree(self.root / "mnt")
        (self.root / "mnt").mkdir()

    def boot(self) -> None:
        self.cgroup.mkdir(exist_ok=True)
        into = f"echo $$ >{self.cgroup}/cgroup.procs && exec unshare --mount --uts --ipc --net --pid --cgroup --fork --kill-child --propagation private"
        command = ["setpriv", "--pdeathsig", "KILL", "sh", "-c", f"{into} sh {HERE}/guest/container.sh {self.root}"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        until = time.monotonic() + BOOT_LIMIT_S
        while time.monotonic() < until:
            self.init = self._child()
            with contextlib.suppress(Failure):
                if self.init and self.ask("systemctl is-system-running --wait", 60.0)[1] in ("running", "degraded"):
                    return
            if self.process.poll() is not None:
                raise Failure(f"the container ended with {self.process.returncode}")
            time.sleep(0.2)
        raise Failure("the container does not come up")

    def _child(self) -> int:
        """The number of its first process, once that is systemd."""
        try:
            children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            return int(children[0]) if pathlib.Path(f"/proc/{children[0]}/comm").read_text() == "systemd\n" else 0
        except (OSError, IndexError):
            return 0

    def _command(self, script: str) -> list[str]:
        clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
        return ["nsenter", "-t", str(self.init), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", *clean, "bash", "-c", script]

    def lines(self, script: str, limit_s: float = 240.0) -> Iterator[str]:
        """The lines that a script prints, as they come, until it ends, which it must in time."""
        process = subprocess.Popen(self._command(script), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        until = time.monotonic() + limit_s
        rest = b""
        try:
            while True:
                ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
                if not ready:
                    raise Failure(f"in the container this does not end in {limit_s:.0f} s: {script}")
                part = os.read(process.stdout.fileno(), 65536)
                *whole, rest = (rest + part).split(b"\n")
                yield from (line.decode(errors="replace") for line in whole)
                if not part:
                    break
            if rest:
                yield rest.decode(errors="replace")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def ask(self, script: str, limit_s: float = 240.0) -> tuple[int, str]:
        """The status of a script, and what it printed."""
        try:
            done = subprocess.run(self._command(script), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit_s)
        except subprocess.TimeoutExpired as late:
            raise Failure(f"in the container this does not end: {script}\nit said: {(late.output or b'').decode(errors='replace')[-3000:]}") from None
        return done.returncode, done.stdout.strip()

    def sh(self, script: str, limit_s: float = 240.0) -> str:
        """What a script prints that must succeed."""
        status, said = self.ask(f"set -e -o pipefail\n{script}", limit_s)
        if status != 0:
            raise Failure(f"in the container, status {status}: {script}\nit said: {said[-4000:]}")
        return said

    def cut(self) -> None:
        """All its processes are gone."""
        if self.process is None:
            return
        if self.init:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.init, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.process, self.init = None, 0
        self._emptied()

    def _emptied(self) -> None:
        until = time.monotonic() + 20.0
        while time.monotonic() < until:
            try:
                for directory, _, _ in os.walk(self.cgroup, topdown=False):
                    os.rmdir(directory)
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.1)
        left = [path.read_text().split() for path in self.cgroup.rglob("cgroup.procs")]
        raise Failure(f"of the container these processes do not end: {' '.join(sum(left, []))}")

    def wait_end(self, limit_s: float = 120.0) -> None:
        """Waits for an end of its own, such as a reboot, after which it does not come up by itself."""
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Failure("the container does not end") from None
        self.init = 0
        self.cut()

    def _unmount(self) -> None:
        for place in reversed(self.mounted):
            subprocess.run(["umount", "-l", str(place)], check=False)
        self.mounted = []

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.cut()
        finally:
            self._unmount()
