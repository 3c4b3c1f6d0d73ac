"""Tarantool: a tuple for each number."""

import sys

import tarantool
from protocol import PAYLOAD, retried, serve


def connect(port: str) -> tarantool.Connection:
    connection = tarantool.connect("127.0.0.1", int(port))
    connection.select("lab", [0])
    return connection


class Store:
    def __init__(self, port: str):
        self.connection = retried(lambda: connect(port))

    def write(self, number: int) -> None:
        self.connection.insert("lab", (number, PAYLOAD))

    def numbers(self) -> list[int]:
        return [row[0] for row in self.connection.select("lab", [], iterator=2, limit=1 << 30)]


serve(Store(sys.argv[1]))
