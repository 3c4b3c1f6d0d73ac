#!/usr/bin/env python3
"""Collects the promises: sentences that stand at the tests which would fail if one were wrong.

    /// Promise (pool): Recovery returns an unacknowledged record whole or not at all.
    /// Promise: as `name_of_another_test`.

The first form makes a promise, in a section of the page. The second says that this test holds the
promises of another one as well; a file of tests is named by its path. Both stand in the comment of
a test, at the head of a file of tests, or in the docstring of a suite. A promise ends where a line
is empty, the next one begins, or the comment ends.
"""

import argparse
import collections
import dataclasses
import itertools
import pathlib
import re
import subprocess
import sys

SECTIONS = {
    "pool": "The pool",
    "shared": "A lane that processes share",
    "store": "The store",
    "files": "Absorbed files",
    "recovery": "Recovery",
    "order": "Order with other files",
    "disks": "Disks that fail",
    "processes": "Processes and runs",
    "programs": "What a program notices",
    "guards": "Starting without Forebay",
    "flash": "The flash cache",
    "flash-run": "MariaDB behind a flash cache",
    "rights": "Who trusts whom",
    "lab": "The power-cut lab",
}
# Everything in these directories is a test.
TESTS = ("fuzz/fuzz_targets/", "lab/powercut/src/", "lab/programs/", "lab/legs/", "suites/")
WORDS_MAX = 35

PROMISE = re.compile(r"Promise\s*(?:\(([^)]*)\))?:\s*")
AS = re.compile(r"as `([^`]+)`\.$")
COMMENT = re.compile(r"\s*//([/!])(?!/) ?(.*)")
ITEM = re.compile(r"\b(?:fn|const|static|struct|enum|trait|mod|type|macro_rules!)\s+(\w+)")
DOCSTRING = re.compile(r'^(?:def (\w+).*?:\n)?\s*"""(.*?)"""', re.DOTALL | re.MULTILINE)
# A test's name in a document, or how it begins; shorter names are too often something else.
NAMED = re.compile(r"`([a-z0-9]+(?:_[a-z0-9]+){4,}_?)(…?)`")
# How long names begin that are none: a C function, measurements of docs/benchmarks.md, figures of docs/monitoring.md.
NOT_NAMED = ("posix_spawn_", "forebay_over_", "get_double_", "forebay_real_", "forebay_flash_", "forebay_store_")
FILE = re.compile(r"`((?:crates|lab|suites)/[\w/.-]+\.(?:rs|py))`")


@dataclasses.dataclass(frozen=True)
class Place:
    """A comment that has a promise: whose it is (a test, or the whole file), and where."""

    path: str
    name: str | None
    line: int

    @property
    def key(self):
        return self.name or self.path

    def __str__(self):
        return f"{self.path}:{self.line}"


@dataclasses.dataclass
class Promise:
    section: str
    sentence: str
    tests: list


def paragraphs(lines):
    """The promises in a comment's lines, each as one line, with the number of its first one."""
    found = None
    for number, line in enumerate(lines):
        line = line.strip()
        if PROMISE.match(line):
            if found:
                yield found
            found = (number, line)
        elif not line and found:
            yield found
            found = None
        elif found:
            found = (found[0], f"{found[1]} {line}")
    if found:
        yield found


def comments_of_rust(text):
    """Each doc comment: its lines, the first one's number, its item, whether that is a test that runs."""
    lines = text.splitlines()
    kinds = [(match := COMMENT.match(line)) and match[1] for line in lines]
    end = 0
    for kind, group in itertools.groupby(kinds):
        begin, end = end, end + len(list(group))
        comment = [COMMENT.match(line)[2] for line in lines[begin:end]] if kind else []
        if kind == "!":
            yield comment, begin, None, "#[test]" in text
        elif kind == "/":
            attributes = list(itertools.takewhile(lambda line: not ITEM.search(line), lines[end:]))
            item = ITEM.search("\n".join(lines[end + len(attributes) :]))
            is_test = any("#[test]" in line for line in attributes) and not any("#[ignore" in line for line in attributes)
            yield comment, begin, item[1] if item else "nothing", is_test


def comments_of_python(text):
    """Each docstring, in the same manner. None is a test by itself: see TESTS."""
    for docstring in DOCSTRING.finditer(text):
        begin = text.count("\n", 0, docstring.start(2))
        yield docstring[2].splitlines(), begin, docstring[1], False


def places(files):
    """Each promise of the files, as it is written, with its place and whether that is a test."""
    for path, text in sorted(files.items()):
        if "Promise" not in text or not path.endswith((".rs", ".py")):
            continue
        comments = comments_of_rust if path.endswith(".rs") else comments_of_python
        for lines, begin, name, is_test in comments(text):
            if path.endswith(("/main.rs", "/mod.rs")) and name is None:
                beside = path.rsplit("/", 1)[0] + "/"
                is_test = any("#[test]" in files[one] for one in files if one.startswith(beside))
            for number, line in paragraphs(lines):
                place = Place(path, name, begin + number + 1)
                yield line, place, is_test or path.startswith(TESTS)


def collect(files):
    """The promises, and what is wrong with them. `files` are the texts of all tracked files."""
    promises, wrong, others = {}, [], []
    made_at = collections.defaultdict(lambda: collections.defaultdict(list))
    for line, place, is_test in places(files):
        section, text = PROMISE.match(line)[1], PROMISE.sub("", line, count=1)
        if not is_test:
            wrong.append(f"{place}: a promise that is not at a test, or at one that is ignored")
        elif other := AS.match(text):
            others.append((place, other[1]))
        elif section not in SECTIONS:
            said = f"no section {section!r}" if section else "a promise without a section"
            wrong.append(f"{place}: {said}: write `Promise (SECTION): …`, of {', '.join(SECTIONS)}")
        elif text in promises:
            wrong.append(f"{place}: the same promise as at {promises[text].tests[0]}")
        elif len(text.split()) > WORDS_MAX:
            wrong.append(f"{place}: a promise of more than {WORDS_MAX} words")
        else:
            promises[text] = Promise(section, text, [place])
            made_at[place.key][place.path].append(promises[text])
    for place, name in others:
        if not made_at[name]:
            wrong.append(f"{place}: as `{name}`, which has no promise or is gone")
        elif len(made_at[name]) > 1:
            wrong.append(f"{place}: as `{name}`, which is in {' and in '.join(made_at[name])}")
        else:
            for promise in next(iter(made_at[name].values())):
                promise.tests.append(place)
    return list(promises.values()), wrong


def gone(files):
    """Tests that a document names and that do not exist."""
    sources = [text for path, text in files.items() if not path.endswith(".md")]
    words = {word for text in sources for word in re.findall(r"\w+", text)}
    for path, text in files.items():
        if not re.fullmatch(r"docs/[^/]*\.md", path):
            continue
        for name, shortened in NAMED.findall(text):
            if name.startswith(NOT_NAMED):
                continue
            if not (any(word.startswith(name) for word in words) if shortened else name in words):
                yield f"{path}: `{name}{shortened}` is no test"
        for name in FILE.findall(text):
            if name not in files:
                yield f"{path}: `{name}` is no file"


def page(promises):
    """The page of all promises, for the documentation's site."""
    lines = [
        "# Promises and their tests",
        "",
        f"{len(promises)} promises, each with the tests that would fail if it were wrong. What the "
        "words mean, what is assumed and what is not promised: [durability.md](durability.md).",
    ]
    for section, title in SECTIONS.items():
        lines += ["", f"## {title}", ""]
        for promise in promises:
            if promise.section == section:
                tests = ", ".join(f"[`{test.key}`](../{test.path})" for test in promise.tests)
                lines += [f"- {promise.sentence}\\", f"  {tests}"]
    return "\n".join(lines)


def tracked():
    """The texts of all tracked files that are read here, by path."""
    kinds = ("*.rs", "*.py", "*.sh", "*.toml", "*.c", "*.md")
    listed = subprocess.run(["git", "ls-files", "-z", *kinds], check=True, capture_output=True, text=True).stdout
    paths = [pathlib.Path(name) for name in listed.split("\0") if name]
    return {str(path): path.read_text() for path in paths if path.exists()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="Without an option the page of all promises is printed, as Markdown.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check = "print each error in the promises, and fail if there is any"
    parser.add_argument("--check", action="store_true", help=check)
    arguments = parser.parse_args()
    files = tracked()
    promises, wrong = collect(files)
    if not arguments.check:
        print(page(promises))
    elif wrong := wrong + list(gone(files)):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
