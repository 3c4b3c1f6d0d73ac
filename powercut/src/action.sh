# What runs in the guest: `sh action NAME`. Serves until the power is cut.
cd /data || exit
redis() {
    "$@" --port 6379 --bind 10.0.2.15 127.0.0.1 --protected-mode no --daemonize no --dir /data --save "" \
        --appendonly yes --auto-aof-rewrite-min-size 200kb --loglevel warning
}
case $1 in
redis-forebay) redis forebay run --pool "$POOL" -- redis-server --appendfsync always ;;
valkey-forebay) redis forebay run --pool "$POOL" -- valkey-server --appendfsync always ;;
redis-always) redis redis-server --appendfsync always ;;
redis-everysec) redis redis-server --appendfsync everysec ;;
redis-no) redis redis-server --appendfsync no ;;
redis-eatmydata) LD_PRELOAD=/lab/libeatmydata.so redis redis-server --appendfsync always ;;
*) echo "LAB failed: no action $1" ;;
esac
