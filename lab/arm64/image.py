"""What the machine is made of: Debian's kernel, modules and databases for arm64, unpacked and not installed, so that none of its programs has to run here."""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import stat

from lab.systemd.image import Failure, blank, call, mmdebstrap

HERE = pathlib.Path(__file__).resolve().parent
AGENT = HERE.parent / "systemd/guest/agent.sh"
SUITE = "bookworm"
PACKAGES = [
    *("linux-image-arm64", "busybox-static", "bash", "coreutils", "sed", "mawk", "util-linux", "mount", "iproute2", "procps", "libgcc-s1"),
    *("redis-server", "redis-tools", "python3-minimal", "libpython3-stdlib", "postgresql-15", "etcd-server", "etcd-client"),
]
# What the root disk, the second disk and the agent's port need.
MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "virtio_rng", "ext4", "crc32c_generic")
ROOT_BYTES = 1 << 30
FAST_BYTES = 512 << 20


def base(scratch: pathlib.Path) -> pathlib.Path:
    """The directory with the kernel (`vmlinuz`), its first file system (`initramfs`) and the root directory (`tree`), made unless they are there."""
    made_of = " ".join([SUITE, *PACKAGES, *MODULES]) + pathlib.Path(__file__).read_text() + (HERE / "guest/init.sh").read_text()
    ready = scratch / f"arm64-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    if ready.is_dir():
        return ready
    partial = scratch / "arm64.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    tree = partial / "tree"
    print("unpacking Debian for arm64: minutes", flush=True)
    hook = "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"
    mmdebstrap("extract", PACKAGES, "--architectures=arm64", hook, SUITE, tree)
    shutil.copy(max((tree / "boot").glob("vmlinuz-*")), partial / "vmlinuz")
    (partial / "initramfs").write_bytes(initramfs(tree))
    for large in ("boot", "usr/lib/modules", "usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt"):
        shutil.rmtree(tree / large, ignore_errors=True)
    for place in ("data", "fast", "lab", "root"):
        (tree / place).mkdir(exist_ok=True)
    # PostgreSQL does not run as root.
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\npostgres:x:100:100:postgres:/data/postgres:/bin/bash\n")
    (tree / "etc/group").write_text("root:x:0:\npostgres:x:100:\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")
    partial.rename(ready)
    return ready


def modules_in_order(directory: pathlib.Path, wanted: tuple[str, ...]) -> list[pathlib.Path]:
    """The files of what is wanted, each after those that it depends on."""
    needs: dict[str, list[str]] = {}
    for line in (directory / "modules.dep").read_text().splitlines():
        file, _, before = line.partition(":")
        needs[file] = before.split()
    by_name = {pathlib.Path(file).name.split(".")[0].replace("-", "_"): file for file in needs}
    builtin = {pathlib.Path(line).name.split(".")[0].replace("-", "_") for line in (directory / "modules.builtin").read_text().split()}
    order: list[str] = []
    for name in wanted:
        if name in builtin:
            continue
        if name not in by_name:
            raise Failure(f"the kernel in {directory} has no module {name}")
        # Those that a module needs stand behind it, the last to be loaded first.
        for file in [*reversed(needs[by_name[name]]), by_name[name]]:
            if file not in order:
                order.append(file)
    return [directory / file for file in order]


def initramfs(tree: pathlib.Path) -> bytes:
    """The first file system of this laboratory's machines."""
    directory = max((tree / "usr/lib/modules").iterdir())
    call("depmod", "-b", tree, directory.name)
    return archive(tree, modules_in_order(directory, MODULES), HERE / "guest/init.sh")


def archive(tree: pathlib.Path, modules: list[pathlib.Path], first: pathlib.Path) -> bytes:
    """An archive (cpio, "newc") of a tree's busybox, modules and their order, and what is executed first."""
    files = bytearray()
    for name in ("bin", "modules", "dev"):
        files += entry(name, stat.S_IFDIR | 0o755)
    files += entry("bin/busybox", stat.S_IFREG | 0o755, (tree / "usr/bin/busybox").read_bytes())
    files += entry("bin/sh", stat.S_IFLNK | 0o777, b"busybox")
    files += entry("init", stat.S_IFREG | 0o755, first.read_bytes())
    for module in modules:
        files += entry(f"modules/{module.name}", stat.S_IFREG | 0o644, module.read_bytes())
    files += entry("modules/order", stat.S_IFREG | 0o644, "".join(f"{module.name}\n" for module in modules).encode())
    return bytes(files + entry("TRAILER!!!", 0))


def entry(name: str, mode: int, contents: bytes = b"") -> bytes:
    path = name.encode() + b"\0"
    head = b"070701" + b"".join(b"%08x" % field for field in (0, mode, 0, 0, 1, 0, len(contents), 0, 0, 0, 0, len(path), 0))
    padded = head + path
    padded += bytes(-len(padded) % 4) + contents
    return padded + bytes(-len(padded) % 4)


def disks(scratch: pathlib.Path, brought: dict[str, pathlib.Path]) -> list[pathlib.Path]:
    """The disks of a new machine in `scratch`: root, with what is brought below /lab, and a second one for pools."""
    tree = base(scratch.parent) / "tree"
    lab = tree / "lab"
    shutil.rmtree(lab, ignore_errors=True)
    lab.mkdir()
    files = {path.name: path for path in (HERE / "guest").iterdir()} | {AGENT.name: AGENT} | brought
    for name, file in files.items():
        (lab / name).parent.mkdir(exist_ok=True)
        shutil.copy(file, lab / name)
    paths = [scratch / "root.ext4", scratch / "fast.ext4"]
    blank(paths[0], ROOT_BYTES + sum(file.stat().st_size for file in brought.values()), tree)
    blank(paths[1], FAST_BYTES)
    return paths
