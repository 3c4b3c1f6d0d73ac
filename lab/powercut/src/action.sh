# What runs in the guest: `sh action NAME`. Serves until the power is cut. Forebay recovers by itself when it starts.
cd /data || exit
redis() {
    "$@" --port 6379 --bind 10.0.2.15 127.0.0.1 --protected-mode no --daemonize no --dir /data --save "" \
        --appendonly yes --auto-aof-rewrite-min-size 200kb --loglevel warning
}
# What stands before the server; then what is checked of it after a cut: verify or trust. Its data directory comes out of an archive, whole or not at all.
mariadb() {
    if [ ! -d /data/mariadb ]; then
        rm -rf /data/new
        mkdir /data/new
        tar -xzf /lab/mariadb.tgz -C /data/new && sync && mv /data/new /data/mariadb && sync
    fi
    check=$1
    shift
    # shellcheck disable=SC2086 # several options
    "$@" mariadbd --no-defaults --user=root --datadir=/data/mariadb/data --socket=/run/mariadb --pid-file=/run/mariadb.pid \
        --skip-networking --log-bin=changes --innodb-log-file-size=4M --innodb-buffer-pool-size=24M --aria-pagecache-buffer-size=8M \
        ${MARIADB_SYNC:---sync-binlog=1} > /run/mariadb.out 2>&1 &
    lab-server mariadb /run/mariadb "$check" || tail -n 30 /run/mariadb.out
}
# The same of PostgreSQL, which refuses to be root: it is user 1, and so is what stands before it; whose the pool and the data are.
postgres() {
    if [ ! -d /data/postgres ]; then
        rm -rf /data/new
        mkdir /data/new
        tar -xzf /lab/postgres.tgz -C /data/new && chown -R 1:1 /data/new && sync && mv /data/new /data/postgres && sync
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
under() { forebay run --pool "$POOL" "$@"; }
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
# Their damage is to be seen by the client.
mariadb-no-sync) MARIADB_SYNC='--sync-binlog=0 --innodb-flush-log-at-trx-commit=0' mariadb trust env ;;
mariadb-eatmydata) mariadb trust env LD_PRELOAD=/lab/libeatmydata.so ;;
postgres) postgres verify forebay run --pool "$POOL" -- ;;
postgres-plain) postgres verify env ;;
postgres-no-sync) POSTGRES_SYNC='-c synchronous_commit=off -c wal_writer_delay=10s' postgres trust env ;;
postgres-eatmydata) postgres trust env LD_PRELOAD=/lab/libeatmydata.so ;;
sqlite-processes) under --profile sqlite -- sqlite-processes-server /data/db ;;
sqlite-processes-eatmydata) LD_PRELOAD=/lab/libeatmydata.so sqlite-processes-server /data/db ;;
logs | logs-unregistered) under --profile generic --absorb '*.log' -- lab-server logs /data/db ;;
logs-plain) lab-server logs /data/db ;;
*) echo "LAB failed: no action $1" ;;
esac
