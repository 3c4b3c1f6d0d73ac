"""Where a suite runs: a fresh directory, and `forebay run` in front of its programs or not."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

from . import processes

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What `scripts/setup.sh suites` builds of their sources, below `target()`.
BUILT = "suites/built"
# Lanes and segments enough for the processes of any suite at the same time.
LANES = 64
SEGMENT = "256KiB"
SIZE = "40MiB"
# `forebay run` says this of a program that no agent can serve.
PLAINLY = "runs plainly, and nothing of it is absorbed"


def target() -> pathlib.Path:
    """Where cargo puts what it builds, and `scripts/setup.sh` what the suites need."""
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def built(name: str) -> pathlib.Path:
    """A program (or directory) that `scripts/setup.sh suites` built."""
    return target().resolve() / BUILT / name


def not_built(*names: str) -> str | None:
    """Why a suite that needs these cannot run here."""
    lacking = [name for name in names if not built(name).exists()]
    return f"not built: {', '.join(lacking)}: scripts/setup.sh suites" if lacking else None


def forebay() -> str:
    """The program: `FOREBAY`, or what cargo built."""
    return os.path.abspath(os.environ.get("FOREBAY", target() / "debug" / "forebay"))


def with_failpoints() -> str:
    """The program that can be told that this is another boot: `FOREBAY`, or what `make failpoints` built."""
    return os.path.abspath(os.environ.get("FOREBAY", target() / "failpoints" / "forebay"))


def any_forebay() -> str:
    """The first of the two that is there: for what both do alike."""
    return next(filter(os.path.isfile, (forebay(), with_failpoints())), forebay())


def has_failpoints(program: str) -> bool:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    except OSError:
        return False
    return "with failpoints" in done.stdout


def memory_dir() -> pathlib.Path:
    return pathlib.Path("/dev/shm")


def create_pool(path: pathlib.Path, *, size: str = SIZE, segment: str = SEGMENT, lanes: int = LANES) -> None:
    command = [any_forebay(), "pool", "create", str(path), "--emulated", "--size", size, "--segment-size", segment, "--lanes", str(lanes)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


@dataclasses.dataclass
class Place:
    """A directory for one run of a suite's programs."""

    dir: pathlib.Path
    # None: plain.
    pool: pathlib.Path | None
    # Of `forebay run`; None: what it chooses.
    front_end: str | None = None
    # Counted over all programs that ran here.
    absorbed_writes: int = 0
    # What said that a program was not served: nothing has been compared then.
    plainly: str | None = None

    def run(
        self, argv: list[str], *, limit_s: float, cwd: pathlib.Path | None = None, env: dict[str, str] | None = None, stdin: str = ""
    ) -> processes.Done:
        """Runs a program as it is to be run here."""
        done = processes.run(self.command(argv), cwd=cwd or self.dir, limit_s=limit_s, env=env, stdin=stdin)
        self.count(done)
        return done

    def count(self, done: processes.Done) -> None:
        """Adds what a program (or several) under Forebay said at its end of its absorbed writes."""
        if self.pool:
            self.absorbed_writes += absorbed_writes(done.errors)
            self.plainly = self.plainly or next((line for line in done.errors.splitlines() if PLAINLY in line), None)

    def command(self, argv: list[str]) -> list[str]:
        """The program as it is to be started here."""
        if self.pool is None:
            return argv
        front_end = ["--front-end", self.front_end] if self.front_end else []
        return [forebay(), "run", "--pool", str(self.pool), "--profile", "generic", "--absorb", "*", *front_end, "--explain", "--", *argv]

    def fresh(self, name: str) -> pathlib.Path:
        """A new empty directory in it."""
        path = self.dir / name
        path.mkdir()
        return path

    def left(self) -> str:
        """What the pool still holds; plain, what it has to hold."""
        if self.pool is None:
            return "nothing left in the pool"
        done = subprocess.run([forebay(), "pool", "status", str(self.pool), "--json"], capture_output=True, text=True, timeout=60)
        try:
            lanes = json.loads(done.stdout)["owners"]
        except (ValueError, KeyError):
            return f"the pool is not readable: {done.stdout}{done.stderr}"
        return "nothing left in the pool" if not lanes else f"left in the pool: {json.dumps(lanes)}"


@contextlib.contextmanager
def place(under_forebay: bool, scratch: pathlib.Path | None, front_end: str | None = None) -> Iterator[Place]:
    """A place that is removed afterwards. Its path is as long plain as under Forebay."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="suites-", dir=scratch))
    memory = pathlib.Path(tempfile.mkdtemp(prefix="suites-", dir=memory_dir()))
    try:
        pool = memory / "pool" if under_forebay else None
        if pool:
            create_pool(pool)
        yield Place(directory, pool, front_end)
    finally:
        shutil.rmtree(memory, ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)


def absorbed_writes(output: str) -> int:
    """Sums the writes that `forebay run --explain` lists at its end; 0 if it said nothing of the kind."""
    head = re.compile(r"^\s*file\s+writes\b")
    total, inside = 0, False
    for line in output.splitlines():
        if head.match(line):
            inside = True
        elif inside and (row := re.search(r"\s{2,}([\d,  ]+?)\s{2,}", line)):
            total += int(re.sub(r"\D", "", row[1]) or 0)
        elif inside and not re.match(r"^[\s─-]*$", line):
            inside = False
    return total
