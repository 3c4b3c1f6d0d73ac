#!/usr/bin/env bash
# The packages for this machine's architecture: .deb, .rpm and a tarball of forebay, and of its debug symbols, in target/packages.
#
#   package.sh                builds the programs first (release)
#   package.sh --from DIR     takes forebay and libforebay.so from DIR
#   VERSION=1.2.3             another version than that of Cargo.toml (a test's)
#
# What is in a package is laid out in target/packages/stage, and described in packaging/.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
from=$target/release
build=yes
while (($#)); do
    case $1 in
    --from)
        from=$2
        build=no
        shift 2
        ;;
    *)
        echo "package.sh: error: unknown argument: $1" >&2
        exit 2
        ;;
    esac
done
version=${VERSION:-$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)}
machine=$(uname -m)
case $machine in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*)
    echo "package.sh: error: there is no package for $machine" >&2
    exit 1
    ;;
esac
command -v nfpm >/dev/null || {
    echo "package.sh: error: nfpm is not in PATH, which makes the packages: scripts/setup.sh packages" >&2
    exit 1
}
out=$target/packages
stage=$out/stage

if [[ $build == yes ]]; then
    cargo build --release ${CI:+--locked} -p forebay -p forebay-preload
fi

# strip_into PROGRAM TO: the program without its debug symbols, and these by its build id.
strip_into() {
    local id debug
    install -D -m 755 "$1" "$2"
    id=$(readelf -n "$1" | sed -n 's/^ *Build ID: //p')
    [[ -n $id ]] || {
        echo "package.sh: error: $1 has no build id, by which its debug symbols are found" >&2
        exit 1
    }
    debug=$stage/debug/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
    mkdir -p "$(dirname "$debug")"
    objcopy --only-keep-debug --compress-debug-sections "$1" "$debug"
    chmod 644 "$debug"
    strip --strip-unneeded "$2"
}

rm -rf "$out"
mkdir -p "$out"
files=$stage/forebay
strip_into "$from/forebay" "$files/usr/bin/forebay"
strip_into "$from/libforebay.so" "$files/usr/lib/forebay/libforebay.so"
chmod 644 "$files/usr/lib/forebay/libforebay.so"

"$from/forebay" man --dir "$files/usr/share/man/man1"
find "$files/usr/share/man" -name '*.1' -exec gzip -9n {} +
completions() {
    mkdir -p "$(dirname "$files/$2")"
    "$from/forebay" completions "$1" >"$files/$2"
}
completions bash usr/share/bash-completion/completions/forebay
completions zsh usr/share/zsh/vendor-completions/_forebay
completions fish usr/share/fish/vendor_completions.d/forebay.fish

unit=$files/usr/lib/systemd/system/forebay-recover@.service
mkdir -p "$(dirname "$unit")"
sed 's#/usr/local/bin/forebay#/usr/bin/forebay#' 'examples/systemd/forebay-recover@.service' >"$unit"
install -D -m 644 packaging/forebay.toml "$stage/config/forebay.toml"

doc=$files/usr/share/doc/forebay
mkdir -p "$doc" "$stage/debug/usr/share/doc/forebay-dbgsym"
gzip -9nc CHANGELOG.md >"$doc/CHANGELOG.md.gz"
printf 'forebay (%s) unstable; urgency=medium\n\n  * CHANGELOG.md.gz, beside this file, has what changed.\n\n -- %s  %s\n' \
    "$version" "$(sed -n 's/^maintainer: //p' packaging/nfpm.yaml)" "$(date -R -u -d "@$(git log -1 --format=%ct)")" | gzip -9n >"$doc/changelog.gz"
# What lintian says of the packages and is as it should be: no address has been published yet, and nfpm writes a field of its own.
overrides() {
    mkdir -p "$2/usr/share/lintian/overrides"
    printf "$1: %s\n" bogus-mail-host bogus-mail-host-in-debian-changelog 'unknown-field License' >"$2/usr/share/lintian/overrides/$1"
}
overrides forebay "$files"
overrides forebay-dbgsym "$stage/debug"
cp docs/install.md docs/operations.md docs/monitoring.md docs/durability.md "$doc/"
cp -r contrib/monitoring "$doc/"
cp -r docs/databases "$doc/"
{
    echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
    echo
    echo 'Files: *'
    echo 'Copyright: The Forebay project'
    echo 'License: MIT or Apache-2.0'
    sed 's/^$/./; s/^/ /' LICENSE-MIT
    echo ' .'
    echo ' On Debian systems the text of the Apache License, version 2.0, is in /usr/share/common-licenses/Apache-2.0.'
} >"$doc/copyright"
cp "$doc/copyright" "$stage/debug/usr/share/doc/forebay-dbgsym/copyright"
sed 's/^forebay (/forebay-dbgsym (/' <(zcat "$doc/changelog.gz") | gzip -9n >"$stage/debug/usr/share/doc/forebay-dbgsym/changelog.gz"
# Whatever the umask: a link to a directory that others may write to would be theirs.
find "$stage" -type d -exec chmod 755 {} +
find "$stage" -type f ! -perm /111 -exec chmod 644 {} +

# The newest version of the C library of which the programs need something.
glibc=$(objdump -T "$files/usr/bin/forebay" "$files/usr/lib/forebay/libforebay.so" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1)

for name in nfpm nfpm-debug; do
    sed "s#@arch@#$arch#; s#@version@#$version#; s#@stage@#$stage#; s#@glibc@#$glibc#" "packaging/$name.yaml" >"$out/$name.yaml"
    for kind in deb rpm; do
        nfpm package --config "$out/$name.yaml" --packager "$kind" --target "$out/" >/dev/null
    done
done
install -D -m 644 "$stage/config/forebay.toml" "$files/etc/forebay/forebay.toml"
tar -C "$files" --owner=0 --group=0 --sort=name -czf "$out/forebay-$version-$arch.tar.gz" .

echo "forebay          $(stat -c %s "$from/forebay") bytes, stripped $(stat -c %s "$files/usr/bin/forebay")"
echo "libforebay.so    $(stat -c %s "$from/libforebay.so") bytes, stripped $(stat -c %s "$files/usr/lib/forebay/libforebay.so")"
(cd "$out" && stat -c '%s bytes  %n' ./*.deb ./*.rpm ./*.tar.gz)
