"""The databases whose machine is lost: each reached by a socket in a directory, so its sessions are on no machine."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

from lab.programs.program import SESSIONS, Command, Home, Program, peers

# PostgreSQL refuses root.
NOBODY = 65534


def redis_program() -> str:
    unpacked = peers() / "bin/redis-server"
    return shutil.which("redis-server") or (str(unpacked) if unpacked.exists() else "redis-server")


def postgres_program(name: str) -> str:
    """Of the newest version that is installed, or that `scripts/setup.sh` unpacked."""
    versions = sorted(pathlib.Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    unpacked = peers() / "bin" / name
    return str(versions[-1]) if versions else str(unpacked.resolve()) if unpacked.exists() else shutil.which(name) or name


def session(name: str, *argv: str) -> list[str]:
    return [sys.executable, str(SESSIONS / f"{name}_session.py"), *argv]


def redis(home: Home) -> Command:
    small = home.small("--auto-aof-rewrite-min-size", "256kb")
    words = ["--port", "0", "--unixsocket", str(home.beside / "redis"), "--dir", str(home.data), "--save", ""]
    return Command([redis_program(), *words, "--appendonly", "yes", "--appendfsync", "always", *small])


def postgres(home: Home) -> Command:
    words = ["listen_addresses=", f"unix_socket_directories={home.beside}", "jit=off", "shared_buffers=16MB"]
    words += home.small("max_wal_size=8MB", "min_wal_size=4MB")
    return Command([postgres_program("postgres"), "-D", str(home.data), *(word for setting in words for word in ("-c", setting))])


def make_postgres(home: Home) -> None:
    """Its data directory, plainly: an installer does this once."""
    words = [postgres_program("initdb"), "-D", str(home.data), "-U", "lab", "--auth=trust", "--no-sync", "--wal-segsize=1", "--locale=C", "-E", "UTF8"]
    done = subprocess.run(as_user(NOBODY, words), capture_output=True, text=True, timeout=120, cwd="/")
    if done.returncode != 0:
        raise RuntimeError(f"initdb: {done.stderr}")


def as_user(user: int, argv: list[str]) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *argv] if user else argv


REDIS = Program("redis", ".aof", (redis_program(),), lambda home: session("redis", str(home.beside / "redis")), redis)
POSTGRES = Program(
    "postgres",
    "pg_wal/",
    (postgres_program("postgres"), postgres_program("initdb")),
    lambda home: session("postgres", str(home.beside / ".s.PGSQL.5432")),
    postgres,
)
SQLITE = Program("sqlite", "lab.db-", (), lambda home: session("sqlite", str(home.data)))
PROGRAMS = [REDIS, POSTGRES, SQLITE]


def user_of(program: Program) -> int:
    return NOBODY if program is POSTGRES else 0
