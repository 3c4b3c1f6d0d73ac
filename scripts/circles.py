#!/usr/bin/env python3
"""Finds circles of files that import each other across the top-level modules of a crate.

A reader of one module should not need another that needs the first in turn. Counted are the `use`
lines and the paths in the code of crates/, without tests; what a `pub use` gives on counts as
imported from the file that has it. Circles within one top-level module are that module's affair.
"""

import collections
import pathlib
import re
import sys

if __package__:
    from . import names
else:
    import names

# Arrows `FILE -> FILE` that a circle may have, by the reason.
ALLOWED = {}

USE = re.compile(r"^[ \t]*(pub(?:\([^)]*\))? )?use ([^;]+);", re.MULTILINE)
PATH = re.compile(r"(?<![\w:.])[a-z_]\w*(?:::\w+)+")


def module(path):
    """The crate and the names of a file's module: those of a crate's root are none."""
    crate, _, inside = path.partition("/src/")
    parts = pathlib.PurePath(inside).with_suffix("").parts
    return crate, parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts


def paths(use):
    """The paths of a `use`: `a::{b, c::d}` has `a::b` and `a::c::d`."""
    head, brace, rest = re.sub(r"\sas\s+\w+", "", use).partition("{")
    head = [name for name in re.split(r"::|\s", head) if name]
    if not brace:
        return [head]
    items, depth = [""], 0
    for character in rest[: rest.rindex("}")]:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and not depth:
            items.append("")
        else:
            items[-1] += character
    return [head + path for item in items if item.strip() for path in paths(item)]


class Crate:
    """The files of a crate by their modules, and what each of them imports and exports."""

    def __init__(self, files):
        self.files = files
        self.imports = collections.defaultdict(list)
        self.exports = {}
        for at, (_, text) in files.items():
            for found in USE.finditer(text):
                line = text.count("\n", 0, found.start(2)) + 1
                for path in paths(found[2]):
                    if not found[1]:
                        self.imports[at].append((line, path))
                    elif start := self.absolute(at, path):
                        self.exports[at, path[-1]] = start
            text = USE.sub(lambda use: "\n" * use[0].count("\n"), text)
            for found in PATH.finditer(text):
                self.imports[at].append((text.count("\n", 0, found.start()) + 1, found[0].split("::")))

    def absolute(self, at, path):
        """Where a path begins, and what is left of it. None for one that leads out of the crate."""
        if path[0] == "crate":
            return (), path[1:]
        if path[0] in ("self", "super"):
            while path and path[0] in ("self", "super"):
                at, path = at[: len(at) - (path[0] == "super")], path[1:]
            return at, path
        return (at, path) if at + (path[0],) in self.files else None

    def target(self, at, path, depth=9):
        """The module of the file that a path leads to."""
        while path and at + (path[0],) in self.files:
            at, path = at + (path[0],), path[1:]
        if path and depth and (at, path[0]) in self.exports:
            start, more = self.exports[at, path[0]]
            return self.target(start, more + path[1:], depth - 1)
        return at

    def arrows(self):
        """The lines in which each file imports from others: `{module: {other: line}}`."""
        found = {at: {} for at in self.files}
        for at, imports in self.imports.items():
            for line, path in imports:
                start = self.absolute(at, path)
                other = start and self.target(*start)
                if start and other != at and other in self.files:
                    found[at].setdefault(other, line)
        return found


def reached(arrows, at):
    """All modules that a chain of arrows leads to."""
    found, todo = set(), [at]
    while todo:
        new = set(arrows[todo.pop()]) - found
        found |= new
        todo.extend(new)
    return found


def crates(files):
    """The crates of these texts by path, without what only tests have."""
    tests = names.test_files(files)
    found = collections.defaultdict(dict)
    for path, text in sorted(files.items()):
        crate, at = module(path)
        if path not in tests and at[:1] != ("bin",):
            found[crate][at] = path, names.without_tests(names.code(text))
    return [Crate(files) for files in found.values()]


def wrong(files):
    """What is printed: the arrows of circles from one top-level module to another, and exceptions that are none."""
    allowed = {arrow for arrows in ALLOWED.values() for arrow in arrows}
    stale = set(allowed)
    for crate in crates(files):
        arrows = crate.arrows()
        name = {at: path for at, (path, _) in crate.files.items()}
        for at, others in arrows.items():
            for other in [other for other in others if f"{name[at]} -> {name[other]}" in allowed]:
                stale.discard(f"{name[at]} -> {name[other]}")
                del others[other]
        after = {at: reached(arrows, at) for at in arrows}
        for at, others in arrows.items():
            for other, line in others.items():
                if at and other and at[0] != other[0] and at in after[other]:
                    yield f"{name[at]}:{line} imports from {name[other]}, which needs it in turn: move what both need below them"
    for arrow in sorted(stale):
        yield f"scripts/circles.py: there is no arrow {arrow} any more: take it out of ALLOWED"


if __name__ == "__main__":
    sys.exit("\n".join(wrong(names.tracked("crates/*/src/*.rs"))) or None)
