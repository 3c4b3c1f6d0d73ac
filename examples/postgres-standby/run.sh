#!/usr/bin/env bash
# A PostgreSQL primary and its synchronous standby, reached by Unix sockets only, each under `forebay run` with a pool of its own. Writes, kills the standby
# in the middle and brings it back, kills the primary in the middle, promotes the standby, has the old primary follow it, kills both, and counts:
# nothing that was acknowledged may be missing. Removes what it made; ends only what it started.
#
#   examples/postgres-standby/run.sh         takes half a minute; exit status 1 if an acknowledged row is missing
#   ROWS=20000 examples/postgres-standby/run.sh
#
#   FOREBAY_POSTGRES_BIN=DIR examples/postgres-standby/run.sh      with the PostgreSQL whose programs are there
#
# PostgreSQL does not run as root: there, servers, forebay and pools are those of the user postgres, or of nobody.
# Needs forebay and libforebay.so built (cargo build --release), PostgreSQL (scripts/setup.sh demo).
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$repository/target}
rows=${ROWS:-2000}

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
say() { printf '\n== %s\n' "$*"; }

forebay=${FOREBAY:-$target/release/forebay}
[[ -x $forebay ]] || forebay=$target/debug/forebay
[[ -x $forebay ]] || die "forebay is not built. Remedy: cargo build --release"
programs=${FOREBAY_POSTGRES_BIN:-$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)}
[[ -x $programs/postgres ]] || programs=$target/peers/bin
for program in postgres initdb psql pg_basebackup pg_rewind; do
    [[ -x $programs/$program ]] || die "$program is not installed. Remedy: scripts/setup.sh demo"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-standby-XXXXXX")
memory=$(mktemp -d /dev/shm/forebay-standby-XXXXXX)
export FOREBAY_RUN_DIR=$work/run
as_user=()
if ((EUID == 0)); then
    user=postgres
    id "$user" >/dev/null 2>&1 || user=nobody
    as_user=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups)
    chown "$user" "$work" "$memory"
    "${as_user[@]}" test -x "$forebay" || die "$user cannot run $forebay: have it lie where others may read"
fi

# By node: the process of forebay, and of its server.
declare -A supervisor=() server=()

clean_up() {
    local node
    for node in "${!supervisor[@]}"; do kill_node "$node"; done
    rm -rf "$work" "$memory"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# sql NODE: carries out what comes on standard input, each statement by itself, until one fails.
sql() { "$programs/psql" -h "$work/$1" -U postgres -d postgres -X -A -t -q -v ON_ERROR_STOP=1; }

# start NODE: under forebay, and waits until it answers. A standby does when it has recovered.
start() {
    local node=$1 try
    [[ -e $memory/$node.pool ]] ||
        "${as_user[@]}" "$forebay" pool create "$memory/$node.pool" --emulated --size 34MiB --segment-size 8MiB >/dev/null
    "${as_user[@]}" "$forebay" run --pool "$memory/$node.pool" --explain -- "$programs/postgres" -D "$work/$node/data" \
        -c listen_addresses= -c "unix_socket_directories=$work/$node" -c jit=off -c dynamic_shared_memory_type=mmap >>"$work/$node/log" 2>&1 &
    supervisor[$node]=$!
    # So that bash does not announce its death.
    disown
    for ((try = 0; try < 1500; try++)); do
        kill -0 "${supervisor[$node]}" 2>/dev/null || die "the $node ended: $(tail -n 3 "$work/$node/log")"
        if sql "$node" <<<'SELECT' >/dev/null 2>&1; then
            server[$node]=$(head -n 1 "$work/$node/data/postmaster.pid")
            return
        fi
        sleep 0.02
    done
    die "the $node does not answer: $(tail -n 3 "$work/$node/log")"
}

# kill_node NODE: SIGKILL for forebay, the server and all its processes, and waits until they are gone.
kill_node() {
    local processes=("${supervisor[$1]}") children=() process
    if [[ -n ${server[$1]:-} ]]; then
        read -r -a children 2>/dev/null <"/proc/${server[$1]}/task/${server[$1]}/children" || true
        processes+=("${server[$1]}" "${children[@]}")
    fi
    kill -KILL "${processes[@]}" 2>/dev/null || true
    for process in "${processes[@]}"; do
        while kill -0 "$process" 2>/dev/null; do sleep 0.01; done
    done
    unset "supervisor[$1]" "server[$1]"
}

# wait_until NODE QUERY: until it says t.
wait_until() {
    local try found
    for ((try = 0; try < 600; try++)); do
        found=$(sql "$1" <<<"$2" 2>/dev/null || true)
        [[ $found == t ]] && return
        sleep 0.1
    done
    die "the $1 does not say t to $2"
}

# write FROM TO NODE: inserts rows one after the other, and remembers those that were acknowledged. It ends with the server.
acknowledged=$work/acknowledged
write() {
    local n
    for ((n = $1; n < $2; n++)); do
        printf "INSERT INTO t VALUES (%d, 'value:%d');\n\\\\echo %d\n" "$n" $((n * 7919)) "$n"
    done | sql "$3" 2>>"$work/lost-connections" >>"$acknowledged" || true
}

# check NODE: asks for every acknowledged row.
check() {
    local missing
    missing=$(sql "$1" <<<'SELECT n FROM t WHERE v = '"'value:'"' || n * 7919' | sort | comm -13 - <(sort "$acknowledged") |
        tee "$work/missing" | wc -l)
    printf 'acknowledged %7d\nmissing      %7d\n' "$(wc -l <"$acknowledged")" "$missing"
    if ((missing)); then
        head -n 3 "$work/missing" >&2
        die "acknowledged rows are missing"
    fi
}

say "a primary, and a standby copied from it, each under forebay (pools emulated in memory: they survive a process crash, not a power cut)"
for node in primary standby; do "${as_user[@]}" mkdir "$work/$node"; done
"${as_user[@]}" "$programs/initdb" -D "$work/primary/data" --auth=trust --username=postgres --data-checksums --locale=C --encoding=UTF8 >"$work/initdb.log" ||
    die "$(tail -n 3 "$work/initdb.log")"
start primary
sql primary <<<'CREATE TABLE t (n bigint PRIMARY KEY, v text);'
"${as_user[@]}" "$programs/pg_basebackup" -h "$work/primary" -U postgres -D "$work/standby/data" --write-recovery-conf --checkpoint=fast
start standby
# From now on a transaction is acknowledged when the standby has it too, durably.
in_step="SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
# What is written is kept for the standby while it is away, and for the rewinding.
sql primary <<'SQL'
ALTER SYSTEM SET wal_keep_size = '512MB';
ALTER SYSTEM SET synchronous_standby_names = '*';
SELECT pg_reload_conf() AS reloaded \gset
SQL
wait_until primary "$in_step"
: >"$acknowledged"
write 0 "$rows" primary
check standby

say "SIGKILL of the standby and its supervisor amid writes, which wait for it: it comes back"
write "$rows" $((4 * rows)) primary &
writer=$!
wait_until primary "SELECT count(*) > $rows FROM t"
kill_node standby
start standby
wait "$writer"
check standby

say "SIGKILL of the primary and its supervisor amid writes: the standby is promoted"
write $((4 * rows)) $((50 * rows)) primary &
writer=$!
wait_until primary "SELECT count(*) > 4 * $rows FROM t"
kill_node primary
wait "$writer"
wait_until standby 'SELECT pg_promote()'
check standby
write $((50 * rows)) $((51 * rows)) standby

say "the old primary follows it: what its pool holds goes to its files, they are rewound to where the two parted, and it streams"
# Before a checkpoint the new one's control file names the old timeline, and pg_rewind finds nothing to do.
sql standby <<<'CHECKPOINT'
"${as_user[@]}" "$forebay" recover --for "$work/primary/data"
"${as_user[@]}" "$programs/pg_rewind" --target-pgdata="$work/primary/data" --write-recovery-conf \
    --source-server="host=$work/standby user=postgres dbname=postgres" >"$work/rewind.log" 2>&1 || die "$(tail -n 3 "$work/rewind.log")"
start primary
wait_until primary 'SELECT pg_is_in_recovery()'
sql standby <<'SQL'
ALTER SYSTEM SET synchronous_standby_names = '*';
SELECT pg_reload_conf() AS reloaded \gset
SQL
wait_until standby "$in_step"
write $((51 * rows)) $((52 * rows)) standby
check primary

say "both at once: they are what their files and pools say"
kill_node standby
kill_node primary
start standby
start primary
wait_until standby "$in_step"
check standby
"${as_user[@]}" "$forebay" status | sed -n '1,12p'
printf '\nNothing that was acknowledged is missing.\n'
