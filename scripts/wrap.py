#!/usr/bin/env python3
"""Wraps the comments of Rust files, which rustfmt leaves as they are, and the paragraphs of Markdown
at 100 columns, and finds sentences of documents that are too long.

A paragraph is wrapped anew if a line of it is too long, or ends far before the margin though the
next word had room. Code, tables, diagrams, headings and definitions of links stay as they are, and
so do pages that a program writes. Code in Markdown is only measured: the site shows so many columns of it
(docs/site/site.css).

A sentence has 35 words at most, in paragraphs and in items of lists. Whoever writes divides it; this only names it. Tables,
code, diagrams and headings have no sentences; inline code is one word, and a link as many as its text.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator

WIDTH = 100
CODE_WIDTH = 125
# Where a line ends before this though the next word had room, a paragraph was wrapped by hand.
RAGGED = 62
SENTENCE_WORDS = 35
# Documents whose sentences are measured.
MEASURED = ("docs/", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+")
# Ends in a period, and ends no sentence.
SHORTENED = re.compile(r"\b(?:e\.g|i\.e|et al|vs|cf|p|pp|Fig|No)\.$")
# Pages that a program writes; and a line's end in the text of an issue is one when it is read.
NOT_OURS = ("docs/suites.md", "lab/powercut/REPORT.md", ".github/")
COMMENT = re.compile(r"^(\s*)(//!|///|//)(?: (.*)|)$")
ITEM = re.compile(r"^ *(?:[*-]|\d+\.) +")
AS_IT_IS = re.compile(r"^\s*(?:[|#]|[├└│┌─┬┴┼╭╰▼▲►◄]|\[[^\]]+\]: )|^    ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 if anything would be")
    options = parser.parse_args()
    listed = subprocess.run(["git", "ls-files", "*.rs", "*.md"], check=True, capture_output=True, text=True)
    changed, wide, long = [], [], []
    for path in map(pathlib.Path, listed.stdout.split()):
        if str(path).startswith(NOT_OURS) or not path.exists():
            continue
        text = path.read_text()
        wrapped = "\n".join(wrap(text.split("\n"), is_markdown=path.suffix == ".md"))
        if path.suffix == ".md":
            wide += [f"{path}:{number}" for number, line in code_lines(text) if len(line) > CODE_WIDTH]
            if str(path).startswith(MEASURED):
                long += [f"{path}:{number}: {words} words: {sentence[:60]}…" for number, words, sentence in long_sentences(text)]
        if wrapped != text:
            changed.append(path)
            if not options.check:
                path.write_text(wrapped)
    for path in changed:
        print(f"{path}: not wrapped at {WIDTH} columns: make fmt" if options.check else path)
    for place in wide:
        print(f"{place}: a line of code over {CODE_WIDTH} columns, which the site does not show whole: break it")
    for place in long:
        print(f"{place}: a sentence of more than {SENTENCE_WORDS} words: divide it")
    return int(bool(wide or long) or (options.check and bool(changed)))


def code_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page's blocks of code, fenced or indented, with their numbers. Text that is indented as far is wrapped."""
    is_code = False
    for number, line in enumerate(text.split("\n"), 1):
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        if is_code and not is_fence:
            yield number, line
        elif line.startswith("    "):
            yield number, line[4:]


def long_sentences(text: str) -> Iterator[tuple[int, int, str]]:
    """The sentences of a page that are too long: the line where their paragraph begins, their words, and the sentence."""
    for number, paragraph in paragraphs(text.split("\n")):
        for sentence in sentences(paragraph):
            words = len(re.findall(r"\S*\w\S*", sentence))
            if words > SENTENCE_WORDS:
                yield number, words, sentence


def paragraphs(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The paragraphs and items of a page, each as one line, with the number of their first one."""
    is_code, begun, words = False, 0, ""
    for number, line in enumerate([*lines, ""], 1):
        is_fence = line.lstrip().startswith("```")
        is_other = is_fence or is_code or not line.strip() or (AS_IT_IS.match(line) and not words)
        is_code ^= is_fence
        if words and (is_other or ITEM.match(line) or AS_IT_IS.match(line.strip())):
            yield begun, words
            words = ""
        if not is_other and not AS_IT_IS.match(line.strip()):
            begun = begun if words else number
            words = f"{words} {ITEM.sub('', line).strip()}".strip()


def sentences(paragraph: str) -> Iterator[str]:
    """The sentences of a paragraph, with inline code and links as words."""
    plain = re.sub(r"!?\[([^\]]*)\]\([^)\s]*\)", r"\1", re.sub(r"(`+).+?\1", "Code", paragraph))
    sentence = ""
    for part in SENTENCE_END.split(plain):
        sentence = f"{sentence} {part}".strip()
        if not SHORTENED.search(sentence):
            yield sentence
            sentence = ""
    if sentence:
        yield sentence


def wrap(lines: list[str], *, is_markdown: bool = False) -> list[str]:
    """The lines of a file, with its comments or, of Markdown, its paragraphs wrapped."""
    if is_markdown:
        return wrap_block(lines, WIDTH)
    done, at = [], 0
    while at < len(lines):
        first = COMMENT.match(lines[at])
        if not first:
            done.append(lines[at])
            at += 1
            continue
        block = []
        while at < len(lines) and (line := COMMENT.match(lines[at])) and line.group(1, 2) == first.group(1, 2):
            block.append(line[3] or "")
            at += 1
        prefix = first[1] + first[2]
        done += [f"{prefix} {line}".rstrip() for line in wrap_block(block, WIDTH - len(prefix) - 1)]
    return done


def wrap_block(block: list[str], width: int) -> list[str]:
    """The lines of one comment without what makes them one, or of a page."""
    done: list[str] = []
    paragraph: list[str] = []
    is_code = False

    def end() -> None:
        done.extend(wrap_paragraph(paragraph, width))
        paragraph.clear()

    for line in block:
        is_fence = line.lstrip().startswith("```")
        is_item = bool(ITEM.match(line))
        if is_fence or is_code or not line.strip() or (AS_IT_IS.match(line) and not is_continued(paragraph, line)):
            end()
            done.append(line)
            is_code ^= is_fence
            continue
        if is_item or line.startswith("Promise") or (paragraph and not is_continued(paragraph, line)):
            end()
        paragraph.append(line)
    end()
    return done


def is_continued(paragraph: list[str], line: str) -> bool:
    """True if the line is indented as what belongs to this paragraph is."""
    return bool(paragraph) and indent(line) == hanging(paragraph[0])


def indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def hanging(first: str) -> int:
    item = ITEM.match(first)
    return len(item[0]) if item else indent(first)


def wrap_paragraph(lines: list[str], width: int) -> list[str]:
    is_ragged = any(len(a) < RAGGED and len(a) + 1 + len(b.split()[0]) <= width for a, b in zip(lines, lines[1:]))
    if not is_ragged and all(len(line) <= width for line in lines):
        return lines
    further = " " * hanging(lines[0])
    words = " ".join([lines[0].rstrip(), *(line.strip() for line in lines[1:])])
    wrapped = textwrap.wrap(words, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
    # No line may begin with what would be read as an item, a heading or a quotation.
    is_other = (ITEM.match(f"{line.strip()} ") or AS_IT_IS.match(line.strip()) or line.strip()[0] in "+>=" for line in wrapped[1:])
    return lines if any(is_other) else wrapped


if __name__ == "__main__":
    sys.exit(main())
