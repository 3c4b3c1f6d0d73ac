"""The volume that the database's files are on: attached to one machine at a time."""

from __future__ import annotations

import fcntl
import os
import struct

from suites.cuts.disk import Disk, run

# linux/loop.h: `struct loop_info64`, of which this changes the size limit alone.
LOOP_SET_STATUS64, LOOP_GET_STATUS64 = 0x4C04, 0x4C05
LOOP_INFO_BYTES, SIZE_LIMIT_AT = 232, 32


class Volume(Disk):
    """A file system on a loop device. What a machine had not synced there is lost with it."""

    moves = 0

    def detach(self) -> None:
        """From now on its machine gets errors for all that it reads and writes there."""
        with open(self.loop, "rb") as device:
            info = bytearray(LOOP_INFO_BYTES)
            fcntl.ioctl(device, LOOP_GET_STATUS64, info)
            struct.pack_into("=Q", info, SIZE_LIMIT_AT, 512)
            fcntl.ioctl(device, LOOP_SET_STATUS64, bytes(info))

    def move(self) -> None:
        """Detached from a machine that may be alive, and attached to another one: at the same path, with what was synced."""
        self.detach()
        self.moves += 1
        image = self.image.with_name(f"disk-{self.moves}")
        run("cp", "--sparse=always", str(self.image), str(image))
        # The old machine's processes have it still; the device goes with them.
        run("umount", "--lazy", str(self.mounted))
        run("losetup", "--detach", self.loop)
        os.unlink(self.image)
        self.image = image
        self.loop = run("losetup", "--find", "--show", str(image))
        self._mount()
