"""SQLite's shell: many processes write to one database at the same time."""

from __future__ import annotations

import pathlib
import shlex
import shutil
import subprocess

from . import processes
from .place import Place

NAME = "sqlite"
ABOUT = "SQLite's shell, 6 processes on one database, in each journal mode"
PROCESSES = 6
TRANSACTIONS = 40
MODES = ["wal", "delete", "truncate", "persist"]
# All in one `forebay run`, or each in its own (plain: the same).
GROUPS = [f"{mode}, {how}" for mode in MODES for how in ("one run", "a run each")]
LIMIT_S = 300.0


def missing() -> str | None:
    return None if shutil.which("sqlite3") else "sqlite3 is not installed: scripts/setup.sh suites"


def groups() -> list[str]:
    return GROUPS


def _writer(number: int) -> str:
    lines = [".timeout 120000", "PRAGMA synchronous=FULL;", "PRAGMA wal_autocheckpoint=50;"]
    for i in range(TRANSACTIONS):
        size = 50 + (i * 977 + number * 131) % 6000
        lines.append(f"BEGIN IMMEDIATE; INSERT INTO t VALUES ({number}, {i}, hex(zeroblob({size}))); UPDATE c SET n = n + 1; COMMIT;")
    return "\n".join(lines)


def run_group(group: str, place: Place, program: str = "sqlite3") -> dict[str, str]:
    mode, how = group.split(", ")
    database = place.fresh("db") / "a.db"
    schema = f"PRAGMA journal_mode={mode}; CREATE TABLE t (w, i, data, PRIMARY KEY (w, i)); CREATE TABLE c (n); INSERT INTO c VALUES (0);"
    made = place.run([program, str(database), schema], limit_s=LIMIT_S)
    outcomes = {"made": f"{made.outcome}: {made.output.strip()}"}
    scripts = []
    for number in range(PROCESSES):
        script = place.dir / f"script-{number}"
        script.write_text(_writer(number))
        scripts.append(script)
    done = _run_writers(place, how, [program, str(database)], scripts)
    outcomes["writers"] = f"{done.outcome}: {done.output.strip()}"
    said = {script.with_name(script.name + ".out").read_text().strip() for script in scripts}
    outcomes["said"] = "; ".join(sorted(said))
    for name, question in {
        "integrity": "PRAGMA integrity_check",
        "rows": "SELECT count(*), sum(length(data)), sum(i * w) FROM t",
        "counter": "SELECT n FROM c",
    }.items():
        asked = subprocess.run([program, str(database), question], capture_output=True, text=True, timeout=60)
        outcomes[name] = (asked.stdout + asked.stderr).strip()
    return outcomes


def _run_writers(place: Place, how: str, shell: list[str], scripts: list[pathlib.Path]) -> processes.Done:
    """Starts a shell for each script, waits for all of them, and lists their statuses."""
    writer = shlex.join(shell if how == "one run" else place.command(shell))
    lines = [f"{writer} < {script} > {script}.out & p{number}=$!" for number, script in enumerate(scripts)]
    lines += [f'wait $p{number}; echo "{number}: $?"' for number in range(len(scripts))]
    command = ["sh", "-c", "\n".join(lines)]
    if how == "one run":
        return place.run(command, limit_s=LIMIT_S)
    done = processes.run(command, cwd=place.dir, limit_s=LIMIT_S)
    place.count(done)
    return done
