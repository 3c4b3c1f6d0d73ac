"""What is measured: each operation of each store, in rounds, in each of which every store has its turn."""

from __future__ import annotations

import dataclasses
import pathlib
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable

from .stores import STORES

BATCH = 100


class WrongAnswer(Exception):
    """A store that does not hold what was put."""


@dataclasses.dataclass(frozen=True)
class Load:
    """So many pairs of such values, and so many puts that are synced, one at a time."""

    pairs: int = 100_000
    synced: int = 2_000
    value_bytes: int = 1_000
    rounds: int = 5


def each(count: int, done: Callable[[], None]) -> float:
    """Operations a second."""
    begun = time.perf_counter()
    done()
    return count / (time.perf_counter() - begun)


def measure(kind, load: Load, seed: int, path: pathlib.Path) -> dict[str, float]:
    """The rate of each operation on a new store, by the operation's name."""
    numbers = random.Random(seed)
    keys = [b"%016d" % number for number in numbers.sample(range(10**12), load.pairs + load.synced)]
    some = [numbers.randbytes(load.value_bytes) for _ in range(100)]
    value = lambda at: some[at % len(some)]
    half = load.pairs // 2
    batches = [[(keys[at], value(at)) for at in range(first, min(first + BATCH, half))] for first in range(0, half, BATCH)]
    asked = numbers.choices(range(len(keys)), k=load.pairs)
    store = kind(path)
    found = {}

    def put(first: int, end: int, sync: bool) -> None:
        for at in range(first, end):
            store.put(keys[at], value(at), sync)

    def write() -> None:
        for batch in batches:
            store.write(batch)

    def get() -> None:
        for at in asked:
            if store.get(keys[at]) != value(at):
                raise WrongAnswer(f"{kind.name} has another value of the key {keys[at]!r}")

    def scan() -> None:
        found["keys"] = [key for key, _ in store.scan()]

    try:
        rates = {
            f"puts in batches of {BATCH}, each synced": each(half, write),
            "puts, not synced": each(load.pairs - half, lambda: put(half, load.pairs, False)),
            "puts, each synced": each(load.synced, lambda: put(load.pairs, len(keys), True)),
            "gets of any key": each(len(asked), get),
            "pairs of a scan": each(len(keys), scan),
        }
    finally:
        store.close()
    if found["keys"] != sorted(keys):
        raise WrongAnswer(f"a scan of {kind.name} has other keys than were put")
    return rates


def run(load: Load, scratch: pathlib.Path) -> dict[str, dict[str, list[float]]]:
    """The rates of all rounds, by operation and store."""
    rates: dict[str, dict[str, list[float]]] = {}
    for number in range(load.rounds):
        # Another one begins each round.
        begin = number % len(STORES)
        for kind in STORES[begin:] + STORES[:begin]:
            place = pathlib.Path(tempfile.mkdtemp(prefix=f"{kind.name}-", dir=scratch))
            try:
                measured = measure(kind, load, number, place / "store")
            finally:
                shutil.rmtree(place)
            for operation, rate in measured.items():
                rates.setdefault(operation, {}).setdefault(kind.name, []).append(rate)
    return rates


def table(rates: dict[str, dict[str, list[float]]], load: Load) -> str:
    """Medians of the rounds, with what lay farthest from them."""
    names = [kind.name for kind in STORES]
    lines = [f"| a second, median of {load.rounds} | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for operation, by_store in rates.items():
        cells = [f"{statistics.median(by_store[name]):,.0f} ({min(by_store[name]):,.0f}–{max(by_store[name]):,.0f})" for name in names]
        lines.append(f"| {operation} | {' | '.join(cells)} |")
    return "\n".join(lines)
