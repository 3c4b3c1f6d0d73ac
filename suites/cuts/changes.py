"""A process that changes names, sizes and attributes, and notes each change in a log that it syncs, until it is killed.

    changes.py DIRECTORY SEED STYLE

Step N makes one change of a kind to an object of its own and syncs nothing but the log, with a record that says `N KIND`. The change comes
from this thread, another one, a forked child, or an executed program. Standard output is the ledger: a line `N` follows the sync.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import random
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

# Objects that are there before the first step. A round makes fewer steps.
STEPS = 400
RECORD_BYTES = 64
# What the file system began to write back at a close is on the disk by then.
WRITTEN_BACK_S = 0.002
LOG = "changes.log"
C = ctypes.CDLL(None, use_errno=True)
SYS_RENAMEAT2, SYS_MKDIRAT, SYS_FTRUNCATE, AT_FDCWD = 316, 258, 77, -100


class Kind(NamedTuple):
    """A kind of change: what has to be there, how it is made, and whether it was."""

    prepare: Callable[[str], object]
    make: Callable[[str], object]
    is_made: Callable[[str], bool]


def write(path: str, data: str = "old") -> None:
    pathlib.Path(path).write_text(data)


def nothing(_path: str) -> None:
    pass


def create(path: str, flags: int = 0) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600))


def checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def make_temporary(path: str) -> None:
    """What `mkstemp` makes has a name of its own choice."""
    template = ctypes.create_string_buffer(f"{path}-XXXXXX".encode())
    fd = C.mkstemp(template)
    checked(fd)
    os.close(fd)


def bind(path: str) -> None:
    # A socket's name may not be long.
    os.chdir(os.path.dirname(path))
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.basename(path))


def replace_by_renaming(path: str) -> None:
    """As state files are replaced: written, synced, renamed."""
    with open(path + ".tmp", "w") as file:
        file.write("new")
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)


def write_tmp(path: str) -> None:
    write(path + ".tmp", "new")
    write(path)


def text(path: str) -> str:
    return pathlib.Path(path).read_text()


def mode(path: str) -> int:
    return os.lstat(path).st_mode


def has_attribute(path: str) -> bool:
    return "user.changed" in os.listxattr(path)


def truncate_open(path: str) -> None:
    fd = os.open(path, os.O_RDWR)
    os.ftruncate(fd, 1)
    os.close(fd)


def grow(path: str) -> None:
    fd = os.open(path, os.O_RDWR)
    os.posix_fallocate(fd, 0, 8192)
    os.close(fd)


def zero_range(path: str) -> None:
    """As many bytes and blocks as before."""
    fd = os.open(path, os.O_RDWR)
    zero_range_mode = 0x10
    checked(C.fallocate(fd, zero_range_mode, ctypes.c_long(0), ctypes.c_long(4096)))
    os.close(fd)


def write_page(path: str) -> None:
    write(path, "x" * 4096)


def truncate_by_number(path: str) -> None:
    fd = os.open(path, os.O_RDWR)
    checked(C.syscall(SYS_FTRUNCATE, fd, ctypes.c_long(1)))
    os.close(fd)


def rewrite(path: str, how: int = os.O_TRUNC) -> None:
    """
    As configuration files are rewritten: the file system begins to write it back when it is closed. A sync of another log comes in between.
    What is being written back is in no commit until it is on the disk, and a plain ext4 may lose it as well. So that is waited for.
    """
    fd = os.open(path, os.O_WRONLY | how)
    if not how:
        os.ftruncate(fd, 0)
    beside = os.open(os.path.dirname(path) + "/beside.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(beside, b"x" * RECORD_BYTES)
    os.fdatasync(beside)
    os.close(beside)
    os.write(fd, b"new")
    os.dup2(fd, 100)
    os.close(fd)
    os.close(100)
    time.sleep(WRITTEN_BACK_S)


def on_open(path: str, change: Callable[[int], object]) -> None:
    fd = os.open(path, os.O_RDONLY)
    change(fd)
    os.close(fd)


def move_directory(path: str) -> None:
    os.rename(path, path + ".moved")


def make_directory_with_file(path: str) -> None:
    os.mkdir(path)
    write(path + "/inside")


KINDS = {
    "rename": Kind(write, lambda p: os.rename(p, p + ".new"), lambda p: not os.path.exists(p) and text(p + ".new") == "old"),
    "replace": Kind(write, replace_by_renaming, lambda p: text(p) == "new"),
    "rename over": Kind(write_tmp, lambda p: os.rename(p + ".tmp", p), lambda p: text(p) == "new"),
    "exchange": Kind(
        write_tmp,
        lambda p: checked(C.syscall(SYS_RENAMEAT2, AT_FDCWD, p.encode(), AT_FDCWD, (p + ".tmp").encode(), 2)),
        lambda p: text(p) == "new" and text(p + ".tmp") == "old",
    ),
    "rename a directory": Kind(make_directory_with_file, move_directory, lambda p: text(p + ".moved/inside") == "old"),
    "create": Kind(nothing, lambda p: create(p, os.O_EXCL), os.path.exists),
    "create or open": Kind(nothing, create, os.path.exists),
    "create by a stream": Kind(nothing, lambda p: checked(0 if C.fopen(p.encode(), b"w") else -1), os.path.exists),
    "create to read": Kind(nothing, lambda p: os.close(os.open(p, os.O_RDONLY | os.O_CREAT, 0o600)), os.path.exists),
    "create by the kernel's number": Kind(nothing, lambda p: checked(C.syscall(2, p.encode(), os.O_CREAT | os.O_RDWR, 0o600)), os.path.exists),
    "create a temporary": Kind(nothing, make_temporary, lambda p: any(pathlib.Path(p).parent.glob(os.path.basename(p) + "-*"))),
    "unlink": Kind(write, os.unlink, lambda p: not os.path.exists(p)),
    "link": Kind(write, lambda p: os.link(p, p + ".2"), lambda p: os.path.exists(p + ".2")),
    "symlink": Kind(nothing, lambda p: os.symlink("there", p), os.path.islink),
    "mkdir": Kind(nothing, os.mkdir, os.path.isdir),
    "mkdir by number": Kind(nothing, lambda p: checked(C.syscall(SYS_MKDIRAT, AT_FDCWD, p.encode(), 0o700)), os.path.isdir),
    "rmdir": Kind(os.mkdir, os.rmdir, lambda p: not os.path.exists(p)),
    "mkfifo": Kind(nothing, os.mkfifo, lambda p: stat.S_ISFIFO(mode(p))),
    "mknod": Kind(nothing, lambda p: os.mknod(p, stat.S_IFREG | 0o600), os.path.exists),
    "bind": Kind(nothing, bind, lambda p: stat.S_ISSOCK(mode(p))),
    "truncate": Kind(write, lambda p: os.truncate(p, 0), lambda p: os.path.getsize(p) == 0),
    "truncate an open file": Kind(write, truncate_open, lambda p: os.path.getsize(p) == 1),
    "truncate by opening": Kind(write, lambda p: create(p, os.O_TRUNC), lambda p: os.path.getsize(p) == 0),
    "truncate by the kernel's number": Kind(write, truncate_by_number, lambda p: os.path.getsize(p) == 1),
    "rewrite": Kind(write, rewrite, lambda p: text(p) == "new"),
    "rewrite, cut when it is open": Kind(write, lambda p: rewrite(p, 0), lambda p: text(p) == "new"),
    "zero a range": Kind(write_page, zero_range, lambda p: text(p) == "\0" * 4096),
    "grow": Kind(write, grow, lambda p: os.path.getsize(p) == 8192),
    "chmod": Kind(write, lambda p: os.chmod(p, 0o640), lambda p: mode(p) & 0o777 == 0o640),
    "chmod an open file": Kind(write, lambda p: on_open(p, lambda fd: os.fchmod(fd, 0o640)), lambda p: mode(p) & 0o777 == 0o640),
    "chown": Kind(write, lambda p: os.chown(p, 1, 1), lambda p: os.stat(p).st_uid == 1),
    "chown an open file": Kind(write, lambda p: on_open(p, lambda fd: os.fchown(fd, 1, 1)), lambda p: os.stat(p).st_uid == 1),
    "setxattr": Kind(write, lambda p: os.setxattr(p, "user.changed", b"1"), has_attribute),
    "set a time": Kind(write, lambda p: os.utime(p, (1, 1)), lambda p: os.stat(p).st_mtime == 1),
}
ORDER = sorted(KINDS)


def kind_of(seed: str, step: int) -> str:
    """Each kind comes once in so many steps as there are."""
    order = ORDER[:]
    random.Random(f"{seed} {step // len(order)}").shuffle(order)
    return order[step % len(order)]


def object_of(directory: str, step: int) -> str:
    return f"{directory}/{step % 7}/{step:05}"


def prepare(directory: str, seed: str) -> None:
    """Makes what the steps change."""
    for part in range(7):
        os.mkdir(f"{directory}/{part}")
    for step in range(STEPS):
        KINDS[kind_of(seed, step)].prepare(object_of(directory, step))


def record(step: int, kind: str) -> bytes:
    return f"{step} {kind}\n".encode().rjust(RECORD_BYTES, b".")


def records(directory: str) -> list[tuple[int, str]]:
    """What the log says, up to the first record that is not whole."""
    try:
        data = pathlib.Path(directory, LOG).read_bytes()
    except FileNotFoundError:
        return []
    found: list[tuple[int, str]] = []
    for at in range(0, len(data), RECORD_BYTES):
        words = data[at : at + RECORD_BYTES].lstrip(b".").split(None, 1)
        if len(words) != 2 or words[0] != str(len(found)).encode():
            break
        found.append((len(found), words[1].decode().rstrip("\n")))
    return found


class Log:
    """The log, written and synced in one of several styles."""

    STYLES = ("append", "append, fsync", "at the end", "O_DSYNC", "O_SYNC", "parts", "RWF_DSYNC", "two logs")
    # What is written in place, no plain sync orders.
    IN_PLACE = "in place"

    def __init__(self, directory: str, style: str):
        self.style, self.end = style, 0
        flags = os.O_WRONLY | os.O_CREAT
        appends = style in ("append", "append, fsync", "O_DSYNC", "O_SYNC", "parts", "two logs")
        flags |= os.O_APPEND if appends else 0
        flags |= {"O_DSYNC": os.O_DSYNC, "O_SYNC": os.O_SYNC}.get(style, 0)
        self.fd = os.open(f"{directory}/{LOG}", flags, 0o600)
        self.other = os.open(f"{directory}/other.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if style == "two logs" else None
        if style == self.IN_PLACE:
            os.write(self.fd, bytes(STEPS * RECORD_BYTES))
            os.fsync(self.fd)

    def add(self, data: bytes) -> None:
        """Returns when it is durable."""
        if self.other is not None:
            # Its sync finds the change first.
            os.write(self.other, data)
            os.fdatasync(self.other)
        match self.style:
            case "at the end" | self.IN_PLACE:
                os.pwrite(self.fd, data, self.end)
            case "RWF_DSYNC":
                os.pwritev(self.fd, [data], self.end, os.RWF_DSYNC)
            case "parts":
                os.writev(self.fd, [data[:10], data[10:]])
            case _:
                os.write(self.fd, data)
        self.end += len(data)
        if self.style == "append, fsync":
            os.fsync(self.fd)
        elif self.style not in ("O_DSYNC", "O_SYNC", "RWF_DSYNC"):
            os.fdatasync(self.fd)


def by_thread(make: Callable[[], object]) -> None:
    thread = threading.Thread(target=make)
    thread.start()
    thread.join()


def by_child(make: Callable[[], object]) -> None:
    child = os.fork()
    if child == 0:
        make()
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError("the child failed")


def main() -> None:
    directory, seed, style = sys.argv[1:4]
    log = Log(directory, style)
    rng = random.Random(seed + style)
    for step in range(STEPS):
        kind, path = kind_of(seed, step), object_of(directory, step)
        make = lambda kind=kind, path=path: KINDS[kind].make(path)
        who = rng.random()
        if who < 0.1:
            by_thread(make)
        elif who < 0.2:
            by_child(make)
        elif kind == "mkdir" and who < 0.5:
            subprocess.run(["mkdir", path], check=True)
        else:
            make()
        log.add(record(step, kind))
        print(step, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
