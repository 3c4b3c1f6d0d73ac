"""SQLite inside Python: a row for each number, each a transaction."""

import pathlib
import sqlite3
import sys

from protocol import PAYLOAD, serve


class Store:
    def __init__(self, directory: str):
        self.connection = sqlite3.connect(pathlib.Path(directory, "lab.db"), isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute("CREATE TABLE IF NOT EXISTS lab (n INTEGER PRIMARY KEY, payload TEXT)")

    def write(self, number: int) -> None:
        self.connection.execute("INSERT INTO lab VALUES (?, ?)", (number, PAYLOAD))

    def numbers(self) -> list[int]:
        return [row[0] for row in self.connection.execute("SELECT n FROM lab")]


serve(Store(sys.argv[1]))
