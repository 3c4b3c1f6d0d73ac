"""Figures: what a commit takes beside an echo of the same bytes, and Redis and PostgreSQL beside what they do plainly.

The volume is on the disk of cargo's directory. Two legs; the round trip is lengthened by netem, where the kernel has that.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import subprocess
import sys

from lab.programs.program import Program
from lab.programs.session import Failure
from suites.place import forebay
from suites import processes

from .databases import NOBODY, POSTGRES, REDIS, SQLITE, as_user, postgres_program
from .epoch import LegsEpoch, OnMachine
from .network import Network, connects, wait_for

COMMITS = pathlib.Path(__file__).with_name("commits.py")
BYTES, COMMIT_COUNT = 4000, 2000
ECHO_PORT = 7
CLIENTS = (1, 8)
LIMIT_S = 300.0


class Measured(LegsEpoch):
    """An epoch with the programs that ship, and without waits of tests."""

    forebay_program = staticmethod(forebay)
    tls_share = 0.0

    def __init__(self, *args, **words):
        super().__init__(*args, **words)
        self.env = {}

    def ask(self, *argv: str) -> str:
        """What a program on the database's machine prints."""
        done = subprocess.run(self.here.on(*argv), capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ, **self.environment(self.here)})
        if done.returncode != 0:
            raise Failure(f"{' '.join(argv)}: {done.stderr[-2000:]}")
        return done.stdout

    def run_words(self, is_plain: bool, *more: str) -> list[str]:
        return [] if is_plain else [forebay(), "run", "--pool", str(self.pool), *more, "--"]

    def begin(self, is_plain: bool) -> None:
        front = self.front(self.here, *self.run_words(is_plain))
        self.running = OnMachine(self.here, self.program, self.place, front, self.environment(self.here), self.said)


def percentiles(found: str) -> str:
    times = json.loads(found)
    return f"{times['p50_us']:,.0f} µs, 99 %: {times['p99_us']:,.0f} µs"


def commits(epoch: Measured) -> list[str]:
    leg = epoch.legs[0].machine
    python = [sys.executable, str(COMMITS)]
    server = subprocess.Popen(leg.in_network(*python, "serve", leg.address, str(ECHO_PORT)))
    wait_for(lambda: connects(leg.address, ECHO_PORT), 20.0, "the echo")
    sizes = [str(BYTES), str(COMMIT_COUNT)]
    rows = [f"| an echo of {BYTES:,} bytes | {percentiles(epoch.ask(*python, 'echo', leg.address, str(ECHO_PORT), *sizes))} |"]
    server.kill()
    for name, is_plain in (("synced plainly", True), ("with two legs", False)):
        front = epoch.run_words(is_plain, "--profile", "generic", "--absorb", "*")
        found = epoch.ask(*front, *python, "log", str(epoch.place.data / f"log-{is_plain}"), *sizes)
        rows.append(f"| {BYTES:,} bytes appended, {name} | {percentiles(found.splitlines()[-1])} |")
    return rows


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


def database(program: Program, network: Network, home: pathlib.Path, seconds: float) -> list[str]:
    rates: dict[tuple[int, bool], float] = {}
    name, rate = RATES[program]
    for is_plain in (True, False):
        epoch = of(program, network, home / f"{program.name}-{is_plain}")
        try:
            epoch.begin(is_plain)
            for clients in CLIENTS:
                rates[clients, is_plain] = rate(epoch, clients, seconds)
                processes.say(f"{name}, {clients} clients, {'plain' if is_plain else 'legs'}: {rates[clients, is_plain]:,.0f} a second")
            epoch.running.stop()
        finally:
            epoch.close()
    return [
        f"| {name} | {clients} | {rates[clients, True]:,.0f} | {rates[clients, False]:,.0f} | {rates[clients, False] / rates[clients, True]:.2f} |"
        for clients in CLIENTS
    ]


def of(program: Program, network: Network, home: pathlib.Path) -> Measured:
    home.mkdir(parents=True)
    return Measured(program, network, home, random.Random(0))


def measure(network: Network, home: pathlib.Path, delay_us: int, seconds: float) -> str:
    epoch = of(SQLITE, network, home / "commits")
    try:
        rows = ["| | the half of them takes up to |", "|---|---|", *commits(epoch)]
    finally:
        epoch.close()
    rows += ["", "| a second | clients | plain | two legs | of plain |", "|---|---:|---:|---:|---:|"]
    for program in RATES:
        rows += database(program, network, home, seconds)
    trip = f"{delay_us} µs of round trip more by netem" if network.is_delayed else "netem is not in this kernel: the round trip is that of virtual links"
    return "\n".join([*rows, "", f"{trip}; {os.cpu_count()} cores for all machines together; {seconds:g} s each; {forebay()}"])
