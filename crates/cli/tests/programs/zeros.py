"""Writes zeros to a file: `zeros.py FILE BYTES COUNT [FIRST]`, BYTES at once, from the FIRST such block on, each synced (O_DSYNC).

As `dd oflag=dsync conv=notrunc`, but not by standard output: a log that is that is plain."""
import os, sys

name, (size, count, *first) = sys.argv[1], map(int, sys.argv[2:])
fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_DSYNC, 0o644)
os.lseek(fd, sum(first) * size, os.SEEK_SET)
for _ in range(count):
    assert os.write(fd, bytes(size)) == size
