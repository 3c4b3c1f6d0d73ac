"""A process that writes transactions to a SQLite database until it is killed, and says each one that was committed.

    worker.py DATABASE MODE NAME SEED [SYNCHRONOUS]

Standard output is the ledger: a pipe, whose other end outlives the writer and the cut. A line `ack NAME SEQ` follows the commit.
"""

import hashlib
import os
import random
import sqlite3
import sys
import time


def payload(name: str, seq: int, part: int) -> bytes:
    """The bytes of a row, from 40 to some 6,000."""
    seed = hashlib.sha256(f"{name} {seq} {part}".encode()).digest()
    return seed * (2 + seed[0] % 4) if seed[1] < 200 else seed * (20 + seed[0] % 160)


def parts(name: str, seq: int) -> int:
    """Rows of a transaction."""
    return 1 + hashlib.sha256(f"{name} {seq}".encode()).digest()[0] % 5


# FULL does not sync the directory behind the unlinked journal: a commit of the DELETE mode is durable with EXTRA.
SYNCHRONOUS = {"wal": "FULL", "delete": "EXTRA"}


def connect(path: str, mode: str, synchronous: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    db.execute(f"PRAGMA synchronous={synchronous}")
    db.execute("PRAGMA wal_autocheckpoint=60")
    found = db.execute("PRAGMA journal_mode").fetchone()[0]
    assert found == mode, f"journal mode {found}"
    return db


def main() -> None:
    path, mode, name, seed = sys.argv[1:5]
    synchronous = sys.argv[5] if len(sys.argv) > 5 else SYNCHRONOUS[mode]
    rng = random.Random(seed)
    # One that writes seldom has old records in its lane while the log has been begun again.
    pause_s = rng.choice([0.002, 0.002, 0.02, 0.1, 0.4])
    db = connect(path, mode, synchronous)
    seq = None
    while True:
        try:
            db.execute("BEGIN IMMEDIATE")
            if seq is None:
                seq = db.execute("SELECT last FROM writers WHERE name = ?", (name,)).fetchone()[0]
            seq += 1
            for part in range(parts(name, seq)):
                db.execute("INSERT INTO rows VALUES (?, ?, ?, ?)", (name, seq, part, payload(name, seq, part)))
            db.execute("UPDATE writers SET last = ? WHERE name = ?", (seq, name))
            db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            # Nothing was committed; what is there is asked for again.
            if db.in_transaction:
                db.execute("ROLLBACK")
            seq = None
            continue
        os.write(1, f"ack {name} {seq}\n".encode())
        # SQLite's lock is not fair: who asks again at once starves the others.
        time.sleep(rng.uniform(0.1, 2.0) * pause_s)
        if rng.random() < 0.03:
            db.close()
            db = connect(path, mode, synchronous)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        os.write(1, f"error {sys.argv[3]} {type(error).__name__}: {error}\n".encode())
        raise
