# What the examples of several servers share: each sources this, from the directory of the repository in `repository`. It has the nodes of a cluster, each a server
# under `forebay run` in a directory and with a pool of its own, and ends what it started.
# shellcheck shell=bash

target=${CARGO_TARGET_DIR:-$repository/target}
forebay=${FOREBAY:-$target/release/forebay}

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
say() { printf '\n== %s\n' "$*"; }

# need PROGRAM...: forebay, and these.
need() {
    local program
    [[ -x $forebay ]] || forebay=$target/debug/forebay
    [[ -x $forebay ]] || die "forebay is not built. Remedy: cargo build --release"
    for program in "$@"; do
        command -v "$program" >/dev/null || die "$program is not installed. Remedy: scripts/setup.sh demo"
    done
}

# By node: the process of forebay, and of its server.
declare -A supervisor=() server=()
# What runs a command as another user, where root's servers do not run.
as_user=()

# begin NAME: makes the directories, which go away at the end with all that runs.
begin() {
    work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-$1-XXXXXX")
    memory=$(mktemp -d "/dev/shm/forebay-$1-XXXXXX")
    export FOREBAY_RUN_DIR=$work/run
    acknowledged=$work/acknowledged
    trap clean_up EXIT
    trap 'exit 130' INT TERM
}

clean_up() {
    local node
    for node in "${!supervisor[@]}"; do kill_node "$node"; done
    rm -rf "$work" "$memory"
}

# act_as USER: as this one, or nobody, if this is root.
act_as() {
    local user=$1
    ((EUID == 0)) || return 0
    id "$user" >/dev/null 2>&1 || user=nobody
    as_user=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups)
    chown "$user" "$work" "$memory"
    "${as_user[@]}" test -x "$forebay" || die "$user cannot run $forebay: have it lie where others may read"
}

# make_pool NODE SIZE SEGMENT-SIZE: unless it has one.
make_pool() {
    [[ -e $memory/$1.pool ]] ||
        "${as_user[@]}" "$forebay" pool create "$memory/$1.pool" --emulated --size "$2" --segment-size "$3" >/dev/null
}

# started NODE: the last command in the background is its supervisor. Waits until `answers NODE` says the server's process.
started() {
    local node=$1 try found
    supervisor[$node]=$!
    # So that bash does not announce its death.
    disown
    for ((try = 0; try < 3000; try++)); do
        kill -0 "${supervisor[$node]}" 2>/dev/null || die "node $node ended: $(tail -n 5 "$work/$node/log")"
        if found=$(answers "$node"); then
            server[$node]=$found
            return
        fi
        sleep 0.02
    done
    die "node $node does not answer: $(tail -n 5 "$work/$node/log")"
}

# processes NODE: of forebay and of its server.
processes() { printf '%s\n' "${supervisor[$1]}" ${server[$1]:+"${server[$1]}"}; }

# wait_gone NODE PROCESS...: until these are gone, which are about to end.
wait_gone() {
    local node=$1 process
    for process in "${@:2}"; do
        while kill -0 "$process" 2>/dev/null; do sleep 0.01; done
    done
    unset "supervisor[$node]" "server[$node]"
}

# kill_node NODE: SIGKILL for all that it has, and waits until it is gone.
kill_node() {
    local all
    mapfile -t all < <(processes "$1")
    kill -KILL "${all[@]}" 2>/dev/null || true
    wait_gone "$1" "${all[@]}"
}

# report WHAT: of what was acknowledged, $work/missing has what is missing.
report() {
    local missing
    missing=$(wc -l <"$work/missing")
    printf 'acknowledged %7d\nmissing      %7d\n' "$(wc -l <"$acknowledged")" "$missing"
    if ((missing)); then
        head -n 3 "$work/missing" >&2
        die "acknowledged $1 are missing"
    fi
}

# report_rows: those that standard input does not have, each by its number.
report_rows() {
    sort | comm -13 - <(sort "$acknowledged") >"$work/missing"
    report rows
}
