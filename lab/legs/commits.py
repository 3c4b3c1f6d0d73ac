"""Times of appending and syncing the same bytes, or of sending them and getting them back: a program of its own, which prints them.

    commits.py log FILE BYTES COUNT
    commits.py logs FILE BYTES COUNT THREADS
    commits.py echo HOST PORT BYTES COUNT
    commits.py serve HOST PORT
    commits.py stream HOST PORT BYTES
    commits.py sink HOST PORT
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


def logs(path: str, size: int, count: int, threads: int) -> float:
    """Each thread's to a file of its own: MB in a second."""
    all_of_them = [threading.Thread(target=log, args=(f"{path}-{number}", size, count)) for number in range(threads)]
    began = time.perf_counter()
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join()
    return size * count * threads / 1e6 / (time.perf_counter() - began)


def stream(host: str, port: int, size: int) -> float:
    """Until the other side has all: MB in a second."""
    connection, part, left = socket.create_connection((host, port)), bytes(1 << 20), size
    began = time.perf_counter()
    while left:
        left -= connection.send(part[:left])
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    return size / 1e6 / (time.perf_counter() - began)


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


def serve(host: str, port: int, then) -> None:
    listener = socket.create_server((host, port))
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=then, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    while found := connection.recv(1 << 16):
        connection.sendall(found)


def swallow(connection: socket.socket) -> None:
    while connection.recv(1 << 20):
        pass
    connection.sendall(b".")


def main() -> None:
    kind, *words = sys.argv[1:]
    if kind in ("serve", "sink"):
        serve(words[0], int(words[1]), answer if kind == "serve" else swallow)
    if kind in ("stream", "logs"):
        rate = stream if kind == "stream" else logs
        return print(json.dumps({"mb_s": rate(words[0], *map(int, words[1:]))}))
    times = log(words[0], *map(int, words[1:])) if kind == "log" else echo(words[0], *map(int, words[1:]))
    times.sort()
    print(json.dumps({"p50_us": times[len(times) // 2] * 1e6, "p99_us": times[len(times) * 99 // 100] * 1e6}))


if __name__ == "__main__":
    main()
