#!/usr/bin/env bash
# The C library of the store: its header, its files, and the library that stands in LevelDB's place (docs/store-c.md).
#
#   store_c.sh --install PREFIX [--from DIR] [--destdir DIR]
#                        puts the header, libforebay_store.so and .a, and forebay-store.pc below PREFIX; without --from, builds them (release) first
#   store_c.sh --leveldb PREFIX
#                        adds libforebay_leveldb.so there; needs LevelDB's own header, which it is checked against
#   store_c.sh --header  writes crates/store-c/include/forebay/store.h anew, by cbindgen
#   store_c.sh --check   status 1 if that header is not what cbindgen would write
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
header=crates/store-c/include/forebay/store.h
target=${CARGO_TARGET_DIR:-target}

die() {
    printf 'store_c.sh: error: %s\n' "$*" >&2
    exit 1
}

# write_header FILE: as the sources have it.
write_header() {
    local cbindgen=$target/peers/bin/cbindgen
    [[ -x $cbindgen ]] || cbindgen=$(command -v cbindgen) || die "cbindgen is not there: scripts/setup.sh lint"
    "$cbindgen" --quiet --config crates/store-c/cbindgen.toml --output "$1" crates/store-c
}

# install_files PREFIX FROM DESTDIR
install_files() {
    local prefix=$1 from=$2 to=$3$1
    if [[ -z $from ]]; then
        cargo build --release ${CI:+--locked} -p forebay-store-c
        from=$target/release
    fi
    [[ -e $from/libforebay_store_c.so && -e $from/libforebay_store_c.a ]] ||
        die "$from has no libforebay_store_c.so and .a: cargo build -p forebay-store-c"
    install -D -m 644 "$header" "$to/include/forebay/store.h"
    install -D -m 644 "$from/libforebay_store_c.so" "$to/lib/libforebay_store.so.$version"
    install -D -m 644 "$from/libforebay_store_c.a" "$to/lib/libforebay_store.a"
    # The name that is linked in has the minor version: before 1.0 that is the interface's.
    ln -sf "libforebay_store.so.$version" "$to/lib/libforebay_store.so.${version%.*}"
    ln -sf "libforebay_store.so.${version%.*}" "$to/lib/libforebay_store.so"
    mkdir -p "$to/lib/pkgconfig"
    # Private: what a static link needs, as `rustc --print native-static-libs` has it.
    cat >"$to/lib/pkgconfig/forebay-store.pc" <<END
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: forebay-store
Description: An embedded key-value store with persistent memory in front of the disk
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lforebay_store
Libs.private: -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
END
}

# install_leveldb PREFIX: the library in LevelDB's place, for programs that are linked with it.
install_leveldb() {
    [[ -e $1/lib/libforebay_store.so ]] || die "$1/lib has no libforebay_store.so: --install $1 first"
    "${CC:-cc}" -std=c11 -D_GNU_SOURCE -O2 -fPIC -shared -Wall -Wextra -Werror -pthread -I"$1/include" -o "$1/lib/libforebay_leveldb.so" \
        crates/store-c/leveldb/leveldb.c -L"$1/lib" -lforebay_store -Wl,-soname,libforebay_leveldb.so "-Wl,-rpath,\$ORIGIN" -Wl,--no-undefined
}

action=${1:-}
case $action in
--header) write_header "$header" ;;
--check)
    made=$(mktemp)
    trap 'rm -f "$made"' EXIT
    write_header "$made"
    diff -u "$header" "$made" || die "$header is not what crates/store-c/src says: scripts/store_c.sh --header"
    ;;
--install)
    prefix=${2:?a prefix}
    from='' destdir=''
    shift 2
    while (($#)); do
        case $1 in
        --from) from=$2 ;;
        --destdir) destdir=$2 ;;
        *) die "unknown argument: $1" ;;
        esac
        shift 2
    done
    install_files "$prefix" "$from" "$destdir"
    ;;
--leveldb) install_leveldb "$(realpath "${2:?a prefix}")" ;;
*) die "give --install PREFIX, --leveldb PREFIX, --header or --check; the head of this script says what they do" ;;
esac
