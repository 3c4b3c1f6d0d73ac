"""Figures of each contestant: writes a second, how long half of them and 99 % took, and what was written to which device."""

from __future__ import annotations

import dataclasses
import pathlib

from lab.systemd.image import Failure

from .contestants import Contestant
from .machine import CountedMachine

LIMIT_S = 7200.0
# The machine's clock goes on by a nanosecond with an instruction; a core of today executes some four of a database's in that time. So devices take
# so many times longer in the machine, and what it measures is told as that much shorter.
SLOWER = 4


@dataclasses.dataclass(frozen=True)
class Device:
    """How long each of its requests and flushes takes, and how many it serves at once."""

    mib: int
    request_us: int
    depth: int
    # Of a volatile cache, which a sync has to flush; without one there are no flushes.
    cache_mib: int


# The disk is a drive with a volatile cache, or a volume of a cloud or array, which has none; the SSD has power-loss protection.
DISKS = {"drive": Device(1024, 1000, 16, 64), "volume": Device(1024, 1000, 16, 0)}
FAST = Device(256, 50, 32, 0)
# Writes of one client, and twice as many of eight.
COUNTS = {"redis": 1500, "postgres": 400, "sqlite": 400}


@dataclasses.dataclass(frozen=True)
class Figures:
    """What one database did on one contestant with so many clients."""

    contestant: str
    disk: str
    database: str
    clients: int
    writes_per_s: float
    p50_us: float
    p99_us: float
    # In the run itself, for each write; on the disk until all is at rest, of one client and eight together.
    fast_bytes: float
    disk_bytes: float


def script(contestant: Contestant, disk: str, counts: dict[str, int]) -> str:
    """All that the machine does: the devices, the contestant, and each database in turn."""
    devices = "; ".join(f"null_disk {name} {one.mib} {1000 * SLOWER * one.request_us} {one.depth} {one.cache_mib}" for name, one in (("slow", DISKS[disk]), ("fast", FAST)))
    lines = ["DISK=/dev/slow FAST=/dev/fast", ". /parcel/stack.sh", devices, f"SETTLE={contestant.settle!r}", contestant.make]
    for database, count in counts.items():
        under = contestant.under.format(pool=f"/fast/{database}.pool")
        lines.append(f"(set -- {database} {count} {contestant.pool!r} {contestant.counter!r} {under}; . /parcel/bench.sh)")
        # The next one finds the fast device as this one did.
        lines.append(f"rm -rf /data/{database} /fast/{database}.pool; {contestant.settle}")
    return "\n".join(lines)


def parsed(contestant: Contestant, disk: str, counts: dict[str, int], said: str) -> list[Figures]:
    """The figures in what the machine said."""
    rows: list[Figures] = []
    marks: dict[str, tuple[int, int]] = {}
    of_database: list[tuple[str, int, list[float]]] = []
    for line in said.splitlines():
        words = line.split()
        if len(words) == 4 and words[0] == "measured":
            marks[words[1]] = (int(words[2]), int(words[3]))
            if words[1] == "end":
                rows += figures((contestant.name, disk), counts, marks, of_database)
                of_database, marks = [], {}
        elif len(words) > 2 and words[0] in counts:
            of_database.append((words[0], int(words[1]), read_figures(words[0], words[2:])))
    # A counter that says nothing leaves no mark.
    if len(rows) != sum(1 if name == "sqlite" else 2 for name in counts):
        raise Failure(f"{contestant.name} was not measured: {said[-3000:]}")
    return rows


def read_figures(database: str, words: list[str]) -> list[float]:
    """Writes a second, and two latencies in microseconds, of a machine as fast as a core of today."""
    rate, half, most = words_of(database, words)
    return [rate * SLOWER, half / SLOWER, most / SLOWER]


def words_of(database: str, words: list[str]) -> list[float]:
    """The same as the machine measured them."""
    if database == "redis":
        cells = [cell.strip('"') for cell in " ".join(words).split(",")]
        # "SET", requests a second, then milliseconds: mean, least, 50 %, 95 %, 99 %, most.
        return [float(cells[1]), 1000 * float(cells[4]), 1000 * float(cells[6])]
    return [float(word) for word in words]


def figures(of: tuple[str, str], counts: dict[str, int], marks: dict[str, tuple[int, int]], measured: list[tuple[str, int, list[float]]]) -> list[Figures]:
    """One database's rows, with the bytes between their marks."""
    if not marks.keys() >= {"begin", "one", "eight", "end"}:
        return []
    writes = sum(counts[database] * (1 if clients == 1 else 2) for database, clients, _ in measured)
    on_disk = (marks["end"][0] - marks["begin"][0]) / writes
    rows = []
    for database, clients, (rate, half, most) in measured:
        before, after = ("begin", "one") if clients == 1 else ("one", "eight")
        count = counts[database] * (1 if clients == 1 else 2)
        rows.append(Figures(*of, database, clients, rate, half, most, (marks[after][1] - marks[before][1]) / count, on_disk))
    return rows


def measure(contestant: Contestant, disk: str, scratch: pathlib.Path, brought: dict[str, pathlib.Path], counts: dict[str, int]) -> list[Figures]:
    """One contestant with one disk, in a machine of its own."""
    with CountedMachine(scratch, brought) as machine:
        machine.boot()
        return parsed(contestant, disk, counts, machine.sh(script(contestant, disk, counts), LIMIT_S))
