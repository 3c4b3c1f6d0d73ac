#!/bin/sh
# Before the files go. A removal is refused while a unit is to run under forebay, a program does, or a pool holds what belongs into files: without
# forebay a unit would not start, and nothing would bring the writes there. An upgrade goes on: a run keeps the library that it has, and the
# next one gets the new one.
#
# dpkg says remove or upgrade, rpm 0 or 1.
set -e
case "${1:-}" in
remove | 0) ;;
*) exit 0 ;;
esac

refused=0
refuse() {
    echo "forebay: not removed: $1" >&2
    refused=1
}

for file in /etc/systemd/system/*.d/forebay.conf; do
    [ -e "$file" ] || continue
    case "$(head -n 1 "$file")" in
    "# Written by forebay enable "*)
        unit=$(basename "$(dirname "$file")" .service.d)
        refuse "the unit $unit is enabled. First: forebay disable $unit"
        ;;
    *) grep -q 'forebay run' "$file" && refuse "$file starts a program under forebay. Take it away first" ;;
    esac
done

running=$(forebay status --all --json 2>/dev/null || true)
case "$running" in
'' | '[]') ;;
*) refuse "programs run under forebay, or were cut off. First: forebay status --all, and end or recover what it lists" ;;
esac

for pool in /var/lib/forebay/*.pool /dev/shm/forebay-*.pool; do
    [ -f "$pool" ] || continue
    if ! check=$(forebay pool check --json "$pool" 2>/dev/null); then
        refuse "what the pool $pool holds cannot be told. First: forebay pool check $pool"
        continue
    fi
    case "$check" in
    *'"state":"in use"'*) refuse "the pool $pool is used. First: forebay pool status $pool" ;;
    *'"records":'[1-9]*) refuse "the pool $pool holds acknowledged writes. First: forebay recover --pool $pool" ;;
    esac
done
if [ "$refused" != 0 ]; then
    echo "forebay: pools elsewhere are not looked into: forebay doctor DIR says of a database's directory whether any holds something for it" >&2
fi
exit "$refused"
