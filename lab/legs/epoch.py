"""A database on a machine, its pool in the memory of others, and its volume: for some rounds.

What it acknowledged is noted outside of all machines, and looked for after each loss.
"""

from __future__ import annotations

import os
import pathlib
import random
import re
import subprocess
import threading
import time

from lab.programs.program import Home, Program
from lab.programs.session import Failure, Running
from lab.systemd.lives import WriteRecord
from suites import processes
from suites.place import with_failpoints

from . import certificates
from .certificates import LegTls
from .databases import POSTGRES, REDIS, as_user, make_postgres, user_of
from .network import Leg, Machine, Network
from .volume import Volume

# What a session is told to write: its machine is lost long before.
MANY = 1_000_000
FIRST_WRITE_LIMIT_S = 60.0
COMPLETE_LIMIT_S = 40.0
COMMAND_LIMIT_S = 120.0
# Of a machine that is dead nobody has to wait for long.
SHORT_WAITS = "legs-takeover=200,legs-quiet=200"
NEEDS_LEG = re.compile(r"--lost-leg")


class ServerDied(Exception):
    """A leg's server ended by itself, so more is lost than the scene meant: nothing is known of Forebay."""


class OnMachine(Running):
    """A program that runs on a machine, with sessions that are on none."""

    def __init__(self, machine: Machine, *args, **words):
        self.machine = machine
        self.is_started = threading.Event()
        self.sessions = []
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            super().__init__(*args, **words)
        finally:
            self.is_started.set()

    def _watch(self) -> None:
        """Sessions wait for a program to come, and this one has ended."""
        while not self.is_started.wait(0.1):
            if self.sessions and self.process.poll() is not None:
                for session in self.sessions:
                    session.process.kill()
                return

    def stop(self) -> None:
        self.machine.kill()
        self.stop_waiting()

    def stop_waiting(self) -> None:
        """Its machine is gone: notes what its sessions still had to say."""
        self.process.wait()
        for session in self.sessions:
            session.join()


class LegsEpoch:
    """See the module's head."""

    # The program that stands before the database.
    forebay_program = staticmethod(with_failpoints)
    # How many of them have TLS to their legs.
    tls_share = 0.5
    has_small_logs = True
    pool_size, leg_size = "16MiB", "24M"

    def __init__(self, program: Program, network: Network, home: pathlib.Path, rng: random.Random, *, copies: int = 2):
        self.program, self.network, self.home, self.rng = program, network, home, rng
        self.said = home / "said"
        self.record = WriteRecord()
        self.env = {"FOREBAY_TEST_WAITS": SHORT_WAITS}
        self.here = network.machines["A"]
        self.legs: list[Leg] = []
        self.volume: Volume | None = None
        self.running: OnMachine | None = None
        home.chmod(0o755)
        try:
            self._make(copies)
        except BaseException:
            self.close()
            raise

    def _make(self, copies: int) -> None:
        self.tls = self.make_tls() if self.rng.random() < self.tls_share else None
        self.legs = [self.leg(self.network.machines[name]) for name in "BC"]
        self.volume = Volume(self.home, "ext4")
        owned = [self.volume.mounted / "lab", self.volume.mounted / "lab" / "data", self.home / "beside"]
        for path in owned:
            path.mkdir()
            os.chown(path, user_of(self.program), user_of(self.program))
            path.chmod(0o700)
        self.pool = owned[0] / "pool"
        self.place = Home(owned[1], owned[2], has_small_logs=self.has_small_logs)
        # The laboratory's own sessions are root's.
        owned[2].chmod(0o755)
        if self.program is POSTGRES:
            make_postgres(self.place)
        self.create_pool(copies)
        self.volume.write_back()

    def make_tls(self) -> LegTls:
        """Of each kind in turn."""
        at = self.home / "tls"
        return certificates.by_key(at, self.rng) if self.rng.random() < 0.5 else certificates.by_certificates(at)

    def leg(self, machine: Machine) -> Leg:
        return Leg(machine, self.leg_size, self.tls)

    def create_pool(self, copies: int) -> None:
        words = ["pool", "create", str(self.pool), "--size", self.pool_size, "--segment-size", "512KiB", "--copies", str(copies)]
        words += [] if self.tls else ["--insecure"]
        for leg in self.legs:
            words += ["--leg", leg.url]
        status, said = self.forebay(*words)
        if status != 0:
            raise Failure(f"pool create: {said}")

    def check_servers(self) -> None:
        """They are there."""
        if ended := " ".join(filter(None, (leg.fault() for leg in self.legs))):
            raise ServerDied(ended)

    def close(self) -> None:
        try:
            for leg in self.legs:
                leg.lose()
            for machine in self.network.machines.values():
                machine.lose()
            processes.stop_all()
            for machine in self.network.machines.values():
                machine.boot()
        finally:
            if self.volume:
                self.volume.close()

    @property
    def there(self) -> Machine:
        """The machine that the database is not on."""
        return self.network.machines["D" if self.here.name == "A" else "A"]

    def front(self, machine: Machine, *argv: str) -> list[str]:
        return machine.on(*as_user(user_of(self.program), list(argv)))

    def environment(self, machine: Machine) -> dict[str, str]:
        return {**self.env, "FOREBAY_RUN_DIR": str(machine.run_dir_of(user_of(self.program)))}

    def forebay(self, *words: str) -> tuple[int, str]:
        """What it says to that here, and its status."""
        argv = self.front(self.here, self.forebay_program(), *words)
        env = {**os.environ, **self.environment(self.here), "FOREBAY_FAILPOINT": ""}
        try:
            done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=COMMAND_LIMIT_S, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            raise Failure(f"forebay {' '.join(words)}: it does not end in {COMMAND_LIMIT_S:.0f} s") from None
        if words[0] == "recover":
            with open(self.said, "a", encoding="utf-8") as said:
                said.write(f"{' '.join(words)}: status {done.returncode}: {done.stdout}{done.stderr}\n")
        return done.returncode, done.stdout + done.stderr

    def start(self) -> OnMachine:
        """Starts the database here. `running` is none if it does not."""
        self.running = None
        front = self.front(self.here, self.forebay_program(), "run", "--pool", str(self.pool), "--")
        self.running = OnMachine(self.here, self.program, self.place, front, self.environment(self.here), self.said)
        return self.running

    def check(self) -> None:
        """All that was acknowledged is there, each once."""
        found = self.running.sessions[0].numbers()
        if fault := self.record.fault(found):
            raise Failure(fault)
        self.record.next = max([self.record.next, *(number + 1 for number in found)])

    def begin_writing(self) -> None:
        self.running.sessions[0].begin_writing(self.record.next, MANY)
        self.wait_writes()

    def wait_writes(self, count: int = 1, limit_s: float = FIRST_WRITE_LIMIT_S) -> None:
        """Until so many more are acknowledged."""
        deadline = time.monotonic() + limit_s
        noted = self.running.sessions[0].acknowledged
        target = len(noted) + count
        while len(noted) < target:
            if time.monotonic() > deadline or self.running.process.poll() is not None:
                raise Failure(f"nothing is acknowledged for {limit_s:g} s: {self.running.last_words()}")
            time.sleep(0.005)

    def note(self) -> int:
        """Notes what was acknowledged, once its sessions have ended: how much."""
        before = len(self.record.acknowledged)
        self.record.acknowledged |= self.running.acknowledged
        self.record.next = max([self.record.next, *(number + 1 for number in self.running.acknowledged)])
        return len(self.record.acknowledged) - before

    def complete(self) -> int:
        """How many legs are complete, as they say here."""
        return self.forebay("pool", "status", str(self.pool))[1].count("(complete)")

    def wait_complete(self, count: int = 2) -> None:
        deadline = time.monotonic() + COMPLETE_LIMIT_S
        while (found := self.complete()) != count:
            if time.monotonic() > deadline:
                raise Failure(f"{found} complete legs instead of {count} for {COMPLETE_LIMIT_S:g} s: {self.running.last_words()}")
            time.sleep(0.1)

    def lose_machine(self, moves: bool) -> int:
        """The machine is gone, with what its volume had not synced: how many writes it acknowledged. The volume is here or there then."""
        if self.rng.random() < 0.5:
            # Some of what it sends in its last moment does not arrive.
            self.here.unplug()
            time.sleep(self.rng.uniform(0.0, 0.02))
        # Not in the middle of a sync, which the shutdown of its file system may let return 0.
        self.here.pause()
        self.volume.cut()
        self.here.lose()
        self.running.stop_waiting()
        acknowledged = self.note()
        self.here.boot()
        if moves:
            self.here = self.there
        self.volume.mount_again()
        return acknowledged

    def recover(self, first: bool) -> str:
        """Recovers here as the recovery itself says how: what was given up for that."""
        given_up: list[str] = []
        lost = [leg for leg in self.legs if leg.is_lost]
        words = ["recover", "--pool", str(self.pool)]
        status, said = self.forebay(*words) if first or lost or self.program is REDIS else (0, "")
        if status != 0 and NEEDS_LEG.search(said):
            # Only of legs that really have lost their memory.
            given_up = [leg.url for leg in lost if leg.url in said]
            if not given_up:
                raise Failure(f"a leg is called lost that is not: {said}")
            status, said = self.forebay(*words, *(word for url in given_up for word in ("--lost-leg", url)))
        if status != 0:
            raise Failure(f"it is not recovered: {said}")
        return ", ".join(given_up)
