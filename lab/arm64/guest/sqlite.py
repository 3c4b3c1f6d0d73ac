#!/usr/bin/python3
"""A server of one SQLite database, for the laboratory: `serve`; its client: `write FIRST LAST`, which prints each number once it is committed, and `read`."""

import pathlib
import socket
import sqlite3
import sys

DATABASE, SOCKET = "/data/sqlite/db", "/run/sqlite"


def serve():
    base = sqlite3.connect(DATABASE, isolation_level=None)
    # Each commit is to survive a power cut.
    base.execute("pragma journal_mode = wal")
    base.execute("pragma synchronous = full")
    base.execute("create table if not exists lab (n integer primary key)")
    pathlib.Path(SOCKET).unlink(missing_ok=True)
    listener = socket.create_server(SOCKET, family=socket.AF_UNIX)
    while True:
        stream, _ = listener.accept()
        with stream, stream.makefile("rw") as lines:
            try:
                for line in lines:
                    answer(base, line, lines)
            except OSError:
                # The client was killed.
                pass


def answer(base, line, lines):
    if line.strip() == "read":
        for (number,) in base.execute("select n from lab"):
            print(number, file=lines)
        print("end", file=lines, flush=True)
    else:
        base.execute("insert into lab values (?)", (int(line),))
        print(line.strip(), file=lines, flush=True)


def client(words):
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(SOCKET)
    lines = stream.makefile("rw")
    if words[0] == "read":
        print("read", file=lines, flush=True)
        while (line := lines.readline()) != "end\n":
            if not line:
                sys.exit("the server ended")
            sys.stdout.write(line)
        return
    for number in range(int(words[1]), int(words[2]) + 1):
        print(number, file=lines, flush=True)
        line = lines.readline()
        if not line:
            sys.exit("the server ended")
        print(line.strip(), flush=True)


if sys.argv[1] == "serve":
    serve()
else:
    client(sys.argv[1:])
