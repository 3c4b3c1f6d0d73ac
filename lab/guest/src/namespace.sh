# Makes the root and the devices of a machine in namespaces, then starts its first process in them. This shell is the first one of the process
# namespace already, and sees this machine's files still. $DIR: an empty directory, whose content the machine alone sees from then on, but for the
# file pid. $LAYERS: what the root is made of. $MEMORY: a directory that outlives the machine. $PARAMETERS: what /proc/cmdline says.
# Arguments: NAME:MAJOR:MINOR of each disk.
set -eu
# This machine's number of this process: /proc is this machine's.
read -r pid _ < /proc/self/stat
echo "$pid" > "$DIR/pid"
mount -t tmpfs -o mode=755 machine "$DIR"
mkdir "$DIR/upper" "$DIR/work" "$DIR/root"
# All that the machine writes there is gone with it.
mount -t overlay -o "lowerdir=$LAYERS,upperdir=$DIR/upper,workdir=$DIR/work" machine "$DIR/root"
cd "$DIR/root"
mkdir -p proc sys dev tmp run mnt/pmem before
mount -t proc proc proc
mount -t sysfs -o ro sys sys
mount -t tmpfs -o mode=755 dev dev
mkdir -m 1777 dev/shm
mount -t tmpfs -o mode=1777 shm dev/shm
for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    minor=${device##*:} rest=${device%:*}
    mknod -m 666 "dev/${rest%:*}" c "${rest#*:}" "$minor"
done
for disk in "$@"; do
    minor=${disk##*:} rest=${disk%:*}
    mknod -m 600 "dev/${rest%:*}" b "${rest#*:}" "$minor"
done
for link in fd: stdin:/0 stdout:/1 stderr:/2; do
    ln -s "/proc/self/fd${link#*:}" "dev/${link%:*}"
done
mount --bind "$MEMORY" mnt/pmem
echo "$PARAMETERS" > run/cmdline
mount --bind run/cmdline proc/cmdline
# Another boot.
cat /proc/sys/kernel/random/uuid > run/boot_id
mount --bind run/boot_id proc/sys/kernel/random/boot_id
pivot_root . before
unset DIR LAYERS MEMORY PARAMETERS
exec /init
