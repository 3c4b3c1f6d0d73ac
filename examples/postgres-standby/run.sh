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
# shellcheck source=examples/common.sh
source "$repository/examples/common.sh"
rows=${ROWS:-2000}

programs=${FOREBAY_POSTGRES_BIN:-$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)}
[[ -x $programs/postgres ]] || programs=$target/peers/bin
need "$programs"/{postgres,initdb,psql,pg_basebackup,pg_rewind}

begin standby
act_as postgres

# sql NODE: carries out what comes on standard input, each statement by itself, until one fails.
sql() { "$programs/psql" -h "$work/$1" -U postgres -d postgres -X -A -t -q -v ON_ERROR_STOP=1; }

# answers NODE: the server's process, once it answers. A standby does when it has recovered.
answers() {
    sql "$1" <<<'SELECT' >/dev/null 2>&1 && head -n 1 "$work/$1/data/postmaster.pid"
}

# start NODE: under forebay.
start() {
    make_pool "$1" 34MiB 8MiB
    "${as_user[@]}" "$forebay" run --pool "$memory/$1.pool" --explain -- "$programs/postgres" -D "$work/$1/data" \
        -c listen_addresses= -c "unix_socket_directories=$work/$1" -c jit=off -c dynamic_shared_memory_type=mmap >>"$work/$1/log" 2>&1 &
    started "$1"
}

# processes NODE: of forebay, of the server, and all that this one has.
processes() {
    local children=()
    printf '%s\n' "${supervisor[$1]}"
    if [[ -n ${server[$1]:-} ]]; then
        read -r -a children 2>/dev/null <"/proc/${server[$1]}/task/${server[$1]}/children" || true
        printf '%s\n' "${server[$1]}" "${children[@]}"
    fi
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
write() {
    local n
    for ((n = $1; n < $2; n++)); do
        printf "INSERT INTO t VALUES (%d, 'value:%d');\n\\\\echo %d\n" "$n" $((n * 7919)) "$n"
    done | sql "$3" 2>>"$work/lost-connections" >>"$acknowledged" || true
}

# check NODE: asks for every acknowledged row.
check() {
    sql "$1" <<<'SELECT n FROM t WHERE v = '"'value:'"' || n * 7919' | report_rows
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
