# What the power-cut lab's guest does then: the action that the command line names.
mkdir -p /data /mnt/pmem /mnt/flash
# Failpoints are announced there, by programs of any user.
chmod a+w /dev/console
action='' pool='' fs=ext4 patience=150 failpoint='' broken='' flash='' gone=none
# lab.action, lab.pool, lab.fs, and, where they are wanted, lab.patience, lab.failpoint, lab.broken, lab.flash, lab.route, lab.recovering and
# lab.gone.
read -r line < /proc/cmdline
for word in $line; do
    case $word in lab.*) export "${word#lab.}" ;; esac
done

# The NVDIMM's namespace is raw at first, where DAX is refused.
namespace() {
    case $pool in disk* | memory | mirror | leg*) return ;; esac
    if [ "$pool" = devdax ]; then
        ndctl create-namespace -f -e namespace0.0 -m devdax > /dev/null
    else
        ndctl create-namespace -f -e namespace0.0 -m fsdax -M mem > /dev/null
    fi
}

# The two disks' mirror, of which one may be gone, and another one is in its place. Before anything is written to the pool both have all.
mirror() {
    left=''
    for disk in vdb vdc; do
        if [ "$disk" = "$gone" ]; then
            read -r sectors < /sys/class/block/$disk/size
            dd if=/dev/zero of=/dev/$disk bs=1M count=$((sectors / 2048)) conv=fsync 2> /run/dd || echo "LAB failed: $(cat /run/dd)"
        else
            left="$left /dev/$disk"
        fi
    done
    # shellcheck disable=SC2086 # one or two
    /lab/mdadm --assemble --run /dev/md0 $left > /run/md 2>&1 || echo "LAB failed: $(cat /run/md)"
    for disk in vdb vdc; do
        grep -q "$disk" /proc/mdstat || /lab/mdadm /dev/md0 --add /dev/$disk >> /run/md 2>&1 || echo "LAB failed: $(cat /run/md)"
    done
    while ! grep -q '\[UU\]' /proc/mdstat || grep -qE 'resync|recovery' /proc/mdstat; do sleep 1; done
    POOL=/dev/md0
}

attach() {
    # Disks of several machines are copies of one, and XFS mounts one of the same name only.
    options=''
    [ "$fs" != xfs ] || options='-o nouuid'
    # shellcheck disable=SC2086 # none or two words
    mount -t "$fs" $options /dev/vda /data || echo "LAB failed: the disk"
    [ -z "$flash" ] || mount -t ext4 "/dev/$flash" /mnt/flash || echo "LAB failed: the flash"
    case $pool in
    devdax) POOL=/dev/dax0.0 ;;
    disk) POOL=/dev/vdb ;;
    mirror) mirror ;;
    # The legs say what they have, and this file where they are.
    legs) POOL=/data/legs.pool ;;
    leg-disk)
        POOL=/data/legs.pool
        # The other one has lost its memory with the power. A failpoint is for the run behind this.
        [ "$action" = format ] || forebay recover --pool "$POOL" --lost-leg nbd://10.0.2.101:10809/forebay ||
            echo "LAB failed: forebay recover"
        ;;
    disk-file)
        mount -t ext4 /dev/vdb /mnt/pmem || echo "LAB failed: the pool's disk"
        POOL=/mnt/pmem/pool
        ;;
    # What is there outlives the machine.
    memory)
        POOL=/mnt/pmem/pool
        export FOREBAY_TEST_POOL_SURVIVED=1
        ;;
    *)
        mount -t ext4 -o dax=always /dev/pmem0 /mnt/pmem || echo "LAB failed: DAX"
        POOL=/mnt/pmem/pool
        ;;
    esac
    export POOL
}

case $action in
format)
    namespace
    case $fs in
    xfs) /lab/mkfs.xfs -q -f /dev/vda || echo "LAB failed: mkfs.xfs of the disk" ;;
    *) /lab/mke2fs -q -t ext4 -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 -F /dev/vda || echo "LAB failed: mke2fs of the disk" ;;
    esac
    [ -z "$flash" ] || /lab/mke2fs -q -t ext4 -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 -F "/dev/$flash" || echo "LAB failed: mke2fs of the flash"
    kind=''
    case $pool in
    devdax | disk) ;;
    mirror)
        /lab/mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --metadata=1.2 /dev/vdb /dev/vdc > /run/md 2>&1 ||
            echo "LAB failed: $(cat /run/md)"
        /lab/mdadm --stop /dev/md0 >> /run/md 2>&1 || echo "LAB failed: $(cat /run/md)"
        ;;
    legs) kind="--insecure --leg nbd://10.0.2.101:10809/forebay --leg nbd://10.0.2.102:10809/forebay" ;;
    leg-disk) kind="--insecure --leg nbd://10.0.2.101:10809/forebay --leg /dev/vdb" ;;
    memory) kind=--emulated ;;
    disk-file)
        kind=--disk
        /lab/mke2fs -q -t ext4 -b 4096 -F /dev/vdb || echo "LAB failed: mke2fs of the pool's disk"
        ;;
    # DAX needs blocks of the page's size.
    *) /lab/mke2fs -q -t ext4 -b 4096 -F /dev/pmem0 || echo "LAB failed: mke2fs of the NVDIMM" ;;
    esac
    attach
    # shellcheck disable=SC2086 # none, one or several
    forebay pool create "$POOL" $kind --size 24MiB --segment-size 256KiB || echo "LAB failed: no pool"
    forebay pool status "$POOL"
    umount /data
    [ -z "$flash" ] || umount /mnt/flash
    case $pool in devdax | disk | memory | mirror | leg*) ;; *) umount /mnt/pmem ;; esac
    echo "LAB done"
    poweroff -f
    ;;
*)
    attach
    [ "$pool" = memory ] || forebay pool status "$POOL" | grep -E "survives (a power cut|the loss of this machine)" || echo "LAB failed: the pool does not survive a power cut"
    export LAB_PATIENCE_S="$patience"
    [ -z "$failpoint" ] || export FOREBAY_FAILPOINT="$failpoint"
    [ -z "$broken" ] || export FOREBAY_BROKEN="$broken"
    sh /lab/action "$action"
    echo "LAB failed: the server ended with status $?"
    poweroff -f
    ;;
esac
