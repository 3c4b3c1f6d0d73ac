"""The machine, in two ways: one whose time is counted in instructions, to measure; and one with disks that outlive it, to lose one of them."""

from __future__ import annotations

import pathlib
import struct

from lab.systemd.machine import Machine, accelerator

from .image import base, parcel

# The disks that outlive a machine: large enough for three databases, and so small that a minute's writes go round in the cache.
DISK_BYTES = 768 << 20
FAST_BYTES = 80 << 20
# Where the partition of each begins.
FIRST_SECTOR = 2048
PARAMETERS = "console=ttyS0 quiet panic=-1 mitigations=off audit=0 apparmor=0 cryptomgr.notests no_timer_check tsc=reliable"


class KernelMachine(Machine):
    """A machine whose root disk is everybody's and whose changes to it are in memory; what it measures or keeps lies on other devices."""

    processor = "max"
    pmem_bytes = 256 << 20

    def __init__(self, scratch: pathlib.Path, brought: dict[str, pathlib.Path]) -> None:
        self.has_pmem = True
        super().__init__(scratch, brought)
        with open(scratch / "pmem", "wb") as file:
            file.truncate(self.pmem_bytes)

    def made_disks(self, brought: dict[str, pathlib.Path]) -> list[pathlib.Path]:
        carried = self.scratch / "parcel.ext4"
        parcel(carried, brought)
        root = base(self.scratch.parent) / "root.ext4"
        self.read_only = frozenset({root, carried})
        return [root, carried]

    def speed(self) -> list[str]:
        return ["-accel", *accelerator()]

    def board(self) -> list[str]:
        made = base(self.scratch.parent)
        words = ["qemu-system-x86_64", *self.speed(), "-cpu", self.processor, "-m", "3G,slots=2,maxmem=8G"]
        words += ["-machine", f"q35,nvdimm={'on' if self.has_pmem else 'off'}"]
        if self.has_pmem:
            memory = f"memory-backend-file,id=pm,share=on,mem-path={self.scratch / 'pmem'},size={self.pmem_bytes}"
            words += ["-object", memory, "-device", "nvdimm,id=nv,memdev=pm"]
        return [*words, "-kernel", str(made / "vmlinuz"), "-initrd", str(made / "initramfs"), "-append", PARAMETERS]


class CountedMachine(KernelMachine):
    """One whose clock goes on by a nanosecond with each instruction, and jumps to the next timer where it has nothing to do.

    So its times do not depend on what else the host does. Its disks are in its own memory: what the host serves would take the host's time.
    """

    processors = 1
    # An instruction that is repeated counts each time: of those that copy and fill, the kernel takes the ones of eight bytes.
    processor = "max,erms=off,fsrm=off"

    def speed(self) -> list[str]:
        return ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"]


class LosingMachine(KernelMachine):
    """One with a disk (/dev/vdc1) and a fast one (/dev/vdd1) that outlive it, as its persistent memory does; `lose` takes the fast devices away."""

    pmem_bytes = FAST_BYTES

    def made_disks(self, brought: dict[str, pathlib.Path]) -> list[pathlib.Path]:
        made = super().made_disks(brought)
        for name, size in (("disk", DISK_BYTES), ("fast", FAST_BYTES)):
            path = self.scratch / name
            partitioned(path, size)
            made.append(path)
        return made

    def lose(self) -> None:
        """From the next boot on, the fast devices are not there."""
        self.has_pmem = False
        self.disks = self.disks[:3]


def partitioned(path: pathlib.Path, size: int) -> None:
    """A new disk with one partition: of a whole one ZFS would make one itself, and wait for udev to show it."""
    sectors = size // 512
    entry = struct.pack("<B3sB3sII", 0, b"\0\0\0", 0x83, b"\0\0\0", FIRST_SECTOR, sectors - FIRST_SECTOR)
    with open(path, "wb") as file:
        file.truncate(size)
        file.seek(446)
        file.write(entry + bytes(48) + b"\x55\xaa")
