#!/usr/bin/env bash
# A Redis Cluster of three masters and three replicas on loopback, each node with appendfsync always under `forebay run` and a pool of
# its own. Writes, kills a master with SIGKILL in the middle, lets its replica take over, brings it back, kills a whole node with its
# supervisor, and counts: nothing that was acknowledged may be missing. Removes what it made; ends only what it started.
#
#   examples/redis-cluster/run.sh            takes half a minute; exit status 1 if an acknowledged write is missing
#   PORT=7400 KEYS=20000 examples/redis-cluster/run.sh
#
# Needs forebay and libforebay.so built (cargo build --release), redis-server and redis-cli (scripts/setup.sh demo).
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=examples/common.sh
source "$repository/examples/common.sh"
PATH=$PATH:$target/peers/bin
port=${PORT:-7380}
keys=${KEYS:-6000}
nodes=6

need redis-server redis-cli

begin cluster

cli() { redis-cli -h 127.0.0.1 "$@"; }

# answers NODE: the process of its Redis, once that answers.
answers() {
    local own=$((port + $1))
    [[ $(cli -p "$own" ping 2>/dev/null) == PONG ]] && cli -p "$own" info server | tr -d '\r' | sed -n 's/^process_id://p'
}

# start NODE: under forebay, in a directory of its own.
start() {
    local node=$1
    mkdir -p "$work/$node"
    make_pool "$node" 5MiB 1MiB
    "$forebay" run --pool "$memory/$node.pool" --explain -- redis-server \
        --port $((port + node)) --bind 127.0.0.1 --dir "$work/$node" --daemonize no --loglevel warning --save '' \
        --cluster-enabled yes --cluster-config-file nodes.conf --cluster-node-timeout 2000 --cluster-require-full-coverage no \
        --appendonly yes --appendfsync always >>"$work/$node/log" 2>&1 &
    started "$node"
}

role() { cli -p $((port + $1)) role | head -n 1; }

# wait_ok NODE: until the cluster serves all slots, as this node sees it.
wait_ok() {
    local try state
    for ((try = 0; try < 300; try++)); do
        state=$(cli -p $((port + $1)) cluster info 2>/dev/null | tr -d '\r' || true)
        if grep -qx 'cluster_state:ok' <<<"$state" && grep -qx 'cluster_slots_ok:16384' <<<"$state"; then
            return
        fi
        sleep 0.1
    done
    die "the cluster does not become whole: $state"
}

# wait_deposed NODE OTHER: until the other node knows that this one is dead.
wait_deposed() {
    local try
    for ((try = 0; try < 300; try++)); do
        if cli -p $((port + $2)) cluster nodes | grep ":$((port + $1))@" | grep -q 'master,fail '; then return; fi
        sleep 0.1
    done
    die "node $2 does not notice that node $1 is dead"
}

# write FROM TO NODE REPLICAS: sets keys one after the other, waits for so many replicas to have each, and remembers those that all
# have acknowledged. What fails (a node was killed) is not remembered.
write() {
    local n
    for ((n = $1; n < $2; n++)); do
        printf 'SET key:%d value:%d:%d\nWAIT %d 1000\nECHO number:%d\n' "$n" "$n" $((n * 7919)) "$4" "$n"
    done | cli -c -p $((port + $3)) 2>&1 | awk -F : -v wanted="$4" '
        $0 == "OK" { set = 1 }
        /^[0-9]+$/ { replicated = set && $0 >= wanted }
        $1 == "number" { if (replicated) print $2; set = replicated = 0 }' >>"$acknowledged"
}

# check NODE: asks for every acknowledged key.
check() {
    awk '{ print "GET key:" $1 }' "$acknowledged" | cli -c -p $((port + $1)) 2>&1 | grep -v '^-> Redirected' |
        paste - "$acknowledged" | awk '{ if ($1 != "value:" $2 ":" $2 * 7919) { print; } }' >"$work/missing"
    report writes
}

say "six nodes, each under forebay (pools emulated in memory: they survive a process crash, not a power cut)"
for ((node = 0; node < nodes; node++)); do start "$node"; done
addresses=()
for ((node = 0; node < nodes; node++)); do addresses+=("127.0.0.1:$((port + node))"); done
cli --cluster create "${addresses[@]}" --cluster-replicas 1 --cluster-yes >"$work/create.log" || die "$(tail -n 5 "$work/create.log")"
for ((node = 0; node < nodes; node++)); do wait_ok "$node"; done
sed -n '/^M:\|^S:/p' "$work/create.log" | sort -u | cut -c 1-70
: >"$acknowledged"
write 0 "$keys" 0 1
check 1

say "SIGKILL of master 0 amid writes (the server; its supervisor drains and ends): its replica takes over"
[[ $(role 0) == master ]] || die "node 0 is no master"
write "$keys" $((3 * keys)) 1 1 &
writer=$!
sleep 0.3
kill -KILL "${server[0]}"
wait_gone 0 "${supervisor[0]}" "${server[0]}"
wait "$writer"
wait_deposed 0 1
wait_ok 1
check 1
# The new master has no replica yet.
write $((3 * keys)) $((4 * keys)) 1 0
say "master 0 comes back, as a replica"
start 0
wait_ok 0
check 0

say "SIGKILL of server and supervisor of node 1 at once, then of node 2; both come back from their files"
for node in 1 2; do
    kill_node "$node"
    start "$node"
    wait_ok "$node"
    grep '^forebay: lane' "$work/$node/log" | tail -n 1 || true
done
check 3

say "all six at once: the cluster is what their files and pools say"
for ((node = 0; node < nodes; node++)); do kill -KILL "${supervisor[$node]}" "${server[$node]}"; done
for ((node = 0; node < nodes; node++)); do kill_node "$node"; done
for ((node = 0; node < nodes; node++)); do start "$node"; done
for ((node = 0; node < nodes; node++)); do wait_ok "$node"; done
check 5
"$forebay" status | sed -n '1,12p'
printf '\nNothing that was acknowledged is missing.\n'
