"""The load of `forebay-lab tenants`: a SQLite database a tenant, and one INSERT a request."""

import json
import os
import random
import resource
import sqlite3
import sys
import time


def connect(path, journal, synchronous):
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(f"PRAGMA journal_mode={journal}").fetchall()
    database.execute(f"PRAGMA synchronous={synchronous}")
    return database


def prepare(paths, journal):
    for path in paths:
        database = connect(path, journal, "OFF")
        database.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, v BLOB)")
        database.close()


def kept_open(paths, journal, insert):
    """All of them, as a server has them that served each before: with their logs."""
    databases = []
    for path in paths:
        database = connect(path, journal, "OFF")
        database.execute(insert)
        database.execute("PRAGMA synchronous=FULL")
        databases.append(database)
    return databases


def measure(paths, journal, is_kept, insert, seconds):
    databases = kept_open(paths, journal, insert) if is_kept else []
    tenants = random.Random(1)
    times_us = []
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        asked = time.monotonic()
        tenant = tenants.randrange(len(paths))
        if is_kept:
            databases[tenant].execute(insert)
        else:
            database = connect(paths[tenant], journal, "FULL")
            database.execute(insert)
            database.close()
        times_us.append((time.monotonic() - asked) * 1e6)
    return {"seconds": time.monotonic() - begun, "times_us": times_us}


def main():
    what, directory, tenants, journal, value_bytes, seconds = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    paths = [os.path.join(directory, f"{tenant}.db") for tenant in range(int(tenants))]
    if what == "prepare":
        prepare(paths, journal)
    else:
        insert = f"INSERT INTO t (v) VALUES (randomblob({value_bytes}))"
        print(json.dumps(measure(paths, journal, what == "kept", insert, float(seconds))))


main()
