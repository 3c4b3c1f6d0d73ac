"""What a session is: a process that writes numbers to a program and reads them again, one line for each thing that it is told.

    write FIRST LAST    writes each number, and prints `ack N` when the program has acknowledged it
    read                prints all numbers that are there, a line each, and `end`

It prints `ready` when the program is. Of a program that lives inside others it is the program itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

READY_LIMIT_S = 60.0
# Beside each number.
PAYLOAD = "x" * 100
T = TypeVar("T")


class Store(Protocol):
    def write(self, number: int) -> None:
        """Returns when the program has acknowledged it."""

    def numbers(self) -> Iterable[int]:
        """All that are there."""


def serve(store: Store) -> None:
    """Does what standard input says, until it ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        word, *numbers = line.split()
        if word == "write":
            first, last = map(int, numbers)
            for number in range(first, last + 1):
                store.write(number)
                print("ack", number, flush=True)
        elif word == "read":
            print("\n".join(map(str, [*store.numbers(), "end"])), flush=True)
        else:
            raise SystemExit(f"unknown: {line!r}")


def retried(connect: Callable[[], T]) -> T:
    """What `connect` gives, as soon as it does: the server may be starting."""
    deadline = time.monotonic() + READY_LIMIT_S
    while True:
        try:
            return connect()
        except Exception:
            # Each client has errors of its own.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
