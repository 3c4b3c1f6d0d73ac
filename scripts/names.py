#!/usr/bin/env python3
"""Lists the names of types that several places of the product define, tests' names that are long, and
heads of files that begin with no name at all.

A reader who meets a name should know which type it is: one word serves where only one type of
crates/ has it, and two words say the thing where one does not. Counted are structs, enums, unions,
traits and type aliases, without tests and without the types that an `impl` gives to a trait.

A test's name is a sentence that fits on a line: that of a failure's report, or of a promise.

A file's head names the thing that the file owns, and begins with it: "Errors of a pool", not "What can
go wrong with a pool".
"""

import argparse
import collections
import pathlib
import re
import statistics
import subprocess
import sys

# Names that several places may define, by the reason.
ALLOWED = {
    "one for each architecture, of which a build has one": ("Flushes", "Folds", "Stores"),
    "one with the pool's feature `tls`, and one without it": ("LegTls", "TlsSession", "TlsStart"),
}

TYPE = re.compile(r"^( *)(?:pub(?:\([^)]*\))? )?(?:unsafe )?(struct|enum|union|trait|type) (\w+)\b", re.MULTILINE)
# Characters of a test's name.
TEST_NAME_MAX = 60
# Files whose heads name what they own.
HEADED = ("crates/*.rs", "lab/*.rs")
# A head that begins so is a clause without its noun.
NO_NOUN = re.compile(r"(?:As whom|How|Of which|That which|What|When|Where|Whether|Which|Who|Whom|Whose|Why)\b")
HEAD = re.compile(r"^//! *(.*)", re.MULTILINE)

# What the compiler does not read as code: comments, strings, characters.
NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^']+|[^'\\])'""",
    re.DOTALL,
)
TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?mod (\w+);")
TEST_ITEM = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*[^;{}]*[;{]")
# Between the attribute and the function are others, and comments, which `code` leaves as "".
TEST = re.compile(r'#\[test\]\s*(?:(?:#\[[^\]]*\]|"")\s*)*(?:pub(?:\([^)]*\))? )?fn (\w+)')
WORD = re.compile(r"[A-Z][a-z0-9]*")


def code(text):
    """The text without what is no code; its lines stay in their places."""
    return NO_CODE.sub(lambda found: "\n" * found[0].count("\n") or '""', text)


def without_tests(text):
    """The code without the items that only tests have."""
    while found := TEST_ITEM.search(text):
        end = found.end()
        depth = int(text[end - 1] == "{")
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        text = text[: found.start()] + "\n" * text.count("\n", found.start(), end) + text[end:]
    return text


def test_files(files):
    """Paths of the modules that only tests have, with all that is below them."""
    found = set()
    for path, text in files.items():
        stem = re.sub(r"(/mod|/lib|/main)?\.rs$", "", path)
        for name in TEST_MODULE.findall(code(text)):
            found.update(other for other in files if other.startswith((f"{stem}/{name}.rs", f"{stem}/{name}/")))
    return found


def defined(files):
    """Where each name of a type is defined: `path:line` of each place. `files` are texts by path."""
    found = collections.defaultdict(list)
    tests = test_files(files)
    for path, text in sorted(files.items()):
        if path in tests:
            continue
        text = without_tests(code(text))
        for item in TYPE.finditer(text):
            indent, kind, name = item.groups()
            # An indented alias is one that an `impl` gives to a trait, or that a trait asks for.
            if kind != "type" or not indent:
                line = text.count("\n", 0, item.start()) + 1
                found[name].append(f"{path}:{line}")
    return found


def shared(found):
    """The names that more than one place defines."""
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def wrong(found):
    """What `--check` prints: names that need a second word, and exceptions that are none."""
    allowed = [name for names in ALLOWED.values() for name in names]
    for name, places in shared(found).items():
        if name not in allowed:
            yield f"{name} is defined {len(places)} times: {', '.join(places)}: say the thing by two words"
    for name in allowed:
        if len(found.get(name, ())) < 2:
            yield f"scripts/names.py: {name} is not defined several times any more: take it out of ALLOWED"


def named_tests(files):
    """Each test's name, with its place: `path:line`. `files` are texts by path."""
    for path, text in sorted(files.items()):
        text = code(text)
        for test in TEST.finditer(text):
            line = text.count("\n", 0, test.start(1)) + 1
            yield f"{path}:{line}", test[1]


def too_long(found):
    """What `--check` prints of the tests whose names are too long."""
    for place, name in found:
        if len(name) > TEST_NAME_MAX:
            length = f"has {len(name)} characters, of at most {TEST_NAME_MAX}"
            yield f"{place}: {name} {length}: say what holds and when, subject first"


def nameless_heads(files):
    """What `--check` prints of the files whose heads name nothing. `files` are texts by path."""
    for path, text in sorted(files.items()):
        head = HEAD.search(text)
        if head and NO_NOUN.match(head[1]):
            line = text.count("\n", 0, head.start()) + 1
            yield f"{path}:{line}: the head begins with {head[1].split()[0]!r}: name what the file owns, as a noun or a sentence"


def share(part, whole):
    return f"{part} of {whole} ({100 * part / max(whole, 1):.0f} %)"


def tracked(*patterns):
    """The tracked files of these patterns, by path."""
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], check=True, capture_output=True, text=True)
    paths = [pathlib.Path(name) for name in listed.stdout.split("\0") if name]
    return {str(path): path.read_text() for path in paths if path.exists()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    check = "print the names that need a second word or are too long, and heads without one, and fail if there is any"
    parser.add_argument("--check", action="store_true", help=check)
    arguments = parser.parse_args()
    found = defined(tracked("crates/*/src/*.rs"))
    sentences = list(named_tests(tracked("crates/*.rs", "lab/*.rs")))
    if arguments.check:
        heads = nameless_heads(tracked(*HEADED))
        sys.exit("\n".join([*wrong(found), *too_long(sentences), *heads]) or None)
    for name, places in shared(found).items():
        print(f"{name}: {', '.join(places)}")
    types = sum(map(len, found.values()))
    one_word = sum(len(places) for name, places in found.items() if len(WORD.findall(name)) == 1)
    lengths = [len(name) for _, name in sentences]
    print(f"tests: {len(lengths)}; characters of a name: median {statistics.median(lengths):.0f}, most {max(lengths)}")
    print(f"one word: {share(one_word, types)}; shared: {share(sum(map(len, shared(found).values())), types)}")


if __name__ == "__main__":
    main()
