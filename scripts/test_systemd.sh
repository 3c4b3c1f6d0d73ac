#!/usr/bin/env bash
# Makes packages of two versions, and takes Debian's units through their lives with them, under a real systemd in a virtual machine (lab/systemd).
#
#   test_systemd.sh [--from DIR] [-- OPTION…]    takes programs that are built (see package.sh); options of python3 -m lab.systemd
#
# As root, with mmdebstrap, QEMU and Debian's archive. What is made once, Debian itself, stays in target/systemd.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath "${CARGO_TARGET_DIR:-target}")
of_package=()
while (($#)) && [[ $1 != -- ]]; do
    of_package+=("$1")
    shift
done
(($#)) && shift
((EUID == 0)) || {
    echo "test_systemd.sh: error: it needs root, to make Debian's files" >&2
    exit 1
}
mkdir -p "$target/systemd"
for version in 0.0.2 0.0.1; do
    VERSION=$version scripts/package.sh "${of_package[@]}" >/dev/null
    cp "$target"/packages/forebay_"$version"_*.deb "$target/systemd/$version.deb"
    # The next one is of the same programs.
    [[ ${#of_package[@]} -gt 0 ]] || of_package=(--from "$target/release")
done
exec python3 -m lab.systemd --old "$target/systemd/0.0.1.deb" --new "$target/systemd/0.0.2.deb" --scratch "$target/systemd" "$@"
