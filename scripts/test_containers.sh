#!/usr/bin/env bash
# Makes forebay's image twice, which must be the same, and takes databases through the lives of containers with it (lab/containers).
#
#   test_containers.sh [--from DIR] [-- OPTION…]    takes programs that are built (see image.sh); options of python3 -m lab.containers
#
# As root, with podman, mmdebstrap and Debian's archive. What is made once, Debian's image, stays in target/containers.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
of_image=()
while (($#)) && [[ $1 != -- ]]; do
    of_image+=("$1")
    shift
done
(($#)) && shift
fail() {
    echo "test_containers.sh: FAILED: $*" >&2
    exit 1
}
((EUID == 0)) || fail "it needs root, for cut-off disks and for the limits of containers"
mkdir -p "$target/containers"
sums=()
for _ in once twice; do
    scripts/image.sh "${of_image[@]}"
    sums+=("$(sha256sum <"$(echo "$target"/image/*.oci.tar)")")
    # The next one is of the same programs.
    [[ ${#of_image[@]} -gt 0 ]] || of_image=(--from "$target/release")
done
[[ ${sums[0]} == "${sums[1]}" ]] || fail "two images of the same programs differ"
musl-gcc -O1 -o "$target/containers/appender" lab/containers/image/appender.c
exec "$target/peers/venv/bin/python" -m lab.containers --image "$(echo "$target"/image/*.oci.tar)" --musl-program "$target/containers/appender" --scratch "$target/containers" "$@"
