#!/usr/bin/env python3
"""Finds public methods of the libraries whose documentation has no example.

    scripts/examples.py --check

It reads sources as they are formatted: a method of a type is `    pub fn` within an `impl` that
begins its line. The types are those that the store's `lib.rs` publishes, and the pool's options.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STORE = ROOT / "crates/store/src"
POOL = ROOT / "crates/pool/src"
POOL_TYPES = {"PoolOptions"}

IMPL = re.compile(r"impl(?:<.*?>)? (?P<trait>.* for )?(?P<type>\w+)")
METHOD = re.compile(r"    pub (?:const |unsafe |async )*fn (\w+)")


def published(lib):
    """The types that a `lib.rs` has at its root."""
    uses = re.findall(r"^pub use [\w:]*?(?:\{([^}]*)\}|::(\w+));", lib, re.MULTILINE)
    names = ",".join(many or one for many, one in uses).split(",")
    return {name for name in map(str.strip, names) if name[:1].isupper()}


def lacking(source, types):
    """`line, Type::method` of each public method of the types that has no example."""
    found = []
    owner, comment, hidden = None, [], False
    for number, line in enumerate(source.splitlines(), 1):
        opened = IMPL.match(line)
        if opened:
            owner = None if opened["trait"] else opened["type"]
        elif line.startswith("}"):
            owner = None
        if line.startswith("    ///"):
            comment.append(line)
            continue
        if line.startswith("    #["):
            hidden = hidden or "doc(hidden)" in line or "cfg(test)" in line
            continue
        method = METHOD.match(line)
        if method and owner in types and not hidden and not any("```" in it for it in comment):
            found.append((number, f"{owner}::{method[1]}"))
        comment, hidden = [], False
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", required=True)
    parser.parse_args()
    types = {STORE: published((STORE / "lib.rs").read_text()), POOL: POOL_TYPES}
    wrong = 0
    for directory, named in types.items():
        for path in sorted(directory.rglob("*.rs")):
            for line, method in lacking(path.read_text(), named):
                print(f"{path.relative_to(ROOT)}:{line}: {method} has no example in its documentation")
                wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
