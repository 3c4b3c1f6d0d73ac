#!/bin/sh
# The first program of the machine: loads what its disks and its port need, and goes on with the root disk, whose changes stay in memory.
export PATH=/bin
/bin/busybox mkdir -p /proc /sys /dev /disk /changes /root
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
mount -t ext4 -o ro /dev/vda /disk
mount -t tmpfs -o mode=755 changes /changes
mkdir /changes/upper /changes/work
mount -t overlay -o lowerdir=/disk,upperdir=/changes/upper,workdir=/changes/work root /root
mount -t ext4 -o ro /dev/vdb /root/parcel
mount --move /dev /root/dev
mount --move /proc /root/proc
mount --move /sys /root/sys
exec switch_root /root /bin/bash /parcel/start.sh
