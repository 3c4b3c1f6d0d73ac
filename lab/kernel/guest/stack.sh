# Functions of the guest: the devices, and what contestants make of them. Sourced; DISK, FAST and PMEM are set.
export PATH=/parcel:/usr/lib/postgresql/15/bin:$PATH
PMEM=/dev/pmem0

# null_disk NAME MIB NANOSECONDS DEPTH CACHE-MIB: a disk in this machine's memory, each of whose requests and flushes takes so long.
null_disk() {
    local at=/sys/kernel/config/nullb/$1
    modprobe null_blk nr_devices=0
    mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
    mkdir "$at"
    echo "$2" >"$at/size"
    echo "$3" >"$at/completion_nsec"
    echo "$4" >"$at/hw_queue_depth"
    echo 512 >"$at/blocksize"
    # A timer ends each request.
    echo 2 >"$at/irqmode"
    echo 1 >"$at/memory_backed"
    echo "$5" >"$at/cache_size"
    echo 1 >"$at/power"
}

# make_ext4 DEVICE DIRECTORY [OPTION...]: nothing of it is left to be written once it is mounted.
make_ext4() {
    mke2fs -q -F -t ext4 -b 4096 -E lazy_itable_init=0,lazy_journal_init=0,nodiscard "$1"
    mount "${@:3}" "$1" "$2"
}

make_pmem() {
    modprobe nfit
    modprobe nd_pmem
    ndctl create-namespace -f -e namespace0.0 -m fsdax >/dev/null
    until [[ -b $PMEM ]]; do sleep 0.1; done
}

# make_writecache p|s DEVICE
make_writecache() {
    modprobe dm_writecache
    dd if=/dev/zero of="$2" bs=64k count=1 conv=fsync status=none
    dmsetup create cached --table "0 $(blockdev --getsz "$DISK") writecache $1 $DISK $2 4096 0"
    dmsetup mknodes
    make_ext4 /dev/mapper/cached /data
}

# Buckets of a 1024th of the cache: the kernel wants 512 of them at least.
make_bcache() {
    local bytes bucket=512
    bytes=$(blockdev --getsize64 "$FAST")
    while ((bucket > 4 && bytes / 1024 / bucket < 1024)); do bucket=$((bucket / 2)); done
    modprobe bcache
    make-bcache --block 4k --bucket "${bucket}k" --writeback -C "$FAST" -B "$DISK" >/dev/null
    echo "$FAST" >/sys/fs/bcache/register
    echo "$DISK" >/sys/fs/bcache/register
    until [[ -b /dev/bcache0 ]]; do sleep 0.1; done
    # No request goes past the cache because that is busy, or one of many in a row.
    echo 0 | tee /sys/fs/bcache/*-*/congested_{read,write}_threshold_us >/sys/block/bcache0/bcache/sequential_cutoff
    grep -q '\[writeback\]' /sys/block/bcache0/bcache/cache_mode
    make_ext4 /dev/bcache0 /data
}

# All that is dirty goes home at once; then the settings are as before.
clean_bcache() {
    local at=/sys/block/bcache0/bcache percent delay
    percent=$(cat $at/writeback_percent) delay=$(cat $at/writeback_delay)
    echo 0 | tee $at/writeback_percent >$at/writeback_delay
    for _ in $(seq 120); do
        [[ $(cat $at/state) != clean ]] || break
        sleep 1
    done
    echo "$percent" >$at/writeback_percent
    echo "$delay" >$at/writeback_delay
    [[ $(cat $at/state) == clean ]] || echo "bcache: $(cat $at/state), $(cat $at/dirty_data) dirty after two minutes"
}

stop_bcache() {
    echo 1 | tee /sys/fs/bcache/*-*/stop >/dev/null
    until [[ ! -e /sys/block/bcache0 ]]; do sleep 0.1; done
}

# As the kernel's documentation has it: "force running" without the cache.
force_bcache() {
    modprobe bcache
    echo "$DISK" >/sys/fs/bcache/register || return
    echo 1 >"/sys/class/block/${DISK#/dev/}/bcache/running" || return
    for _ in $(seq 50); do
        [[ ! -b /dev/bcache0 ]] || return 0
        sleep 0.1
    done
    return 1
}

make_zfs() {
    modprobe zfs zfs_arc_max=268435456
    zpool create -f -o ashift=12 -O atime=off -O recordsize=16k -O mountpoint=/data tank "$DISK" log "$FAST"
}

# repaired_ext4 DEVICE: what an administrator does with a file system that something of is missing, and the mount. Says what was found. A boot would
# do less: e2fsck -p without -f looks at the journal alone, and that may be the one of long ago.
repaired_ext4() {
    local status=0
    e2fsck -fp "$1" >/tmp/fsck 2>&1 || status=$?
    echo "e2fsck -fp: status $status"
    if ((status >= 4)); then
        e2fsck -fy "$1" >/tmp/fsck 2>&1 || status=$?
        echo "e2fsck -fy: status $status, $(wc -l </tmp/fsck) lines; $(tail -n 1 /tmp/fsck)"
    fi
    mount -t ext4 "$1" /data
}

# Counters, of bytes written.
no_bytes() { echo 0; }
block_bytes() { awk '{ print 512 * $7 }' "/sys/block/${1#/dev/}/stat"; }
# dm-writecache counts blocks of 4096 bytes: writes, and those that went around the cache.
writecache_bytes() { dmsetup status cached | awk '{ print 4096 * ($10 - $13) }'; }
# The pool's log, of the runs that are.
appended_bytes() {
    env -u FOREBAY_RUN_DIR forebay status --all --json 2>/dev/null |
        python3 -c 'import json, sys; print(sum(run["lane"]["drained"] + run["lane"]["drain_lag_bytes"] for run in json.load(sys.stdin) if run.get("lane")))'
}
