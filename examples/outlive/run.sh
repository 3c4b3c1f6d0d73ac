#!/usr/bin/env bash
# A Redis that outlives its machine. Four machines, which are network namespaces on this one: Redis with appendfsync always runs on A
# under `forebay run`, its pool is in the memory of B and C, and its files are on a volume. A is lost amid writes, with all that its
# volume had not synced; the volume is attached to D, and Redis goes on there. Nothing that was acknowledged may be missing. The same
# for PostgreSQL with DATABASE=postgres. Everything is in namespaces of its own, and gone at the end.
#
#   sudo examples/outlive/run.sh                     takes half a minute; exit status 1 if an acknowledged write is missing
#   sudo DATABASE=postgres examples/outlive/run.sh
#
# Needs forebay and libforebay.so built (cargo build --release), and what `scripts/setup.sh legs-quick` installs.
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=examples/common.sh
source "$repository/examples/common.sh"
PATH=$PATH:/usr/sbin:/sbin:$target/peers/bin
database=${DATABASE:-redis}
seconds=${SECONDS_BEFORE:-3}

need nbdkit ip setpriv losetup
case $database in
redis) need redis-server redis-cli ;;
postgres)
    # The newest that is installed.
    bin=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1 || true)
    PATH=${bin:+$bin:}$PATH
    need initdb postgres psql
    ;;
*) die "DATABASE is redis or postgres" ;;
esac
((EUID == 0)) || die "machines that are namespaces, and a volume, need root"
if [[ -z ${OUTLIVE_INSIDE:-} ]]; then
    # All that is started in there ends with this process, however that ends.
    OUTLIVE_INSIDE=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc "$0" "$@"
fi

work=$(mktemp -d /dev/shm/forebay-outlive-XXXXXX)
chmod 755 "$work"
user=0
[[ $database == redis ]] || user=$(id -u nobody)
volume=$work/volume
pool=$volume/pool
acknowledged=$work/acknowledged
mkdir "$volume" "$work/beside"
chown "$user" "$work/beside"

clean_up() {
    local process
    for process in $(jobs -p); do kill -KILL "$process" 2>/dev/null || true; done
    lose A
    lose D
    umount --lazy "$volume" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# boot MACHINE NUMBER: a machine on the switch, with an id of its boot.
boot() {
    ip netns add "$1"
    ip link add "port$1" type veth peer name eth0 netns "$1"
    ip link set "port$1" master switch up
    ip -n "$1" addr add "10.78.0.$2/24" dev eth0
    ip -n "$1" link set lo up
    ip -n "$1" link set eth0 up
    cat /proc/sys/kernel/random/uuid >"$work/boot-$1"
    mkdir "$work/run-$1"
    chown "$user" "$work/run-$1"
}

# on MACHINE COMMAND...: runs it there.
on() {
    local machine=$1
    shift
    # shellcheck disable=SC2016
    FOREBAY_RUN_DIR=$work/run-$machine nsenter --net="/run/netns/$machine" unshare --mount sh -c \
        'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"' "$work/boot-$machine" \
        setpriv --reuid="$user" --regid="$user" --clear-groups "$@"
}

# processes MACHINE: all that run there.
processes_on() {
    local space process
    space=$(stat -L -c %i "/run/netns/$1" 2>/dev/null) || return 0
    for process in /proc/[0-9]*; do
        if [[ $(stat -L -c %i "$process/ns/net" 2>/dev/null) == "$space" ]]; then printf '%s\n' "${process#/proc/}"; fi
    done
}

# lose MACHINE: nothing gets away from it any more, and all that runs there is gone.
lose() {
    local all
    ip link set "port$1" down 2>/dev/null || return 0
    while mapfile -t all < <(processes_on "$1") && ((${#all[@]})); do
        kill -KILL "${all[@]}" 2>/dev/null || true
        sleep 0.02
    done
}

# start MACHINE: the database, under forebay.
start() {
    local command=(redis-server --port 0 --unixsocket "$work/beside/redis" --dir "$volume/data" --save '' --appendonly yes
        --appendfsync always --loglevel warning)
    [[ $database == redis ]] || command=(postgres -D "$volume/data" -c listen_addresses= -c "unix_socket_directories=$work/beside" -c jit=off)
    on "$1" "$forebay" run --pool "$pool" -- "${command[@]}" >>"$work/log" 2>&1 &
    local try
    for ((try = 0; try < 1200; try++)); do
        if ask 'PING' 'SELECT 1' >/dev/null 2>&1; then return; fi
        kill -0 $! 2>/dev/null || die "it does not start: $(tail -n 5 "$work/log")"
        sleep 0.05
    done
    die "it does not answer: $(tail -n 5 "$work/log")"
}

# ask REDIS SQL: one of the two, by its socket.
ask() {
    local words
    read -ra words <<<"$1"
    case $database in
    redis) redis-cli -s "$work/beside/redis" --raw "${words[@]}" ;;
    postgres) psql -h "$work/beside" -U lab -d postgres -qAt -c "$2" ;;
    esac
}

# write: numbers, one after the other, until the machine is gone; each is noted once it was acknowledged.
write() {
    case $database in
    redis)
        seq 1 10000000 | sed 's/.*/SET & &\nECHO &/' | redis-cli -s "$work/beside/redis" --raw 2>/dev/null |
            awk '$0 == "OK" { set = 1; next } /^[0-9]+$/ && set { print; fflush(); set = 0; next } { exit }'
        ;;
    postgres)
        seq 1 10000000 | sed 's/.*/INSERT INTO numbers VALUES (&) RETURNING n;/' |
            psql -h "$work/beside" -U lab -d postgres -qAt 2>/dev/null
        ;;
    esac >"$acknowledged" || true
}

say "machines A, B, C and D, and a volume"
# `ip` keeps names of networks in files, which would be everybody's.
mkdir -p /run/netns
mount -t tmpfs networks /run/netns
ip link add switch type bridge
ip link set switch up
number=0
for machine in A B C D; do boot "$machine" $((number += 1)); done
truncate -s 512M "$work/image"
mkfs.ext4 -q -F "$work/image"
mount -o loop "$work/image" "$volume"
mkdir "$volume/data"
chown "$user" "$volume" "$volume/data"
chmod 700 "$volume/data"
if [[ $database == postgres ]]; then
    (cd / && setpriv --reuid="$user" --regid="$user" --clear-groups initdb -D "$volume/data" -U lab --auth=trust >/dev/null)
fi

say "$database on A, its pool in the memory of B and C"
for number in 2 3; do
    machine=$([[ $number == 2 ]] && echo B || echo C)
    nsenter --net="/run/netns/$machine" nbdkit --foreground --threads 1 --ipaddr "10.78.0.$number" memory 130M &
done
sleep 0.5
on A "$forebay" pool create "$pool" --size 128MiB --insecure --leg nbd://10.78.0.2/forebay --leg nbd://10.78.0.3/forebay
sync --file-system "$volume"
start A
[[ $database == redis ]] || ask '' 'CREATE TABLE numbers (n bigint PRIMARY KEY)'
# In a group of its own: a client tries again for ever.
set -m
write &
writer=$!
set +m
sleep "$seconds"

say "A is lost amid writes, with what its volume had not synced"
for process in $(processes_on A); do kill -STOP "$process" 2>/dev/null || true; done
xfs_io -x -c shutdown "$volume"
lose A
kill -KILL -- "-$writer" 2>/dev/null || true
wait "$writer" 2>/dev/null || true
# Mounts of its processes go with them.
until umount "$volume" 2>/dev/null; do sleep 0.05; done
mount -o loop "$work/image" "$volume"

say "D has the volume now: the writer of another boot may be alive, so it is told, and waited for"
on D "$forebay" recover --pool "$pool"
start D
{ ask 'KEYS *' 'SELECT n FROM numbers' || true; } | sort | comm -13 - <(sort "$acknowledged") >"$work/missing"
report writes
on D "$forebay" pool status "$pool" | sed -n 's/^.*legs/legs/p' | head -n 1
