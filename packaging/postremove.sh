#!/bin/sh
# After the files are gone. A purge takes away what runs left in /dev/shm, too: tables of runs that are over, and pools in ordinary memory, which
# hold nothing, or the removal had been refused. Pools on disks stay.
#
# dpkg says remove, purge or upgrade, rpm 0 or 1.
set -e
case "${1:-}" in
purge | 0)
    rm -f /dev/shm/forebay-absorbed-* /dev/shm/forebay-order-* /dev/shm/forebay-scratch-* /dev/shm/forebay-[0-9]*.pool
    rmdir /etc/forebay /var/lib/forebay 2>/dev/null || true
    ;;
esac
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
