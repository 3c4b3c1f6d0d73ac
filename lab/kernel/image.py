"""Debian with ZFS's modules and databases, made once for all machines: a read-only root disk, a kernel and its first file system."""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import subprocess

from lab.arm64.image import archive, modules_in_order
from lab.systemd.image import Failure, blank, call, mmdebstrap

HERE = pathlib.Path(__file__).resolve().parent
AGENT = HERE.parent / "systemd/guest/agent.sh"
SQLITE = HERE.parent / "arm64/guest/sqlite.py"
SUITE = "bookworm"
# ZFS is in contrib: its licence keeps it out of the kernel, and it is compiled for the kernel at hand.
MIRRORS = ["deb http://deb.debian.org/debian bookworm main contrib", "deb http://deb.debian.org/debian-security bookworm-security main"]
PACKAGES = [
    *("linux-image-amd64", "linux-headers-amd64", "zfs-dkms", "zfsutils-linux", "dmsetup", "bcache-tools", "ndctl", "e2fsprogs"),
    *("kmod", "busybox-static", "mount", "util-linux", "iproute2", "procps", "redis-server", "redis-tools", "postgresql-15", "libeatmydata1", "python3"),
]
# What the root disk and the agent's port need.
FIRST_MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "ext4", "crc32c_generic", "overlay")
# What contestants need besides.
MODULES = ("null_blk", "dm_writecache", "bcache", "zfs", "nfit", "nd_pmem")
# What was needed to compile, and what no guest reads.
LARGE = ("boot", "usr/src", "usr/include", "usr/lib/gcc", "usr/share/doc", "usr/share/locale", "usr/share/man", "usr/share/perl", "var/cache/apt", "var/lib/apt", "var/lib/dkms")
PROGRAMS = "/usr/lib/postgresql/15/bin"
# PostgreSQL's data, filled where processors are fast: contestants begin with a copy.
CLUSTER = "/var/lib/cluster"
SCALE = 2


def base(scratch: pathlib.Path) -> pathlib.Path:
    """The directory with `vmlinuz`, `initramfs` and `root.ext4`, made unless it is there."""
    made_of = " ".join([SUITE, *MIRRORS, *PACKAGES, *FIRST_MODULES, *MODULES]) + pathlib.Path(__file__).read_text() + (HERE / "guest/init.sh").read_text()
    ready = scratch / f"base-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    if ready.is_dir():
        return ready
    partial = scratch / "base.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    tree = partial / "tree"
    print("building Debian with mmdebstrap, and ZFS's modules: some minutes", flush=True)
    mmdebstrap("minbase", PACKAGES, SUITE, tree, *MIRRORS)
    fill_cluster(tree)
    shutil.copy(max((tree / "boot").glob("vmlinuz-*")), partial / "vmlinuz")
    modules = max((tree / "usr/lib/modules").iterdir())
    call("depmod", "-b", tree, modules.name)
    (partial / "initramfs").write_bytes(archive(tree, modules_in_order(modules, FIRST_MODULES), HERE / "guest/init.sh"))
    keep_only(modules_in_order(modules, (*FIRST_MODULES, *MODULES)), tree, modules)
    for large in LARGE:
        shutil.rmtree(tree / large, ignore_errors=True)
    # PostgreSQL's compiler of queries is not used.
    for compiler in tree.glob("usr/lib/*/libLLVM*"):
        compiler.unlink()
    for place in ("data", "fast", "parcel"):
        (tree / place).mkdir()
    blank(partial / "root.ext4", 2 << 30, tree)
    shutil.rmtree(tree)
    partial.rename(ready)
    return ready


def keep_only(wanted: list[pathlib.Path], tree: pathlib.Path, modules: pathlib.Path) -> None:
    """Leaves these modules of a tree's kernel, as if it had no others."""
    for file in modules.rglob("*.ko*"):
        if file not in wanted:
            file.unlink()
    call("depmod", "-b", tree, modules.name)


def fill_cluster(tree: pathlib.Path) -> None:
    """Makes a cluster with pgbench's tables in a tree, by the tree's own programs."""
    script = f"""set -e
        install -d -o postgres -m 700 {CLUSTER}
        as() {{ setpriv --reuid postgres --regid postgres --clear-groups "$@"; }}
        cd {CLUSTER}
        as {PROGRAMS}/initdb -D {CLUSTER} -U postgres -A trust -E UTF8 --locale=C --wal-segsize=1 >/dev/null
        # As in a server that has run for long, segments of the log are there to be used again.
        echo 'min_wal_size = 40MB' >>{CLUSTER}/postgresql.conf
        as {PROGRAMS}/pg_ctl -D {CLUSTER} -w -l /tmp/log -o '-F -k /tmp -c listen_addresses= -c jit=off -c dynamic_shared_memory_type=mmap -c shared_memory_type=mmap' start >/dev/null
        as {PROGRAMS}/pgbench -h /tmp -U postgres -i -q -s {SCALE} postgres >/dev/null 2>&1
        as {PROGRAMS}/psql -h /tmp -U postgres -qc checkpoint
        as {PROGRAMS}/pg_ctl -D {CLUSTER} -w stop >/dev/null
    """
    done = subprocess.run(["chroot", str(tree), "bash", "-c", script], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"PostgreSQL's data could not be made: {done.stdout}{done.stderr}")


def parcel(path: pathlib.Path, brought: dict[str, pathlib.Path]) -> None:
    """A disk with what this laboratory runs in its machines."""
    tree = path.with_suffix(".tree")
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for name, file in ({file.name: file for file in (HERE / "guest").iterdir() if file.is_file()} | {AGENT.name: AGENT, SQLITE.name: SQLITE} | brought).items():
        shutil.copy(file, tree / name)
    blank(path, (64 << 20) + 2 * sum(file.stat().st_size for file in brought.values()), tree)
    shutil.rmtree(tree)
