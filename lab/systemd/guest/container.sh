#!/bin/sh
# Starts systemd on the root directory $1, of which this process's namespaces are (container.py): with devices that hurt nobody, and without the right to change this
# machine's settings.
set -e
root=$1
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 dev "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
# Nodes of its own: systemd changes whom the console belongs to.
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/zero" c 1 5
mknod -m 666 "$root/dev/full" c 1 7
mknod -m 666 "$root/dev/random" c 1 8
mknod -m 666 "$root/dev/urandom" c 1 9
mknod -m 666 "$root/dev/tty" c 5 0
mknod -m 600 "$root/dev/console" c 1 3
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o mode=755 run "$root/run"
ip link set lo up
cd "$root"
pivot_root . mnt
exec env -i container=lab PATH=/usr/sbin:/usr/bin:/sbin:/bin /usr/sbin/chroot . /bin/sh -c 'umount -l /mnt && exec /sbin/init'
