"""Runs the suites; `make suites` runs all of them and writes docs/suites.md."""

from __future__ import annotations

import argparse
import functools
import pathlib
import random
import re
import subprocess
import sys
from collections.abc import Callable

from . import compare, dpkg, fio, fsx, git, go, pjdfstest, processes, python, python_notify, report, sqlite, sqlite_musl
from .cuts import ddl, flash, loop, order, writeback
from .place import any_forebay, forebay, has_failpoints, target, with_failpoints

# Their programs' calls are made by an agent.
BY_AN_AGENT = (go.OS, go.BBOLT, go.ETCD, python_notify, sqlite_musl, fsx, pjdfstest)
# Cuts after which the program is told that the machine was booted anew.
IN_ANOTHER_BOOT = {cut.NAME for cut in (flash, ddl, order, writeback)}


def main() -> int:
    suites = comparisons()
    cuts = {cut.NAME: cut for cut in (loop, flash, ddl, order, writeback)}
    variants = [variant.name for cut in cuts.values() for variant in cut.VARIANTS]
    names = [*suites, *cuts]
    parser = argparse.ArgumentParser(prog="python3 -m suites", description=__doc__)
    parser.add_argument("--only", action="append", choices=names, help="this suite (may be given several times)")
    parser.add_argument("--group", help="of a comparison: only groups whose name contains this")
    parser.add_argument("--rounds", type=int, default=100, help="cuts of each variant (default: 100)")
    parser.add_argument("--variant", choices=variants, help="only this variant of the cuts")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="of the cuts")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="copy pools and files of bad rounds to DIR")
    parser.add_argument("--scratch", type=pathlib.Path, metavar="DIR", help="work below DIR (default: the system's temporary directory)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="write the table to FILE")
    options = parser.parse_args()
    chosen = options.only or names
    if not IN_ANOTHER_BOOT.issuperset(chosen) and not pathlib.Path(forebay()).is_file():
        parser.error(f"{forebay()} is not there: cargo build -p forebay -p forebay-preload, or say where it is in FOREBAY")
    if not IN_ANOTHER_BOOT.isdisjoint(chosen) and not has_failpoints(with_failpoints()):
        parser.error(f"{with_failpoints()} cannot be told that this is another boot: make failpoints, or say where one with failpoints is in FOREBAY")
    processes.adopt_orphans()
    results, said = [], versions()
    try:
        for name in chosen:
            if name in cuts:
                results.append(cuts[name].LOOP.run(options.rounds, options.seed, options.variant, options.keep))
            else:
                results.append(suites[name](options.scratch, options.group))
            # After each: an interrupted run has what was done. The page has the last result of each suite.
            if options.write and not options.group:
                report.save(results[-1], kept())
                earlier = options.write.read_text() if options.write.exists() else ""
                report.write(options.write, report.to_markdown(report.saved(kept(), names), said, earlier, names))
    finally:
        processes.stop_all()
    print(report.to_json(results) if options.json else report.to_markdown(results, said))
    return 0 if all(result.well for result in results) else 1


def kept() -> pathlib.Path:
    """Where the last result of each suite is."""
    return target() / "suites" / "results"


def comparisons() -> dict[str, Callable]:
    """By name, what runs a suite plain and under Forebay: scratch directory and group in, result out."""
    return {suite.NAME: functools.partial(compare.run, suite) for suite in (python, fio, git, dpkg, sqlite, *BY_AN_AGENT)}


def versions() -> dict[str, str]:
    commands = {
        "Forebay": [any_forebay(), "--version"],
        "Python": [python.PYTHON, "--version"],
        "fio": ["fio", "--version"],
        "git": ["git", "--version"],
        "dpkg": ["dpkg", "--version"],
        "SQLite": ["sqlite3", "--version"],
        "Go": ["go", "version"],
    }
    said = {}
    for name, command in commands.items():
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except OSError:
            continue
        number = re.search(r"\d+(\.\d+)+", done.stdout)
        said[name] = number[0] if number else "?"
    return said


if __name__ == "__main__":
    sys.exit(main())
