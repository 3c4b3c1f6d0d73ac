#!/usr/bin/env bash
# An etcd cluster of three members on loopback, of which one loses its machine. Each member has a file system of its own (ext4 on a loop device), and a pool
# on the disk below. One member is down while the two others acknowledge writes, so each of these has every one. Then the power of the one is cut: its file
# system is shut down, which takes its page cache, its processes are killed, and the machine of the other goes for good. What was acknowledged is on
# the one's pool only. In another boot (another boot id is bind-mounted) `forebay recover` writes it into the log, and the one and the member that was down are
# the cluster: nothing may be missing, and they must agree.
#
#   examples/etcd-cluster/machine.sh               takes half a minute; exit status 1 if an acknowledged write is missing, or the members do not agree, 77 if it cannot be run here
#   RECOVER=no examples/etcd-cluster/machine.sh    the control: the one comes back without forebay, and acknowledged writes are missing
#
# Needs root, loop devices, xfs_io, forebay built (cargo build --release), etcd, etcdctl and Python (scripts/setup.sh test).
set -euo pipefail
# The exit status where there can be no such file systems.
cannot=77
repository=$(cd "$(dirname "$0")/../.." && pwd)
((EUID == 0)) || {
    echo "error: only root mounts file systems. Remedy: sudo, or run.sh, which needs no rights" >&2
    exit "$cannot"
}
# In mounts of its own: one that another program has copied would keep a file system that was shut down.
[[ -n ${OWN_MOUNTS:-} ]] || OWN_MOUNTS=1 exec unshare --mount "$0" "$@"
# shellcheck source=examples/etcd-cluster/members.sh
source "$repository/examples/etcd-cluster/members.sh"
keys=${KEYS:-3000}
for program in xfs_io losetup mkfs.ext4; do
    command -v "$program" >/dev/null || die "$program is not installed. Remedy: scripts/setup.sh test"
done
one=0 other=1 down=2

remove() {
    local member
    for ((member = 0; member < members; member++)); do
        ! mountpoint -q "$work/$member" || umount -l "$work/$member"
    done
}

# serve MEMBER COMMAND...: under forebay, behind a command. File system and pool lie on one disk here, where a log that is preallocated would be left plain.
serve() { start "$1" "${@:2}" "$forebay" run --front-end notify --absorb-preallocated --pool "$work/$1.pool" --explain --; }

# lose_power MEMBER: what a power cut leaves of it. From the first line on nothing reaches its disk.
lose_power() {
    xfs_io -x -c shutdown "$work/$1"
    kill -KILL -- "-${group[$1]}"
    killed "$1"
    # The kernel lets go of it when the last process is gone.
    local try
    for ((try = 0; try < 100; try++)); do
        umount "$work/$1" 2>/dev/null && break
        sleep 0.1
    done
    ! mountpoint -q "$work/$1" || die "the file system of member $1 is held by something after its processes were killed"
    mount -o loop "$work/$1.image" "$work/$1"
}

# another_boot COMMAND...: in a boot with another id.
cat /proc/sys/kernel/random/uuid >"$work/boot_id"
# shellcheck disable=SC2016 # the inner shell expands them
another_boot=(unshare --mount sh -c 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"' "$work/boot_id")

# last_entry MEMBER: the number of the last entry in its own log, by the log's bytes.
last_entry() {
    python3 - "$work/$1/data/member/wal" <<'PYTHON'
import pathlib, struct, sys

def fields(message):
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(message):
        key = varint()
        value = varint()
        if key & 7 == 2:
            value, at = message[at:at + value], at + value
        yield key >> 3, value

ENTRY = 2
last = 0
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.wal")):
    log, at = path.read_bytes(), 0
    while at + 8 <= len(log):
        (head,) = struct.unpack_from("<Q", log, at)
        size, padded = head & (1 << 56) - 1, (head >> 56 & 7 if head >> 63 else 0)
        if size == 0 or at + 8 + size > len(log):
            break
        record = dict(fields(log[at + 8:at + 8 + size]))
        if record.get(1) == ENTRY:
            last = dict(fields(record.get(3, b""))).get(3, 0)
        at += 8 + size + padded
print(last)
PYTHON
}

say "three members, each on a file system of its own, under forebay with a pool on the disk below"
for ((member = 0; member < members; member++)); do
    truncate -s 256M "$work/$member.image"
    mkfs.ext4 -q -F "$work/$member.image"
    mkdir "$work/$member"
    mount -o loop "$work/$member.image" "$work/$member" || {
        echo "error: no file system could be mounted on a loop device" >&2
        exit "$cannot"
    }
    "$forebay" pool create "$work/$member.pool" --disk --size 5MiB --segment-size 1MiB >/dev/null
    serve "$member"
done
for ((member = 0; member < members; member++)); do wait_healthy "$member"; done
: >"$acknowledged"
write 0 100 "$one"
check "$other"

say "member $down is down: what the others acknowledge is in the logs of both"
kill -KILL -- "-${group[$down]}"
killed "$down"
write 100 "$keys" "$other" &
writer=$!
while (($(wc -l <"$acknowledged") < 300)); do
    kill -0 "$writer" 2>/dev/null || die "the writer ended before it had 300 keys acknowledged"
    sleep 0.01
done
say "the power of member $one is cut amid writes, and member $other is gone for good"
lose_power "$one"
kill -KILL -- "-${group[$other]}"
killed "$other"
kill "$writer" 2>/dev/null || true
wait "$writer" || true
unset writer
printf 'last entry in the log of member %d: %d\n' "$other" "$(last_entry "$other")"
printf 'last entry in the log of member %d: %d, as its disk has it\n' "$one" "$(last_entry "$one")"

if [[ ${RECOVER:-yes} == no ]]; then
    say "member $one comes back without forebay"
    start "$one" env
else
    say "member $one in another boot"
    "${another_boot[@]}" "$forebay" recover --pool "$work/$one.pool"
    printf 'last entry in the log of member %d: %d\n' "$one" "$(last_entry "$one")"
    serve "$one" "${another_boot[@]}"
fi
serve "$down"
wait_healthy "$one"
wait_healthy "$down"
check "$one"
check "$down"
say "member $other comes back after all"
serve "$other"
wait_healthy "$other"
check "$other"
agree
printf '\nNothing that was acknowledged is missing.\n'
