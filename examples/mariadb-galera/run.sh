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
target=${CARGO_TARGET_DIR:-$repository/target}
# Galera's own programs, where its packages are unpacked.
PATH=$PATH:/usr/sbin:$target/peers/galera/usr/bin
port=${PORT:-26000}
rows=${ROWS:-1000}
nodes=3

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
say() { printf '\n== %s\n' "$*"; }

forebay=${FOREBAY:-$target/release/forebay}
[[ -x $forebay ]] || forebay=$target/debug/forebay
[[ -x $forebay ]] || die "forebay is not built. Remedy: cargo build --release"
for program in mariadbd mariadb mariadb-install-db wsrep_sst_rsync rsync ss; do
    command -v "$program" >/dev/null || die "$program is not installed. Remedy: scripts/setup.sh demo"
done
provider=/usr/lib/galera/libgalera_smm.so
[[ -e $provider ]] || provider=$target/peers/galera$provider
[[ -e $provider ]] || die "Galera is not installed. Remedy: scripts/setup.sh demo"

work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-galera-XXXXXX")
memory=$(mktemp -d /dev/shm/forebay-galera-XXXXXX)
export FOREBAY_RUN_DIR=$work/run
as_user=()
if ((EUID == 0)); then
    user=mysql
    id "$user" >/dev/null 2>&1 || user=nobody
    as_user=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups)
    chown "$user" "$work" "$memory"
    "${as_user[@]}" test -x "$forebay" || die "$user cannot run $forebay: have it lie where others may read"
fi

# By node: the process of forebay, and of its server.
declare -A supervisor=() server=()

clean_up() {
    local node
    for node in "${!supervisor[@]}"; do
        kill_node "$node"
    done
    rm -rf "$work" "$memory"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# sql NODE: carries out what comes on standard input, until a statement fails.
sql() { mariadb --no-defaults --user=root --socket="$work/$1/socket" --batch --skip-column-names --unbuffered; }

# address NODE PURPOSE: of the group (1), of what it was away for (2), of a copy of everything (4).
address() { printf '127.0.0.1:%d' $((port + 10 * $1 + $2)); }

# run NODE OPTION...: a server under forebay.
run() {
    local node=$1 own
    shift
    own=$(address "$node" 1)
    [[ -e $memory/$node.pool ]] ||
        "${as_user[@]}" "$forebay" pool create "$memory/$node.pool" --emulated --size 34MiB --segment-size 8MiB >/dev/null
    # In the place of the shell that called this.
    exec "${as_user[@]}" "$forebay" run --pool "$memory/$node.pool" --explain -- mariadbd --no-defaults --datadir="$work/$node/data" \
        --socket="$work/$node/socket" --pid-file="$work/$node/pid" --skip-networking \
        --innodb-flush-log-at-trx-commit=1 --innodb-buffer-pool-size=32M --innodb-log-file-size=8M \
        --binlog-format=ROW --innodb-autoinc-lock-mode=2 --wsrep-on=ON --wsrep-provider="$provider" \
        --wsrep-cluster-name=forebay --wsrep-cluster-address="gcomm://$(address 0 1),$(address 1 1),$(address 2 1)" \
        --wsrep-node-name="node$node" --wsrep-node-address="$own" --wsrep-sst-method=rsync --wsrep-sst-receive-address="$(address "$node" 4)" \
        --wsrep-provider-options="gmcast.listen_addr=tcp://$own;ist.recv_addr=$(address "$node" 2);gcache.size=64M" "$@"
}

# start NODE OPTION...: and waits until it has everything that the others have.
start() {
    local node=$1 try
    run "$@" >>"$work/$node/log" 2>&1 &
    supervisor[$node]=$!
    # So that bash does not announce its death.
    disown
    for ((try = 0; try < 3000; try++)); do
        kill -0 "${supervisor[$node]}" 2>/dev/null || die "node $node ended: $(tail -n 5 "$work/$node/log")"
        if [[ $(sql "$node" <<<"SHOW STATUS LIKE 'wsrep_local_state_comment'" 2>/dev/null) == *Synced ]]; then
            server[$node]=$(<"$work/$node/pid")
            return
        fi
        sleep 0.02
    done
    die "node $node does not join: $(tail -n 5 "$work/$node/log")"
}

# kill_node NODE: SIGKILL for forebay and its server, and waits until they are gone.
kill_node() {
    local process
    for process in "${supervisor[$1]}" ${server[$1]:+"${server[$1]}"}; do
        kill -KILL "$process" 2>/dev/null || true
        while kill -0 "$process" 2>/dev/null; do sleep 0.01; done
    done
    unset "supervisor[$1]" "server[$1]"
}

# position NODE: what the dead node's files and pool have, as the group counts it. Forebay recovers first.
position() {
    (run "$1" --wsrep-recover) >"$work/$1/recovered" 2>&1 || die "node $1: $(tail -n 5 "$work/$1/recovered")"
    sed -n 's/.*Recovered position: //p' "$work/$1/recovered" | tail -n 1
}

# write FROM TO NODE: inserts rows one after the other, and remembers those that were acknowledged. It ends with the server.
acknowledged=$work/acknowledged
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
    local missing
    missing=$(sql "$1" <<<"SET wsrep_sync_wait = 1; SELECT n FROM x.t WHERE v = CONCAT('value:', n * 7919)" | sort |
        comm -13 - <(sort "$acknowledged") | tee "$work/missing" | wc -l)
    printf 'acknowledged %7d\nmissing      %7d\n' "$(wc -l <"$acknowledged")" "$missing"
    if ((missing)); then
        head -n 3 "$work/missing" >&2
        die "acknowledged rows are missing"
    fi
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
