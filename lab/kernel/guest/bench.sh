# bench.sh NAME COUNT POOL-OPTIONS COUNTER UNDER...: starts a database at /data/NAME, writes COUNT times by one client and by eight, ends it. Sourced
# after stack.sh, with SETTLE. Prints lines: what is measured, then figures.
name=$1 count=$2 pool_options=$3 counter=$4
shift 4
under=("$@")
export FOREBAY_RUN_DIR=/run/forebay-$name
mkdir -p "/data/$name" "$FOREBAY_RUN_DIR"
user=root
[[ $name != postgres ]] || user=postgres
as=(setpriv --reuid "$user" --regid "$user" --clear-groups)

start() {
    cd "/data/$name" || exit
    "${as[@]}" "${under[@]}" "$@" >"/tmp/$name.said" 2>&1 </dev/null &
    server=$!
}
# Ready when the words succeed.
await() {
    until "$@" >/dev/null 2>&1; do
        kill -0 "$server" || { cat "/tmp/$name.said"; exit 1; }
        sleep 0.05
    done
}
measured() { echo "measured $1 $(block_bytes "$DISK") $(eval "$counter")"; }

if [[ $name == postgres ]]; then
    cp -a /var/lib/cluster /data/postgres/base
    sync
fi
chown -R $user "/data/$name" "$FOREBAY_RUN_DIR"
if [[ -n $pool_options ]]; then
    # shellcheck disable=SC2086 # several words
    "${as[@]}" forebay pool create "/fast/$name.pool" $pool_options >/dev/null
fi
eval "$SETTLE"
case $name in
redis)
    start redis-server --dir /data/redis --save '' --appendonly yes --appendfsync always
    await redis-cli ping
    await test -e appendonlydir/appendonly.aof.manifest
    benchmark() { echo "redis $1 $(redis-benchmark -t set -d 100 -r 100000 -n "$2" -c "$1" --precision 3 --csv | tail -n 1)"; }
    redis-benchmark -t set -n 20 -q >/dev/null
    ;;
postgres)
    start postgres -D /data/postgres/base -k /tmp -c listen_addresses= -c jit=off -c dynamic_shared_memory_type=mmap -c shared_memory_type=mmap
    await psql -h /tmp -U postgres -c 'select 1'
    benchmark() {
        rm -f /tmp/latencies*
        local rate
        rate=$(pgbench -h /tmp -U postgres -n -N -c "$1" -j 1 -t "$(($2 / $1))" -l --log-prefix /tmp/latencies postgres 2>&1 | sed -n 's/^tps = \([0-9.]*\).*/\1/p')
        echo "postgres $1 $rate $(percentiles)"
    }
    percentiles() { awk '{ print $3 }' /tmp/latencies* | sort -n | awk '{ at[NR] = $1 } END { print at[int((NR + 1) / 2)], at[int(NR * 0.99 + 0.999)] }'; }
    pgbench -h /tmp -U postgres -n -N -t 10 postgres >/dev/null 2>&1
    ;;
sqlite)
    start python3 /parcel/commits.py serve
    await test -S /run/commits
    # One writer at a time is all that it has.
    benchmark() { (($1 > 1)) || echo "sqlite $1 $(python3 /parcel/commits.py "$2")"; }
    python3 /parcel/commits.py 10 >/dev/null
    ;;
esac
measured begin
benchmark 1 "$count"
measured one
benchmark 8 "$((count * 2))"
measured eight
kill -TERM "$server"
wait "$server"
eval "$SETTLE"
echo "measured end $(block_bytes "$DISK") 0"
