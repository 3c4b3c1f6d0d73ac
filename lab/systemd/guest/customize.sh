#!/bin/sh
# What the laboratory changes of a fresh Debian, whose root directory is $1: disks, the agent, and what documents tell users to set.
set -e
root=$1
here=$(dirname "$0")
cat >"$root/etc/fstab" <<'END'
/dev/vda / ext4 defaults 0 1
/dev/vdb /fast ext4 defaults,nofail 0 2
/dev/vdc /parcel ext4 ro 0 0
/dev/pmem0 /mnt/pmem ext4 dax=always,nofail,x-systemd.device-timeout=600 0 2
END
mkdir -p "$root/fast" "$root/parcel" "$root/mnt/pmem"
# Emulated processors on a busy machine take minutes for what takes seconds elsewhere.
mkdir -p "$root/etc/systemd/system.conf.d"
cat >"$root/etc/systemd/system.conf.d/lab.conf" <<'END'
[Manager]
DefaultDeviceTimeoutSec=900
DefaultTimeoutStartSec=900
END
echo lab >"$root/etc/hostname"
echo '127.0.0.1 localhost lab' >"$root/etc/hosts"
cp "$here/lab-agent.service" "$root/etc/systemd/system/"
chroot "$root" systemctl -q enable lab-agent.service
# docs/databases/redis.md. Both would listen on one port.
sed -i 's/^appendonly .*/appendonly yes/; s/^# *appendfsync always/appendfsync always/; s/^appendfsync everysec/# &/' \
    "$root/etc/redis/redis.conf" "$root/etc/valkey/valkey.conf"
sed -i 's/^port .*/port 6380/' "$root/etc/valkey/valkey.conf"
