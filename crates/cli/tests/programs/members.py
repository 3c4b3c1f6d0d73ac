"""Processes that write to the same logs, fork, execute themselves, and are killed at any moment. Each says on standard output what it was promised:
its number and the number of its write, in one line."""

import fcntl
import mmap
import os
import random
import signal
import sys
import time

CHILDREN = 6
SLOT = 64
PAGE = 8192
PAGES = 64


def record(who, seq, rng):
    return b"<%08d %08d %05d " % (who, seq, (n := rng.choice([0, 30, 300, 5000]))) + b"x" * n + b">"


def buffers():
    """The pages of slots.log, which all processes share, as a database's processes share its log buffers; and what is locked to change one."""
    file = os.open("buffers", os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(file, PAGE * PAGES)
    return file, mmap.mmap(file, PAGE * PAGES)


def write(who, appending, slots):
    """Writes until it is killed."""
    rng = random.Random(who)
    lock, pages = buffers()
    seq = 0
    while True:
        seq += 1
        if rng.random() < 0.1:
            os.close(appending)
            name = rng.choice(["shared.log", "other-name.log"])
            appending = os.open(name, os.O_WRONLY | os.O_APPEND | rng.choice([0, os.O_DSYNC]))
        data = record(who, seq, rng)
        parts = [data] if rng.random() < 0.7 else [data[:10], data[10:]]
        os.writev(appending, parts)
        slot = b"%08d %08d" % (who, seq)
        # The whole page, which other processes write as well, each time with a little that is new.
        fcntl.lockf(lock, fcntl.LOCK_EX)
        pages[who * SLOT : (who + 1) * SLOT] = slot.ljust(SLOT, b".")
        page = who * SLOT // PAGE * PAGE
        os.pwrite(slots, pages[page : page + PAGE], page)
        fcntl.lockf(lock, fcntl.LOCK_UN)
        # Each covers what any process wrote, whichever descriptor it is called with.
        os.fsync(appending)
        os.fdatasync(slots)
        os.write(1, b"%08d %08d\n" % (who, seq))
        if rng.random() < 0.02:
            # A child of a member that goes on in its place, with the descriptors and positions that it has.
            if os.fork():
                os._exit(0)


def main():
    rng = random.Random(int(sys.argv[1]))
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    shared = os.open("shared.log", flags, 0o600)
    os.link("shared.log", "other-name.log")
    slots = os.open("slots.log", os.O_WRONLY | os.O_CREAT, 0o600)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    children = []
    who = 0
    while True:
        while len(children) < CHILDREN:
            who += 1
            child = os.fork()
            if child == 0:
                how = rng.random()
                if how < 0.3:
                    os.execv(sys.executable, [sys.executable, sys.argv[0], "writer", str(who)])
                if how < 0.6:
                    shared = os.open("shared.log", flags)
                write(who, shared, slots)
            children.append(child)
        time.sleep(rng.random() * 0.01)
        try:
            os.kill(children.pop(rng.randrange(len(children))), signal.SIGKILL)
        except ProcessLookupError:
            pass


if sys.argv[1] == "writer":
    write(
        int(sys.argv[2]),
        os.open("other-name.log", os.O_WRONLY | os.O_APPEND),
        os.open("slots.log", os.O_WRONLY),
    )
else:
    main()
