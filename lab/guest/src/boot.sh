#!/bin/busybox sh
# How every guest's first process begins: mounts what is no disk, loads the kernel's modules, and brings up the network. What it does then follows.
/bin/busybox mkdir -p /bin /proc /sys /dev /tmp /run
/bin/busybox --install -s /bin
export PATH=/lab:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
echo 1 > /proc/sys/vm/overcommit_memory
while read -r module; do
    insmod "/modules/$module.ko" || echo "LAB failed: module $module"
done < /modules/order
# No emulated processor has that clock.
if grep -q kvm-clock /sys/devices/system/clocksource/clocksource0/available_clocksource; then
    echo "LAB accelerator kvm"
else
    echo "LAB accelerator tcg"
fi
# From here on the disks are touched.
echo "LAB up"
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
