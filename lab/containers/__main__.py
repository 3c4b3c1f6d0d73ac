"""Databases under Forebay in containers of podman; `make test-containers` runs all of it."""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import time

from ..systemd.image import Failure
from . import images, scenes, trials
from .engine import Podman
from .life import ContainerLife


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m lab.containers", description=__doc__)
    parser.add_argument("--image", type=pathlib.Path, required=True, metavar="ARCHIVE", help="forebay's, as make image makes it")
    parser.add_argument("--musl-program", type=pathlib.Path, metavar="FILE", help="image/appender.c, compiled with musl-gcc")
    parser.add_argument("--only", action="append", metavar="TEXT", help="trials and scenes that have this in their name (may be given several times)")
    parser.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path("target/containers"), metavar="DIR")
    parser.add_argument("--list", action="store_true", help="only print what there is")
    options = parser.parse_args()
    scratch = options.scratch.resolve()
    (scratch / "volumes").mkdir(parents=True, exist_ok=True)
    trials.seccomp(scratch)
    steps = all_steps(options, scratch)
    if options.only:
        steps = {name: step for name, step in steps.items() if any(text in name for text in options.only)}
    if options.list:
        print("\n".join(steps))
        return 0
    began, failures, rows = time.monotonic(), [], []
    with Podman(scratch) as podman:
        images.build(podman, scratch, options.image.resolve())
        print(podman.call("version", "--format", "podman {{.Client.Version}}") + ", " + subprocess.check_output(["runc", "--version"], text=True).splitlines()[0], flush=True)
        for name, step in steps.items():
            try:
                rows.append((name, step(podman)))
            except (Failure, RuntimeError) as failure:
                failures.append(name)
                rows.append((name, "FAILED"))
                print(f"{name}: FAILED: {failure}", file=sys.stderr, flush=True)
    print("\n| container | found |\n|---|---|")
    print("\n".join(f"| {name} | {found} |" for name, found in rows))
    print(f"{len(rows)} of {len(steps)}: {'FAILED: ' + ', '.join(failures) if failures else 'as it must be'}; {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


def all_steps(options: argparse.Namespace, scratch: pathlib.Path) -> dict:
    """By name, what is tried; each gives what it found, in a few words."""
    steps = {}
    for trial, databases in trials.all_trials(scratch):
        for database in databases:
            steps[f"{database.name}: {trial.name}"] = life_of(database, trial, scratch)
    return steps | scenes.all_scenes(scratch, options.musl_program)


def life_of(database, trial, scratch):
    return lambda podman: ContainerLife(podman, database, trial, scratch).tried()


if __name__ == "__main__":
    sys.exit(main())
