#!/bin/bash
# In the root disk: what systemd does elsewhere, then the agent (lab/systemd/guest/agent.sh).
export PATH=/lab:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root
# Debian is unpacked and not installed, so nobody has made /bin/sh, by which initdb and a package's scripts run; these call find and grep, dpkg calls diff.
for name in sh find grep diff; do
    [[ -e /usr/bin/$name ]] || ln -s busybox "/usr/bin/$name"
done
mkdir -p /dev/shm
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t ext4 /dev/vdb /fast
ip link set lo up
mkdir -p /dev/virtio-ports
ln -s /dev/vport*p1 /dev/virtio-ports/lab
exec bash /lab/agent.sh
