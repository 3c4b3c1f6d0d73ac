#!/bin/sh
# The first program of the machine: loads what its disks and its port need, and goes on with the agent on the root disk.
export PATH=/bin
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
while read -r module; do
    insmod "/modules/$module"
done </modules/order
until [ -b /dev/vdb ] && ls /dev/vport*p1 >/dev/null 2>&1; do
    sleep 0.2
done
# After a cut its journal is replayed here.
mount -t ext4 /dev/vda /root
mount --move /dev /root/dev
mount --move /proc /root/proc
mount --move /sys /root/sys
exec switch_root /root /bin/bash /lab/start.sh
