#!/usr/bin/env bash
# The OCI image of forebay for this machine's architecture, as an archive in target/image: made by buildah, without a daemon and without a base image.
#
#   image.sh                builds the programs first (release)
#   image.sh --from DIR     takes forebay and libforebay.so from DIR
#   SOURCE_DATE_EPOCH=N     the time of everything in it [default: that of the last commit]
#
# The same programs and the same time give the same bytes. Beside forebay it has the C library that the programs were linked with, as this machine has it, and busybox for
# `sh` and `cp`, by which an init container hands the programs on.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
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
        echo "image.sh: error: unknown argument: $1" >&2
        exit 2
        ;;
    esac
done
fail() {
    echo "image.sh: error: $*" >&2
    exit 1
}
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) fail "there is no image for $(uname -m)" ;;
esac
command -v buildah >/dev/null || fail "buildah is not in PATH, which makes the image: scripts/setup.sh image"
busybox=/bin/busybox
[[ -x $busybox ]] || fail "$busybox is not there, which is in the image: scripts/setup.sh image"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
out=$target/image
files=$out/files

[[ $build == no ]] || cargo build --release ${CI:+--locked} -p forebay -p forebay-preload
for program in forebay libforebay.so; do
    [[ -f $from/$program ]] || fail "$from has no $program. Build them (make image), or name a directory that has both: FROM=DIR"
done

rm -rf "$out"
mkdir -p "$files"/{usr/bin,usr/lib/forebay,bin,etc/forebay,tmp,usr/share/doc,var/lib/forebay}
strip --strip-unneeded -o "$files/usr/bin/forebay" "$from/forebay"
strip --strip-unneeded -o "$files/usr/lib/forebay/libforebay.so" "$from/libforebay.so"
install -m 644 packaging/forebay.toml "$files/etc/forebay/forebay.toml"

# The loader and the libraries, each where the loader looks for it on any distribution.
needed=$(ldd "$from/forebay" "$from/libforebay.so" | awk '/=> \// { print $3 } /^\t\// { print $1 }' | sort -u)
[[ -n $needed ]] || fail "ldd names no library of $from/forebay"
places=()
for library in $needed; do
    place=$library
    # Some of them lie in a directory that is a link on this machine.
    [[ $library == */ld-linux* ]] || place=/usr/lib/$(uname -m)-linux-gnu/${library##*/}
    install -D -m 755 "$library" "$files$place"
    places+=("$place")
done
install -m 755 "$busybox" "$files/bin/busybox"
for name in sh cp ls cat id mkdir chown rm test sleep; do
    ln -s busybox "$files/bin/$name"
done
for package in libc6 libgcc-s1 busybox-static busybox; do
    [[ ! -f /usr/share/doc/$package/copyright ]] || install -D -m 644 "/usr/share/doc/$package/copyright" "$files/usr/share/doc/$package/copyright"
done
install -D -m 644 LICENSE-MIT "$files/usr/share/doc/forebay/LICENSE-MIT"
install -D -m 644 LICENSE-APACHE "$files/usr/share/doc/forebay/LICENSE-APACHE"
printf 'root:x:0:0:root:/:/bin/sh\nforebay:x:65532:65532:forebay:/:/bin/sh\n' >"$files/etc/passwd"
printf 'root:x:0:\nforebay:x:65532:\n' >"$files/etc/group"
# Whatever the umask.
find "$files" -type d -exec chmod 755 {} +
find "$files" -type f ! -perm /111 -exec chmod 644 {} +
chmod 1777 "$files/tmp"
LC_ALL=C.UTF-8 chroot "$files" /usr/bin/forebay --version >"$out/said" 2>&1 || ((EUID != 0)) || fail "forebay does not run on what the image has (${places[*]}): $(cat "$out/said")"
rm -f "$out/said"

# A storage of its own, whatever this machine's is, and without a mount.
store=(buildah --log-level error --storage-driver vfs --root "$out/storage" --runroot "$out/run")
label=org.opencontainers.image
"${store[@]}" build --quiet --isolation chroot --format oci --timestamp "$epoch" --file packaging/Containerfile --tag "forebay:$version" \
    --label "$label.title=forebay" \
    --label "$label.description=Durable writes of databases at memory speed" \
    --label "$label.version=$version" \
    --label "$label.revision=$(git rev-parse HEAD)" \
    --label "$label.created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)" \
    --label "$label.licenses=MIT OR Apache-2.0" \
    "$files" >/dev/null
"${store[@]}" push --quiet "forebay:$version" "oci:$out/layout:forebay:$version"
"${store[@]}" rmi --all --force >/dev/null
archive=$out/forebay-$version-$arch.oci.tar
tar -C "$out/layout" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=go+rX,u+rw -cf "$archive" .
rm -rf "$out"/{storage,run,layout,files}
(cd "$out" && stat -c '%s bytes  %n' ./*.oci.tar && sha256sum ./*.oci.tar)
