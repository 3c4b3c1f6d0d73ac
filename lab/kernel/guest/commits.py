#!/usr/bin/python3
"""SQLite for the benchmark: `serve` commits at each line of a client, and tells how long all of them took; `COUNT` is that client."""

import os
import pathlib
import signal
import socket
import sqlite3
import sys
import time

SOCKET = "/run/commits"


def serve():
    base = sqlite3.connect("/data/sqlite/db", isolation_level=None)
    base.execute("pragma journal_mode = wal")
    # Each commit is to survive a power cut.
    base.execute("pragma synchronous = full")
    base.execute("create table if not exists rows (n integer primary key, bytes blob)")
    signal.signal(signal.SIGTERM, lambda *_: (base.close(), os._exit(0)))
    pathlib.Path(SOCKET).unlink(missing_ok=True)
    listener = socket.create_server(SOCKET, family=socket.AF_UNIX)
    while True:
        stream, _ = listener.accept()
        with stream, stream.makefile("rw") as lines:
            for line in lines:
                print(*figures(commit(base, int(line))), file=lines, flush=True)


def commit(base, count):
    """Microseconds of each of so many commits."""
    took = []
    for _ in range(count):
        began = time.monotonic_ns()
        base.execute("insert into rows (bytes) values (?)", (os.urandom(50).hex(),))
        took.append((time.monotonic_ns() - began) / 1000)
    return took


def figures(took):
    """Commits a second, and the microseconds of half of them and of 99 %."""
    took.sort()
    return 1e6 * len(took) / sum(took), took[(len(took) - 1) // 2], took[-(len(took) // 100) - 1]


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(SOCKET)
            stream.sendall(sys.argv[1].encode() + b"\n")
            sys.stdout.write(stream.makefile().readline())
