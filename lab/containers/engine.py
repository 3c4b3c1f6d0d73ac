"""podman, without a daemon, with a storage of its own: what runs here is in no one else's list, and all of it is gone at the end."""

from __future__ import annotations

import hashlib
import json
import pathlib
import resource
import shutil
import subprocess

from ..systemd.image import Failure

# What every container has: no network, and limits of resources below this machine's, which root may not everywhere raise.
LIMITS = {"nofile": (resource.RLIMIT_NOFILE, 16384), "nproc": (resource.RLIMIT_NPROC, 4096)}
BELOW = [f"{name}={most}:{most}" for name, (kind, wanted) in LIMITS.items() for most in [min(wanted, resource.getrlimit(kind)[1] % (1 << 31))]]
RUN = ("run", "--network", "none", *(word for limit in BELOW for word in ("--ulimit", limit)))
# A start with a recovery, an image that is built: all have to end by then.
LIMIT_S = 300.0


class Podman:
    """One, whose images and containers lie in `scratch`."""

    def __init__(self, scratch: pathlib.Path) -> None:
        # In memory, as everywhere: what it keeps there is wrong after a reboot. The storage knows it by its name.
        self.run_dir = pathlib.Path("/run") / f"forebay-lab-{hashlib.sha256(bytes(scratch)).hexdigest()[:12]}"
        self.run_dir.mkdir(exist_ok=True)
        self.storage = scratch / "storage"
        places = ["--root", self.storage, "--runroot", self.run_dir / "root", "--tmpdir", self.run_dir / "tmp"]
        kinds = ["--storage-driver", "overlay", "--cgroup-manager", "cgroupfs", "--events-backend", "none", "--runtime", "runc"]
        # podman's monitor leaves a file where it was started when a container meets its memory limit: all is started there.
        self.command = ["podman", *map(str, places), *kinds]

    def ask(self, *words: object, limit_s: float = LIMIT_S) -> tuple[int, str]:
        """The status of a command of podman, and what it printed."""
        command = [*self.command, *map(str, words)]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=limit_s, cwd=self.run_dir)
        except subprocess.TimeoutExpired as late:
            raise Failure(f"podman {words[0]} does not end in {limit_s:.0f} s: {(late.output or b'')[-2000:]!r}") from None
        return done.returncode, done.stdout.strip()

    def call(self, *words: object, limit_s: float = LIMIT_S) -> str:
        """What a command prints that must succeed."""
        status, said = self.ask(*words, limit_s=limit_s)
        if status != 0:
            raise Failure(f"podman {' '.join(map(str, words))}: status {status}: {said[-3000:]}")
        return said

    def spawn(self, *words: object) -> subprocess.Popen[bytes]:
        """A command whose output is read as it comes."""
        return subprocess.Popen([*self.command, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.run_dir)

    def inside(self, container: str, script: str, *options: str, limit_s: float = LIMIT_S) -> tuple[int, str]:
        """The status of a script in a container that runs, and what it printed."""
        return self.ask("exec", *options, container, "bash", "-c", script, limit_s=limit_s)

    def state(self, container: str) -> dict:
        return json.loads(self.call("inspect", "--format", "{{json .State}}", container))

    def has_image(self, name: str) -> bool:
        return self.ask("image", "exists", name)[0] == 0

    def remove(self, container: str) -> None:
        self.ask("rm", "--force", "--time", 0, "--ignore", container)

    def __enter__(self) -> Podman:
        return self

    def __exit__(self, *_: object) -> None:
        self.ask("pod", "rm", "--all", "--force")
        self.ask("rm", "--all", "--force", "--time", 0)
        self.ask("unmount", "--all")
        self.drop_run_dir()

    def drop_run_dir(self) -> None:
        # Where nothing was mounted, there is nothing to be let go of.
        for place in (self.run_dir, self.storage / "overlay"):
            subprocess.run(["umount", "--quiet", "--lazy", str(place)], check=False, capture_output=True)
        shutil.rmtree(self.run_dir, ignore_errors=True)
