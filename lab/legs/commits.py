"""Times of appending and syncing the same bytes, or of sending them and getting them back: a program of its own, which prints them.

    commits.py log FILE BYTES COUNT
    commits.py echo HOST PORT BYTES COUNT
    commits.py serve HOST PORT
"""

import json
import os
import socket
import sys
import threading
import time


def log(path: str, size: int, count: int) -> list[float]:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    payload, times = bytes(size), []
    for _ in range(count):
        began = time.perf_counter()
        os.write(fd, payload)
        os.fdatasync(fd)
        times.append(time.perf_counter() - began)
    os.close(fd)
    return times


def echo(host: str, port: int, size: int, count: int) -> list[float]:
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    payload, times = bytes(size), []
    for _ in range(count):
        began = time.perf_counter()
        connection.sendall(payload)
        left = size
        while left:
            left -= len(connection.recv(left))
        times.append(time.perf_counter() - began)
    return times


def serve(host: str, port: int) -> None:
    listener = socket.create_server((host, port))
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    while found := connection.recv(1 << 16):
        connection.sendall(found)


def main() -> None:
    kind, *words = sys.argv[1:]
    if kind == "serve":
        serve(words[0], int(words[1]))
    times = log(words[0], *map(int, words[1:])) if kind == "log" else echo(words[0], *map(int, words[1:]))
    times.sort()
    print(json.dumps({"p50_us": times[len(times) // 2] * 1e6, "p99_us": times[len(times) * 99 // 100] * 1e6}))


if __name__ == "__main__":
    main()
