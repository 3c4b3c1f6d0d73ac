"""Machines on this one: network namespaces, behind one switch. All of it is in namespaces of the laboratory's own, and ends with them."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import time
import uuid

from suites import processes
from suites.cuts.disk import run

from .certificates import LegTls

NETWORK = "10.77.0"
SPACES = "/run/netns"
PORT = 10809
LISTEN_LIMIT_S = 20.0
# Set in the namespaces of the laboratory's own.
INSIDE = "FOREBAY_LAB_LEGS"
# Another boot's id stands where programs look for it.
IN_BOOT = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'


def enter(argv: list[str]) -> None:
    """Goes on in namespaces of its own: their mounts, networks and processes end with what runs in them. If this process is killed, that
    is told, and cleans up."""
    if INSIDE not in os.environ:
        spaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child=TERM", "--mount-proc"]
        os.execvpe(spaces[0], [*spaces, *argv], {**os.environ, INSIDE: "1"})


class Network:
    """The switch. What the legs' machines send takes `delay_us` longer, if this kernel can do that."""

    def __init__(self, home: pathlib.Path, delay_us: int = 0):
        # `ip` keeps names of networks in files, which would be everybody's.
        os.makedirs(SPACES, exist_ok=True)
        run("mount", "-t", "tmpfs", "networks", SPACES)
        run("ip", "link", "add", "switch", "type", "bridge")
        run("ip", "addr", "add", f"{NETWORK}.254/24", "dev", "switch")
        for device in ("switch", "lo"):
            run("ip", "link", "set", device, "up")
        self.machines = {name: Machine(name, f"{NETWORK}.{number}", home) for number, name in enumerate("ABCD", 1)}
        legs = [self.machines[name] for name in "BC"]
        self.is_delayed = bool(delay_us) and all([leg.delay(delay_us) for leg in legs])
        # Otherwise a relay before each server of a measurement does it.
        self.relayed_us = 0 if self.is_delayed else delay_us


class Machine:
    """One machine: whatever runs in its network namespace."""

    def __init__(self, name: str, address: str, home: pathlib.Path):
        self.name, self.address = name, address
        self.space = f"{SPACES}/{name}"
        self.port = f"port{name}"
        # The id of its boot, and what lies in its memory.
        self.boot_file = home / f"boot-{name}"
        self.boots = self.delay_us = 0
        self.home = home
        self.boot()

    def boot(self) -> None:
        """It comes up, with nothing running and no old connections."""
        self.boots += 1
        # Not truncated: the boot before may have it mounted still.
        self.boot_file.unlink(missing_ok=True)
        self.boot_file.write_text(f"{uuid.uuid4()}\n")
        self.boot_file.chmod(0o444)
        self.run_dir = self.home / f"run-{self.name}-{self.boots}"
        self.run_dir.mkdir()
        run("ip", "netns", "add", self.name)
        number = int(self.address.rsplit(".", 1)[1])
        run("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "address", f"02:00:00:00:00:0{number}", "netns", self.name)
        run("ip", "link", "set", self.port, "master", "switch", "up")
        run("ip", "-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", self.name, "link", "set", device, "up")
        self._filter("add table ip lab; add chain ip lab in { type filter hook input priority 0; }")
        if self.delay_us:
            self.delay(self.delay_us)

    def run_dir_of(self, user: int) -> pathlib.Path:
        """Where that user's runs are, in this boot."""
        path = self.run_dir / str(user)
        path.mkdir(exist_ok=True)
        os.chown(path, user, user)
        return path

    def _filter(self, commands: str) -> None:
        run(*self.in_network("nft", commands))

    def in_network(self, *argv: str) -> list[str]:
        """A command line that runs in its network and sees the laboratory's own mounts."""
        return ["nsenter", f"--net={self.space}", *argv]

    def on(self, *argv: str) -> list[str]:
        """A command line that runs on it, in its boot."""
        return self.in_network("unshare", "--mount", "sh", "-c", IN_BOOT, str(self.boot_file), *argv)

    def cut_from(self, other: Machine) -> None:
        """Nothing that the other one sends arrives any more; nobody is told."""
        self._filter(f"add rule ip lab in ip saddr {other.address} drop")

    def heal(self) -> None:
        self._filter("flush chain ip lab in")

    def delay(self, microseconds: int) -> bool:
        """What it sends takes so long, in this boot and later ones. False if this kernel cannot do that."""
        words = self.in_network("tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", f"{microseconds}us")
        is_delayed = subprocess.run(words, capture_output=True).returncode == 0
        self.delay_us = microseconds if is_delayed else 0
        return is_delayed

    def unplug(self) -> None:
        """Nothing gets to it or away from it any more."""
        subprocess.run(["ip", "link", "set", self.port, "down"], capture_output=True)

    def plug_in(self) -> None:
        run("ip", "link", "set", self.port, "up")

    def processes(self) -> list[int]:
        space, found = os.stat(self.space).st_ino, []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.stat(entry / "ns/net").st_ino == space:
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def pause(self) -> None:
        processes.pause(self.processes())

    def go_on(self) -> None:
        for pid in self.processes():
            processes.signal_to(pid, signal.SIGCONT)

    def kill(self, limit_s: float = 20.0) -> None:
        """None of its processes is there afterwards."""
        deadline = time.monotonic() + limit_s
        seen: set[int] = set()
        # One that is ending is in no network any more, and there still.
        while (left := self.processes()) or any(os.path.exists(f"/proc/{pid}") for pid in seen):
            if time.monotonic() > deadline:
                raise RuntimeError(f"machine {self.name}: processes do not end: {left}")
            seen.update(left)
            for pid in left:
                processes.signal_to(pid, signal.SIGKILL)
            reap()
            time.sleep(0.002)

    def lose(self) -> None:
        """It is gone, with its memory, its connections and what they had not sent."""
        self.unplug()
        self.kill()
        run("ip", "netns", "del", self.name)
        # The namespace's end may take its devices a little later.
        subprocess.run(["ip", "link", "del", self.port], capture_output=True)


def reap() -> None:
    """Whatever has ended is gone: PostgreSQL looks whether the process of its file is there."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


class Leg:
    """A machine whose memory is a leg: a server of nbdkit in it. With `tls` all that it hears and says is encrypted."""

    def __init__(self, machine: Machine, size: str, tls: LegTls | None = None):
        self.machine, self.size = machine, size
        self.url, self.options = f"nbd://{machine.address}:{PORT}/forebay", []
        if tls:
            self.url, self.options = f"nbds://{tls.user}{machine.address}:{PORT}/forebay?{tls.query}", tls.options
        self.is_lost = False
        self.start()

    def listens_at(self) -> int:
        """The server's port."""
        return PORT

    def start(self) -> None:
        """It has empty memory. nbdkit 1.32 with more threads aborts now and then when a client is gone (`sock >= 0`)."""
        words = ["nbdkit", "--foreground", "--threads", "1", "--ipaddr", self.machine.address, "--port", str(self.listens_at()), *self.options]
        words += ["memory", self.size]
        # It tells of each connection that was cut.
        self.said = self.machine.home / f"leg-{self.machine.name}"
        with open(self.said, "wb") as said:
            self.process = subprocess.Popen(self.machine.in_network(*words), stdin=subprocess.DEVNULL, stderr=said)
        wait_for(lambda: connects(self.machine.address, self.listens_at()), LISTEN_LIMIT_S, f"nbdkit on {self.machine.name}")

    def fault(self) -> str:
        """That its server has ended, though nobody ended it."""
        if self.is_lost or self.process.poll() is None:
            return ""
        lines = self.said.read_text(errors="replace").splitlines()
        why = [line for line in lines if "ssert" in line] or lines[-1:]
        return f"nbdkit on {self.machine.name} ended by itself with status {self.process.returncode}: {' / '.join(why)}"

    def lose(self) -> None:
        """The machine loses its memory, and tells nobody."""
        self.machine.unplug()
        self.process.kill()
        self.process.wait()
        self.machine.kill()
        self.is_lost = True

    def come_back(self) -> None:
        """It is there again, with empty memory."""
        run("ip", "netns", "del", self.machine.name)
        subprocess.run(["ip", "link", "del", self.machine.port], capture_output=True)
        self.machine.boot()
        self.start()

    def pause(self) -> None:
        self.machine.pause()

    def go_on(self) -> None:
        self.machine.go_on()


def connects(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1.0).close()
        return True
    except OSError:
        return False


def wait_for(is_so, limit_s: float, what: str) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not come in {limit_s:g} s")
        time.sleep(0.01)
