#!/usr/bin/env bash
# A Galera cluster of three MariaDB servers on loopback, each under `forebay run` with a pool of its own. Writes, kills a node with SIGKILL in the middle and
# brings it back, kills the node that is written to, kills all three at once, and counts: nothing that was acknowledged may be missing. Removes what it made;
# ends only what it started.
#
#   examples/mariadb-galera/run.sh           takes a minute; exit status 1 if an acknowledged row is missing
#   PORT=26100 ROWS=5000 examples/mariadb-galera/run.sh
#
# What copies one node to another (rsync) does not write as root: there, servers, forebay and pools are those of the user mysql, or of nobody.
# Needs forebay and libforebay.so built (cargo build --release), MariaDB, Galera and rsync (scripts/setup.sh demo).
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=examples/common.sh
source "$repository/examples/common.sh"
# Galera's own programs, where its packages are unpacked.
PATH=$PATH:/usr/sbin:$target/peers/galera/usr/bin
port=${PORT:-26000}
rows=${ROWS:-1000}
nodes=3

need mariadbd mariadb mariadb-install-db wsrep_sst_rsync rsync ss
provider=/usr/lib/galera/libgalera_smm.so
[[ -e $provider ]] || provider=$target/peers/galera$provider
[[ -e $provider ]] || die "Galera is not installed. Remedy: scripts/setup.sh demo"

begin galera
act_as mysql

# sql NODE: carries out what comes on standard input, until a statement fails.
sql() { mariadb --no-defaults --user=root --socket="$work/$1/socket" --batch --skip-column-names --unbuffered; }

# address NODE PURPOSE: of the group (1), of what it was away for (2), of a copy of everything (4).
address() { printf '127.0.0.1:%d' $((port + 10 * $1 + $2)); }

# run NODE OPTION...: a server under forebay.
run() {
    local node=$1 own
    shift
    own=$(address "$node" 1)
    make_pool "$node" 34MiB 8MiB
    # In the place of the shell that called this.
    exec "${as_user[@]}" "$forebay" run --pool "$memory/$node.pool" --explain -- mariadbd --no-defaults --datadir="$work/$node/data" \
        --socket="$work/$node/socket" --pid-file="$work/$node/pid" --skip-networking \
        --innodb-flush-log-at-trx-commit=1 --innodb-buffer-pool-size=32M --innodb-log-file-size=8M \
        --binlog-format=ROW --innodb-autoinc-lock-mode=2 --wsrep-on=ON --wsrep-provider="$provider" \
        --wsrep-cluster-name=forebay --wsrep-cluster-address="gcomm://$(address 0 1),$(address 1 1),$(address 2 1)" \
        --wsrep-node-name="node$node" --wsrep-node-address="$own" --wsrep-sst-method=rsync --wsrep-sst-receive-address="$(address "$node" 4)" \
        --wsrep-provider-options="gmcast.listen_addr=tcp://$own;ist.recv_addr=$(address "$node" 2);gcache.size=64M" "$@"
}

# answers NODE: the server's process, once it has everything that the others have.
answers() {
    [[ $(sql "$1" <<<"SHOW STATUS LIKE 'wsrep_local_state_comment'" 2>/dev/null) == *Synced ]] && cat "$work/$1/pid"
}

# start NODE OPTION...
start() {
    run "$@" >>"$work/$1/log" 2>&1 &
    started "$1"
}

# position NODE: what the dead node's files and pool have, as the group counts it. Forebay recovers first.
position() {
    (run "$1" --wsrep-recover) >"$work/$1/recovered" 2>&1 || die "node $1: $(tail -n 5 "$work/$1/recovered")"
    sed -n 's/.*Recovered position: //p' "$work/$1/recovered" | tail -n 1
}

# write FROM TO NODE: inserts rows one after the other, and remembers those that were acknowledged. It ends with the server.
write() {
    local n
    for ((n = $1; n < $2; n++)); do
        printf "INSERT INTO x.t VALUES (%d, 'value:%d'); SELECT %d;\n" "$n" $((n * 7919)) "$n"
    done | sql "$3" 2>>"$work/lost-connections" >>"$acknowledged" || true
}

# wait_rows NODE NUMBER: until there are more.
wait_rows() {
    local try
    for ((try = 0; try < 600; try++)); do
        (($(sql "$1" <<<'SELECT COUNT(*) FROM x.t') > $2)) && return
        sleep 0.05
    done
    die "node $1 does not get on"
}

# check NODE: asks for every acknowledged row, after all that the group has.
check() {
    sql "$1" <<<"SET wsrep_sync_wait = 1; SELECT n FROM x.t WHERE v = CONCAT('value:', n * 7919)" | report_rows
}

say "three nodes, each under forebay (pools emulated in memory: they survive a process crash, not a power cut)"
for ((node = 0; node < nodes; node++)); do "${as_user[@]}" mkdir -p "$work/$node/data"; done
"${as_user[@]}" mariadb-install-db --no-defaults --skip-test-db --auth-root-authentication-method=normal --datadir="$work/0/data" >"$work/install.log" 2>&1 ||
    die "$(tail -n 3 "$work/install.log")"
start 0 --wsrep-new-cluster
sql 0 <<<'CREATE DATABASE x; CREATE TABLE x.t (n BIGINT PRIMARY KEY, v TEXT) ENGINE=InnoDB;'
start 1
start 2
: >"$acknowledged"
write 0 "$rows" 0
check 2

say "SIGKILL of node 1 and its supervisor amid writes: the others go on, and it comes back with what it has"
write "$rows" $((3 * rows)) 0 &
writer=$!
wait_rows 0 "$rows"
kill_node 1
wait "$writer"
at=$(position 1)
start 1 --wsrep-start-position="$at"
check 1

say "SIGKILL of node 0, which is written to: what it acknowledged is on the others, and it comes back"
write $((3 * rows)) $((99 * rows)) 0 &
writer=$!
wait_rows 0 $((3 * rows))
kill_node 0
wait "$writer"
check 2
at=$(position 0)
start 0 --wsrep-start-position="$at"
check 0

say "all three at once amid writes: the one whose files and pool have most begins"
write $((99 * rows)) $((199 * rows)) 0 &
writer=$!
wait_rows 0 "$(($(wc -l <"$acknowledged") + rows / 5))"
for ((node = 0; node < nodes; node++)); do kill -KILL "${server[$node]}" "${supervisor[$node]}"; done
for ((node = 0; node < nodes; node++)); do kill_node "$node"; done
wait "$writer"
first=0 most=-1 positions=()
for ((node = 0; node < nodes; node++)); do
    positions[node]=$(position "$node")
    printf 'node %d has %s\n' "$node" "${positions[node]}"
    if ((${positions[node]##*:} > most)); then first=$node most=${positions[node]##*:}; fi
done
sed -i 's/^safe_to_bootstrap: 0/safe_to_bootstrap: 1/' "$work/$first/data/grastate.dat"
start "$first" --wsrep-new-cluster --wsrep-start-position="${positions[first]}"
for ((node = 0; node < nodes; node++)); do
    ((node == first)) || start "$node" --wsrep-start-position="${positions[node]}"
done
check $(((first + 1) % nodes))
"${as_user[@]}" "$forebay" status | sed -n '1,9p'
printf '\nNothing that was acknowledged is missing.\n'
