# What runs in the guest: `sh action NAME`. Serves until the power is cut. Forebay recovers by itself when it starts.
cd /data || exit
redis() {
    "$@" --port 6379 --bind 10.0.2.15 127.0.0.1 --protected-mode no --daemonize no --dir /data --save "" \
        --appendonly yes --auto-aof-rewrite-min-size 200kb --loglevel warning
}
# Processes are made to die, by a failpoint.
dies() { [ -n "${LAB_DIES:-}" ]; }
case ${FOREBAY_FAILPOINT:-} in *:die*) export LAB_DIES=yes ;; esac
# Its data directory comes out of an archive, whole or not at all.
mariadb_data() {
    if [ ! -d /data/mariadb ]; then
        rm -rf /data/new
        mkdir /data/new
        tar -xzf /lab/mariadb.tgz -C /data/new && sync -f /data && mv /data/new /data/mariadb && sync -f /data
    fi
}
# What stands before the server; then what is checked of it after a cut: verify or trust; or end, and then it is ended.
mariadb() {
    mariadb_data
    check=$1
    shift
    # shellcheck disable=SC2086 # several options
    while :; do
        "$@" mariadbd --no-defaults --user=root --datadir=/data/mariadb/data --socket=/run/mariadb --pid-file=/run/mariadb.pid \
            --skip-networking --log-bin=changes --innodb-log-file-size=4M --aria-pagecache-buffer-size=8M --innodb-undo-tablespaces=2 \
            ${MARIADB_BUFFERS:---innodb-buffer-pool-size=24M} ${MARIADB_SYNC:---sync-binlog=1} ${MARIADB_UNDO:-} >> /run/mariadb.out 2>&1
        dies || break
        # What stands before it may have died alone.
        while pidof mariadbd > /run/pids; do sleep 1; done
    done &
    lab-server "${MARIADB_CLIENT:-mariadb}" /run/mariadb "$check" || { tail -n 30 /run/mariadb.out; return 1; }
}
# Every page of the files that match has its checksum: none is torn.
checksums() {
    find /data/mariadb/data "$@" > /run/files
    while read -r file; do
        innochecksum "$file" > /run/checked 2>&1 || { echo "LAB failed: innochecksum $file: $(tail -n 3 /run/checked)"; return 1; }
    done < /run/files
}
# MariaDB with a buffer pool that is smaller than its data, page writes all the time, and no doublewrite buffer.
wide() {
    export MARIADB_CLIENT=mariadb-flash MARIADB_BUFFERS="--innodb-buffer-pool-size=6M --innodb-doublewrite=0 --innodb-io-capacity=4000
        --innodb-max-dirty-pages-pct=0 --innodb-max-dirty-pages-pct-lwm=0 --innodb-lru-scan-depth=100
        --innodb-buffer-pool-load-at-startup=0 --innodb-buffer-pool-dump-at-shutdown=0"
}
# Makes the cache larger, or small again: each time the other of the two, as the file's length says.
resize() {
    other=7000KiB
    [ "$(stat -c %s $cache)" -lt 6000000 ] || other=4900KiB
    forebay flash resize --flash $cache $other || echo "LAB failed: forebay flash resize"
}
# All its pages are behind a flash cache that turns round in seconds. What comes before the server that the client gets: $route. Failpoints are for
# that server, or, if $recovering says so, for what comes first.
mariadb_flash() {
    wide
    cache=/mnt/flash/cache
    # The start makes it small again, and takes back what a cut left of a request; with this route the server does what was asked for.
    size='--flash-size 4900KiB'
    if [ -e $cache.resize ] && [ "$route" = warm ]; then size=''; fi
    # At random moments an adaptive cache is cut, some of whose commits go the other way, or one that is gone around.
    later=${FOREBAY_FAILPOINT:-}
    case $later.$route in
    flash:around-* | .look) policy=around ;;
    .*) policy=adaptive ;;
    *) policy=back ;;
    esac
    # As forebay flash set keeps it, which would open the cache first.
    echo "{\"policy\":\"$policy\"}" > $cache.settings
    tier="forebay run --pool $POOL --flash $cache $size --"
    [ -n "${recovering:-}" ] || unset FOREBAY_FAILPOINT
    if [ ! -e $cache ]; then route=warm; fi
    if [ "$route" = look ]; then
        # shellcheck disable=SC2086 # several words
        mariadb end $tier || return
        wait
    fi
    if [ "$route" != warm ]; then
        forebay flash flush --flash $cache || { echo "LAB failed: forebay flash flush"; return; }
        # Of a file that was being made at the cut the database has promised nothing yet.
        if [ "$route" = flush ]; then
            checksums -name ibdata1 -o -name wide.ibd -o -name kv.ibd -o -name transactions.ibd || return
        else
            checksums -name 'ibdata*' -o -name '*.ibd' || return
        fi
    fi
    [ -z "$later" ] || export FOREBAY_FAILPOINT="$later"
    case ${recovering:-no}.$later in
    # The second one, if a cut left the first one all but done.
    yes.flash:lengthened=* | yes.flash:resize*) resize && resize ;;
    # Pages are cut off where an undo tablespace is truncated: once in a chain for each of the two.
    *.flash:tombstone*) MARIADB_UNDO='--innodb-undo-log-truncate=1 --innodb-max-undo-log-size=10M' ;;
    no.flash:lengthened=* | no.flash:resize*) while sleep 2; do ! netstat -nt | grep -q ':6379 .*ESTABLISHED' || resize; done & ;;
    esac
    rm -f $cache.status
    while sleep 1; do [ ! -e $cache.status ] || echo "LAB flash $(cat $cache.status)"; done &
    # shellcheck disable=SC2086 # several words
    mariadb verify $tier
}
# The same of PostgreSQL, which refuses to be root: it is user 1, and so is what stands before it; whose the pool and the data are.
postgres() {
    if [ ! -d /data/postgres ]; then
        rm -rf /data/new
        mkdir /data/new
        tar -xzf /lab/postgres.tgz -C /data/new && chown -R 1:1 /data/new && sync -f /data && mv /data/new /data/postgres && sync -f /data
    fi
    check=$1
    shift
    mkdir -p /run/postgres
    chown 1:1 "$POOL" /run/postgres
    export FOREBAY_RUN_DIR=/run/postgres
    # Of the boot before. Every boot numbers its processes alike, so the number in it may be a thread's of what stands before the server.
    rm -f /data/postgres/data/postmaster.pid
    # Called by its path: busybox has one of its own, which knows no users.
    # shellcheck disable=SC2086 # several options
    /lab/setpriv --reuid=1 --regid=1 --clear-groups "$@" /usr/lib/postgresql/*/bin/postgres -D /data/postgres/data -c listen_addresses= \
        -c unix_socket_directories=/run/postgres -c dynamic_shared_memory_type=mmap -c timezone=GMT -c log_timezone=GMT -c jit=off \
        -c shared_buffers=16MB -c max_connections=8 -c max_wal_size=4MB -c min_wal_size=2MB -c max_wal_senders=0 \
        ${POSTGRES_SYNC:-} > /run/postgres.out 2>&1 &
    lab-server postgres /run/postgres/.s.PGSQL.5432 "$check" || tail -n 30 /run/postgres.out
}
# What stands before the server.
etcd() {
    client=http://127.0.0.1:2379 peer=http://127.0.0.1:2380
    # shellcheck disable=SC2086 # one or none
    "$@" /lab/etcd --name one --data-dir /data/etcd --listen-client-urls $client --advertise-client-urls $client --listen-peer-urls $peer \
        --initial-advertise-peer-urls $peer --initial-cluster one=$peer ${ETCD_SYNC:-} > /run/etcd.out 2>&1 &
    # A cut of one that an agent does not serve would show nothing.
    while sleep 1; do ! grep -q 'runs plainly' /run/etcd.out || echo "LAB failed: $(grep 'runs plainly' /run/etcd.out)"; done &
    lab-server etcd 2379 || tail -n 30 /run/etcd.out
}
# The settings of NATS but for where it syncs; then what stands before the server.
nats() {
    sync=$1
    shift
    printf 'host: 127.0.0.1\nport: 4222\nserver_name: one\njetstream { store_dir: /data/nats, sync_interval: %s }\n' "$sync" > /run/nats.conf
    "$@" /lab/nats-server -c /run/nats.conf > /run/nats.out 2>&1 &
    while sleep 1; do ! grep -q 'runs plainly' /run/nats.out || echo "LAB failed: $(grep 'runs plainly' /run/nats.out)"; done &
    lab-server nats 4222 || tail -n 30 /run/nats.out
}
under() { forebay run --pool "$POOL" "$@"; }
# As long as there are orphans.
linger() { ! dies || while pidof "$1" > /run/pids; do sleep 1; done; }
mkdir -p /data/db
case $1 in
redis | redis-released-early | redis-no-checksum | redis-not-committed | redis-not-flushed) redis under -- redis-server --appendfsync always ;;
valkey) redis under -- valkey-server --appendfsync always ;;
redis-always) redis redis-server --appendfsync always ;;
redis-everysec) redis redis-server --appendfsync everysec ;;
redis-no) redis redis-server --appendfsync no ;;
redis-eatmydata) LD_PRELOAD=/lab/libeatmydata.so redis redis-server --appendfsync always ;;
store | store-no-checksum) lab-server store /data/db "$POOL" verify ;;
# Its damage is to be seen by the client, not by verify.
store-released-early) lab-server store /data/db "$POOL" trust ;;
rocksdb) under --profile rocksdb -- rocksdb-server /data/db ;;
sqlite) LAB_JOURNAL=wal under --profile sqlite -- sqlite-server /data/db ;;
sqlite-journal) LAB_JOURNAL=delete under --profile sqlite -- sqlite-server /data/db ;;
mariadb) mariadb verify forebay run --pool "$POOL" -- ;;
mariadb-plain) mariadb verify env ;;
mariadb-no-doublewrite) wide && mariadb verify forebay run --pool "$POOL" -- ;;
mariadb-flash | mariadb-flash-metadata-first | mariadb-flash-no-home-sync) mariadb_flash ;;
# Their damage is to be seen by the client.
mariadb-no-sync) MARIADB_SYNC='--sync-binlog=0 --innodb-flush-log-at-trx-commit=0' mariadb trust env ;;
mariadb-eatmydata) mariadb trust env LD_PRELOAD=/lab/libeatmydata.so ;;
postgres) postgres verify forebay run --pool "$POOL" -- ;;
postgres-plain) postgres verify env ;;
postgres-no-sync) POSTGRES_SYNC='-c synchronous_commit=off -c wal_writer_delay=10s' postgres trust env ;;
postgres-eatmydata) postgres trust env LD_PRELOAD=/lab/libeatmydata.so ;;
etcd | etcd-released-early) etcd under --front-end notify -- ;;
etcd-plain) etcd env ;;
etcd-no-sync) ETCD_SYNC=--unsafe-no-fsync etcd env ;;
nats | nats-released-early) nats always under --front-end notify -- ;;
nats-plain) nats always env ;;
# Its default.
nats-no-sync) nats 2m env ;;
sqlite-processes)
    under --profile sqlite -- sqlite-processes-server /data/db
    linger sqlite-processes-server
    ;;
sqlite-processes-eatmydata) LD_PRELOAD=/lab/libeatmydata.so sqlite-processes-server /data/db ;;
logs | logs-unregistered) under --profile generic --absorb '*.log' -- lab-server logs /data/db ;;
logs-plain) lab-server logs /data/db ;;
*) echo "LAB failed: no action $1" ;;
esac
