"""An embedded key-value store: keys and values are bytes, and a put is durable when it returns.

    import forebay

    with forebay.open("fruit") as store:
        store[b"cherry"] = b"9"
        with store.batch() as batch:  # all of it, or nothing
            batch.put(b"apple", b"3")
            batch.delete(b"cherry")
        for key, value in store.scan(prefix=b"a"):
            print(key, value)
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import ItemsView, KeysView, Mapping, MutableMapping, ValuesView

from . import _forebay
from ._forebay import (
    BusyError,
    ClosedError,
    ConflictError,
    DamagedError,
    Error,
    FullError,
    NoStoreError,
    OutdatedError,
    Scan,
    UsageError,
    __version__,
)

__all__ = [
    "Batch",
    "BusyError",
    "ClosedError",
    "ConflictError",
    "DamagedError",
    "Error",
    "FullError",
    "NoStoreError",
    "OutdatedError",
    "ReadOnlyStore",
    "Scan",
    "Snapshot",
    "Store",
    "Transaction",
    "UsageError",
    "__version__",
    "destroy",
    "open",
]

_MISSING = object()
# Times that Store.transaction runs; after so many it is one of those that go one at a time, and how long it waits for its turn then: one
# within another that has its turn would wait for ever.
_RUNS_MAX, _RUNS_TOGETHER, _TURN_S = 100, 4, 0.1
_OPTIONS = {
    "create": True,
    "error_if_exists": False,
    "pool": None,
    "pool_kind": "disk",
    "pool_size": 64 << 20,
    "durability": "double",
    "cache_size": None,
    "memtable_size": None,
    "open_files": None,
    "salvage": False,
}


# Those of one that is only read.
_READING = ("pool", "pool_kind", "cache_size", "open_files")


def _options(given):
    unknown = sorted(given.keys() - _OPTIONS)
    if unknown:
        raise UsageError(f"there is no option {', '.join(unknown)}: {', '.join(_OPTIONS)}")
    return {**_OPTIONS, **given}


class _Keys(KeysView):
    def __reversed__(self):
        return self._mapping.scan(reverse=True, kind="keys")


class _Items(ItemsView):
    def __iter__(self):
        return self._mapping.scan()

    def __reversed__(self):
        return self._mapping.scan(reverse=True)


class _Values(ValuesView):
    def __iter__(self):
        return self._mapping.scan(kind="values")

    def __contains__(self, value):
        return any(found == value for found in self)

    def __reversed__(self):
        return self._mapping.scan(reverse=True, kind="values")


class _Reads(Mapping):
    """What a store and a snapshot have in common: a mapping, in the order of its keys."""

    __slots__ = ()

    def get(self, key, default=None):
        """The value of a key, or default."""
        found = self._get(key)
        return default if found is None else found

    def scan(self, start=None, stop=None, *, prefix=None, reverse=False, include_stop=False, kind="items"):
        """An iterator over the keys from start to before stop, or that start with prefix, as of now.

        In their order, or from the last to the first. kind is "items", "keys" or "values".
        """
        return self._scan(start, stop, prefix, reverse, include_stop, kind)

    def keys(self):
        return _Keys(self)

    def items(self):
        return _Items(self)

    def values(self):
        return _Values(self)

    def __getitem__(self, key):
        found = self._get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __contains__(self, key):
        return self._contains(key)

    def __iter__(self):
        return self._scan(None, None, None, False, False, "keys")

    def __reversed__(self):
        return self._scan(None, None, None, True, False, "keys")

    def __len__(self):
        """Counts the keys: it reads all of them, and no value."""
        return sum(1 for _ in self)

    def __bool__(self):
        return next(iter(self), None) is not None

    # Two stores are the same if they are one: comparing what they hold would read all of it.
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__


class _Writes(_Reads, MutableMapping):
    """What a store and a transaction have in common."""

    __slots__ = ()

    def __setitem__(self, key, value):
        self.put(key, value)

    def __delitem__(self, key):
        if not self._contains(key):
            raise KeyError(key)
        self.delete(key)

    def pop(self, key, default=_MISSING):
        found = self._get(key)
        if found is not None:
            self.delete(key)
            return found
        if default is _MISSING:
            raise KeyError(key)
        return default

    def popitem(self):
        """The first key and its value, which are removed."""
        for key, value in self.scan():
            self.delete(key)
            return key, value
        raise KeyError("there is no key")

    def clear(self):
        """Deletes every key that is there now."""
        for key in self:
            self.delete(key)


class Store(_forebay._Store, _Writes):
    """An open store, as a mapping of bytes to bytes. Threads may share it."""

    def __new__(cls, path, **options):
        store = super().__new__(cls, os.fspath(path), _options(options))
        store._path = os.fspath(path)
        store._turn = threading.Lock()
        return store

    def clear(self):
        """Deletes every key that is there now."""
        for key in self:
            self.delete(key, sync=False)
        self.commit()

    def begin(self, *, sync=True):
        """A transaction, which is committed when its `with` block ends without an exception, or by its commit()."""
        return Transaction(self, sync)

    def transaction(self, work, *, sync=True):
        """What work(transaction) returns, once that is committed.

        After a conflict it is run again, as of then, 100 times at most: what it does beside the transaction it may do several times.
        After an exception of its own nothing is done.
        """
        has_turn = False
        try:
            for run in range(1, _RUNS_MAX + 1):
                with self.begin(sync=sync) as transaction:
                    done = work(transaction)
                    try:
                        if not transaction.ended:
                            transaction.commit()
                        return done
                    except ConflictError:
                        if run == _RUNS_MAX:
                            raise
                if run >= _RUNS_TOGETHER and not has_turn:
                    has_turn = self._turn.acquire(timeout=_TURN_S)
        finally:
            if has_turn:
                self._turn.release()

    def batch(self, *, sync=True):
        """Puts and deletes that are written as one when its `with` block ends without an exception."""
        return Batch(self, sync)

    def snapshot(self):
        """The store as of now, which later writes leave as it is."""
        return Snapshot(self)

    def stats(self):
        """Sizes and counts; stats()["trouble"] says in words if something is wrong."""
        return json.loads(self._stats())

    def verify(self):
        """Reads and checks all there is; what is wrong is in the report's "problems"."""
        return json.loads(self._verify())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<forebay.Store {self._path!r}{', closed' if self.closed else ''}>"


class ReadOnlyStore(_forebay._Reader, _Reads):
    """A store that is only read, whether another process has it open or none, as of when it was opened or refreshed last."""

    def __new__(cls, path, **options):
        other = sorted(options.keys() & (_OPTIONS.keys() - set(_READING)))
        if other:
            raise UsageError(f"{', '.join(other)}: a store that is only read has no such option, but {', '.join(_READING)}")
        store = super().__new__(cls, os.fspath(path), _options(options))
        store._path = os.fspath(path)
        return store

    def snapshot(self):
        """The store as of its last look, which a refresh leaves as it is."""
        return Snapshot(self)

    def stats(self):
        """Sizes and counts as of the last look; what only the owner's process knows is zero."""
        return json.loads(self._stats())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<forebay.ReadOnlyStore {self._path!r}{', closed' if self.closed else ''}>"


class Batch(_forebay._Batch):
    """Puts and deletes that are done as one: by its `with` block, or by Store.write."""

    def __new__(cls, store, sync=True):
        batch = super().__new__(cls, store)
        batch._store = store
        batch._sync = sync
        return batch

    def __setitem__(self, key, value):
        self.put(key, value)

    def __delitem__(self, key):
        self.delete(key)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self._store.write(self, sync=self._sync)
        self.clear()


class Transaction(_forebay._Transaction, _Writes):
    """Reads and writes that are done as one, as if nothing else happened meanwhile: a mapping, as a store is.

    It reads the store as of its beginning, and its own writes, which nobody else sees before they are committed. A scan sees what
    the transaction writes ahead of it; it depends on what the scan has gone through, and on up to 256 keys behind that.
    """

    def __new__(cls, store, sync=True):
        transaction = super().__new__(cls, store)
        transaction._sync = sync
        return transaction

    def commit(self, *, sync=None):
        """Does all of it, or raises ConflictError; ends it. sync as it was begun with, or as it is given."""
        super().commit(sync=self._sync if sync is None else sync)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None and not self.ended:
            self.commit()
        self.rollback()


class Snapshot(_forebay._Snapshot, _Reads):
    """A store as of one moment. It keeps space of what was deleted since, until it is released."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


def open(path, *, read_only=False, **options):
    """Open the store in a directory, and make it if there is none. The options, all by name:

    create           make a store if there is none [True]
    error_if_exists  refuse a store that exists [False]
    pool             path of the pool [PATH/pool]
    pool_kind        what pool is made: "disk", "memory" (persistent), "emulated" (survives the process only)
    pool_size        bytes of a pool that is made [64 MiB]
    durability       "double" and "buffers=N" by a pool; without one "fsync", and "nosync", which a power cut may take
    cache_size       bytes of memory for what is read often [128 MiB]
    memtable_size    bytes of memory of one of at most six tables of recent keys [64 MiB]
    open_files       files that are open at a time [half of what the process may]
    salvage          open although something is lost, and give that up; given_up() says what

    With read_only=True it is a ReadOnlyStore, beside a process that has the store open, or with none: it needs no permission to write,
    shows the store as of now, and by refresh() as of then. It takes pool, pool_kind, cache_size and open_files.
    """
    return (ReadOnlyStore if read_only else Store)(path, **options)


def destroy(path, **options):
    """Remove the store in a directory with everything in it. No store is no error; one in use is."""
    Store._destroy(os.fspath(path), _options(options))
