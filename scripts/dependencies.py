#!/usr/bin/env python3
"""Compares what the store's README says of its dependencies with `cargo tree`.

    scripts/dependencies.py           the figures
    scripts/dependencies.py --check   fails if the README's differ, or if a dependency compiles C

A program that depends on the store gets the crates that `cargo tree` lists for it alone: features
that other crates of this workspace ask for do not count.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = "crates/store/README.md"
STORE = ["-p", "forebay-store"]
# Each figure of the README: its pattern, and the packages whose crates it counts.
FIGURES = {
    "the store": (r"it is (\d+) crates", STORE),
    "the index's tables": (r"(\d+) of them for", ["-p", "lsm-tree"]),
    "without LZ4": (r"Without LZ4 it is (\d+)", [*STORE, "--no-default-features"]),
    "with Zstandard": (r"with Zstandard (\d+)", [*STORE, "--features", "zstd"]),
    # As lab/peers has them, without compression.
    "fjall": (r"fjall is (\d+)", ["-p", "fjall"]),
    "redb": (r"redb (\d+)", ["-p", "redb"]),
}
# Crates that run a C compiler.
COMPILES_C = {"cc", "cmake", "bindgen"}


def crates(tree):
    """The crates that `cargo tree --prefix none` lists, each version once."""
    return {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}


def stated(text):
    """The figures in a README; none for one that is not there."""
    words = " ".join(text.split())
    found = {what: re.search(pattern, words) for what, (pattern, _) in FIGURES.items()}
    return {what: match and int(match[1]) for what, match in found.items()}


def differences(said, counted):
    """A line for each figure that is missing or wrong."""
    return [
        f"{README}: {what}: {counted[what]} crates by cargo tree, and it says {number}"
        for what, number in said.items()
        if number != counted[what]
    ]


def compilers(tree):
    """The crates of a tree that run a C compiler."""
    return sorted(name for name, _ in crates(tree) if name in COMPILES_C)


def cargo_tree(edges, *of):
    command = ["cargo", "tree", "--locked", "--prefix", "none", "--edges", edges, *of]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say what the README has wrong")
    options = parser.parse_args()
    counted = {what: len(crates(cargo_tree("normal", *of))) for what, (_, of) in FIGURES.items()}
    if not options.check:
        for what, number in counted.items():
            print(f"{what}: {number}")
        return 0
    found = differences(stated((ROOT / README).read_text()), counted)
    found += [f"forebay-store: {name}: it needs no C compiler" for name in compilers(cargo_tree("normal,build", *STORE))]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
