#!/bin/busybox sh
# How the first process of a machine in namespaces begins: leaves this machine's files, and brings up a console and the network. What it does then
# follows.
/bin/busybox mkdir -p /bin
/bin/busybox --install -s /bin
export PATH=/lab:/bin
umount -l /before
# What comes there is printed where this process prints.
mkfifo -m 622 /dev/console
cat <> /dev/console &
# The machine's end is its first process's: nothing here may end the machine that it runs on.
poweroff() { exit; }
echo "LAB accelerator namespace"
# From here on the disks are touched.
echo "LAB up"
ip link set lo up
ip address add 10.0.2.15/32 dev lo
