"""The package as its users meet it."""

import collections.abc
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest
from conftest import OPTIONS

import forebay


def test_a_store_is_a_mapping_in_the_order_of_its_keys(store):
    assert isinstance(store, collections.abc.MutableMapping)
    assert not store
    store[b"cherry"] = b"9"
    store.update({b"apple": b"3", b"pear": bytearray(b"4")})
    store.put(memoryview(b"fig"), b"")
    assert store[b"fig"] == b"" and store.get(b"plum") is None and store.get(b"plum", 7) == 7
    assert list(store) == [b"apple", b"cherry", b"fig", b"pear"]
    assert list(reversed(store)) == [b"pear", b"fig", b"cherry", b"apple"]
    assert dict(store.items()) == {b"apple": b"3", b"cherry": b"9", b"fig": b"", b"pear": b"4"}
    assert list(store.values()) == [b"3", b"9", b"", b"4"] and b"9" in store.values()
    assert len(store) == 4 and store and b"fig" in store and b"plum" not in store
    assert store.pop(b"fig") == b"" and store.pop(b"fig", None) is None
    assert store.setdefault(b"plum", b"5") == b"5"
    assert store.popitem() == (b"apple", b"3")
    del store[b"plum"]
    for missing in (lambda: store[b"plum"], lambda: store.pop(b"plum"), lambda: store.__delitem__(b"plum")):
        with pytest.raises(KeyError):
            missing()
    store.delete(b"plum")
    store.clear()
    assert len(store) == 0
    with pytest.raises(KeyError):
        store.popitem()


def test_a_scan_gives_a_range_in_both_directions(store):
    with store.batch() as batch:
        for i in range(1000):
            batch.put(b"%04d" % i, b"v" * (i % 50))
    assert list(store.scan(b"0300", b"0303", kind="keys")) == [b"0300", b"0301", b"0302"]
    assert list(store.scan(b"0300", b"0302", include_stop=True, reverse=True, kind="keys")) == [b"0302", b"0301", b"0300"]
    assert [len(value) for value in store.scan(prefix=b"010", kind="values")] == [i % 50 for i in range(100, 110)]
    assert list(store.scan(b"5", b"4")) == []
    scan = store.scan()
    assert next(scan) == (b"0000", b"")
    store[b"00001"] = b"later"
    assert next(scan)[0] == b"0001"
    scan.close()
    assert list(scan) == []
    for wrong in ({"prefix": b"0", "start": b"1"}, {"kind": "pairs"}):
        with pytest.raises(forebay.UsageError):
            store.scan(**wrong)


def test_a_batch_is_written_whole_or_not_at_all(store):
    with pytest.raises(ZeroDivisionError):
        with store.batch() as batch:
            batch[b"a"] = b"1"
            raise ZeroDivisionError
    assert not store
    with store.batch() as batch:
        batch[b"a"] = b"1"
        batch[b"b"] = b"2"
        del batch[b"a"]
        assert len(batch) == 3 and batch.nbytes == 5
    assert dict(store.items()) == {b"b": b"2"}
    assert len(batch) == 0
    batch = store.batch()
    with pytest.raises(forebay.UsageError, match="at most half a segment"):
        for i in range(100_000):
            batch.put(b"%d" % i, b"v" * 100)


def test_a_snapshot_stays_as_it_was(store):
    store[b"boat"] = b"blue"
    with store.snapshot() as before:
        store[b"boat"] = b"red"
        store[b"ark"] = b"brown"
        assert before[b"boat"] == b"blue" and b"ark" not in before and len(before) == 1
        assert list(before.items()) == [(b"boat", b"blue")]
        scan = before.scan()
    assert list(scan) == [(b"boat", b"blue")]
    with pytest.raises(forebay.ClosedError, match="released"):
        before[b"boat"]


def test_a_transaction_is_a_mapping_that_is_seen_once_it_is_committed(store):
    store.update({b"apple": b"3", b"cherry": b"9"})
    with store.begin() as transaction:
        assert isinstance(transaction, collections.abc.MutableMapping) and not transaction.ended
        transaction[b"fig"] = bytearray(b"1")
        del transaction[b"cherry"]
        assert transaction.setdefault(b"pear", b"4") == b"4" and transaction[b"apple"] == b"3"
        assert list(transaction) == [b"apple", b"fig", b"pear"] and b"cherry" not in transaction
        assert list(transaction.scan(b"b", reverse=True)) == [(b"pear", b"4"), (b"fig", b"1")]
        with pytest.raises(KeyError):
            transaction[b"cherry"]
        assert dict(store.items()) == {b"apple": b"3", b"cherry": b"9"}
    assert transaction.ended
    assert dict(store.items()) == {b"apple": b"3", b"fig": b"1", b"pear": b"4"}
    with pytest.raises(ZeroDivisionError):
        with store.begin(sync=False) as transaction:
            transaction.clear()
            raise ZeroDivisionError
    assert transaction.ended and len(store) == 3
    with store.begin(sync=False) as transaction:
        transaction.clear()
    assert len(store) == 0


def test_a_long_scan_of_a_transaction_goes_over_its_own_writes(store):
    with store.batch() as batch:
        for i in range(0, 2000, 2):
            batch.put(b"%04d" % i, b"v")
    with store.begin() as transaction:
        for i in range(1, 2000, 2):
            transaction[b"%04d" % i] = b"w"
        assert list(transaction) == [b"%04d" % i for i in range(2000)]
        assert list(reversed(transaction)) == [b"%04d" % i for i in reversed(range(2000))]
        assert list(transaction.scan(prefix=b"19", kind="keys")) == [b"%04d" % i for i in range(1900, 2000)]
        # What is far ahead of a scan is still to come.
        scan = transaction.scan(kind="keys")
        assert next(scan) == b"0000"
        transaction[b"1999+"] = b"ahead"
        assert list(scan)[-1] == b"1999+"


def test_write_skew_is_refused_and_says_which_key(store):
    """Each reads what the other one changes."""
    store.update({b"alice": b"on call", b"bob": b"on call"})

    def leave(transaction, who):
        if sum(1 for _ in transaction.scan()) > 1:
            del transaction[who]

    first, second = store.begin(), store.begin()
    leave(first, b"alice")
    leave(second, b"bob")
    first.commit()
    with pytest.raises(forebay.ConflictError, match="Run it again") as refused:
        second.commit()
    assert refused.value.key == b"alice" and list(store) == [b"bob"]
    # Run as store.transaction runs it, it sees that it is the last one.
    store.transaction(lambda transaction: leave(transaction, b"bob"))
    assert list(store) == [b"bob"]


def test_threads_that_count_in_transactions_lose_no_count(store):
    runs = []

    def count(transaction):
        runs.append(None)
        number = int(transaction.get(b"count", b"0"))
        time.sleep(0.0005)
        transaction[b"count"] = b"%d" % (number + 1)
        return number

    def work():
        for _ in range(40):
            store.transaction(count, sync=False)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store[b"count"] == b"240" and len(runs) > 240
    with pytest.raises(ZeroDivisionError):
        store.transaction(lambda transaction: transaction.clear() or 1 // 0)
    assert store[b"count"] == b"240"
    assert store.transaction(lambda transaction: transaction.rollback() or 7) == 7


def test_a_transaction_that_always_conflicts_ends(store):
    runs = []

    def disturbed(transaction):
        transaction.get(b"key")
        runs.append(None)
        store[b"key"] = transaction[b"key"] = b"%d" % len(runs)

    with pytest.raises(forebay.ConflictError) as refused:
        store.transaction(disturbed)
    assert refused.value.key == b"key" and len(runs) == 100


def test_a_transaction_that_has_ended_says_so(store, path):
    committed, rolled_back, refused, left = (store.begin() for _ in range(4))
    committed[b"a"] = b"1"
    committed.commit()
    rolled_back[b"a"] = b"2"
    rolled_back.rollback()
    rolled_back.rollback()
    refused.get(b"a")
    refused[b"a"] = b"3"
    with pytest.raises(forebay.ConflictError):
        refused.commit()
    left[b"b"] = b"4"
    scan = left.scan()
    for ended, how in ((committed, "was committed;"), (rolled_back, "was rolled back"), (refused, "was refused")):
        for call in (
            lambda: ended.get(b"a"),
            lambda: ended.put(b"a", b"4"),
            lambda: ended.delete(b"a"),
            lambda: ended.scan(),
            lambda: ended.commit(),
        ):
            with pytest.raises(forebay.ClosedError, match=how + ".*begin another one"):
                call()
    with pytest.raises(forebay.UsageError, match="at most half a segment"):
        for i in range(100_000):
            left.put(b"%d" % i, b"v" * 100)
    assert left[b"b"] == b"4"
    store.close()
    for call in (lambda: left.get(b"a"), lambda: left.commit(), lambda: next(scan), lambda: store.begin()):
        with pytest.raises(forebay.ClosedError, match="the store was closed"):
            call()
    with forebay.open(path, **OPTIONS) as again:
        with pytest.raises(forebay.ClosedError):
            left.commit()
        assert dict(again.items()) == {b"a": b"1"}
    left.rollback()


def test_threads_share_a_transaction_while_the_store_is_closed(store):
    """They take turns; who is late is told that the store was closed, or how the transaction ended."""
    transaction, ended = store.begin(), []

    def use(number):
        try:
            for i in range(100_000):
                transaction[b"%d %d" % (number, i % 20)] = b"value"
                next(transaction.scan(), None)
        except forebay.ClosedError:
            ended.append(True)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    transaction.commit()
    store.close()
    for thread in threads:
        thread.join()
    assert ended == [True] * 4


OWNER = """
import sys, forebay
with forebay.open(sys.argv[1], **{options!r}) as store:
    for line in sys.stdin:
        first = int(line)
        with store.batch() as batch:
            batch[b"first"] = batch[b"second"] = b"%d" % first
        for number in range(first, first + 200):
            store[b"%06d" % number] = b"v" * (number * 37 % 3000)
        store[b"large"] = b"%d" % first * 100_000
        print("written", flush=True)
"""


@pytest.mark.parametrize("kind", ["emulated", "disk"])
def test_a_store_is_read_beside_the_process_that_has_it(kind, tmp_path):
    """What the owner has put is there after a refresh, and nothing is kept from it."""
    path, reading = tmp_path / "store", {"read_only": True, "pool_kind": kind}
    program = OWNER.format(options={**OPTIONS, "pool_kind": kind})
    command = [sys.executable, "-c", program, str(path)]
    with pytest.raises(forebay.NoStoreError, match="is not made"):
        forebay.open(path, **reading)
    assert not path.exists()
    owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    try:
        reader, snapshot = None, None
        for first in range(0, 2000, 200):
            owner.stdin.write(f"{first}\n")
            assert owner.stdout.readline() == "written\n"
            if reader is None:
                with pytest.raises(forebay.BusyError, match="in use by another process"):
                    forebay.open(path, **{**OPTIONS, "pool_kind": kind})
                reader = forebay.open(path, **reading)
                snapshot = reader.snapshot()
            reader.refresh()
            assert reader[b"first"] == reader[b"second"] == b"%d" % first and reader[b"large"] == b"%d" % first * 100_000
            assert list(reader.scan(prefix=b"0", kind="keys")) == [b"%06d" % number for number in range(first + 200)]
            assert reader[b"%06d" % (first + 199)] == b"v" * ((first + 199) * 37 % 3000)
        assert snapshot[b"first"] == b"0" and len(snapshot) == 203
        assert not hasattr(reader, "put") and not isinstance(reader, collections.abc.MutableMapping)
        owner.stdin.close()
        assert owner.wait() == 0
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
    # Beside nobody.
    reader.refresh()
    assert len(reader) == 2003 and reader.stats()["log_tail"] > 0
    reader.close()
    reader.close()
    assert reader.closed and "closed" in repr(reader)
    for call in (reader.refresh, lambda: reader[b"first"], reader.snapshot):
        with pytest.raises(forebay.ClosedError):
            call()
    with pytest.raises(forebay.UsageError, match="create: a store that is only read"):
        forebay.open(path, create=False, **reading)


def test_errors_are_exceptions_that_say_what_to_do(store, path, tmp_path):
    with pytest.raises(forebay.BusyError, match="open in this process already"):
        forebay.open(path, **OPTIONS)
    with pytest.raises(forebay.UsageError, match="1 to 65529 are possible"):
        store[b""] = b"value"
    with pytest.raises(TypeError, match=r'encode what is none, as in "boat".encode\(\)'):
        store["boat"] = b"blue"
    with pytest.raises(TypeError, match="int"):
        store.get(7)
    with pytest.raises(forebay.NoStoreError):
        forebay.open(tmp_path / "none", create=False, **OPTIONS)
    with pytest.raises(forebay.UsageError, match="there is no option colour"):
        forebay.open(tmp_path / "none", colour="blue")
    with pytest.raises(forebay.UsageError, match="unknown durability"):
        forebay.open(tmp_path / "none", durability="never")
    assert not (tmp_path / "none").exists()
    store.close()
    store.close()
    assert store.closed and "closed" in repr(store)
    with pytest.raises(forebay.ClosedError, match="open it again"):
        store.get(b"boat")
    with pytest.raises(forebay.NoStoreError, match="holds a store already"):
        forebay.open(path, error_if_exists=True, **OPTIONS)
    assert issubclass(forebay.ClosedError, forebay.Error)


def test_a_closed_store_is_copied_checked_and_destroyed(store, path, tmp_path):
    store.update((b"%d" % i, b"v" * 1000) for i in range(500))
    store.checkpoint(tmp_path / "copy")
    store[b"late"] = b"value"
    assert store.verify()["problems"] == [] and store.stats()["trouble"] is None
    store.collect()
    store.flush()
    store.close()
    with forebay.open(tmp_path / "copy", **OPTIONS) as copy:
        assert len(copy) == 500 and b"late" not in copy
    forebay.destroy(path)
    forebay.destroy(path)
    assert not path.exists()


CALLS = {
    "get": lambda store: store.get(b"key"),
    "contains": lambda store: b"key" in store,
    "put": lambda store: store.put(b"key", b"value"),
    "delete": lambda store: store.delete(b"none", sync=False),
    "batch": lambda store: store.write(store.batch()),
    "scan": lambda store: next(store.scan()),
    "snapshot": lambda store: store.snapshot().get(b"key"),
    "transaction": lambda store: store.transaction(lambda transaction: transaction.setdefault(b"key", b"value")),
    "commit": lambda store: store.commit(),
    "flush": lambda store: store.flush(),
    "stats": lambda store: store.stats(),
    "verify": lambda store: store.verify(),
}


def others_run_during(call, seconds):
    """Whether another thread gets Python's lock, which nothing but the call gives up."""
    ticks, found = [], []

    def repeat():
        before, end = len(ticks), time.monotonic() + seconds
        while len(ticks) == before and time.monotonic() < end:
            call()
        found.append(len(ticks) > before)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    try:
        thread = threading.Thread(target=repeat)
        thread.start()
        while thread.is_alive():
            ticks.append(None)
            time.sleep(0.001)
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    return found[0]


def test_other_threads_run_while_one_is_in_a_call(store):
    store[b"key"] = b"value"
    assert not others_run_during(lambda: None, 0.1), "the test itself: Python gives its lock up unasked"
    for name, call in CALLS.items():
        assert others_run_during(lambda: call(store), 10), name


def test_threads_share_a_store(store):
    def write(first):
        for i in range(first, 400, 4):
            store[b"t%03d" % i] = b"x"

    writers = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert list(store) == [b"t%03d" % i for i in range(400)]


def test_a_store_is_closed_while_other_threads_use_it(store):
    ended = []

    def read():
        try:
            while True:
                store.get(b"key")
                next(store.scan(), None)
        except forebay.ClosedError:
            ended.append(True)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    time.sleep(0.05)
    store.close()
    for reader in readers:
        reader.join()
    assert ended == [True] * 3


FORKING = """
import os, signal, sys, threading
import forebay

store = forebay.open(sys.argv[1], **{options!r})
store.update((b"%05d" % i, b"v" * 100) for i in range(1000))
snapshot, batch, scan, ended = store.snapshot(), store.batch(), store.scan(), threading.Event()
transaction = store.begin()
transaction[b"00001"] = b"child"


def use():
    while not ended.is_set():
        store[b"last"] = b"value"
        for _ in store.scan():
            pass
        transaction.get(b"last")


# Daemons: a failed assertion ends the program.
users = [threading.Thread(target=use, daemon=True) for _ in range(2)]
for user in users:
    user.start()
for _ in range(8):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        refused = 0
        for call in (
            lambda: store.get(b"00001"),
            lambda: store.put(b"00001", b"child"),
            lambda: next(scan),
            lambda: snapshot.get(b"00001"),
            lambda: batch.put(b"00001", b"child"),
            lambda: transaction.get(b"00001"),
            lambda: transaction.commit(),
            lambda: transaction.rollback(),
            lambda: store.begin(),
            lambda: store.scan(),
            lambda: store.close(),
        ):
            try:
                call()
            except forebay.ClosedError as error:
                refused += "forked" in str(error)
        snapshot.release()
        scan.close()
        # And what it inherited is dropped as the interpreter ends.
        sys.exit(0 if refused == 11 and store.closed and transaction.ended else 1)
    status = os.waitpid(child, 0)[1]
    assert status == 0, status
ended.set()
for user in users:
    user.join()
assert len(list(scan)) == 1000 and snapshot.get(b"00001") == b"v" * 100
store.close()
"""


def test_a_forked_child_is_told_whose_the_store_is(path):
    """Also when threads of the parent were in calls; what the child drops, the parent keeps."""
    program = FORKING.format(options=OPTIONS)
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=300)
    with forebay.open(path, create=False, **OPTIONS) as store:
        assert len(store) == 1001 and store[b"00001"] == b"v" * 100 and store.verify()["problems"] == []


def test_what_is_not_synced_is_seen_at_once(path):
    with forebay.open(path, **OPTIONS) as store:
        store.put(b"boat", b"blue", sync=False)
        store.delete(b"ark", sync=False)
        with store.batch(sync=False) as batch:
            batch[b"ship"] = b"grey"
        store.commit()
        assert dict(store.items()) == {b"boat": b"blue", b"ship": b"grey"}


def test_the_types_are_those_of_the_package(tmp_path):
    """The stubs name what there is, and mypy takes a program that uses them."""
    mypy = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(
        "import forebay\n"
        "with forebay.open('s', durability='fsync') as store:\n"
        "    store[b'a'] = bytearray(b'1')\n"
        "    value: bytes = store[b'a']\n"
        "    pairs: list[tuple[bytes, bytes]] = list(store.scan(prefix=b'a'))\n"
        "    keys: list[bytes] = list(store.scan(kind='keys'))\n"
        "    length: int = store.transaction(lambda tx: len(tx[b'a']))\n"
        "    with store.begin(sync=False) as tx:\n"
        "        tx[b'a'] = b'2'\n"
        "    key: bytes = forebay.ConflictError().key\n"
        "with forebay.open('s', read_only=True) as reader:\n"
        "    reader.refresh()\n"
        "    seen: bytes = reader.snapshot()[b'a']\n"
        "with forebay.open('s') as store:\n"
        "    store['a'] = b'1'\n"
    )
    said, errors, status = mypy.run(["--strict", "--cache-dir", os.devnull, str(program)])
    wrong = [line for line in said.splitlines() if ": error:" in line]
    assert status == 1 and len(wrong) == 1 and ":15:" in wrong[0], said + errors
    text = pathlib.Path(forebay.__file__).with_suffix(".pyi").read_text()
    for name in forebay.__all__:
        assert f"class {name}" in text or f"def {name}" in text or f"{name}:" in text, name


def test_a_program_that_forgets_to_close_loses_nothing(path):
    program = f"import forebay; s = forebay.open({str(path)!r}, **{OPTIONS!r}); s[b'boat'] = b'blue'; keep = s.scan()"
    subprocess.run([sys.executable, "-c", program], check=True)
    with forebay.open(path, **OPTIONS) as store:
        assert store[b"boat"] == b"blue"
