"""Databases under Forebay on arm64, in an emulated machine; `make test-arm64` runs all of it."""

from __future__ import annotations

import argparse
import pathlib
import shutil
import sys
import time

from lab.systemd.image import Failure

from . import package
from .databases import ALL, CONTROL
from .lives import WRITES, DatabaseLife, cut
from .machine import Arm64Machine


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m lab.arm64", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--programs", type=pathlib.Path, metavar="DIR", help="where forebay and libforebay.so for arm64 lie")
    source.add_argument("--deb", type=pathlib.Path, metavar="FILE", help="the package for arm64, which is installed first and purged at the end")
    parser.add_argument("--only", action="append", choices=ALL, help="this one (may be given several times)")
    parser.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path("target/arm64"), metavar="DIR")
    parser.add_argument("--keep", action="store_true", help="leave the machine's disks and consoles there")
    options = parser.parse_args()
    chosen = options.only or list(ALL)
    scratch = options.scratch.resolve() / "machine"
    if options.deb:
        brought = {"forebay.deb": options.deb}
    else:
        brought = {name: options.programs / name for name in ("forebay", "libforebay.so")}
    began = time.monotonic()
    result = 0
    try:
        with Arm64Machine(scratch, brought) as machine:
            machine.boot()
            if options.deb:
                package.install(machine)
            print(machine.sh("uname -rm; getconf PAGESIZE 2>/dev/null || true; command -v forebay; forebay --version"), flush=True)
            run(machine, chosen)
            if options.deb:
                package.purge(machine)
    except Failure as failure:
        result = 1
        print(f"FAILED: {failure}", file=sys.stderr, flush=True)
    if not options.keep:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{', '.join(chosen)}: {'FAILED' if result else 'as it must be'}; {time.monotonic() - began:.0f} s")
    return result


def run(machine: Arm64Machine, names: list[str]) -> None:
    """All lives: each database alone is killed, and all are cut off together, beside one that must lose."""
    lives = [DatabaseLife(machine, ALL[name]) for name in names]
    for life in lives:
        life.make()
        life.start("for the first time")
        machine.sh(life.database.after)
        life.write(WRITES)
        life.check_absorbed()
        for whom in ("everything", "the supervisor"):
            life.kill(whom)
    control = DatabaseLife(machine, CONTROL)
    machine.sh(f"mkdir -p /data/{CONTROL.name}")
    control.start("plainly", is_plain=True)
    cut([*lives, control])
    for life in lives:
        life.start("after the power cut")
        life.check("the power cut while a client wrote")
        life.write(WRITES)
        life.check_absorbed()
        life.end()
    check_control(control)


def check_control(control: DatabaseLife) -> None:
    """It must have lost acknowledged writes by the cut, or its whole log."""
    try:
        control.start("plainly", is_plain=True)
    except Failure as failure:
        # Redis's word for a log in which nothing, or something else, stands where writes stood.
        if "Bad file format" not in str(failure):
            raise
        control.say("appendfsync no, without Forebay: its log is damaged by the same cut, and it does not start, as may be")
        return
    lost = control.record.acknowledged - set(control.found())
    if not lost:
        raise Failure("the control lost nothing, which never syncs: the cut takes nothing away")
    control.say(f"appendfsync no, without Forebay: {len(lost)} of {len(control.record.acknowledged)} acknowledged writes lost by the same cut, as it must be")


if __name__ == "__main__":
    sys.exit(main())
