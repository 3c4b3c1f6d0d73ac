#!/usr/bin/env bash
# A hundred thousand logs of one run, open at a time in one process: killed, cut off and recovered. Where no process may have as
# many files open, in a kernel of its own that runs as a process of this one (user-mode Linux), on this machine's files.
set -euo pipefail
cd "$(dirname "$0")/.."

descriptors=201024
memory=12G
# That kernel maps each page of a process by itself.
mappings=16000000

cargo build ${CI:+--locked} -p forebay-files --example lab
test=$(cargo test ${CI:+--locked} -p forebay-files --test a_hundred_thousand --no-run --message-format json |
    jq -r 'select(.executable and .target.name == "a_hundred_thousand") | .executable')
run=("$test" --nocapture --ignored)
if [[ $(ulimit -Hn) == unlimited ]] || (($(ulimit -Hn) >= descriptors)) || prlimit --nofile="$descriptors" true 2>/dev/null; then
    exec "${run[@]}"
fi

((EUID == 0)) || {
    echo "test_many_files.sh: error: a process may have $(ulimit -Hn) files open here, and the test needs $descriptors: run it as root, in a kernel of its own" >&2
    exit 1
}
scratch=$(mktemp -d)
had=$(sysctl -n vm.max_map_count)
trap 'sysctl -q -w vm.max_map_count="$had"; rm -rf "$scratch"' EXIT
((had >= mappings)) || sysctl -q -w "vm.max_map_count=$mappings"
cat >"$scratch/init" <<EOF
#!/bin/sh
export PATH=$PATH
mount -t proc proc /proc
mkdir -p /dev/shm
mount -t tmpfs -o mode=1777,size=90%,nr_inodes=2000000 shm /dev/shm
mount -t tmpfs tmp /run
ulimit -Hn $descriptors && ulimit -n $descriptors
cd '$PWD' && ${run[*]@Q}
echo "status \$?"
echo o >/proc/sysrq-trigger
sleep 60
EOF
chmod +x "$scratch/init"
echo "in a kernel of its own, which takes some 40 minutes" >&2
# Its memory is a file there.
TMPDIR=/dev/shm linux.uml "mem=$memory" root=/dev/root rootfstype=hostfs rootflags=/ rw "init=$scratch/init" \
    con=null con0=null,fd:1 quiet </dev/null | tee "$scratch/log"
grep -q '^status 0' "$scratch/log"
