"""Takes programs through kills and cuts, or measures them; `make test-programs` does the first."""

from __future__ import annotations

import argparse
import pathlib
import random
import shutil
import sys
import tempfile

from suites import processes
from suites.cuts.disk import why_not
from suites.place import has_failpoints, target, with_failpoints

from . import life, speed
from .program import PROGRAMS, Program
from .session import Failure


def main() -> int:
    names = [program.name for program in PROGRAMS]
    parser = argparse.ArgumentParser(prog="python3 -m lab.programs", description=__doc__)
    parser.add_argument("--only", action="append", choices=names, help="this program (may be given several times)")
    parser.add_argument("--rounds", type=int, default=5, help="kills and cuts of each program under Forebay (default: 5)")
    parser.add_argument("--variant", choices=[life.FOREBAY, life.PLAIN, life.EATMYDATA], help="only with this before the program")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--speed", action="store_true", help="measure instead")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default: 5)")
    parser.add_argument("--sessions", type=int, default=1, help="that write to a server at the same time (default: 1)")
    parser.add_argument("--repeat", type=int, default=1, help="measure so often, and print medians")
    options = parser.parse_args()
    chosen = [program for program in PROGRAMS if program.name in (options.only or names)]
    for program in chosen:
        if lacking := program.lacking():
            parser.error(f"{program.name}: {', '.join(lacking)} is not there: scripts/setup.sh test-programs")
    processes.adopt_orphans()
    try:
        if options.speed:
            return measure([program for program in chosen if program.is_measured], speed.Load(options.seconds, sessions=options.sessions), options.repeat)
        if why := why_not():
            parser.error(why)
        if not has_failpoints(with_failpoints()):
            parser.error(f"{with_failpoints()} cannot be told that this is another boot: make failpoints")
        return live(chosen, options)
    finally:
        processes.stop_all()


def measure(programs: list[Program], load: speed.Load, repeat: int) -> int:
    """Each program in each variant, the variants in turn."""
    scratch = target() / "programs"
    scratch.mkdir(parents=True, exist_ok=True)
    rates: dict[str, dict[str, list[float]]] = {program.name: {variant: [] for variant in speed.VARIANTS} for program in programs}
    for program in programs:
        for _ in range(repeat):
            for variant in speed.VARIANTS:
                rates[program.name][variant].append(speed.rate(program, variant, load, scratch))
                processes.say(f"{program.name}: {variant}: {rates[program.name][variant][-1]:,.0f} a second")
    print(speed.table(rates, load))
    return 0


def live(programs: list[Program], options: argparse.Namespace) -> int:
    passed = failed = 0
    processes.say(f"programs: seed {options.seed}")
    for program in programs:
        # Of what is not durable by itself it is enough to see that.
        variants = [life.FOREBAY, life.PLAIN, life.EATMYDATA] if program.is_durable else [life.PLAIN]
        for variant in [options.variant] if options.variant else variants:
            fault = lives_of(program, variant, options.rounds, options.seed)
            passed, failed = passed + (not fault), failed + bool(fault)
            if fault:
                processes.say(f"{program.name}: {variant}: FAILED: {fault}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def lives_of(program: Program, variant: str, rounds: int, seed: int) -> str:
    """All rounds of a variant: what is wrong, nothing if all is well."""
    home = pathlib.Path(tempfile.mkdtemp(prefix="programs-", dir="/dev/shm"))
    try:
        epoch = life.ProgramEpoch(program, variant, home, random.Random(f"{seed} {program.name} {variant}"))
        how = "made"
        try:
            for how in life.steps(variant, rounds):
                epoch.round(how)
            how = "ended"
            epoch.last_check()
            fault = ""
        except Failure as failure:
            fault = f"{failure} (found in the round that was to end by: {how})"
        finally:
            epoch.close()
        # What acknowledges early, or has no syncs, loses, or the loop would not see a loss.
        must_lose = variant == life.EATMYDATA or not program.is_durable
        processes.say(
            f"{program.name}: {variant}: {len(epoch.record.acknowledged):,} acknowledged, {epoch.counted} cuts, {epoch.saved:,} syncs saved"
            + (f"; {fault}" if fault and must_lose else "")
        )
        if must_lose:
            return "" if "LOST" in fault else f"it has to lose something: {fault or 'it did not'}"
        return fault
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
