"""What a machine is made of: Debian with its databases, once for all machines, and disks that are each machine's own."""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import subprocess
from collections.abc import Iterable

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = [
    *("systemd", "systemd-sysv", "udev", "dbus", "procps", "kmod", "iproute2", "linux-image-amd64", "ndctl", "e2fsprogs"),
    *("redis-server", "postgresql", "mariadb-server", "etcd-server", "etcd-client", "valkey-server/bookworm-backports"),
]
SUITE = "bookworm"
# Valkey came after Debian 12; what is not asked for of the backports is not taken from there.
BACKPORTS = "deb http://deb.debian.org/debian bookworm-backports main"
MIRRORS = ["deb http://deb.debian.org/debian bookworm main", "deb http://deb.debian.org/debian-security bookworm-security main", BACKPORTS]
ROOT_BYTES = 4 << 30
FAST_BYTES = 1 << 30
PMEM_BYTES = 512 << 20


class Failure(Exception):
    """What keeps the laboratory from going on, in words."""


def call(*argv: object) -> None:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"{argv[0]} failed: {(done.stderr or done.stdout).strip()}")


def mmdebstrap(variant: str, packages: Iterable[str], *words: object) -> None:
    """Makes Debian with these packages; the words are further options, then what is made, and where."""
    # In mounts of its own: killed, it leaves the host's /dev/shm and others mounted in its directory, and the next one removes that.
    call("unshare", "--mount", "mmdebstrap", "--quiet", f"--variant={variant}", f"--include={','.join(packages)}", *words)


def base(scratch: pathlib.Path) -> pathlib.Path:
    """The directory with Debian's kernel (`vmlinuz`, `initrd.img`) and root disk (`root.ext4`), made unless they are there."""
    made_of = " ".join([SUITE, *MIRRORS, *PACKAGES]) + "".join((HERE / "guest" / name).read_text() for name in ("customize.sh", "lab-agent.service"))
    ready = scratch / f"base-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    if ready.is_dir():
        return ready
    partial, tree = scratch / "base.partial", scratch / "tree"
    for old in (partial, tree):
        shutil.rmtree(old, ignore_errors=True)
    partial.mkdir(parents=True)
    print("building Debian with mmdebstrap: minutes", flush=True)
    hook = f"--customize-hook=sh {HERE}/guest/customize.sh \"$1\""
    mmdebstrap("minbase", PACKAGES, hook, SUITE, tree, *MIRRORS)
    for name in ("vmlinuz", "initrd.img"):
        newest = max((tree / "boot").glob(f"{name}-*"))
        shutil.copy(newest, partial / name)
    blank(partial / "root.ext4", ROOT_BYTES, tree)
    shutil.rmtree(tree)
    partial.rename(ready)
    return ready


def blank(path: pathlib.Path, size: int, contents: pathlib.Path | None = None) -> None:
    """A new disk with an ext4 of its size, and the contents of a directory in it."""
    with open(path, "wb") as file:
        file.truncate(size)
    given = ["-d", contents] if contents else []
    call("mke2fs", "-q", "-t", "ext4", "-b", 4096, "-E", "root_owner=0:0", *given, "-F", path)


def disks(scratch: pathlib.Path, debs: dict[str, pathlib.Path]) -> list[pathlib.Path]:
    """The disks of a new machine in `scratch`: root, the fast one, and a parcel with the agent and these packages."""
    parcel = scratch / "parcel"
    shutil.rmtree(parcel, ignore_errors=True)
    parcel.mkdir(parents=True)
    shutil.copy(HERE / "guest" / "agent.sh", parcel)
    for name, deb in debs.items():
        shutil.copy(deb, parcel / name)
    paths = [scratch / name for name in ("root.ext4", "fast.ext4", "parcel.ext4")]
    call("cp", "--sparse=always", base(scratch.parent) / "root.ext4", paths[0])
    blank(paths[1], FAST_BYTES)
    blank(paths[2], 256 << 20, parcel)
    shutil.rmtree(parcel)
    return paths
