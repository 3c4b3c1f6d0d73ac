"""Measures the Python package forebay beside plyvel, rocksdict and sqlite3 in one run, in turns: `make bench-python`.

    python -m lab.python [--wheel WHEEL] [--dir DIR] [--pairs N] [--synced N] [--value-bytes N] [--rounds N]

Prints the medians as a table of a document.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import platform
import sqlite3
import sys
import tempfile

from .rounds import Load, run, table
from .stores import use_wheel

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))


def newest_wheel() -> pathlib.Path:
    wheels = sorted(TARGET.glob("wheels/forebay-*.whl"), key=lambda wheel: wheel.stat().st_mtime)
    if not wheels:
        raise SystemExit(f"lab.python: error: {TARGET / 'wheels'} has no wheel: make wheel")
    return wheels[-1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.python", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=pathlib.Path, help="of forebay (default: the newest in target/wheels)")
    parser.add_argument("--dir", type=pathlib.Path, default=TARGET, help="a directory on the disk to be measured (default: %(default)s)")
    for field in dataclasses.fields(Load):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, default=field.default, metavar="N", help="default: %(default)s")
    given = parser.parse_args()
    load = Load(given.pairs, given.synced, given.value_bytes, given.rounds)
    with tempfile.TemporaryDirectory(prefix="lab-python-", dir=given.dir) as scratch:
        use_wheel(given.wheel or newest_wheel(), pathlib.Path(scratch, "wheel"))
        rates = run(load, pathlib.Path(scratch))
    print(table(rates, load))
    print(f"\n{load.pairs} pairs, values of {load.value_bytes} bytes; Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
