"""LMDB inside Python: a key for each number, each a transaction."""

import sys

import lmdb
from protocol import PAYLOAD, serve


class Store:
    def __init__(self, directory: str):
        self.environment = lmdb.open(directory, map_size=256 << 20)

    def write(self, number: int) -> None:
        with self.environment.begin(write=True) as transaction:
            transaction.put(str(number).encode(), PAYLOAD.encode())

    def numbers(self) -> list[int]:
        with self.environment.begin() as transaction:
            return [int(key) for key, _ in transaction.cursor()]


serve(Store(sys.argv[1]))
