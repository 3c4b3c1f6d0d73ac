# The members of an etcd cluster on loopback, which the scripts of this directory source, with the directory of the repository in `repository`: each is behind a
# command of its own, and ends with the script.
# shellcheck shell=bash

target=${CARGO_TARGET_DIR:-$repository/target}
port=${PORT:-23800}
members=3

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
say() { printf '\n== %s\n' "$*"; }

forebay=${FOREBAY:-$target/release/forebay}
[[ -x $forebay ]] || forebay=$target/debug/forebay
[[ -x $forebay ]] || die "forebay is not built. Remedy: cargo build --release"
for program in etcd etcdctl python3; do
    command -v "$program" >/dev/null || die "$program is not installed. Remedy: scripts/setup.sh test"
done

# What a script has more to remove.
remove() { :; }

work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-etcd-XXXXXX")
memory=$(mktemp -d /dev/shm/forebay-etcd-XXXXXX)
export FOREBAY_RUN_DIR=$work/run ETCDCTL_API=3

# By member: the process of forebay, which leads a group of its own with its agent and etcd.
declare -A group=()

clean_up() {
    local member
    [[ -z ${writer:-} ]] || kill "$writer" 2>/dev/null || true
    for member in "${!group[@]}"; do
        kill -KILL -- "-${group[$member]}" 2>/dev/null || true
        killed "$member"
    done
    remove
    rm -rf "$work" "$memory"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

url() { printf 'http://127.0.0.1:%d' $((port + 2 * $1 + $2)); }
client() { url "$1" 0; }
peer() { url "$1" 1; }

# start MEMBER COMMAND...: behind a command, in a directory of its own.
start() {
    local member=$1 cluster='' other
    for ((other = 0; other < members; other++)); do cluster+=${cluster:+,}m$other=$(peer "$other"); done
    setsid "${@:2}" etcd --name "m$member" --data-dir "$work/$member/data" \
        --listen-client-urls "$(client "$member")" --advertise-client-urls "$(client "$member")" \
        --listen-peer-urls "$(peer "$member")" --initial-advertise-peer-urls "$(peer "$member")" --initial-cluster "$cluster" \
        >>"$work/$member.log" 2>&1 &
    group[$member]=$!
    # So that bash does not announce its death.
    disown
}

# under_forebay MEMBER POOL: starts it so.
under_forebay() { start "$1" "$forebay" run --front-end notify --pool "$2" --explain --; }

# wait_healthy MEMBER: until it serves, and so knows a leader.
wait_healthy() {
    local try
    for ((try = 0; try < 300; try++)); do
        kill -0 "${group[$1]}" 2>/dev/null || die "member $1 ended: $(tail -n 5 "$work/$1.log")"
        if etcdctl --endpoints "$(client "$1")" endpoint health >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    die "member $1 does not serve: $(tail -n 5 "$work/$1.log")"
}

# killed MEMBER: waits until all of a group is gone that was sent SIGKILL.
killed() {
    local try
    # Where nothing reaps orphans they stay as zombies.
    for ((try = 0; try < 1000; try++)); do
        ps -e -o pgid=,stat= | awk -v group="${group[$1]}" '$1 == group && $2 !~ /^Z/ { living = 1 } END { exit living }' && break
        sleep 0.01
    done
    unset "group[$1]"
}

# write FROM TO MEMBER: puts keys one after the other by a member, and remembers those that it acknowledged. What fails (there is no leader just then)
# is not remembered, and the next key is put.
acknowledged=$work/acknowledged
write() {
    python3 - "$1" "$2" $((port + 2 * $3)) >>"$acknowledged" <<'PYTHON'
import base64, http.client, json, sys

first, end, port = map(int, sys.argv[1:])
text = lambda words: base64.b64encode(words.encode()).decode()
connection = None
for n in range(first, end):
    try:
        connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", "/v3/kv/put", json.dumps({"key": text(f"key:{n}"), "value": text(f"value:{n}:{n * 7919}")}))
        answer = connection.getresponse()
        answer.read()
        if answer.status == 200:
            print(n, flush=True)
    except (OSError, http.client.HTTPException):
        connection = None
PYTHON
}

# check MEMBER: asks it for every acknowledged key.
check() {
    local missing
    missing=$(etcdctl --endpoints "$(client "$1")" get --prefix key: | awk -v acknowledged="$acknowledged" '
        NR % 2 { key = $0; next }
        { value[key] = $0 }
        END { while ((getline n < acknowledged) > 0) if (value["key:" n] != "value:" n ":" n * 7919) print n }' | tee "$work/missing" | wc -l)
    printf 'acknowledged %7d\nmissing      %7d\n' "$(wc -l <"$acknowledged")" "$missing"
    if ((missing)); then
        head -n 3 "$work/missing" >&2
        die "acknowledged writes are missing"
    fi
}

# agree: waits until all members have the same key space.
agree() {
    local endpoints='' member try hashes
    for ((member = 0; member < members; member++)); do endpoints+=${endpoints:+,}$(client "$member"); done
    for ((try = 0; try < 100; try++)); do
        hashes=$(etcdctl --endpoints "$endpoints" endpoint hashkv 2>/dev/null || true)
        if [[ $(wc -l <<<"$hashes") == "$members" && $(cut -d , -f 2 <<<"$hashes" | sort -u | wc -l) == 1 ]]; then
            printf '%s\nThe members agree.\n' "$hashes"
            return
        fi
        sleep 0.1
    done
    die "the members do not agree: $hashes"
}

