#!/bin/sh
# After the files are gone. Pools stay, wherever they lie: nobody looks into them any more. What runs left in /dev/shm went before (preremove.sh).
#
# dpkg says remove, purge or upgrade, rpm 0 or 1.
set -e
case "${1:-}" in
purge | 0) rmdir /etc/forebay /var/lib/forebay 2>/dev/null || true ;;
esac
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
