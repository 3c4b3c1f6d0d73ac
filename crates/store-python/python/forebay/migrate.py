"""Copies a LevelDB, RocksDB or LMDB store into a new store of Forebay, and checks the copy.

    python -m forebay.migrate leveldb SOURCE TARGET

Keys and values are taken as they are, in the order of the source. The source must be closed; it is opened for reading only where
its library can do that (LevelDB's cannot: it replays its log). TARGET must be empty, or not there. When all is copied, both are read
once more and compared. Needs plyvel for LevelDB, rocksdict for RocksDB, lmdb for LMDB.
"""

import argparse
import contextlib
import importlib
import pathlib
import sys

import forebay

# Written as one: half of a segment is the most.
BATCH_BYTES = 1 << 20


def library(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        raise forebay.UsageError(f"{name} is not installed, with which the source is read: pip install {name}") from None


@contextlib.contextmanager
def leveldb(source):
    """Its pairs, as a function that begins with the first one at each call."""
    store = library("plyvel").DB(str(source), create_if_missing=False)
    try:
        yield store.iterator
    finally:
        store.close()


@contextlib.contextmanager
def rocksdb(source):
    rocksdict = library("rocksdict")
    families = rocksdict.Rdict.list_cf(str(source))
    if families != ["default"]:
        raise forebay.UsageError(f"{source} has the column families {', '.join(families)}, and only one can be copied: copy each into a store of its own")
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(False)
    store = rocksdict.Rdict(str(source), options, access_type=rocksdict.AccessType.read_only())
    try:
        yield store.items
    finally:
        store.close()


@contextlib.contextmanager
def lmdb(source):
    with library("lmdb").open(str(source), readonly=True, lock=False, subdir=source.is_dir()) as environment:
        with environment.begin() as view:
            yield view.cursor


KINDS = {"leveldb": leveldb, "rocksdb": rocksdb, "lmdb": lmdb}


def copy(pairs, store):
    """Writes the pairs in batches; how many there were."""
    count, batch = 0, store.batch()
    for key, value in pairs:
        if batch.nbytes and batch.nbytes + len(key) + len(value) > BATCH_BYTES:
            store.write(batch, sync=False)
            batch.clear()
        batch.put(key, value)
        count += 1
    store.write(batch)
    store.commit()
    return count


def compare(pairs, store):
    """The first key at which the two differ; None if they do not."""
    copied = store.scan()
    for key, value in pairs:
        if next(copied, None) != (key, value):
            return key
    left = next(copied, None)
    return left and left[0]


def migrate(kind, source, target, **options):
    """Copies and compares; how many pairs were copied. The options are those of forebay.open."""
    source = pathlib.Path(source)
    if not source.exists():
        raise forebay.UsageError(f"{source} is not there; give the path of a {kind} store")
    with KINDS[kind](source) as pairs, forebay.open(target, error_if_exists=True, **options) as store:
        count = copy(iter(pairs()), store)
        differs = compare(iter(pairs()), store)
        if differs is not None:
            raise forebay.DamagedError(
                f"{target} differs from {source} at the key {differs!r}; was the source written meanwhile, or are its keys in "
                "another order than that of their bytes? Remove the copy, and begin again, or copy the keys by a program of yours"
            )
        store.flush()
        return count


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m forebay.migrate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("--pool", type=pathlib.Path, help="the target's pool (default: TARGET/pool)")
    parser.add_argument("--pool-kind", default="disk", choices=("disk", "memory", "emulated"), help="what pool is made")
    given = parser.parse_args(arguments)
    try:
        count = migrate(given.kind, given.source, given.target, pool=given.pool, pool_kind=given.pool_kind)
    except forebay.Error as error:
        print(f"forebay.migrate: {error}", file=sys.stderr)
        return 1
    print(f"copied {count} pairs, and compared them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
