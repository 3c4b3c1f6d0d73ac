"""The stores, each with the same operations. All keep what was synced through a power cut."""

from __future__ import annotations

import importlib
import pathlib
import sqlite3
import sys
import zipfile
from collections.abc import Iterable, Iterator

Pair = tuple[bytes, bytes]


class ForebayStore:
    """With a pool on the same disk."""

    name = "forebay"

    def __init__(self, path: pathlib.Path):
        self.store = importlib.import_module("forebay").open(path)

    def put(self, key: bytes, value: bytes, sync: bool) -> None:
        self.store.put(key, value, sync=sync)

    def write(self, pairs: Iterable[Pair]) -> None:
        with self.store.batch() as batch:
            for key, value in pairs:
                batch.put(key, value)

    def get(self, key: bytes) -> bytes | None:
        return self.store.get(key)

    def scan(self) -> Iterator[Pair]:
        return self.store.scan()

    def close(self) -> None:
        self.store.close()


class PlyvelStore:
    """LevelDB."""

    name = "plyvel"

    def __init__(self, path: pathlib.Path):
        self.store = importlib.import_module("plyvel").DB(str(path), create_if_missing=True)

    def put(self, key: bytes, value: bytes, sync: bool) -> None:
        self.store.put(key, value, sync=sync)

    def write(self, pairs: Iterable[Pair]) -> None:
        with self.store.write_batch(sync=True) as batch:
            for key, value in pairs:
                batch.put(key, value)

    def get(self, key: bytes) -> bytes | None:
        return self.store.get(key)

    def scan(self) -> Iterator[Pair]:
        return self.store.iterator()

    def close(self) -> None:
        self.store.close()


class RocksdictStore:
    """RocksDB, with keys and values as they are."""

    name = "rocksdict"

    def __init__(self, path: pathlib.Path):
        self.library = importlib.import_module("rocksdict")
        self.store = self.library.Rdict(str(path), self.library.Options(raw_mode=True))
        self.options = {}
        for sync in (False, True):
            self.options[sync] = self.library.WriteOptions()
            self.options[sync].sync = sync

    def put(self, key: bytes, value: bytes, sync: bool) -> None:
        self.store.put(key, value, write_opt=self.options[sync])

    def write(self, pairs: Iterable[Pair]) -> None:
        batch = self.library.WriteBatch(raw_mode=True)
        for key, value in pairs:
            batch.put(key, value)
        self.store.write(batch, write_opt=self.options[True])

    def get(self, key: bytes) -> bytes | None:
        return self.store.get(key)

    def scan(self) -> Iterator[Pair]:
        return self.store.items()

    def close(self) -> None:
        self.store.close()


class SqliteStore:
    """A table with a write-ahead log, which each synced transaction syncs."""

    name = "sqlite3"

    def __init__(self, path: pathlib.Path):
        self.store = sqlite3.connect(path, isolation_level=None)
        self.store.execute("PRAGMA journal_mode = WAL")
        self.store.execute("CREATE TABLE pairs (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
        self.syncs = None

    def sync(self, sync: bool) -> None:
        if self.syncs != sync:
            self.store.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
            self.syncs = sync

    def put(self, key: bytes, value: bytes, sync: bool) -> None:
        self.sync(sync)
        self.store.execute("INSERT OR REPLACE INTO pairs VALUES (?, ?)", (key, value))

    def write(self, pairs: Iterable[Pair]) -> None:
        self.sync(True)
        self.store.execute("BEGIN")
        self.store.executemany("INSERT OR REPLACE INTO pairs VALUES (?, ?)", pairs)
        self.store.execute("COMMIT")

    def get(self, key: bytes) -> bytes | None:
        found = self.store.execute("SELECT value FROM pairs WHERE key = ?", (key,)).fetchone()
        return found and found[0]

    def scan(self) -> Iterator[Pair]:
        return self.store.execute("SELECT key, value FROM pairs ORDER BY key")

    def close(self) -> None:
        self.store.close()


STORES = (ForebayStore, PlyvelStore, RocksdictStore, SqliteStore)


def use_wheel(wheel: pathlib.Path, place: pathlib.Path) -> None:
    """Has `import forebay` find what the wheel has, unpacked in that place."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    sys.path.insert(0, str(place))
