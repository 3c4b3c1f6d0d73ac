#!/bin/bash
# On the root disk: what systemd does elsewhere, then the agent (lab/systemd/guest/agent.sh).
export PATH=/parcel:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root
mkdir -p /dev/shm /lab
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 tmp /tmp
cp /parcel/sqlite.py /lab
ip link set lo up
mkdir -p /dev/virtio-ports
ln -s /dev/vport*p1 /dev/virtio-ports/lab
exec bash /parcel/agent.sh
