"""What the kernel counts to a container's memory, of either kind of control groups."""

from __future__ import annotations

import pathlib

from .engine import Podman

# The unified groups, and where memory is counted by the older ones.
UNIFIED = pathlib.Path("/sys/fs/cgroup")
OLDER = pathlib.Path("/sys/fs/cgroup/memory")


def memory_of(podman: Podman, container: str) -> dict[str, int]:
    """Bytes: all that counts, of it memory of processes, memory that is shared (tmpfs, memfd), and files' pages."""
    lines = pathlib.Path(f"/proc/{podman.state(container)['Pid']}/cgroup").read_text().splitlines()
    paths = {controller: path for line in lines for controller, path in [line.split(":", 2)[1:]]}
    if "memory" in paths:
        group = OLDER / paths["memory"].lstrip("/")
        names = {"all": "usage", "processes": "rss", "shared": "shmem", "files": "cache"}
        whole = int((group / "memory.usage_in_bytes").read_text())
    else:
        group = UNIFIED / paths[""].lstrip("/")
        names = {"all": "usage", "processes": "anon", "shared": "shmem", "files": "file"}
        whole = int((group / "memory.current").read_text())
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    found = {kind: int(stat.get(name, 0)) for kind, name in names.items()}
    # Both count shared memory among the files' pages as well.
    return {**found, "all": whole, "files": found["files"] - found["shared"]}
