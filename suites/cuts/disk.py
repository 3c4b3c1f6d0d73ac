"""A file system on a loop device that can be cut off: what was not written back is gone, as after a power cut."""

from __future__ import annotations

import fcntl
import os
import pathlib
import struct
import subprocess
import time
from typing import ClassVar

# linux: FS_IOC_SHUTDOWN / XFS_IOC_GOINGDOWN, and to write nothing back, not even the journal. What `xfs_io -x -c shutdown` does.
IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
# mkfs.xfs refuses less than 300 MB. The image is sparse.
SIZE_BYTES = 512 << 20


def why_not() -> str | None:
    """Why there can be no such disk here."""
    if os.geteuid() != 0:
        return "cutting file systems needs root (loop devices, mounts)"
    if not pathlib.Path("/dev/loop-control").exists():
        return "there are no loop devices (/dev/loop-control)"
    done = subprocess.run(["losetup", "--find"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"no loop device is free: {done.stderr.strip()}"


def run(*argv: str) -> str:
    """What a program says, which has to succeed."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout.strip()


class Disk:
    """The file system; `mounted` is where it is mounted."""

    MAKE: ClassVar = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q")}

    def __init__(self, home: pathlib.Path, kind: str, *, image: pathlib.Path | None = None, options: str = "defaults"):
        self.image = image or home / "disk"
        self.options = options
        self.mounted = home / "mnt"
        self.mounted.mkdir(exist_ok=True)
        self.image.unlink(missing_ok=True)
        with open(self.image, "wb") as file:
            file.truncate(SIZE_BYTES)
        run(*self.MAKE[kind], str(self.image))
        self.loop = run("losetup", "--find", "--show", str(self.image))
        try:
            self._mount()
        except BaseException:
            run("losetup", "--detach", self.loop)
            raise

    def cut(self) -> None:
        """From now on nothing reaches the device, and what is in memory only is lost."""
        fd = os.open(self.mounted, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def write_back(self) -> None:
        """What the kernel does by itself now and then."""
        run("sync", "--file-system", str(self.mounted))

    def mount_again(self, limit_s: float = 30.0) -> None:
        """Unmounts it and mounts what is on the device."""
        self._unmount(limit_s)
        self._mount()

    def _mount(self) -> None:
        run("mount", "-o", self.options, self.loop, str(self.mounted))

    def _unmount(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        # The mount namespaces of processes that were killed go a little later than they, and hold the file system until then.
        while True:
            # Not ismount(): a file system that was shut down cannot be asked.
            if f" {self.mounted} " in pathlib.Path("/proc/self/mounts").read_text():
                subprocess.run(["umount", str(self.mounted)], capture_output=True)
            try:
                os.close(os.open(self.loop, os.O_RDONLY | os.O_EXCL))
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    holds = subprocess.run(["fuser", "-vm", str(self.mounted)], capture_output=True, text=True).stderr
                    raise RuntimeError(f"{self.loop} is still in use after {limit_s} s: {error}; {holds}") from error
                time.sleep(0.005)

    def close(self) -> None:
        """Unmounts it and gives the loop device back."""
        try:
            self._unmount(10.0)
        finally:
            # If something still holds it, it goes with that.
            subprocess.run(["umount", "--lazy", str(self.mounted)], capture_output=True)
            run("losetup", "--detach", self.loop)
