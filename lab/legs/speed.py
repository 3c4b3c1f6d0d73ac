"""Figures: what a commit takes beside an echo of the same bytes, and Redis and PostgreSQL beside what they do plainly.

Two legs; the round trip is lengthened by netem, where the kernel has that, and else by a relay before each server. The volume is on the disk of
cargo's directory, or on an emulated one (forebay-lab run --device).
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

from lab.programs.program import Program
from lab.programs.session import Failure
from suites.place import forebay
from suites import processes

from . import certificates
from .certificates import LegTls
from .databases import NOBODY, POSTGRES, REDIS, SQLITE, as_user, postgres_program
from .epoch import LegsEpoch, OnMachine
from .network import PORT, Leg, Machine, Network, connects, wait_for

COMMITS = pathlib.Path(__file__).with_name("commits.py")
# Such as a cloud's network volume.
DISK_1MS = pathlib.Path(__file__).with_name("disk-1ms.toml")
BYTES, COMMIT_COUNT = 4000, 2000
# A batch, how many there are at a time, and in all of each.
BATCH, BATCHES_AT_ONCE, BATCH_COUNT = 64 << 10, 4, 500
ECHO_PORT, STREAM_BYTES = 7, 256 << 20
# What stands behind a relay listens so many ports further on.
BEHIND = 1000
CLIENTS = (1, 8)
LIMIT_S = 300.0


def lab_program() -> str:
    return str(pathlib.Path(forebay()).with_name("forebay-lab"))


class RelayedLeg(Leg):
    """A leg behind a relay, whose answers take longer."""

    def __init__(self, network: Network, machine: Machine, size: str, tls: LegTls | None):
        self.delay_us = network.relayed_us
        super().__init__(machine, size, tls)

    def listens_at(self) -> int:
        return PORT + (BEHIND if self.delay_us else 0)

    def start(self) -> None:
        super().start()
        if self.delay_us:
            self.relay = relay(self.machine, PORT, self.delay_us)


def relay(machine: Machine, port: int, delay_us: int) -> subprocess.Popen:
    """To what listens further on: its answers come so much later."""
    words = [lab_program(), "internal", "relay", f"{machine.address}:{port}", f"{machine.address}:{port + BEHIND}", str(delay_us)]
    started = subprocess.Popen(machine.in_network(*words), stdin=subprocess.DEVNULL)
    wait_for(lambda: connects(machine.address, port), 20.0, "the relay")
    return started


class Measured(LegsEpoch):
    """An epoch with the programs that ship, and without waits of tests."""

    forebay_program = staticmethod(forebay)
    has_small_logs = False
    pool_size, leg_size = "64MiB", "65M"

    def __init__(self, *args, has_tls: bool = False, device: str | None = None, **words):
        self.tls_share, self.device = float(has_tls), device
        super().__init__(*args, **words)
        self.env = {}

    def make_tls(self) -> LegTls:
        return certificates.by_certificates(self.home / "tls")

    def leg(self, machine: Machine) -> Leg:
        return RelayedLeg(self.network, machine, self.leg_size, self.tls)

    def ask(self, *argv: str) -> str:
        """What a program on the database's machine prints."""
        done = subprocess.run(self.here.on(*argv), capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ, **self.environment(self.here)})
        if done.returncode != 0:
            raise Failure(f"{' '.join(argv)}: {done.stderr[-2000:]}")
        return done.stdout

    def run_words(self, is_plain: bool, *more: str) -> list[str]:
        pool = ["--no-pool"] if is_plain else ["--pool", str(self.pool)]
        if self.device:
            return [lab_program(), "run", *pool, "--device", f"{self.place.data}={self.device}", *more, "--"]
        return [] if is_plain else [forebay(), "run", *pool, *more, "--"]

    def begin(self, is_plain: bool) -> None:
        front = self.front(self.here, *self.run_words(is_plain))
        self.running = OnMachine(self.here, self.program, self.place, front, self.environment(self.here), self.said)


def percentiles(found: str) -> str:
    times = json.loads(found)
    return f"{times['p50_us']:,.0f} µs, 99 %: {times['p99_us']:,.0f} µs"


def commits(epoch: Measured, names: dict[bool, str], *, has_echo: bool) -> list[str]:
    """Rows of the time that a commit takes, and of how much is committed in a second."""
    leg, rows, python = epoch.legs[0].machine, [], [sys.executable, str(COMMITS)]
    sizes = [str(BYTES), str(COMMIT_COUNT)]
    if has_echo:
        delay_us = epoch.network.relayed_us
        server = subprocess.Popen(leg.in_network(*python, "serve", leg.address, str(ECHO_PORT + (BEHIND if delay_us else 0))))
        between = relay(leg, ECHO_PORT, delay_us) if delay_us else None
        wait_for(lambda: connects(leg.address, ECHO_PORT), 20.0, "the echo")
        rows.append(f"| an echo of {BYTES:,} bytes | {percentiles(epoch.ask(*python, 'echo', leg.address, str(ECHO_PORT), *sizes))} |")
        for process in filter(None, (server, between)):
            process.kill()
        sink = subprocess.Popen(leg.in_network(*python, "sink", leg.address, str(ECHO_PORT)))
        wait_for(lambda: connects(leg.address, ECHO_PORT), 20.0, "the sink")
        rows.append(f"| bytes sent to one machine, one way | {json.loads(epoch.ask(*python, 'stream', leg.address, str(ECHO_PORT), str(STREAM_BYTES)))['mb_s']:,.0f} MB/s |")
        sink.kill()
    for is_plain, name in names.items():
        front = epoch.run_words(is_plain, "--profile", "generic", "--absorb", "*")
        found = epoch.ask(*front, *python, "log", str(epoch.place.data / f"log-{is_plain}"), *sizes)
        rows.append(f"| {BYTES:,} bytes appended, {name} | {percentiles(found.splitlines()[-1])} |")
    for is_plain, name in names.items():
        front = epoch.run_words(is_plain, "--profile", "generic", "--absorb", "*")
        words = ["logs", str(epoch.place.data / f"batches-{is_plain}"), str(BATCH), str(BATCH_COUNT), str(BATCHES_AT_ONCE)]
        found = json.loads(epoch.ask(*front, *python, *words).splitlines()[-1])
        rows.append(f"| batches of {BATCH >> 10} KiB, {BATCHES_AT_ONCE} at a time, {name} | {found['mb_s']:,.0f} MB/s |")
    return rows


def resync(epoch: Measured) -> str:
    """A leg that comes back empty is made complete under a database that goes on."""
    epoch.begin(is_plain=False)
    epoch.wait_complete()
    epoch.begin_writing()
    leg = epoch.legs[0]
    leg.lose()
    epoch.wait_complete(1)
    leg.come_back()
    leg.is_lost = False
    began, before = time.monotonic(), len(epoch.running.sessions[0].acknowledged)
    epoch.wait_complete()
    seconds, writes = time.monotonic() - began, len(epoch.running.sessions[0].acknowledged) - before
    epoch.running.stop()
    return f"| a leg of {epoch.pool_size} made complete, while Redis commits {writes / seconds:,.0f} times a second | {seconds:.1f} s, of which it is left alone for 1 |"


def redis_rate(epoch: Measured, clients: int, seconds: float) -> float:
    words = ["redis-benchmark", "-s", str(epoch.place.beside / "redis"), "-t", "set", "-d", "100", "-c", str(clients), "--csv"]
    # First how many are some seconds' worth.
    count = 500 * clients
    for _ in range(2):
        said = subprocess.run([*words, "-n", str(count)], capture_output=True, text=True, timeout=LIMIT_S).stdout
        rate = float(re.search(r'"SET","([\d.]+)"', said)[1])
        count = max(int(rate * seconds), clients)
    return rate


def postgres_rate(epoch: Measured, clients: int, seconds: float) -> float:
    words = as_user(NOBODY, [postgres_program("pgbench"), "-h", str(epoch.place.beside), "-U", "lab", "postgres"])
    if clients == CLIENTS[0]:
        subprocess.run([*words, "-i", "-q", "-s", "4"], check=True, capture_output=True, timeout=LIMIT_S, cwd="/")
    argv = [*words, "-N", "-M", "prepared", "-c", str(clients), "-j", "1", "-T", f"{seconds:.0f}"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, cwd="/").stdout
    return float(re.search(r"tps = ([\d.]+) \(without", said)[1])


RATES = {REDIS: ("Redis, appendfsync always, SET", redis_rate), POSTGRES: ("PostgreSQL, pgbench -N", postgres_rate)}


def database(program: Program, network: Network, home: pathlib.Path, disk: tuple[str, str | None], seconds: float) -> list[str]:
    rates: dict[tuple[int, bool], float] = {}
    name, rate = RATES[program]
    disk_name, device = disk
    # What an emulated disk takes comes on top of what the one below takes.
    above = pathlib.Path("/dev/shm") if device else home
    for is_plain in (True, False):
        place = pathlib.Path(tempfile.mkdtemp(prefix="legs-", dir=above))
        try:
            epoch = Measured(program, network, place, random.Random(0), device=device)
            try:
                epoch.begin(is_plain)
                for clients in CLIENTS:
                    rates[clients, is_plain] = rate(epoch, clients, seconds)
                    processes.say(f"{disk_name}, {name}, {clients} clients, {'plain' if is_plain else 'legs'}: {rates[clients, is_plain]:,.0f} a second")
                epoch.running.stop()
            finally:
                epoch.close()
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return [
        f"| {disk_name} | {name} | {clients} | {rates[clients, True]:,.0f} | {rates[clients, False]:,.0f} | {rates[clients, False] / rates[clients, True]:.1f} |"
        for clients in CLIENTS
    ]


def of(program: Program, network: Network, home: pathlib.Path, **words) -> Measured:
    home.mkdir(parents=True)
    return Measured(program, network, home, random.Random(0), **words)


def measure(network: Network, home: pathlib.Path, delay_us: int, seconds: float, only: list[str]) -> str:
    rows = []
    if "commits" in only:
        rows += ["| | the half of them takes up to |", "|---|---|"]
        for has_tls, names in ((False, {True: "synced plainly", False: "with two legs"}), (True, {False: "with two legs, TLS"})):
            epoch = of(SQLITE, network, home / f"commits-{has_tls}", has_tls=has_tls)
            try:
                rows += commits(epoch, names, has_echo=not has_tls)
            finally:
                epoch.close()
        epoch = of(REDIS, network, home / "resync")
        try:
            rows.append(resync(epoch))
        finally:
            epoch.close()
    disks = {"this disk": None, "syncs in 1 ms": str(DISK_1MS), "hdd-7200": "hdd-7200"}
    if "databases" in only:
        rows += ["", "| disk | a second | clients | plain | two legs | of plain |", "|---|---|---:|---:|---:|---:|"]
        for disk in disks.items():
            for program in RATES:
                rows += database(program, network, home, disk, seconds)
    trip = f"{delay_us} µs of round trip more by {'netem' if network.is_delayed else 'a relay'}" if delay_us else "the round trip is that of virtual links"
    return "\n".join([*rows, "", f"{trip}; {os.cpu_count()} cores for all machines together; {seconds:g} s each; {forebay()}"])
