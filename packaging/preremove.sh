#!/bin/sh
# Before the files go. A removal is refused while a unit is to run under forebay, a program does, or a pool holds what belongs into files: without
# forebay a unit would not start, and nothing would bring the writes there. What cannot be told is refused as well. An upgrade goes on: a run keeps
# the library that it has, and the next one gets the new one.
#
# dpkg says remove or upgrade, rpm 0 or 1.
set -e
case "${1:-}" in
remove | 0) ;;
*) exit 0 ;;
esac
forebay=/usr/bin/forebay
unset FOREBAY_RUN_DIR

refused=0
refuse() {
    echo "forebay: not removed: $1" >&2
    refused=1
}

# calls FILE: a line of it that is no comment calls forebay, or asks for recoveries.
calls() {
    grep -qE '^[[:space:]]*[^#;[:space:]].*(forebay[[:space:]]+(.*[[:space:]])?(run|recover)([[:space:]]|$)|/forebay[[:space:]]*\\$|forebay-recover@)' "$1"
}

# look_into POOL: refuses a pool that is used or holds something.
look_into() {
    if [ ! -s "$1" ] || [ ! -f "$1" ]; then
        return 0
    fi
    if ! check=$("$forebay" pool check --json --emulated "$1" 2>/dev/null); then
        case "$1" in
        # Any user may put anything there.
        /dev/shm/*) case "$check" in *'is not a Forebay pool'*) return 0 ;; esac ;;
        esac
        refuse "what the pool $1 holds cannot be told. First: forebay pool check $1"
        return 0
    fi
    case "$check" in
    *'"state":"in use"'*) refuse "the pool $1 is used. First: forebay pool status $1" ;;
    *'"records":'[1-9]*) refuse "the pool $1 holds acknowledged writes. First: forebay recover --pool $1" ;;
    esac
}

if [ ! -x "$forebay" ]; then
    refuse "$forebay is gone, so what runs under it and what pools hold cannot be told. First: install the package again"
    exit 1
fi

# Links lead to units that lie elsewhere.
units=$(find -L /etc/systemd/system /run/systemd/system /usr/local/lib/systemd/system -type f \( -name '*.service' -o -name '*.conf' \) 2>/dev/null || true)
while IFS= read -r file; do
    [ -n "$file" ] || continue
    case "$(head -n 1 "$file")" in
    "# Written by forebay enable "*)
        unit=$(basename "$(dirname "$file")" .service.d)
        refuse "the unit $unit is enabled. First: forebay disable $unit"
        ;;
    *)
        if [ "$(basename "$file")" != forebay-recover@.service ] && calls "$file"; then
            refuse "$file starts a program under forebay. Take that out of it first (docs/removal.md, \"Switch off a unit\")"
        fi
        ;;
    esac
    pool=$(sed -nE 's/^# pool (.*)/\1/p; s/^Exec.*--pool[= ]"?([^ "]+).*/\1/p' "$file" | sort -u)
    while IFS= read -r pool; do
        look_into "$pool"
    done <<END
$pool
END
done <<END
$units
END

if ! running=$("$forebay" status --all --json 2>/dev/null) || [ "$running" != '[]' ]; then
    refuse "programs run under forebay, or were cut off, or that cannot be told. First: forebay status --all, and end or recover what it lists"
fi

for pool in /var/lib/forebay/*.pool /dev/shm/forebay-*.pool; do
    look_into "$pool"
done
# Persistent memory, by what it is mounted with.
dax=$(awk '$4 ~ /(^|,)dax(=always|=inode)?(,|$)/ { print $2 }' /proc/mounts 2>/dev/null || true)
while IFS= read -r mount; do
    [ -n "$mount" ] || continue
    for pool in "$(printf '%b' "$mount")"/*.pool; do
        look_into "$pool"
    done
done <<END
$dax
END

echo "forebay: looked into the pools of units, in /var/lib/forebay, /dev/shm and on persistent memory; not into others: forebay doctor --dir DIR says of a database's directory whether any holds something for it" >&2
if [ "$refused" = 0 ]; then
    # Tables of runs that are over, and pools in ordinary memory that hold nothing: forebay refuses others.
    rm -f /dev/shm/forebay-absorbed-* /dev/shm/forebay-order-* /dev/shm/forebay-scratch-*
    for pool in /dev/shm/forebay-*.pool; do
        if [ -f "$pool" ] && [ ! -L "$pool" ]; then
            "$forebay" pool remove "$pool" >/dev/null 2>&1 || true
        fi
    done
    # Where runs left notes of themselves; these are gone with them.
    rmdir /run/forebay /run/user/*/forebay /tmp/forebay-[0-9]* 2>/dev/null || true
fi
exit "$refused"
