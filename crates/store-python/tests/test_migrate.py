"""Stores that other libraries made, copied."""

import random
import subprocess
import sys

import lmdb
import plyvel
import pytest
import rocksdict
from conftest import OPTIONS

import forebay
from forebay import migrate

PAIRS = {b"%d" % n: random.Random(n).randbytes(n % 3000) for n in range(3000)}


def leveldb(path):
    with plyvel.DB(str(path), create_if_missing=True) as store:
        for key, value in PAIRS.items():
            store.put(key, value)


def rocksdb(path):
    store = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    for key, value in PAIRS.items():
        store.put(key, value)
    store.close()


def lmdb_store(path):
    with lmdb.open(str(path), map_size=64 << 20) as environment, environment.begin(write=True) as change:
        for key, value in PAIRS.items():
            change.put(key, value)


@pytest.mark.parametrize("kind, make", [("leveldb", leveldb), ("rocksdb", rocksdb), ("lmdb", lmdb_store)])
def test_a_store_of_another_library_is_copied_whole(kind, make, tmp_path):
    make(tmp_path / "source")
    command = [sys.executable, "-m", "forebay.migrate", kind, tmp_path / "source", tmp_path / "target", "--pool-kind", "emulated"]
    copied = subprocess.run(command, capture_output=True, text=True)
    assert copied.stdout == "copied 3000 pairs, and compared them\n", copied.stderr
    with forebay.open(tmp_path / "target", create=False, **OPTIONS) as store:
        assert dict(store.items()) == PAIRS
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 1 and "holds a store already" in again.stderr


def test_what_cannot_be_copied_is_refused(tmp_path):
    with pytest.raises(forebay.UsageError, match="is not there"):
        migrate.migrate("leveldb", tmp_path / "none", tmp_path / "target", **OPTIONS)
    options = rocksdict.Options(raw_mode=True)
    store = rocksdict.Rdict(str(tmp_path / "source"), options)
    store.create_column_family("second", options)
    store.close()
    with pytest.raises(forebay.UsageError, match="default, second"):
        migrate.migrate("rocksdb", tmp_path / "source", tmp_path / "target", **OPTIONS)
    assert not (tmp_path / "target").exists()


def test_a_copy_that_differs_is_noticed(path):
    with forebay.open(path, **OPTIONS) as store:
        assert migrate.copy([(b"a", b"1"), (b"b", b"2")], store) == 2
        assert migrate.compare([(b"a", b"1"), (b"b", b"2")], store) is None
        assert migrate.compare([(b"a", b"1"), (b"b", b"3")], store) == b"b"
        assert migrate.compare([(b"a", b"1")], store) == b"b"
        assert migrate.compare([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], store) == b"c"
