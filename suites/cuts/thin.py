"""A disk with less room than it says: a file system on a sparse image, which lies on a small tmpfs.

When that is full, the kernel cannot write back what programs have written, though the file system has room: their syncs fail, or the
write-back that nobody waits for does. So it is with a volume that is provisioned thinly.
"""

from __future__ import annotations

import errno
import os
import pathlib
import subprocess
from typing import ClassVar

from .disk import Disk, run

LOWER_BYTES = 160 << 20
# Small files that are synced until the journal was written everywhere: it is to have its place, so that only data find none.
JOURNAL_ROUNDS = 500
FILL_ATTEMPTS = 100


class ThinDisk(Disk):
    """The file system on `lower`, which `fill` fills."""

    MAKE: ClassVar = {**Disk.MAKE, "ext4": ("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4")}

    def __init__(self, home: pathlib.Path, kind: str, options: str):
        self.lower = home / "lower"
        self.lower.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={LOWER_BYTES}", "none", str(self.lower))
        try:
            super().__init__(home, kind, image=self.lower / "disk", options=options)
        except BaseException:
            run("umount", str(self.lower))
            raise
        try:
            # A page at a time. Of more a loop device takes for done what the image had only in part room for.
            self.queue = pathlib.Path("/sys/block", pathlib.Path(self.loop).name, "queue")
            (self.queue / "max_sectors_kb").write_text("4")
            for number in range(JOURNAL_ROUNDS):
                with open(self.mounted / f"f{number % 7}", "ab") as file:
                    file.write(bytes([7]) * 5000)
                    file.flush()
                    os.fsync(file.fileno())
            self.write_back()
        except BaseException:
            self.close()
            raise

    def fill(self, left_bytes: int) -> None:
        """From now on there is room for so much, at most."""
        with open(self.lower / "ballast", "ab") as ballast:
            # The image may grow between the two calls.
            for _ in range(FILL_ATTEMPTS):
                there = os.statvfs(self.lower)
                taken = there.f_bavail * there.f_frsize - left_bytes
                if taken <= 0:
                    return
                try:
                    os.posix_fallocate(ballast.fileno(), ballast.tell(), taken)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                else:
                    return
        raise RuntimeError(f"{self.lower} grows faster than it can be filled")

    def make_room(self) -> None:
        """As who looks after it does, who also has a file system written to again that made itself read-only."""
        (self.lower / "ballast").unlink(missing_ok=True)
        # One that is damaged refuses, and has to be mounted anew.
        subprocess.run(["mount", "-o", "remount,rw", str(self.mounted)], capture_output=True)

    def close(self) -> None:
        # The device would keep the limit when it is another file's.
        (self.queue / "max_sectors_kb").write_text((self.queue / "max_hw_sectors_kb").read_text())
        self.make_room()
        super().close()
        run("umount", str(self.lower))
