"""The database that the workers write to: made before the first round, looked at after each.

Looking is a program of its own (`database.py DATABASE`, the ledger as JSON on standard input, what is wrong on standard output), so that it has a
time limit and holds nothing open afterwards.
"""

from __future__ import annotations

import json
import pathlib
import sqlite3
import subprocess
import sys

from . import worker

LOOK_LIMIT_S = 120.0


def create(path: pathlib.Path, mode: str, names: list[str]) -> None:
    """An empty one for these writers."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA journal_mode={mode}")
    db.execute("CREATE TABLE writers (name TEXT PRIMARY KEY, last INTEGER)")
    db.execute("CREATE TABLE rows (name TEXT, seq INTEGER, part INTEGER, payload BLOB, PRIMARY KEY (name, seq, part))")
    db.execute("CREATE INDEX by_payload ON rows (payload)")
    db.executemany("INSERT INTO writers VALUES (?, 0)", [(name,) for name in names])
    db.close()


def faults(path: pathlib.Path, acknowledged: dict[str, int]) -> list[str]:
    """What is wrong with it. `acknowledged`: by writer, the last transaction whose commit returned."""
    command = [sys.executable, "-m", __name__, str(path)]
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    try:
        done = subprocess.run(command, input=json.dumps(acknowledged), capture_output=True, text=True, timeout=LOOK_LIMIT_S, cwd=root)
    except subprocess.TimeoutExpired:
        return [f"looking at the database took more than {LOOK_LIMIT_S:.0f} s"]
    return json.loads(done.stdout) if done.returncode == 0 else [f"looking at the database: {done.stderr}"]


def _look(path: str, acknowledged: dict[str, int]) -> list[str]:
    try:
        return _faults(sqlite3.connect(path, timeout=10, isolation_level=None), acknowledged)
    except sqlite3.Error as error:
        return [f"{type(error).__name__}: {error}"]


def _faults(db: sqlite3.Connection, acknowledged: dict[str, int]) -> list[str]:
    found = [row[0] for row in db.execute("PRAGMA integrity_check(3)")]
    wrong = [] if found == ["ok"] else [f"integrity_check: {'; '.join(found)}"]
    for name, last in db.execute("SELECT name, last FROM writers").fetchall():
        sent = acknowledged.get(name, 0)
        if last < sent:
            wrong.append(f"{name}: transactions {last + 1} to {sent} were acknowledged and are gone")
        expected = {(seq, part) for seq in range(1, last + 1) for part in range(worker.parts(name, seq))}
        rows = {(seq, part): data for seq, part, data in db.execute("SELECT seq, part, payload FROM rows WHERE name = ?", (name,))}
        if missing := expected - rows.keys():
            wrong.append(f"{name}: {len(missing)} rows of committed transactions are missing, the first {min(missing)}")
        if others := rows.keys() - expected:
            wrong.append(f"{name}: {len(others)} rows of no transaction, the first {min(others)}")
        changed = [key for key in rows.keys() & expected if rows[key] != worker.payload(name, *key)]
        if changed:
            wrong.append(f"{name}: {len(changed)} rows with other bytes, the first {min(changed)}")
    return wrong


if __name__ == "__main__":
    print(json.dumps(_look(sys.argv[1], json.load(sys.stdin))))
