"""A store beside a dict: each operation, reopened, and killed."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import hypothesis
import hypothesis.stateful as stateful
import pytest
from conftest import OPTIONS
from hypothesis import strategies as st

import forebay

KEYS = st.binary(min_size=1, max_size=3).map(lambda key: key[:1] + b"k" * len(key[1:]))


def values(most):
    return st.one_of(st.binary(max_size=20), st.integers(100, most).map(lambda n: b"v" * n))


# What is written as one, a put or a batch, is at most half a segment: 65,504 bytes of the pool of these tests.
VALUES, BATCHED_VALUES, BATCHED = values(60_000), values(7_500), 8
BOUNDS = st.one_of(st.none(), KEYS)


class StoreBesideDict(stateful.RuleBasedStateMachine):
    """Every way to look at the store shows what a dict has."""

    snapshots = stateful.Bundle("snapshots")

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name, "store")
        self.store = forebay.open(self.path, **OPTIONS)
        self.model = {}

    def teardown(self):
        self.store.close()
        self.directory.cleanup()

    @stateful.rule(key=KEYS, value=VALUES, sync=st.booleans())
    def put(self, key, value, sync):
        self.store.put(key, value, sync=sync)
        self.model[key] = value

    @stateful.rule(key=KEYS)
    def delete(self, key):
        self.store.delete(key)
        self.model.pop(key, None)

    @stateful.rule(key=KEYS)
    def pop(self, key):
        assert self.store.pop(key, None) == self.model.pop(key, None)

    @stateful.rule(changes=st.lists(st.tuples(KEYS, st.one_of(st.none(), BATCHED_VALUES)), max_size=BATCHED))
    def batch(self, changes):
        with self.store.batch() as batch:
            for key, value in changes:
                if value is None:
                    del batch[key]
                    self.model.pop(key, None)
                else:
                    batch[key] = value
                    self.model[key] = value

    @stateful.rule(
        changes=st.lists(st.tuples(KEYS, st.one_of(st.none(), BATCHED_VALUES)), max_size=BATCHED),
        start=BOUNDS, reverse=st.booleans(), interfering=KEYS, commits=st.booleans(),
    )
    def transaction(self, changes, start, reverse, interfering, commits):
        """Reads its own writes; is refused if another writer changed what it read."""
        own, reads, writes = dict(self.model), set(), {}
        transaction = self.store.begin()
        for key, value in changes:
            if value is not None:
                transaction[key] = own[key] = writes[key] = value
                continue
            if key not in writes:
                reads.add(key)
            if key in own:
                writes[key] = None
            assert transaction.pop(key, None) == own.pop(key, None)
        expected = sorted((pair for pair in own.items() if start is None or pair[0] >= start), reverse=reverse)
        assert list(transaction.scan(start, reverse=reverse)) == expected
        assert list(self.store.items()) == sorted(self.model.items())
        if not commits:
            transaction.rollback()
            return
        # Another value than it had.
        self.store[interfering] = self.model[interfering] = self.model.get(interfering, b"")[-20:] + b"!"
        if writes and (interfering in reads or start is None or interfering >= start):
            with pytest.raises(forebay.ConflictError) as refused:
                transaction.commit()
            assert refused.value.key == interfering
            return
        transaction.commit()
        self.model = {key: value for key, value in {**self.model, **writes}.items() if value is not None}

    @stateful.rule(key=KEYS)
    def get(self, key):
        assert self.store.get(key) == self.model.get(key)
        assert (key in self.store) == (key in self.model)

    @stateful.rule(start=BOUNDS, stop=BOUNDS, reverse=st.booleans(), include_stop=st.booleans())
    def scan(self, start, stop, reverse, include_stop):
        def within(key):
            return (start is None or key >= start) and (stop is None or key < stop or include_stop and key == stop)

        expected = sorted((pair for pair in self.model.items() if within(pair[0])), reverse=reverse)
        assert list(self.store.scan(start, stop, reverse=reverse, include_stop=include_stop)) == expected

    @stateful.rule(prefix=KEYS)
    def prefix(self, prefix):
        expected = sorted(key for key in self.model if key.startswith(prefix))
        assert list(self.store.scan(prefix=prefix, kind="keys")) == expected

    @stateful.rule(target=snapshots)
    def snapshot(self):
        return self.store.snapshot(), dict(self.model)

    @stateful.rule(snapshot=snapshots)
    def look_at_snapshot(self, snapshot):
        seen, model = snapshot
        assert dict(seen.items()) == model

    @stateful.rule(snapshot=stateful.consumes(snapshots))
    def release_snapshot(self, snapshot):
        snapshot[0].release()

    @stateful.rule()
    def reopen(self):
        self.store.close()
        self.store = forebay.open(self.path, create=False, **OPTIONS)

    @stateful.invariant()
    def all_of_it(self):
        assert list(self.store.items()) == sorted(self.model.items())


StoreBesideDict.TestCase.settings = hypothesis.settings(
    max_examples=12, stateful_step_count=40, deadline=None, print_blob=True
)
test_a_store_holds_what_a_dict_does = StoreBesideDict.TestCase

WRITER = """
import sys, forebay
store = forebay.open(sys.argv[1], **{options!r})
number = int(sys.argv[2])
while True:
    with store.batch() as batch:
        batch[b"first"] = batch[b"second"] = b"%d" % number
        batch[b"%06d" % number] = b"v" * (number * 37 % 3000)
    print(number, flush=True)
    number += 1
"""


def test_a_killed_program_loses_no_acknowledged_batch(path):
    """Promise (store): A Python program that is killed at any moment has every batch that was acknowledged, whole.

    Each life of the writer goes on where the one before was killed.
    """
    program = WRITER.format(options=OPTIONS)
    acknowledged = 0
    for life in range(6):
        last = acknowledged + 50 + 7 * life
        writer = subprocess.Popen(
            [sys.executable, "-c", program, str(path), str(acknowledged + 1)], stdout=subprocess.PIPE, text=True
        )
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged == last:
                os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        with forebay.open(path, create=False, **OPTIONS) as store:
            first, second = int(store[b"first"]), int(store[b"second"])
            # One more may have been written, and not told.
            assert first == second and acknowledged <= first <= acknowledged + 1
            assert len(list(store.scan(b"0", b":"))) == first
            assert store[b"%06d" % first] == b"v" * (first * 37 % 3000)
            acknowledged = first
    assert acknowledged >= 400
