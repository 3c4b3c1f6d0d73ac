"""Tables of what was measured and lost, as docs/kernel-caches.md has them."""

from __future__ import annotations

import json

from .contestants import ALL
from .losses import DATABASES, OTHER, Loss
from .speed import COUNTS, DISKS, Figures

NAMES = {"redis": "Redis", "postgres": "PostgreSQL", "sqlite": "SQLite", OTHER: "other files"}
LOST = (*(one.name for one in DATABASES), OTHER)


def tables(rows: list[Figures | Loss]) -> str:
    figures = [row for row in rows if isinstance(row, Figures)]
    lost = [row for row in rows if isinstance(row, Loss)]
    return "\n\n".join([*speed_tables(figures), *([loss_table(lost)] if lost else [])])


def rows_of(lines: str) -> list[Figures | Loss]:
    """What lines of JSON say; of one figure the last one counts, and of losses all."""
    rows: dict[tuple[str, ...], Figures | Loss] = {}
    for line in lines.splitlines():
        cells = json.loads(line)
        row = Figures(**cells) if "writes_per_s" in cells else Loss(**cells)
        of = (row.disk, str(row.clients)) if isinstance(row, Figures) else (row.how, str(len(rows)))
        rows[row.contestant, row.database, *of] = row
    return list(rows.values())


def table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *lines])


def contestants_of(rows: list) -> list[str]:
    return [name for name in ALL if any(row.contestant == name for row in rows)]


def speed_tables(rows: list[Figures]) -> list[str]:
    return [text for disk in DISKS for text in tables_of_disk(disk, [row for row in rows if row.disk == disk])]


def tables_of_disk(disk: str, rows: list[Figures]) -> list[str]:
    if not rows:
        return []
    columns = [(database, clients) for database in COUNTS for clients in (1, 8) if any((row.database, row.clients) == (database, clients) for row in rows)]
    found = {(row.contestant, row.database, row.clients): row for row in rows}
    named = [NAMES[database] + ("" if database == "sqlite" else f", {clients}") for database, clients in columns]

    def lines(cell) -> list[list[str]]:
        return [[ALL[name].title, *[cell(found[name, *column]) if (name, *column) in found else "–" for column in columns]] for name in contestants_of(rows)]

    return [
        table([f"{disk}: writes a second", *named], lines(lambda row: f"{row.writes_per_s:,.0f}")),
        table([f"{disk}: half, and 99 %, within ms", *named], lines(lambda row: f"{row.p50_us / 1000:.2f}, {row.p99_us / 1000:.2f}")),
        table([f"{disk}: bytes a write to the fast device, the disk", *named], lines(lambda row: f"{row.fast_bytes:,.0f}, {row.disk_bytes:,.0f}")),
    ]


def loss_table(rows: list[Loss]) -> str:
    lines = []
    for name in contestants_of(rows):
        for how in ("stop", "cut"):
            trials = [row for row in rows if (row.contestant, row.how) == (name, how)]
            of_each = [[row for row in trials if row.database == one] for one in LOST]
            if trials:
                lines.append([ALL[name].title, how, str(len(of_each[0])), file_system(trials), *[told(max(of_one, key=severity)) if of_one else "–" for of_one in of_each]])
    return table(["the worst without the fast device", "after a", "trials", "file system", *[NAMES[one] for one in LOST]], lines)


def severity(row: Loss) -> tuple[bool, bool, bool, float]:
    return not row.is_mounted, row.missing is None, not row.is_prefix, (row.missing or 0) / row.acknowledged


def file_system(trials: list[Loss]) -> str:
    if not all(row.is_mounted for row in trials):
        return "gone"
    return "damaged, repaired" if any(row.is_repaired for row in trials) else "whole"


def told(row: Loss) -> str:
    """What became of a database, in words."""
    if not row.is_mounted:
        return "gone"
    if row.missing is None:
        return "does not start"
    repaired = ", repaired" if row.is_mended else ""
    if not row.missing:
        return f"all {row.acknowledged}{repaired}"
    return f"{row.missing} of {row.acknowledged} lost{repaired}" + ("" if row.is_prefix else ", with holes")
