"""Firebird's engine inside Python: a row for each number, each a transaction."""

import pathlib
import sys

from firebird.driver import connect, create_database
from protocol import PAYLOAD, serve


class Store:
    def __init__(self, directory: str):
        path = pathlib.Path(directory, "lab.fdb")
        if path.exists():
            self.connection = connect(str(path), user="SYSDBA")
        else:
            self.connection = create_database(str(path), user="SYSDBA")
            # As `isql` makes them, with forced writes.
            self.connection.execute_immediate("CREATE TABLE lab (n BIGINT PRIMARY KEY, payload VARCHAR(200))")
            self.connection.commit()
        self.cursor = self.connection.cursor()

    def write(self, number: int) -> None:
        self.cursor.execute("INSERT INTO lab VALUES (?, ?)", (number, PAYLOAD))
        self.connection.commit()

    def numbers(self) -> list[int]:
        return [row[0] for row in self.cursor.execute("SELECT n FROM lab").fetchall()]


serve(Store(sys.argv[1]))
