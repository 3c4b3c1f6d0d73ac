#!/usr/bin/env python3
"""Checks the links between the project's documents: each relative target exists, and so does each heading that one names."""

import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*?)\s*$", re.MULTILINE)
CODE = re.compile(r"```.*?```", re.DOTALL)


def anchor(heading):
    """The name by which a heading is linked to."""
    text = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(document):
    return {anchor(heading) for heading in HEADING.findall(CODE.sub("", document.read_text()))}


def broken(document):
    """The links of a document that lead nowhere."""
    for target in LINK.findall(CODE.sub("", document.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        found = (document.parent / path).resolve() if path else document
        if not found.exists():
            yield target
        elif fragment and found.suffix == ".md" and fragment not in anchors(found):
            yield target


def main():
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], check=True, capture_output=True, text=True).stdout
    documents = [pathlib.Path(name).resolve() for name in listed.split("\0") if name]
    wrong = [f"{document.relative_to(pathlib.Path.cwd())}: {target}" for document in documents for target in broken(document)]
    if wrong:
        sys.exit("links that lead nowhere:\n" + "\n".join(wrong))


main()
