#!/usr/bin/env bash
# Compiles Forebay for arm64, and runs it with Debian's kernel and databases for arm64 in an emulated machine (lab/arm64).
#
#   test_arm64.sh [--from DIR | --deb FILE] [-- OPTION…]    takes forebay and libforebay.so of DIR, or what the package installs; options of python3 -m lab.arm64
#
# As root, with mmdebstrap, QEMU and Debian's archive. What is made once, Debian itself, stays in target/arm64.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath "${CARGO_TARGET_DIR:-target}")
triple=aarch64-unknown-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
from=
deb=
while (($#)) && [[ $1 != -- ]]; do
    case $1 in
    --from)
        from=$2
        shift 2
        ;;
    --deb)
        deb=$2
        shift 2
        ;;
    *)
        echo "test_arm64.sh: error: unknown argument: $1" >&2
        exit 2
        ;;
    esac
done
(($#)) && shift
((EUID == 0)) || {
    echo "test_arm64.sh: error: it needs root, to make Debian's files" >&2
    exit 1
}
if [[ -n $deb ]]; then
    exec python3 -m lab.arm64 --deb "$deb" --scratch "$target/arm64" "$@"
fi
if [[ -z $from ]]; then
    cargo build ${CI:+--locked} --target "$triple" -p forebay -p forebay-preload
    from=$target/$triple/debug
fi

programs=$target/arm64/programs
mkdir -p "$programs"
for name in forebay libforebay.so; do
    aarch64-linux-gnu-strip -o "$programs/$name" "$from/$name"
done
exec python3 -m lab.arm64 --programs "$programs" --scratch "$target/arm64" "$@"
