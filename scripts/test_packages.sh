#!/usr/bin/env bash
# Installs the .deb into a fresh Debian 12, uses it with Redis, upgrades it under a running server, and removes it: refused while
# a pool holds acknowledged writes, and allowed once nothing is left. Then the .rpm, with its own words for scripts, and the tarball, removed as docs/removal.md says.
#
#   test_packages.sh [--from DIR]    takes programs that are built (see package.sh)
#
# As root, with mmdebstrap and Debian's archive, or a copy of what FOREBAY_TEST_DEBIAN names. The system lies in target/packages-test, and is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath "${CARGO_TARGET_DIR:-target}")
root=$target/packages-test/root
fail() {
    echo "test_packages.sh: FAILED: $*" >&2
    exit 1
}
say() { echo "--- $*"; }
((EUID == 0)) || fail "it needs root, for a chroot"

# A network of its own, without which the runs of this machine would be seen in there.
net=$target/packages-test/net
supervisor=
clean_up() {
    local place
    # The server goes with what it writes to; its supervisor when it is gone.
    if [[ -n $supervisor ]]; then
        pkill -KILL -P "$supervisor" || true
        kill -KILL "$supervisor" 2>/dev/null || true
        wait "$supervisor" 2>/dev/null || true
    fi
    umount -l "$net" 2>/dev/null || true
    for place in dev/shm dev proc; do
        mountpoint -q "$root/$place" && umount -l "$root/$place"
    done
    rm -rf "$target/packages-test"
}
trap clean_up EXIT
rm -rf "$target/packages-test"
mkdir -p "$target/packages-test"

say "packages of two versions"
VERSION=0.0.2 scripts/package.sh "$@"
cp "$target"/packages/forebay_0.0.2_*.deb "$target/packages-test/new.deb"
cp "$target"/packages/forebay-0.0.2-*.rpm "$target/packages-test/new.rpm"
VERSION=0.0.1 scripts/package.sh "$@" >/dev/null
cp "$target"/packages/forebay_0.0.1_*.deb "$target/packages-test/old.deb"
cp "$target"/packages/forebay-0.0.1-*.rpm "$target/packages-test/old.rpm"
cp "$target"/packages/forebay-dbgsym_0.0.1_*.deb "$target/packages-test/symbols.deb"
tarball=$(echo "$target"/packages/forebay-0.0.1-*.tar.gz)

say "lintian"
lintian --allow-root --fail-on error,warning "$target"/packages/*.deb

say "a fresh Debian 12 with Redis"
if [[ -n ${FOREBAY_TEST_DEBIAN:-} ]]; then
    cp -a "$FOREBAY_TEST_DEBIAN" "$root"
else
    # In mounts of its own: killed, it would leave those of the host there, and $root is removed.
    unshare --mount mmdebstrap --quiet --variant=minbase --include=redis-server,procps,python3-minimal,rpm,gdb-minimal bookworm "$root"
fi
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs -o mode=1777,size=512m tmpfs "$root/dev/shm"
cp "$target"/packages-test/*.{deb,rpm} "$root/root/"
touch "$net"
unshare --net="$net" true
inside() { nsenter --net="$net" chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }

say "install"
inside dpkg -i /root/old.deb
inside forebay --version | grep -q '^forebay ' || fail "forebay does not run"
for file in /usr/share/man/man1/forebay-run.1.gz /usr/share/bash-completion/completions/forebay /etc/forebay/forebay.toml \
    /usr/lib/systemd/system/forebay-recover@.service; do
    [[ -f $root$file ]] || fail "$file is not installed"
done

say "debug symbols, in a package of their own"
# lines_of PROGRAM FUNCTION FILES: gdb knows the function's lines in the sources.
# All of it is read: who prints to a pipe that is closed fails.
lines_of() { inside gdb -nx -batch -ex "info line $2" "$1" 2>&1 | grep "$3" >/dev/null; }
! lines_of /usr/bin/forebay main crates/cli/src || fail "the command has its own debug symbols"
inside dpkg -i /root/symbols.deb
lines_of /usr/bin/forebay main crates/cli/src || fail "gdb finds no line of the command"
lines_of /usr/lib/forebay/libforebay.so fsync crates/preload/src || fail "gdb finds no line of the library"
inside dpkg -P forebay-dbgsym

if compgen -G "$target/packages/forebay-lab_*.deb" >/dev/null; then
    say "install, use and remove forebay-lab"
    cp "$target"/packages/forebay-lab_0.0.1_*.deb "$root/root/lab.deb"
    inside dpkg -i /root/lab.deb
    inside forebay-lab --version | grep -q '^forebay-lab ' || fail "forebay-lab does not run"
    inside forebay-lab pool --quick --json >/dev/null || fail "forebay-lab measures no pool"
    for file in /usr/share/man/man1/forebay-lab-redis.1.gz /usr/share/bash-completion/completions/forebay-lab; do
        [[ -f $root$file ]] || fail "$file is not installed"
    done
    inside dpkg -P forebay-lab
fi

say "enable"
sed -i 's/^appendonly .*/appendonly yes/; s/^appendfsync .*/appendfsync always/; s/^port .*/port 0/; s#^\# unixsocket .*#unixsocket /var/lib/redis/socket#' \
    "$root/etc/redis/redis.conf"
! inside forebay enable redis-server --pool redis 2>"$target/packages-test/said" || fail "a unit is enabled where systemd does not run"
grep -q 'systemd does not run here' "$target/packages-test/said" || fail "not said: $(cat "$target/packages-test/said")"
inside forebay enable redis-server --pool redis --size 32MiB --root / | tail -n 12
drop_in=$root/etc/systemd/system/redis-server.service.d/zz-forebay.conf
line=$(sed -n 's/^ExecStart=\(..*\)/\1/p' "$drop_in")

# start: as systemd would, the supervisor's number in $supervisor.
start() {
    mkdir -p "$root/run/forebay-redis-server"
    nsenter --net="$net" chroot --userspec=redis:redis "$root" /usr/bin/env -i PATH=/usr/bin:/bin FOREBAY_RUN_DIR=/run/forebay-redis-server \
        sh -c "exec ${line/--supervised systemd/--supervised no}" >>"$target/packages-test/log" 2>&1 &
    supervisor=$!
    for _ in $(seq 100); do
        [[ $(redis ping 2>/dev/null) == PONG ]] && return 0
        sleep 0.1
    done
    cat "$target/packages-test/log"
    fail "Redis does not start"
}
# shows_run: the status of all users has the server's log.
shows_run() {
    inside forebay status --all >"$target/packages-test/said" 2>&1 || true
    grep -q appendonly "$target/packages-test/said" || fail "$1: $(cat "$target/packages-test/said")"
}
redis() { inside redis-cli -s /var/lib/redis/socket "$@"; }
install -d -o "$(stat -c %u "$root/var/lib/redis")" "$root/run/forebay-redis-server"
start
redis set before upgrade >/dev/null
shows_run "status does not show the log"

say "upgrade under the running server"
inside dpkg -i /root/new.deb
redis set after upgrade >/dev/null
# dpkg puts a new file in the old one's place: who has the old one mapped goes on with that.
grep -q 'libforebay\.so (deleted)' "/proc/$(pgrep -P "$supervisor")/maps" || fail "the old run has not its old library"
inside forebay run --emulated 8MiB --absorb x -- cat /proc/self/maps >"$target/packages-test/said"
grep -q 'libforebay\.so$' "$target/packages-test/said" || fail "a new run has not the new library"
[[ $(redis get before) == upgrade ]] || fail "the old run does not go on"
shows_run "the new forebay does not show the old run"

say "removal is refused: enabled, running, records"
! inside dpkg -r forebay 2>"$target/packages-test/said" || fail "it was removed while it is used"
grep -q 'forebay disable redis-server' "$target/packages-test/said" || fail "no command: $(cat "$target/packages-test/said")"
grep -q 'forebay status --all' "$target/packages-test/said" || fail "no run is named: $(cat "$target/packages-test/said")"
server=$(pgrep -P "$supervisor")
# Amid writes: what was written a moment before would be in the file already, on a busy machine.
redis -r 1000000 set last write >/dev/null 2>&1 &
writer=$!
sleep 1
kill -KILL "$supervisor" "$server"
wait "$supervisor" || true
supervisor=
wait "$writer" || true
! inside dpkg -r forebay 2>"$target/packages-test/said" || fail "it was removed while a pool holds writes"
grep -q 'forebay recover --pool /var/lib/forebay/redis.pool' "$target/packages-test/said" || fail "no command: $(cat "$target/packages-test/said")"

say "disable, with the proof"
inside forebay disable redis-server
[[ ! -e $drop_in ]] || fail "the drop-in is there"
grep -q write "$root"/var/lib/redis/appendonlydir/*.incr.aof || fail "the last write is not in the file"

say "remove and purge: nothing is left"
inside forebay run --emulated 8MiB --absorb x -- true
inside setpriv --reuid 1234 --clear-groups forebay run --emulated 8MiB --absorb x -- true
[[ -e $root/dev/shm/forebay-1234.pool && -d $root/run/forebay && -d $root/tmp/forebay-1234 ]] || fail "the runs left no pool, or no directory"
inside forebay pool remove /var/lib/forebay/redis.pool
inside dpkg -r forebay
inside dpkg -P forebay
# is_gone: nothing of the package is left.
is_gone() {
    local left
    left=$(find "$root/dev/shm" "$root/tmp" "$root/etc" "$root/var/lib" "$root/usr" "$root/run" -name '*forebay*' ! -path '*/dpkg/*' ! -path "$root/run/forebay-redis-server*")
    [[ -z $left ]] || fail "left: $left"
}
is_gone

# rpm's scripts are called with other words than dpkg's. What packages it asks for, this Debian has as its own.
say "the .rpm: install, upgrade, removal refused, remove"
inside rpm --install --nodeps /root/old.rpm
inside forebay --version | grep -q '^forebay ' || fail "forebay does not run"
inside forebay enable redis-server --pool redis --size 32MiB --root / >/dev/null
inside rpm --upgrade --nodeps /root/new.rpm
[[ $(inside rpm --query forebay) == forebay-0.0.2-* && -f $drop_in ]] || fail "the .rpm is not upgraded"
! inside rpm --erase forebay 2>"$target/packages-test/said" || fail "the .rpm was removed while a unit is enabled"
grep -q 'forebay disable redis-server' "$target/packages-test/said" || fail "no command: $(cat "$target/packages-test/said")"
inside forebay disable redis-server >/dev/null
inside forebay pool remove /var/lib/forebay/redis.pool
inside rpm --erase forebay
is_gone

say "the tarball: unpacked, used, and removed as docs/removal.md says"
cp "$tarball" "$root/root/"
tarball=${tarball##*/}
inside tar -C / -xzf "/root/$tarball"
inside forebay --version | grep -q '^forebay ' || fail "forebay does not run"
inside forebay run --emulated 8MiB --absorb x -- true
[[ -e $root/dev/shm/forebay-0.pool && -d $root/run/forebay ]] || fail "the run left no pool, or no directory"
by_hand=$(awk '/^\*\*Without the package\*\*/ { here = 1 } here && /^```$/ { exit } here && is_code { print } here && /^```sh$/ { is_code = 1 }' docs/removal.md)
[[ $by_hand == *'tar -tzf forebay-'* ]] || fail "docs/removal.md does not say how a tarball is removed"
left=$(inside sh -euc "cd /root; ${by_hand//forebay-0.1.0-amd64.tar.gz/$tarball}")
[[ $left == "/root/$tarball" ]] || fail "docs/removal.md leaves: $left"
is_gone
echo "the package was installed, used, upgraded and removed"
