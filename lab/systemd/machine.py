"""A machine that runs: QEMU, killed as a power cut, and a shell in it by a port of its own.

What the guest wrote to its disks is in files of this machine when the guest is killed; what was only in the guest's memory is gone. The cuts that
also lose what a disk had not flushed are lab/powercut's.
"""

from __future__ import annotations

import base64
import os
import pathlib
import re
import select
import socket
import subprocess
import time
from collections.abc import Iterator

from .image import PMEM_BYTES, Failure, base, disks

# Emulated processors on a busy machine take minutes.
BOOT_LIMIT_S = 3600.0
SCRIPT_LIMIT_S = 600.0
ENDED = re.compile(rb"\nLAB ended (\d+)\r?\n$")


def accelerator() -> list[str]:
    """KVM where this processor can do it by itself: what passes for KVM in some virtual machines boots no kernel of Debian's."""
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    works = os.access("/dev/kvm", os.W_OK) and re.search(r"\b(vmx|svm)\b", flags)
    return ["kvm"] if works else ["tcg,thread=multi"]


class Machine:
    """One machine, with its disks in `scratch`."""

    processors = 2
    # Disks that several machines may have at a time.
    read_only: frozenset[pathlib.Path] = frozenset()

    def __init__(self, scratch: pathlib.Path, debs: dict[str, pathlib.Path]) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self.scratch = scratch
        self.disks = self.made_disks(debs)
        with open(scratch / "pmem", "wb") as file:
            file.truncate(PMEM_BYTES)
        self.process: subprocess.Popen[bytes] | None = None
        self.stream: socket.socket | None = None
        self.boots = 0

    def made_disks(self, debs: dict[str, pathlib.Path]) -> list[pathlib.Path]:
        return disks(self.scratch, debs)

    def board(self) -> list[str]:
        """QEMU itself, and its words for the board, its memory and what it boots."""
        kernel = base(self.scratch.parent)
        memory = f"memory-backend-file,id=pm,share=on,mem-path={self.scratch / 'pmem'},size={PMEM_BYTES}"
        words = ["qemu-system-x86_64", "-accel", *accelerator(), "-cpu", "max", "-machine", "q35,nvdimm=on", "-m", "1536M,slots=2,maxmem=8G"]
        words += ["-object", memory, "-device", "nvdimm,id=nv,memdev=pm", "-kernel", str(kernel / "vmlinuz"), "-initrd", str(kernel / "initrd.img")]
        return [*words, "-append", "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=no no_timer_check"]

    def boot(self) -> None:
        """Starts it, and waits until the agent is there."""
        port = self.scratch / "port"
        port.unlink(missing_ok=True)
        self.boots += 1
        words = ["setpriv", "--pdeathsig", "KILL", *self.board(), "-smp", str(self.processors)]
        for number, disk in enumerate(self.disks):
            kept = ",readonly=on" if disk in self.read_only else ""
            words += ["-drive", f"file={disk},format=raw,if=none,id=disk{number},cache=writeback{kept}", "-device", f"virtio-blk-pci,drive=disk{number}"]
        words += ["-device", "virtio-serial", "-chardev", f"socket,id=lab,path={port},server=on,wait=off", "-device", "virtserialport,chardev=lab,name=lab"]
        words += ["-device", "virtio-rng-pci", "-nic", "none", "-display", "none", "-monitor", "none", "-no-reboot"]
        words += ["-serial", f"file:{self.scratch / f'console-{self.boots}'}"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        until = time.monotonic() + BOOT_LIMIT_S
        self.stream = self._connect(port, until)
        self._wait_for(b"LAB up\n", until)

    def _connect(self, port: pathlib.Path, until: float) -> socket.socket:
        while True:
            stream = socket.socket(socket.AF_UNIX)
            try:
                stream.connect(str(port))
                return stream
            except OSError:
                stream.close()
                if self.process.poll() is not None:
                    raise Failure(f"QEMU ended: {self.process.stderr.read().decode()}") from None
                if time.monotonic() > until:
                    raise Failure("QEMU does not open its port") from None
                time.sleep(0.1)

    def _wait_for(self, mark: bytes, until: float) -> None:
        said = b""
        while mark not in said:
            part = self._read(until)
            if not part:
                why = self.process.stderr.read().decode() if self.process.poll() is not None else ""
                raise Failure(f"the machine does not come up: {why}; its console:\n{self.console()[-3000:]}")
            said += part

    def _read(self, until: float) -> bytes:
        """What comes next; nothing at the end, or when it is late."""
        ready, _, _ = select.select([self.stream], [], [], max(0.0, until - time.monotonic()))
        try:
            return self.stream.recv(65536) if ready else b""
        except ConnectionResetError:
            return b""

    def console(self) -> str:
        return (self.scratch / f"console-{self.boots}").read_text(errors="replace")

    def begin(self, script: str) -> None:
        self.stream.sendall(base64.b64encode(script.encode()) + b"\n")

    def lines(self, script: str, limit_s: float = SCRIPT_LIMIT_S) -> Iterator[str]:
        """The lines that a script prints, as they come, until it ends; for one that the machine is cut off in."""
        self.begin(script)
        until = time.monotonic() + limit_s
        rest = b""
        while part := self._read(until):
            rest += part
            *whole, rest = rest.split(b"\n")
            for line in whole:
                if line.startswith(b"LAB ended "):
                    return
                yield line.decode(errors="replace")
        if time.monotonic() >= until:
            raise Failure(f"in the machine this does not end in {limit_s:.0f} s: {script}")

    def ask(self, script: str, limit_s: float = SCRIPT_LIMIT_S) -> tuple[int, str]:
        """The status of a script, and what it printed."""
        self.begin(script)
        until = time.monotonic() + limit_s
        said = b""
        while not (ended := ENDED.search(said)):
            part = self._read(until)
            if not part:
                raise Failure(f"in the machine this does not end: {script}\nit said: {said.decode(errors='replace')[-3000:]}")
            said += part
        return int(ended.group(1)), said[: ended.start()].decode(errors="replace").strip()

    def sh(self, script: str, limit_s: float = SCRIPT_LIMIT_S) -> str:
        """What a script prints that must succeed."""
        status, said = self.ask(f"set -e -o pipefail\n{script}", limit_s)
        if status != 0:
            raise Failure(f"in the machine, status {status}: {script}\nit said: {said[-4000:]}")
        return said

    def cut(self) -> None:
        """The power is gone."""
        if self.stream:
            self.stream.close()
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()
        self.process = self.stream = None

    def wait_end(self, limit_s: float = 120.0) -> None:
        """Waits for an end of its own, such as a reboot, after which it does not come up by itself."""
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Failure("the machine does not end") from None
        self.cut()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
