"""A machine of arm64: an emulated Neoverse N1 (Graviton 2, Ampere Altra), started and cut as the systemd laboratory's."""

from __future__ import annotations

import pathlib

from lab.systemd.machine import Machine

from .image import base, disks


class Arm64Machine(Machine):
    """One machine, with its disks in `scratch`."""

    def made_disks(self, brought: dict[str, pathlib.Path]) -> list[pathlib.Path]:
        return disks(self.scratch, brought)

    def board(self) -> list[str]:
        made = base(self.scratch.parent)
        words = ["qemu-system-aarch64", "-accel", "tcg,thread=multi", "-machine", "virt", "-cpu", "neoverse-n1", "-m", "1G"]
        return [*words, "-kernel", str(made / "vmlinuz"), "-initrd", str(made / "initramfs"), "-append", "console=ttyAMA0 quiet panic=-1 mitigations=off audit=0"]
