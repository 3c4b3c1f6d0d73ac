"""Stores for the tests: in directories of their own, with pools in memory, which a killed process leaves as they are."""

import pytest

import forebay

# Small, so that segments are drained and tables are written.
OPTIONS = {"pool_kind": "emulated", "pool_size": 2 << 20, "memtable_size": 64 << 10}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(path):
    with forebay.open(path, **OPTIONS) as opened:
        yield opened
