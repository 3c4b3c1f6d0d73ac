"""Runs a suite plain and under Forebay, and repeats what differs.

A suite is a module with `NAME`, `ABOUT`, `missing()` (why it cannot run here, or None), `groups()` (names of its parts), and
`run_group(group, place)`, which runs one part in a fresh place and gives an outcome for each test, as text that is the same wherever it ran.
It may have `run_again(group, place, names)`, which runs only these tests of the part, `notes()`, what the page is to say besides, and
`FRONT_END`, that of `forebay run`. What has all this may be an object as well.

Promise (programs): Other people's test suites give the same results as without Forebay.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import stat
from typing import Any

from . import report
from .place import place
from .processes import say
from .report import Case, Result

# Attempts of a part in which something differs, plain and under Forebay each.
ATTEMPTS = 4
NOT_RUN = "not run"
# Differences of a part that are told while it runs; the report has all, the table some.
TOLD = 4


def run(suite: Any, scratch: pathlib.Path | None, only: str | None) -> Result:
    """All parts of a suite (those whose name contains `only`)."""
    result = Result(suite.NAME, suite.ABOUT, missing=suite.missing())
    if result.missing:
        say(f"{suite.NAME}: not run: {result.missing}")
        return result
    result.notes += suite.notes() if hasattr(suite, "notes") else []
    for group in suite.groups():
        if only and only not in group:
            continue
        before = result.absorbed_writes
        cases = _compare(suite, group, scratch, result)
        result.cases += cases
        counts = {verdict: sum(case.verdict == verdict for case in cases) for verdict in ("same", "different", "flaky")}
        say(f"{suite.NAME}: {group}: " + ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number) + f"; {result.absorbed_writes - before:,} writes absorbed")
        for case in [case for case in cases if case.verdict != "same"][:TOLD]:
            say(f"{suite.NAME}: {case.verdict}: {case.name}: plain {report.said(case.plain)}, under Forebay {report.said(case.forebay)}")
    if not result.absorbed_writes and not only:
        result.missing = "nothing was absorbed, or `forebay run --explain` says it in another form (suites/place.py)"
    return result


def _compare(suite: Any, group: str, scratch: pathlib.Path | None, result: Result) -> list[Case]:
    plain, under = _attempt(suite, group, False, scratch, result), _attempt(suite, group, True, scratch, result)
    names = list(dict.fromkeys([*plain, *under]))
    cases = [Case(f"{group}: {name}", [plain.get(name, NOT_RUN)], [under.get(name, NOT_RUN)]) for name in names]
    differing = {name: case for name, case in zip(names, cases) if case.plain != case.forebay}
    if not differing:
        return cases
    for _ in range(ATTEMPTS - 1):
        plain = _attempt(suite, group, False, scratch, result, list(differing))
        under = _attempt(suite, group, True, scratch, result, list(differing))
        for name, case in differing.items():
            case.plain.append(plain.get(name, NOT_RUN))
            case.forebay.append(under.get(name, NOT_RUN))
    return cases


def _attempt(
    suite: Any, group: str, under_forebay: bool, scratch: pathlib.Path | None, result: Result, again: list[str] | None = None
) -> dict[str, str]:
    with place(under_forebay, scratch, getattr(suite, "FRONT_END", None)) as where:
        if again is not None and hasattr(suite, "run_again"):
            outcomes = suite.run_again(group, where, again)
        else:
            outcomes = suite.run_group(group, where)
        outcomes["the pool afterwards"] = where.left()
        result.absorbed_writes += where.absorbed_writes
        if where.plainly:
            result.missing = where.plainly
    return outcomes


def tree(root: pathlib.Path) -> dict[str, str]:
    """All there is below a directory, as text: kind, mode and owner, and of files size, modification time and content."""
    found = {}
    for path in sorted(root.rglob("*")):
        what = os.lstat(path)
        text = f"{stat.filemode(what.st_mode)} {what.st_uid}:{what.st_gid}"
        if path.is_symlink():
            text += f" -> {os.readlink(path)}"
        elif path.is_file():
            text += f" {what.st_size} {what.st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
        found[str(path.relative_to(root))] = text
    return found
