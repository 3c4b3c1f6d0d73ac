"""DuckDB inside Python: a row for each number, each a transaction."""

import pathlib
import sys

import duckdb
from protocol import PAYLOAD, serve


class Store:
    def __init__(self, directory: str, checkpoint_at: str = "16MB"):
        self.connection = duckdb.connect(str(pathlib.Path(directory, "lab.duckdb")), config={"wal_autocheckpoint": checkpoint_at})
        self.connection.execute("CREATE TABLE IF NOT EXISTS lab (n BIGINT, payload VARCHAR)")

    def write(self, number: int) -> None:
        self.connection.execute("INSERT INTO lab VALUES (?, ?)", [number, PAYLOAD])

    def numbers(self) -> list[int]:
        return [row[0] for row in self.connection.execute("SELECT n FROM lab").fetchall()]


serve(Store(*sys.argv[1:]))
