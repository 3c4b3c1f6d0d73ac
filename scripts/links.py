#!/usr/bin/env python3
"""Checks the links between the project's documents: each relative target exists, and so does each heading that one names.

So does each document, and heading, that a comment names: docs/pool-format.md, "Record". And what a page of the site links to is a page of it:
mdBook makes no other.
"""

import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*?)\s*$", re.MULTILINE)
CODE = re.compile(r"```.*?```", re.DOTALL)
# A document that a comment names, and headings of it, or how they begin.
NAMED = re.compile(r'(docs/[\w-]+\.md)(?:(?:,| \() ?((?:"[^"]+"(?:, | and )?)+))?')
SUMMARY = pathlib.Path("docs/site/SUMMARY.md")
COMMENT_LINE = re.compile(r"\n\s*(?://[/!]?|#|\*) ?")


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


def unknown(source):
    """What the comments of a source name that no document has."""
    for name, headings in NAMED.findall(COMMENT_LINE.sub(" ", source.read_text())):
        document = pathlib.Path(name)
        if not document.exists():
            yield name
            continue
        found = [heading.replace("`", "") for heading in HEADING.findall(CODE.sub("", document.read_text()))]
        for heading in re.findall(r'"([^"]+)"', headings):
            if not any(one.startswith(heading) for one in found):
                yield f'{name}, "{heading}"'


def unlisted(summary):
    """The links from pages that a site's summary lists to documents that it does not list, with the page of each."""
    pages = [(summary.parent / target).resolve() for target in LINK.findall(summary.read_text())]
    for page in pages:
        for target in LINK.findall(CODE.sub("", page.read_text())):
            path = target.partition("#")[0]
            if path.endswith(".md") and not re.match(r"[a-z]+:", path) and (page.parent / path).resolve() not in pages:
                yield page, target


def tracked(*kinds):
    listed = subprocess.run(["git", "ls-files", "-z", *kinds], check=True, capture_output=True, text=True).stdout
    paths = (pathlib.Path(name).resolve() for name in listed.split("\0") if name)
    return [path for path in paths if path.exists()]


def main():
    here = pathlib.Path.cwd()
    wrong = [f"{document.relative_to(here)}: {target}" for document in tracked("*.md") for target in broken(document)]
    # The tests of the scripts name documents that there are not.
    sources = [path for path in tracked("*.rs", "*.c", "*.py") if path.parent != here / "scripts"]
    wrong += [f"{source.relative_to(here)}: {target}" for source in sources for target in unknown(source)]
    if not wrong:
        wrong = [f"{page.relative_to(here)}: {target} is not in {SUMMARY}, so the site does not have it" for page, target in unlisted(SUMMARY)]
    if wrong:
        sys.exit("links that lead nowhere:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
