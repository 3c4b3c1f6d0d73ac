"""What a suite found: one type for all of them, and its table."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import platform
import re

SAME = "same"
# It differs in one attempt only, or differs from itself without Forebay: named, no failure.
FLAKY = "flaky"
DIFFERENT = "different"
# Cases that the page names of one suite; `--json` has all.
NAMED = 20


@dataclasses.dataclass
class Case:
    """One test: what came of it plain, and what under Forebay. Outcomes are compared as text, in each attempt."""

    name: str
    plain: list[str]
    forebay: list[str]

    @property
    def verdict(self) -> str:
        if self.plain[0] == self.forebay[0]:
            return SAME
        if len(set(self.plain)) > 1:
            return FLAKY
        differing = sum(outcome != self.plain[0] for outcome in self.forebay)
        return FLAKY if differing == 1 and len(self.forebay) > 2 else DIFFERENT


@dataclasses.dataclass
class Result:
    """A suite: its cases, and how much of it really went through Forebay."""

    suite: str
    about: str
    cases: list[Case] = dataclasses.field(default_factory=list)
    absorbed_writes: int = 0
    # Why it was not run, or not as a whole. A suite that was not run is a failure of `make suites`.
    missing: str | None = None
    # What its row says of its size, if not the number of its cases.
    notes: list[str] = dataclasses.field(default_factory=list)

    def of(self, verdict: str) -> list[Case]:
        return [case for case in self.cases if case.verdict == verdict]

    @property
    def well(self) -> bool:
        return bool(self.cases) and not self.of(DIFFERENT) and self.missing is None

    def as_json(self) -> dict:
        return {
            "suite": self.suite,
            "about": self.about,
            "missing": self.missing,
            "notes": self.notes,
            "absorbed_writes": self.absorbed_writes,
            "cases": len(self.cases),
            "same": len(self.of(SAME)),
            "different": [dataclasses.asdict(case) for case in self.of(DIFFERENT)],
            "flaky": [dataclasses.asdict(case) for case in self.of(FLAKY)],
        }


def save(result: Result, directory: pathlib.Path) -> None:
    """Keeps a result for the page, instead of an earlier one of its suite."""
    directory.mkdir(parents=True, exist_ok=True)
    write(directory / f"{result.suite}.json", json.dumps(dataclasses.asdict(result)))


def saved(directory: pathlib.Path, suites: list[str]) -> list[Result]:
    """The last result of each suite that has one, in this order."""
    results = []
    for path in (directory / f"{suite}.json" for suite in suites):
        if path.exists():
            fields = json.loads(path.read_text())
            results.append(Result(**{**fields, "cases": [Case(**case) for case in fields["cases"]]}))
    return results


def to_json(results: list[Result]) -> str:
    return json.dumps([result.as_json() for result in results], indent=1)


HEAD = """\
# Other people's test suites

`make suites` wrote this page; `python3 -m suites --only NAME` runs one ([suites/](../suites)). Each
suite runs once plainly, and once under `forebay run --absorb '*'` with an emulated pool. A test
that fails in both is the same. What differs is repeated three times. What differs once in four, or
differs from itself without Forebay, is called flaky and named. The suites of Go, bbolt and etcd,
SQLite with musl, fsx, pjdfstest and python-notify run by `--front-end notify`
([notify.md](notify.md)).

The cuts are a loop: several processes write to one SQLite database, and all of them are killed. The
file system is shut down without writing anything back, mounted again, and recovered as if in
another boot; the pool plays persistent memory. Then the database must be sound and must have every
acknowledged transaction. The same must hold

* of a MariaDB server behind a flash cache (flash cuts), and of its tables, views, triggers,
  databases and users (DDL cuts);
* of the changes of names, sizes and attributes that a program's log speaks of (order cuts);
* of a log whose disk fills meanwhile, once there is room (write-back).
"""


def to_markdown(results: list[Result], versions: dict[str, str], earlier: str = "", order: list[str] | None = None) -> str:
    """The page; of suites in `order` that have no result, it keeps what an earlier page says."""
    rows, sections = {}, {}
    for name in order or []:
        if found := re.search(rf"^\| {re.escape(name)} \|.*$", earlier, re.M):
            rows[name] = found[0]
        if found := re.search(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", earlier, re.M | re.S):
            sections[name] = found[0].rstrip()
    for result in results:
        rows[result.suite] = _row(result)
        sections.pop(result.suite, None)
        if section := _section(result):
            sections[result.suite] = section
    names = order or [result.suite for result in results]
    lines = [HEAD, f"Linux {platform.release()}, {platform.machine()}. " + "; ".join(f"{k} {v}" for k, v in versions.items()) + ".", ""]
    lines += ["| suite | what | tests | same | different | flaky | writes absorbed |", "|---|---|--:|--:|--:|--:|--:|"]
    lines += [rows[name] for name in names if name in rows]
    for name in names:
        if name in sections:
            lines += ["", sections[name]]
    return "\n".join(lines) + "\n"


def _row(result: Result) -> str:
    counts = [len(result.cases), len(result.of(SAME)), len(result.of(DIFFERENT)), len(result.of(FLAKY))]
    return "| " + " | ".join([result.suite, result.about, *(f"{n:,}" for n in counts), f"{result.absorbed_writes:,}"]) + " |"


def _section(result: Result) -> str:
    """What there is to say of it beside its row."""
    named = [(DIFFERENT, case) for case in result.of(DIFFERENT)] + [(FLAKY, case) for case in result.of(FLAKY)]
    if not (named or result.missing or result.notes):
        return ""
    lines = [f"## {result.suite}", ""]
    if result.missing:
        lines += [f"Not run: {result.missing}", ""]
    lines += [f"* {note}" for note in result.notes]
    for verdict, case in named[:NAMED]:
        lines.append(f"* {verdict}: `{case.name}`: plain {said(case.plain)}, under Forebay {said(case.forebay)}")
    if len(named) > NAMED:
        lines.append(f"* and {len(named) - NAMED:,} more")
    return "\n".join(lines).rstrip()


def said(outcomes: list[str]) -> str:
    """Outcomes of all attempts, each once, with how often it came."""
    seen = {outcome: outcomes.count(outcome) for outcome in outcomes}
    return ", ".join(f"`{_short(o)}`" + (f" ({n} of {len(outcomes)})" if len(outcomes) > 1 else "") for o, n in seen.items())


def _short(text: str, most: int = 160) -> str:
    text = " ".join(text.replace("`", "'").replace("|", "/").split())
    return text if len(text) <= most else text[:most] + "…"


def write(path: pathlib.Path, text: str) -> None:
    """Whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)
