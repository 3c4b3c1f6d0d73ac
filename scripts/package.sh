#!/usr/bin/env bash
# The packages for this machine's architecture, in target/packages: .deb, .rpm and a tarball of forebay, .deb and .rpm of forebay-lab, and of the debug symbols of
# each.
#
#   ARCH=arm64                for that architecture instead, by a cross compiler; in target/packages-arm64, without forebay-lab
#   package.sh                builds the programs first (release)
#   package.sh --from DIR     takes forebay and libforebay.so from DIR, and what forebay-lab has; without that, there is no package of it
#   VERSION=1.2.3             another version than that of Cargo.toml (a test's)
#
# What is in a package is laid out in target/packages/stage, and described in packaging/.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
from=
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
x86_64) native=amd64 ;;
aarch64) native=arm64 ;;
*) native=$machine ;;
esac
# As Debian names it; a shell may have it as the kernel does.
case ${ARCH:-$native} in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) arch=${ARCH:-$native} ;;
esac
out=$target/packages
# Of another architecture: how its files are changed, and its programs run.
tools=
emulator=()
built=$target/release
options=(-p forebay -p forebay-preload)
case $arch-$native in
amd64-amd64 | arm64-arm64) options+=(-p forebay-lab -p forebay-lab-preload -p forebay-peers) ;;
arm64-amd64)
    tools=aarch64-linux-gnu-
    emulator=(qemu-aarch64 -L /usr/aarch64-linux-gnu)
    command -v "${tools}gcc" "${emulator[0]}" >/dev/null || {
        echo "package.sh: error: ${tools}gcc and ${emulator[0]} are not both in PATH, which packages for arm64 take: scripts/setup.sh aarch64" >&2
        exit 1
    }
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=${tools}gcc
    options+=(--target aarch64-unknown-linux-gnu)
    built=$target/aarch64-unknown-linux-gnu/release
    out=$out-$arch
    ;;
*)
    echo "package.sh: error: there is no package for $arch that $native can make: amd64 is made on amd64, arm64 on both" >&2
    exit 1
    ;;
esac
from=${from:-$built}
command -v nfpm >/dev/null || {
    echo "package.sh: error: nfpm is not in PATH, which makes the packages: scripts/setup.sh packages" >&2
    exit 1
}
stage=$out/stage

if [[ $build == yes ]]; then
    cargo build --release ${CI:+--locked} "${options[@]}"
fi

# strip_into PROGRAM TO DEBUG: the program without its debug symbols, and these by its build id, below DEBUG.
strip_into() {
    local id debug
    install -D -m 755 "$1" "$2"
    id=$("${tools}readelf" -n "$1" | sed -n 's/^ *Build ID: //p')
    [[ -n $id ]] || {
        echo "package.sh: error: $1 has no build id, by which its debug symbols are found" >&2
        exit 1
    }
    debug=$3/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
    mkdir -p "$(dirname "$debug")"
    "${tools}objcopy" --only-keep-debug --compress-debug-sections "$1" "$debug"
    chmod 644 "$debug"
    "${tools}strip" --strip-unneeded "$2"
    printf '%-20s %s bytes, stripped %s\n' "${1##*/}" "$(stat -Lc %s "$1")" "$(stat -c %s "$2")"
}

# help_of PROGRAM FILES: its manual pages and completions, below FILES.
help_of() {
    local name=${1##*/} to
    "${emulator[@]}" "$1" man --dir "$2/usr/share/man/man1" || {
        echo "package.sh: error: $1 man, which makes the manual pages, failed: is it of another version than this repository? Remedy: build it anew" >&2
        exit 1
    }
    find "$2/usr/share/man" -name '*.1' -exec gzip -9n {} +
    for to in bash:bash-completion/completions/$name zsh:zsh/vendor-completions/_$name fish:fish/vendor_completions.d/$name.fish; do
        mkdir -p "$(dirname "$2/usr/share/${to#*:}")"
        "${emulator[@]}" "$1" completions "${to%%:*}" >"$2/usr/share/${to#*:}" || {
            echo "package.sh: error: $1 completions ${to%%:*} failed: is it of another version than this repository? Remedy: build it anew" >&2
            exit 1
        }
    done
}

rm -rf "$out"
mkdir -p "$out"
files=$stage/forebay
strip_into "$from/forebay" "$files/usr/bin/forebay" "$stage/forebay-dbgsym"
strip_into "$from/libforebay.so" "$files/usr/lib/forebay/libforebay.so" "$stage/forebay-dbgsym"
help_of "$from/forebay" "$files"
names=(forebay)
if [[ -x $from/forebay-lab && -e $from/libforebay_lab.so && -x $from/forebay-peers ]]; then
    names+=(forebay-lab)
    for name in forebay-lab forebay-peers; do
        strip_into "$from/$name" "$stage/forebay-lab/usr/bin/$name" "$stage/forebay-lab-dbgsym"
    done
    strip_into "$from/libforebay_lab.so" "$stage/forebay-lab/usr/lib/forebay/libforebay_lab.so" "$stage/forebay-lab-dbgsym"
    help_of "$from/forebay-lab" "$stage/forebay-lab"
else
    echo "package.sh: no package of forebay-lab: $from has not all of forebay-lab, forebay-peers and libforebay_lab.so" >&2
fi
chmod 644 "$stage"/*/usr/lib/forebay/*.so

install -D -m 644 'examples/systemd/forebay-recover@.service' "$files/usr/lib/systemd/system/forebay-recover@.service"
install -D -m 644 packaging/forebay.toml "$stage/config/forebay.toml"

# documents_of PACKAGE: what Debian's policy has in each, and lintian's findings that are as they should be: no address has been published yet, nfpm writes a field of
# its own, forebay-peers is no command for people, and in /tmp prerm removes directories that are empty, whosever they are.
documents_of() {
    local committed date doc=$stage/$1/usr/share/doc/$1 overrides=$stage/$1/usr/share/lintian/overrides
    mkdir -p "$doc" "$overrides"
    # A variable each: in a nested substitution a failure would be lost.
    committed=$(git log -1 --format=%ct)
    date=$(date -R -u -d "@$committed")
    printf '%s (%s) unstable; urgency=medium\n\n  * CHANGELOG.md.gz of the package forebay has what changed.\n\n -- %s  %s\n' \
        "$1" "$version" "$(sed -n 's/^maintainer: //p' packaging/nfpm.yaml)" "$date" | gzip -9n >"$doc/changelog.gz"
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
    printf "$1: %s\n" bogus-mail-host bogus-mail-host-in-debian-changelog 'unknown-field License' >"$overrides/$1"
    [[ $1 != forebay ]] || echo 'forebay: possibly-insecure-handling-of-tmp-files-in-maintainer-script /tmp [prerm:*]' >>"$overrides/$1"
    [[ $1 != forebay-lab ]] || echo 'forebay-lab: no-manual-page [usr/bin/forebay-peers]' >>"$overrides/$1"
}
for name in "${names[@]}"; do
    documents_of "$name"
    documents_of "$name-dbgsym"
done
doc=$files/usr/share/doc/forebay
gzip -9nc CHANGELOG.md >"$doc/CHANGELOG.md.gz"
cp docs/install.md docs/removal.md docs/failures.md docs/operations.md docs/monitoring.md docs/durability.md "$doc/"
cp -r contrib/monitoring "$doc/"
cp -r docs/databases "$doc/"
# Whatever the umask: a link to a directory that others may write to would be theirs.
find "$stage" -type d -exec chmod 755 {} +
find "$stage" -type f ! -perm /111 -exec chmod 644 {} +

# glibc_of DIR: the newest version of the C library of which its programs need something.
glibc_of() {
    find "$1/usr/bin" "$1/usr/lib/forebay" -type f -exec "${tools}objdump" -T {} + | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1
}

# pack NAME OF: the packages that packaging/nfpm-OF.yaml, or for none nfpm.yaml, describes, under a name.
pack() {
    local glibc=
    [[ $2 == -debug ]] || glibc=$(glibc_of "$stage/$1")
    sed "s#@name@#$1#g; s#@arch@#$arch#; s#@version@#$version#; s#@stage@#$stage#; s#@glibc@#$glibc#" "packaging/nfpm$2.yaml" >"$out/$1$2.yaml"
    for kind in deb rpm; do
        nfpm package --config "$out/$1$2.yaml" --packager "$kind" --target "$out/" >/dev/null
    done
}
pack forebay ''
[[ ${#names[@]} -eq 1 ]] || pack forebay-lab -lab
for name in "${names[@]}"; do
    pack "$name" -debug
done
install -D -m 644 "$stage/config/forebay.toml" "$files/etc/forebay/forebay.toml"
tar -C "$files" --owner=0 --group=0 --sort=name -czf "$out/forebay-$version-$arch.tar.gz" .

(cd "$out" && stat -c '%s bytes  %n' ./*.deb ./*.rpm ./*.tar.gz)
