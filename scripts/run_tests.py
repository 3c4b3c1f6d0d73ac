#!/usr/bin/env python3
"""Builds the tests and runs their programs side by side: most of a test is waiting for a server or
a disk, and `cargo test` runs one program after the other.

    scripts/run_tests.py --workspace --locked
    JOBS=1 scripts/run_tests.py -p forebay-store
    TESTS=long scripts/run_tests.py --workspace

All arguments are cargo's. TESTS says which programs run of those that are built: all, the `short`
ones or the `long` ones (LONG, below), so that both come from one build. Each program's output is
printed whole once the program has ended; at the end come the ones that took longest. Documentation
tests follow. Then the failed programs are printed again, and their failed tests run once more with
nothing beside them. One that passes alone is called flaky: a test that cannot wait for a busy
machine is a fault to mend. If more than a few programs failed, none is repeated. The exit status is
0 if no test failed for good.
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

SLOWEST = 10
# If more programs than this failed, it is not the load.
REPEATED_MAX = 3
# Programs that take longest begin first: these packages' tests start servers.
SERVERS = ("crates/cli", "crates/innodb", "lab")
# The laboratory's commands at toy size take long and seldom find what no other test does. No promise's
# test is among them: `make test` leaves these out. So is what is the same as another test with more
# files.
LONG = (
    "lab/cli: test bench",
    "lab/cli: test demo",
    "lab/cli: test paper",
    "lab/sysbench: test sql_workloads",
)
# How a program of tests ends if some failed, and how it says which.
TESTS_FAILED = 101
FAILED_TEST = re.compile(r"^    (\S+)$", re.MULTILINE)
# Options that choose programs, and leave the documentation out.
CHOSEN = {"--test", "--lib", "--bin", "--bins", "--example", "--benches"}


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of tests: its executable, and the directory of its package."""

    executable: pathlib.Path
    package: pathlib.Path
    name: str


@dataclasses.dataclass(frozen=True)
class Ran:
    """What a program printed, how it ended, and how long it took."""

    program: Program
    output: str
    status: int
    seconds: float


def program_of(line, root):
    """The program that a line of cargo's messages names, if it is one."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    if not message.get("executable") or not message.get("profile", {}).get("test"):
        return None
    package = pathlib.Path(message["manifest_path"]).parent
    target = message["target"]
    name = f"{package.relative_to(root)}: {target['kind'][0]} {target['name']}"
    return Program(pathlib.Path(message["executable"]), package, name)


def build(arguments, root):
    """Builds the programs; ends this one if that fails."""
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode:
        sys.exit(built.returncode)
    found = (program_of(line, root) for line in built.stdout.splitlines())
    return sorted(filter(None, found), key=lambda it: (is_late(it, root), it.name))


def is_late(program, root):
    """True if the program is not one of those that begin first."""
    package = str(program.package.relative_to(root))
    return not package.startswith(SERVERS)


def is_long(path):
    """True if the file, by its path from the root, is one of a long program's own."""
    names = (name.partition(": test ") for name in LONG)
    return any(re.match(rf"{package}/tests/{test}(\.rs$|/)", path) for package, _, test in names)


def chosen(programs, tests):
    """Those of the programs that TESTS asks for; ends this one if it asks for what is not known."""
    kinds = {"all": (True, False), "long": (True,), "short": (False,)}
    if tests not in kinds:
        sys.exit(f"TESTS is {tests!r}: it takes {', '.join(kinds)}")
    return [program for program in programs if (program.name in LONG) in kinds[tests]]


def run(program, tests=()):
    """Runs a program of tests, or these tests of it, in its package's directory, as cargo does."""
    began = time.monotonic()
    environment = os.environ | {"CARGO_MANIFEST_DIR": str(program.package)}
    ran = subprocess.run(
        [program.executable, *(["--exact", *tests] if tests else [])],
        cwd=program.package,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    output = ran.stdout.decode(errors="replace")
    return Ran(program, output, ran.returncode, time.monotonic() - began)


def how(ran):
    """In words: how a program ended."""
    if ran.status == 0:
        return "ok"
    if ran.status < 0:
        return f"killed by {signal.Signals(-ran.status).name}"
    return f"FAILED ({ran.status})"


def show(ran):
    """Prints what a program printed."""
    print(f"\n== {ran.program.name}: {how(ran)}, {ran.seconds:.1f} s", flush=True)
    print(ran.output.strip("\n"), flush=True)


def failed_tests(ran):
    """The tests that a program says have failed; none if it ended in another way."""
    if ran.status != TESTS_FAILED:
        return []
    # Lines of other processes may lie in the list above this one.
    return FAILED_TEST.findall(ran.output.rpartition("\nfailures:\n")[2])


def repeat(failed):
    """Runs the failed tests once more, alone: the programs that failed for good."""
    if len(failed) > REPEATED_MAX:
        return failed
    for_good = []
    for ran in failed:
        tests = failed_tests(ran)
        if not tests:
            for_good.append(ran)
            continue
        again = run(ran.program, tests)
        show(again)
        if again.status:
            for_good.append(ran)
        else:
            print(f"flaky: {ran.program.name}: {', '.join(tests)}: failed beside others, passed alone")
    return for_good


def run_documented(arguments):
    """Runs the tests in the documentation. True if they passed."""
    command = ["cargo", "test", "--doc", *arguments]
    return subprocess.run(command, check=False).returncode == 0


def main():
    """Builds, runs, and says what failed."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    root = pathlib.Path(__file__).resolve().parent.parent
    tests = os.environ.get("TESTS", "all")
    programs = chosen(build(arguments, root), tests)
    jobs = int(os.environ.get("JOBS") or (os.cpu_count() or 1) + 1)
    print(f"{len(programs)} programs of tests, {jobs} at a time", flush=True)
    began, ended = time.monotonic(), []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(run, program) for program in programs]
        for future in concurrent.futures.as_completed(running):
            ended.append(future.result())
            show(ended[-1])
    slowest = sorted(ended, key=lambda ran: -ran.seconds)[:SLOWEST]
    print(f"\nAll took {time.monotonic() - began:.0f} s; longest:")
    for ran in slowest:
        print(f"  {ran.seconds:6.1f} s  {ran.program.name}")
    is_documented = tests == "long" or not CHOSEN.isdisjoint(arguments) or run_documented(arguments)
    failed = [ran for ran in ended if ran.status]
    for ran in failed:
        show(ran)
    failed = repeat(failed)
    for ran in failed:
        print(f"{how(ran)}: {ran.program.name}")
    return 0 if is_documented and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
