"""A process that appends records to a log and syncs each, and goes on in one of several styles when that fails, until it is ended.

    appends.py LOG SEED STYLE

Standard output is the ledger: a line `ack N` follows the sync of record N, which covers all records before it; `failed N WHY` a call that
failed.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import random
import sys
import threading
import time

# All records together: less than any disk here has.
MOST_BYTES = 48 << 20
AGAIN_AFTER_S = 0.05
# After a failed call: it is made again; what could not be synced is written again before, where it was; the process ends.
AGAIN, REWRITE, END = "again", "rewrite", "end"
STYLES = (AGAIN, REWRITE, END)


def shape(seed: str) -> tuple[int, float]:
    """The length of a record, and the pause between two."""
    rng = random.Random(seed)
    length = rng.choice([500, 4096, 4096, 30_000])
    return length, rng.choice([0.0, 0.001, 0.01])


def record(seed: str, number: int) -> bytes:
    """The bytes of a record: none like another's, and no page of zeros."""
    return hashlib.shake_128(f"{seed} {number}".encode()).digest(shape(seed)[0])


def faults(log: pathlib.Path, seed: str, acknowledged: int) -> list[str]:
    """What the log lacks of the records up to `acknowledged`, byte for byte."""
    length, _ = shape(seed)
    data = log.read_bytes() if log.exists() else b""
    parts = [data[number * length : (number + 1) * length] for number in range(acknowledged + 1)]
    wrong = [number for number, part in enumerate(parts) if part != record(seed, number)]
    if not wrong:
        return []
    first = parts[wrong[0]]
    what = "not there" if not first else "other bytes" if any(first) else "zeros"
    lost = f"{len(wrong)} of {acknowledged + 1} acknowledged records of {length} bytes are lost"
    return [f"{lost}: from {wrong[0]} to {wrong[-1]}, the first one is {what}"]


class Log:
    """The log, written and synced in one of the styles."""

    def __init__(self, path: str, style: str):
        self.style = style
        self.end = 0
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # What is written by one that appends goes to the end.
        self.in_place = os.open(path, os.O_WRONLY)

    def add(self, number: int, data: bytes) -> None:
        """Returns when it is durable."""
        rest = data
        while rest:
            try:
                rest = rest[os.write(self.fd, rest) :]
            except OSError as error:
                self._failed(number, error)
        while True:
            try:
                os.fdatasync(self.fd)
                break
            except OSError as error:
                self._failed(number, error)
            if self.style == REWRITE:
                self._write_again(number, data)
        self.end += len(data)

    def _write_again(self, number: int, data: bytes) -> None:
        try:
            os.pwrite(self.in_place, data, self.end)
        except OSError as error:
            self._failed(number, error)

    def _failed(self, number: int, error: OSError) -> None:
        print(f"failed {number} {error}", flush=True)
        if self.style == END:
            sys.exit(1)
        time.sleep(AGAIN_AFTER_S)


def main() -> None:
    path, seed, style = sys.argv[1:4]
    log = Log(path, style)
    length, pause_s = shape(seed)
    for number in range(MOST_BYTES // length):
        log.add(number, record(seed, number))
        print(f"ack {number}", flush=True)
        time.sleep(pause_s)
    threading.Event().wait()


if __name__ == "__main__":
    main()
