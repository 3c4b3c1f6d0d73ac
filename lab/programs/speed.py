"""How many acknowledged writes a second, plain, with libeatmydata, and under Forebay, on the disk that the data is on."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from suites import processes
from suites.place import create_pool, forebay

from .life import EATMYDATA, FOREBAY, MANY, PLAIN, before_program
from .program import Home, Program
from .session import Running

VARIANTS = (PLAIN, EATMYDATA, FOREBAY)


@dataclasses.dataclass(frozen=True)
class Load:
    """What is measured: so long, after a while, by so many sessions of a server."""

    seconds: float = 5.0
    warm_up_s: float = 1.0
    sessions: int = 1


def rate(program: Program, variant: str, load: Load, scratch: pathlib.Path) -> float:
    """Acknowledged writes a second, of an instance of its own."""
    home = pathlib.Path(tempfile.mkdtemp(prefix=f"{program.name}-", dir=scratch))
    memory = pathlib.Path(tempfile.mkdtemp(prefix="programs-", dir="/dev/shm"))
    try:
        pool = memory / "pool"
        if variant == FOREBAY:
            create_pool(pool, size="64MiB", segment="1MiB", lanes=8)
        front, env = before_program(variant, forebay(), pool, program)
        env["FOREBAY_RUN_DIR"] = str(memory)
        for name in ("data", "beside"):
            (home / name).mkdir()
        running = Running(program, Home(home / "data", home / "beside"), front, env, home / "said", load.sessions)
        try:
            return _measured(running, load)
        finally:
            running.stop()
    finally:
        processes.stop_all()
        for directory in (home, memory):
            shutil.rmtree(directory, ignore_errors=True)
        # Of what one left, the next one's syncs would pay for.
        subprocess.run(["sync"], check=True)


def _measured(running: Running, load: Load) -> float:
    for number, session in enumerate(running.sessions):
        session.begin_writing(number * MANY + 1, (number + 1) * MANY)
    time.sleep(load.warm_up_s)
    began = time.monotonic()
    time.sleep(load.seconds)
    ended = time.monotonic()
    times = [at for session in running.sessions for at in list(session.acknowledged.values())]
    return sum(began <= at < ended for at in times) / (ended - began)


def table(rates: dict[str, dict[str, list[float]]], load: Load) -> str:
    """Medians, and what Forebay is beside the other two."""
    lines = [
        "| program | plain | libeatmydata | Forebay | of plain | of libeatmydata |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, of in rates.items():
        plain, eaten, absorbed = (sorted(of[variant])[len(of[variant]) // 2] for variant in VARIANTS)
        ratios = [f"{absorbed / other:.2f}" if other else "–" for other in (plain, eaten)]
        lines.append(f"| {name} | {plain:,.0f} | {eaten:,.0f} | {absorbed:,.0f} | {' | '.join(ratios)} |")
    cores = os.cpu_count()
    lines += ["", f"Acknowledged writes a second: {load.sessions} session(s), {load.seconds:g} s, {cores} cores; the pool is in memory."]
    return "\n".join(lines)
