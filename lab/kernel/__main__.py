"""Compares Forebay with the kernel's own caches under the same databases, in an emulated machine; `make bench-kernel` does it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

from lab.systemd.image import Failure

from . import losses, report, speed
from .contestants import ALL

LOSSES, SPEED = "losses", "speed"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m lab.kernel", description=__doc__)
    parser.add_argument("--programs", type=pathlib.Path, default=pathlib.Path("target/release"), metavar="DIR", help="where forebay and libforebay.so lie (default: target/release)")
    parser.add_argument("--only", action="append", choices=ALL, help="this contestant (may be given several times)")
    parser.add_argument("--database", action="append", choices=list(speed.COUNTS), help="measure with this one only (may be given several times)")
    parser.add_argument("--what", action="append", choices=(SPEED, LOSSES), help="only this (default: both)")
    parser.add_argument("--disk", action="append", choices=list(speed.DISKS), help="measure with this disk only (default: both)")
    parser.add_argument("--after", action="append", choices=losses.HOWS, help="lose the device after this only (default: both)")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="lose each device so often (default: 1)")
    parser.add_argument("--quick", action="store_true", help="a fifth of the writes, and losses by a cut only: it runs, not how fast")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each figure and each loss, instead of tables")
    parser.add_argument("--tables", type=pathlib.Path, nargs="+", metavar="FILE", help="run nothing: tables of the lines that --json printed into these files, the last of each")
    parser.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path("target/kernel"), metavar="DIR")
    parser.add_argument("--keep", action="store_true", help="leave the machines' disks and consoles there")
    options = parser.parse_args()
    if options.tables:
        print(report.tables(report.rows_of("".join(file.read_text() for file in options.tables))))
        return 0
    chosen = [ALL[name] for name in options.only or ALL]
    scratch = options.scratch.resolve()
    brought = stripped(options.programs, scratch)
    counts = {name: count // (5 if options.quick else 1) for name, count in speed.COUNTS.items() if name in (options.database or speed.COUNTS)}
    whats = options.what or [SPEED, LOSSES]
    tasks = [(SPEED, one, disk) for disk in options.disk or speed.DISKS for one in chosen if SPEED in whats]
    tasks += [(LOSSES, one, how) for how in options.after or (losses.HOWS[:1] if options.quick else losses.HOWS) for one in chosen if LOSSES in whats and one.is_lost for _ in range(options.rounds)]
    rows: list[speed.Figures | losses.Loss] = []
    failed = 0
    for what, one, how in tasks:
        began = time.monotonic()
        home = scratch / f"{what}-{one.name}-{how}"
        shutil.rmtree(home, ignore_errors=True)
        try:
            made = speed.measure(one, how, home, brought, counts) if what == SPEED else losses.lose(one, how, home, brought)
        except Failure as failure:
            failed += 1
            print(f"{what} {one.name} {how}: FAILED: {failure}", file=sys.stderr, flush=True)
        else:
            rows += made
            if options.json:
                print("\n".join(json.dumps(dataclasses.asdict(row)) for row in made), flush=True)
            print(f"{what} {one.name} {how}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if not options.keep:
            shutil.rmtree(home, ignore_errors=True)
    if not options.json:
        print(report.tables(rows))
    return 1 if failed else 0


def stripped(programs: pathlib.Path, scratch: pathlib.Path) -> dict[str, pathlib.Path]:
    """What the machines run of Forebay, without symbols."""
    scratch.mkdir(parents=True, exist_ok=True)
    made = {}
    for name in ("forebay", "libforebay.so"):
        if not (programs / name).exists():
            sys.exit(f"{programs / name} is not there: cargo build --release -p forebay -p forebay-preload")
        made[name] = scratch / name
        # Another run may be about to copy it.
        partial = scratch / f"{name}.{os.getpid()}"
        subprocess.run(["strip", "-o", partial, programs / name], check=True)
        partial.rename(made[name])
    return made


if __name__ == "__main__":
    sys.exit(main())
