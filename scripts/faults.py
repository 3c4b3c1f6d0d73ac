#!/usr/bin/env python3
"""Finds code that ships and asks for what only tests may ask for.

    scripts/faults.py --check               sources
    scripts/faults.py --programs PROGRAM…   programs and libraries that were built

The variables by which tests disturb Forebay are read in one place, behind the cargo feature
`failpoints` (crates/pool/src/failpoint.rs). No other source below crates/*/src may name one, tests
apart, and no program that was built without the feature may have such a name in it.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
READER = "crates/pool/src/failpoint.rs"
NAME = re.compile(r"FOREBAY_(?:TEST_[A-Z_]+|FAILPOINT|BROKEN)")


def is_product(path):
    """True for a source of the product that is not a module of tests."""
    return not {"tests", "tests.rs"}.intersection(pathlib.PurePath(path).parts)


def named(files):
    """`path:line: NAME` of each name outside of its place. `files` are texts by path."""
    found = []
    for path, text in sorted(files.items()):
        # What only explains a variable reads none.
        if is_product(path) and path != READER:
            for number, line in enumerate(text.splitlines(), 1):
                words = NAME.findall(line.split("//")[0])
                found += [f"{path}:{number}: {word}" for word in words]
    return found


def built_in(program):
    """The names that are in a program, given as bytes."""
    return sorted(set(NAME.findall(program.decode("ascii", "replace"))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="look through the sources")
    parser.add_argument("--programs", nargs="+", default=[], type=pathlib.Path, metavar="PROGRAM")
    options = parser.parse_args()
    if not options.check and not options.programs:
        parser.error("nothing to look through: --check or --programs")
    found = []
    if options.check:
        sources = ROOT.glob("crates/*/src/**/*.rs")
        found = named({str(path.relative_to(ROOT)): path.read_text() for path in sources})
        found = [f"{where}, which only {READER} may ask for" for where in found]
    for program in options.programs:
        found += [f"{program}: {name} is in it: it was built with failpoints" for name in built_in(program.read_bytes())]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
