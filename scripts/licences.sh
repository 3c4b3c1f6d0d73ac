#!/usr/bin/env bash
# Checks every dependency for our targets against deny.toml, without the internet: its licence is on the
# allow list, it comes from the Rust registry or from this repository, and no version is a wildcard.
# Two versions of one crate are reported, not refused.
set -euo pipefail
cd "$(dirname "$0")/.."

metadata=$(cargo metadata --format-version 1 --all-features \
    --filter-platform x86_64-unknown-linux-gnu --filter-platform aarch64-unknown-linux-gnu)
root=$(jq -r .workspace_root <<<"$metadata")
failures=0
fail() {
    printf 'licences: %s\n' "$*" >&2
    failures=$((failures + 1))
}

declare -A allowed=()
while read -r licence; do
    allowed[$licence]=1
done < <(sed -n '/^allow = \[/,/^\]/s/^ *"\(.*\)",\{0,1\}$/\1/p' deny.toml)
((${#allowed[@]})) || fail "deny.toml has no allow list that this script can read"

# is_allowed EXPRESSION: is the SPDX expression true when exactly the allowed licences are? Each licence
# becomes 1 or 0, and the shell's arithmetic does the rest; `/` is the old spelling of OR.
is_allowed() {
    local formula='' licence='' word
    for word in $(sed 's|[()]| & |g; s|/| OR |g' <<<"$1") ''; do
        case $word in
        WITH) licence+=' WITH' ;;
        '(' | ')' | AND | OR | '')
            if [[ -n $licence ]]; then
                formula+=" ${allowed[$licence]:-0}"
                licence=''
            fi
            case $word in
            AND) formula+=' &&' ;;
            OR) formula+=' ||' ;;
            *) formula+=" $word" ;;
            esac
            ;;
        *) licence+="${licence:+ }$word" ;;
        esac
    done
    ((formula))
}

count=0
while IFS=$'\t' read -r crate licence source manifest; do
    count=$((count + 1))
    if [[ $licence == none ]]; then
        fail "$crate names no licence"
    elif ! is_allowed "$licence"; then
        fail "$crate: \"$licence\" is not allowed by [licenses] in deny.toml"
    fi
    case $source in
    "registry+https://github.com/rust-lang/crates.io-index") ;;
    none) [[ $manifest == "$root"/* ]] || fail "$crate lies outside the repository: $manifest" ;;
    *) fail "$crate comes from $source, which [sources] in deny.toml does not allow" ;;
    esac
done < <(jq -r '.packages[]
    | [.name + " " + .version, .license // "none", .source // "none", .manifest_path] | @tsv' <<<"$metadata")

while IFS=$'\t' read -r crate dependency; do
    fail "$crate depends on any version of $dependency (*)"
done < <(jq -r '.packages[] | select(.source == null) | .name as $crate
    | .dependencies[] | select(.req == "*" and .path == null) | [$crate, .name] | @tsv' <<<"$metadata")

jq -r '.packages | group_by(.name)[] | select(length > 1)
    | "licences: note: \(length) versions of \(.[0].name): \(map(.version) | join(", "))"' <<<"$metadata"

((failures == 0)) || exit 1
printf 'licences: %s crates, all allowed\n' "$count"
