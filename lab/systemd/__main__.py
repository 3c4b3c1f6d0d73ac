"""Debian's units under a real systemd, in a virtual machine; `make test-systemd` runs all of it."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import shutil
import sys
import time

from . import refusals
from .container import Container
from .databases import ALL
from .image import Failure
from .lives import UnitLife, WriteRecord
from .machine import Machine

# Where the pool lies: what `forebay enable` finds by itself is the persistent memory.
POOLS = {"pmem": "", "disk": "--pool /fast/{name}.pool"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m lab.systemd", description=__doc__)
    parser.add_argument("--old", type=pathlib.Path, required=True, metavar="DEB", help="the package that is installed")
    parser.add_argument("--new", type=pathlib.Path, required=True, metavar="DEB", help="the one that it is upgraded to")
    parser.add_argument("--only", action="append", choices=[*ALL, "refusals"], help="this one (may be given several times)")
    parser.add_argument("--pool", action="append", choices=POOLS, help="pools there alone (default: both)")
    parser.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path("target/systemd"), metavar="DIR")
    parser.add_argument("--container", action="store_true", help="in a container instead of a virtual machine: see README.md")
    parser.add_argument("--keep", action="store_true", help="leave the machine's disks and consoles there")
    options = parser.parse_args()
    chosen = options.only or [*ALL, "refusals"]
    # A container has no persistent memory.
    pools = options.pool or (["disk"] if options.container else list(POOLS))
    scratch = options.scratch.resolve() / ("container" if options.container else "machine")
    failures = []
    began = time.monotonic()
    try:
        kind = Container if options.container else Machine
        with kind(scratch, {"old.deb": options.old, "new.deb": options.new}) as machine:
            machine.boot()
            prepare(machine)
            for name in chosen:
                try:
                    one(machine, name, pools)
                except Failure as failure:
                    failures.append(name)
                    print(f"{name}: FAILED: {failure}", file=sys.stderr, flush=True)
                    if machine.process is None:
                        machine.boot()
                    else:
                        tell(machine)
            end(machine, failures)
    except Failure as failure:
        failures.append("the machine")
        print(f"FAILED: {failure}", file=sys.stderr, flush=True)
    if not options.keep:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{', '.join(chosen)}: {'FAILED: ' + ', '.join(failures) if failures else 'as it must be'}; {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


def prepare(machine: Machine | Container) -> None:
    print(machine.sh("grep PRETTY /etc/os-release; uname -r; systemctl --version | head -n 1; systemd-detect-virt || true"), flush=True)
    if isinstance(machine, Machine):
        machine.sh("mountpoint -q /mnt/pmem || { ndctl create-namespace -f -e namespace0.0 -m fsdax -M mem >/dev/null; mke2fs -q -t ext4 -b 4096 -F /dev/pmem0; systemctl daemon-reload; mount /mnt/pmem; }")
    machine.sh("dpkg -i /parcel/old.deb")


def tell(machine: Machine | Container) -> None:
    """What its journal and its databases' logs say last."""
    with contextlib.suppress(Failure, OSError):
        _, said = machine.ask("journalctl -b --no-pager -n 60; tail -n 20 /var/log/*/*.log", 120.0)
        print(said, file=sys.stderr, flush=True)


def one(machine: Machine | Container, name: str, pools: list[str]) -> None:
    if name == "refusals":
        return refusals.run(machine)
    record = WriteRecord()
    for pool in pools:
        life = UnitLife(machine, ALL[name], POOLS[pool].format(name=name), record)
        life.say(f"--- pool: {pool}")
        life.run()


def end(machine: Machine | Container, failures: list[str]) -> None:
    """The package goes, and nothing of it is left."""
    if failures:
        return
    machine.sh("for pool in /mnt/pmem/*.pool /fast/*.pool; do [ ! -e $pool ] || forebay pool remove $pool; done; dpkg -r forebay; dpkg -P forebay")
    left = machine.sh("find / -xdev -path /proc -prune -o -path /sys -prune -o -name '*forebay*' -print | grep -v ^/var/lib/dpkg || true; find /dev/shm /run /tmp /mnt /fast -name '*forebay*' -o -name '*.pool'")
    if left:
        failures.append("removal")
        print(f"left by the package: {left}", file=sys.stderr)
    else:
        print("removal  the package is purged, and nothing of it is left", flush=True)


if __name__ == "__main__":
    sys.exit(main())
