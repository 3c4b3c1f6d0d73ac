"""The contestants: how each is made of a disk and a fast device, brought to rest, stopped, and what an administrator does once the fast device is gone.

Each text is a script of the guest (guest/stack.sh has its functions); $DISK, $FAST and $PMEM are the devices.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Contestant:
    """One way to have a file system at /data."""

    name: str
    title: str
    make: str
    # All that is acknowledged is on the disk afterwards.
    settle: str
    stop: str
    # /data without the fast device.
    without: str
    # What stands before the database's command; {pool} is its pool.
    under: str = ""
    # What stands before its pool's path in `forebay pool create`.
    pool: str = ""
    # The counter of bytes that go to the fast device: a device of /sys/block, or a function.
    counter: str = "no_bytes"
    # Nobody asks what is left of it: syncs are lies, or there is no cache.
    is_lost: bool = True


EXT4 = "repaired_ext4 $DISK"
PLAIN = Contestant("plain", "ext4 on the disk", "make_ext4 $DISK /data", "sync", "umount /data", EXT4)
FAST = Contestant("fast", "ext4 on the SSD, without the disk", "make_ext4 $FAST /data", "sync", "umount /data", "false", counter="block_bytes $FAST", is_lost=False)
WRITECACHE_PMEM = Contestant(
    "writecache-pmem",
    "dm-writecache, persistent memory",
    "make_pmem; make_writecache p $PMEM",
    "sync; dmsetup message cached 0 flush",
    "umount /data; dmsetup remove cached",
    EXT4,
    counter="writecache_bytes",
)
WRITECACHE_SSD = dataclasses.replace(WRITECACHE_PMEM, name="writecache-ssd", title="dm-writecache, SSD", make="make_writecache s $FAST", counter="block_bytes $FAST")
BCACHE = Contestant(
    "bcache",
    "bcache (writeback), SSD",
    "make_bcache",
    "sync; clean_bcache",
    "umount /data; stop_bcache",
    "force_bcache && repaired_ext4 /dev/bcache0",
    counter="block_bytes $FAST",
)
ZFS = Contestant("zfs", "ZFS, log device on the SSD", "make_zfs", "zpool sync tank", "zpool export tank", "modprobe zfs && zpool import -f -m -d $DISK tank", counter="block_bytes $FAST")
FOREBAY_PMEM = Contestant(
    "forebay-pmem",
    "Forebay, persistent memory",
    "make_pmem; make_ext4 $PMEM /fast -o dax=always; chmod 1777 /fast; make_ext4 $DISK /data",
    "sync",
    "umount /data /fast",
    EXT4,
    under="forebay run --pool {pool} -- ",
    pool="--size 16MiB --segment-size 1MiB",
    counter="appended_bytes",
)
FOREBAY_SSD = dataclasses.replace(
    FOREBAY_PMEM,
    name="forebay-ssd",
    title="Forebay, pool on the SSD",
    make="make_ext4 $FAST /fast; chmod 1777 /fast; make_ext4 $DISK /data",
    pool="--disk --size 16MiB --segment-size 1MiB",
    counter="block_bytes $FAST",
)
EATMYDATA = dataclasses.replace(PLAIN, name="eatmydata", title="libeatmydata on the disk: no sync at all", under="env LD_PRELOAD=libeatmydata.so ", is_lost=False)

ALL = {one.name: one for one in (PLAIN, WRITECACHE_PMEM, WRITECACHE_SSD, BCACHE, ZFS, FOREBAY_PMEM, FOREBAY_SSD, FAST, EATMYDATA)}
