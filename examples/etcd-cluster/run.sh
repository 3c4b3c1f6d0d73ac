#!/usr/bin/env bash
# An etcd cluster of three members on loopback, each under `forebay run --front-end notify` with a pool of its own. Writes, kills all processes of one
# member with SIGKILL in the middle, goes on without it, brings it back, and kills all three at once: nothing that was acknowledged may be missing, and
# the members must agree (the hash of their key spaces). Removes what it made; ends only what it started.
#
#   examples/etcd-cluster/run.sh            takes half a minute; exit status 1 if an acknowledged write is missing, or the members do not agree
#   PORT=2500 KEYS=20000 examples/etcd-cluster/run.sh
#
# Needs forebay built (cargo build --release), etcd, etcdctl and Python (scripts/setup.sh test).
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=examples/etcd-cluster/members.sh
source "$repository/examples/etcd-cluster/members.sh"
keys=${KEYS:-3000}

# serve MEMBER: under forebay, with a pool in memory.
serve() {
    local pool=$memory/$1.pool
    [[ -e $pool ]] || "$forebay" pool create "$pool" --emulated --size 5MiB --segment-size 1MiB >/dev/null
    under_forebay "$1" "$pool"
}

say "three members, each under forebay (pools emulated in memory: they survive a process crash, not a power cut)"
for ((member = 0; member < members; member++)); do serve "$member"; done
for ((member = 0; member < members; member++)); do wait_healthy "$member"; done
: >"$acknowledged"
write 0 "$keys" 0
check 1
agree

leader=0
for ((member = 0; member < members; member++)); do
    if etcdctl --endpoints "$(client "$member")" endpoint status --write-out json |
        python3 -c 'import json, sys; status = json.load(sys.stdin)[0]["Status"]; sys.exit(status["leader"] != status["header"]["member_id"])'; then
        leader=$member
    fi
done
other=$(((leader + 1) % members))
say "SIGKILL of all processes of member $leader, the leader, amid writes: the others elect another"
write "$keys" $((3 * keys)) "$other" &
writer=$!
before=$(wc -l <"$acknowledged")
while (($(wc -l <"$acknowledged") < before + 50)); do
    kill -0 "$writer" 2>/dev/null || die "the writer ended before it had 50 keys acknowledged"
    sleep 0.01
done
kill -KILL -- "-${group[$leader]}"
killed "$leader"
at_the_kill=$(wc -l <"$acknowledged")
wait "$writer"
(($(wc -l <"$acknowledged") > at_the_kill)) || die "no key was acknowledged after member $leader was killed"
check "$other"
say "member $leader comes back"
serve "$leader"
wait_healthy "$leader"
grep '^forebay: lane' "$work/$leader.log" | tail -n 1 || true
check "$leader"
agree

# Their page caches survive that: what is shown is that a recovery of all three does no harm.
say "all three at once: the cluster is what their files and pools say"
write $((3 * keys)) $((4 * keys)) "$leader"
for ((member = 0; member < members; member++)); do kill -KILL -- "-${group[$member]}"; done
for ((member = 0; member < members; member++)); do killed "$member"; done
for ((member = 0; member < members; member++)); do serve "$member"; done
for ((member = 0; member < members; member++)); do wait_healthy "$member"; done
check 2
agree
"$forebay" status | sed -n '1,12p'
printf '\nNothing that was acknowledged is missing.\n'
