"""The same writers as `sqlite`, by a shell that is linked statically with musl: no library can be put before it."""

from __future__ import annotations

from . import sqlite
from .place import Place, built, not_built
from .sqlite import groups

__all__ = ["ABOUT", "FRONT_END", "NAME", "groups", "missing", "run_group"]

NAME = "sqlite-musl"
ABOUT = "SQLite's shell, static with musl, 6 processes on one database, in each journal mode"
FRONT_END = "notify"
PROGRAM = "bin/sqlite3-musl"


def missing() -> str | None:
    return not_built(PROGRAM)


def run_group(group: str, place: Place) -> dict[str, str]:
    return sqlite.run_group(group, place, str(built(PROGRAM)))
