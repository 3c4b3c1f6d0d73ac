#!/usr/bin/env python3
"""Finds commits whose subject is longer than lists of commits show.

    scripts/commits.py            of the commits that the remote's main has not
    scripts/commits.py SINCE      of those since a revision

Merges, whose subjects git writes, are left out. Without a remote there is nothing to look through.
"""

import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 72
REMOTE = "origin/main"


def too_long(commits):
    """`HASH: its subject has N characters…` of each such commit; `commits` are pairs of hash and subject."""
    return [
        f"{commit}: its subject has {len(subject)} characters, and {WIDTH} are shown: {subject}. Mend it: git rebase -i, reword"
        for commit, subject in commits
        if len(subject) > WIDTH
    ]


def git(*words, root=ROOT):
    return subprocess.run(["git", *words], cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout


def has(revision, root=ROOT):
    """True if the repository has it."""
    found = subprocess.run(["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"], cwd=root, stdout=subprocess.DEVNULL)
    return found.returncode == 0


def since(revision, root=ROOT):
    """Hash and subject of each commit that `revision` has not."""
    lines = git("log", "--no-merges", "--format=%h%x09%s", f"{revision}..HEAD", root=root).splitlines()
    return [tuple(line.split("\t", 1)) for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("since", nargs="?", metavar="SINCE", help=f"the revision [default: {REMOTE}, if there is one]")
    options = parser.parse_args()
    if options.since is None and not has(REMOTE):
        return 0
    if options.since is not None and not has(options.since):
        parser.error(f"git has no commit {options.since}")
    found = too_long(since(options.since or REMOTE))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
