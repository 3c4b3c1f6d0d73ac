//! Next steps for the user, in plain words.

use super::{legs::LegsFound, report::DoctorReport};

/// The advice for this machine.
pub fn advise(report: &DoctorReport) -> Vec<String> {
    let mut advice = match report.disks.best() {
        Some(place) if report.persistent_memory.is_empty() => {
            let which = match place.spot.same_disk {
                Some(true) => {
                    "on the data's own disk, where a commit takes less than a file's sync"
                }
                _ => "on another medium than the logs' own files",
            };
            vec![format!(
                "Make a pool {which}: {}, then: forebay run --pool {} -- CMD",
                place.command(),
                place.spot.directory.join("forebay.pool").display()
            )]
        }
        _ => Vec::new(),
    };
    advice.extend(report.legs.iter().filter_map(LegsFound::advice));
    advice.extend(memory(report));
    advice.extend(disk(report));
    advice
}

/// Places for a pool.
fn memory(report: &DoctorReport) -> Vec<String> {
    let pm = &report.persistent_memory;
    let mounted = pm
        .block
        .iter()
        .filter_map(|b| b.mount.as_ref())
        .find(|fs| fs.is_dax());
    if let Some(fs) = mounted {
        return vec![format!(
            "Make a pool that survives power cuts: forebay pool create {}/forebay.pool --size 64MiB",
            fs.mount_point.trim_end_matches('/')
        )];
    }
    if let Some(device) = pm.devdax.first() {
        return vec![format!(
            "Make a pool that survives power cuts: forebay pool create {} --size 64MiB (the device is used as it is; its contents are lost)",
            device.path.display()
        )];
    }
    if let Some(block) = pm.block.first() {
        let device = block.device.path.display();
        return vec![match &block.mount {
            Some(fs) => format!(
                "{device} is mounted without dax, so pools cannot lie there. Mount it with -o dax: umount {0} && mount -o dax {device} {0}",
                fs.mount_point
            ),
            None => format!(
                "{device} has no file system mounted. If nothing on it is needed: mkfs.ext4 {device} && mkdir -p /mnt/pmem && mount -o dax {device} /mnt/pmem, then: forebay pool create /mnt/pmem/forebay.pool"
            ),
        }];
    }
    if !pm.regions.is_empty() {
        return vec![
            "There is persistent memory without a namespace. Make one (package ndctl): ndctl create-namespace --mode=fsdax, then mkfs.ext4 /dev/pmem0 && mount -o dax /dev/pmem0 /mnt/pmem".to_owned(),
        ];
    }
    vec![
        "Try things out with an emulated pool (it survives a process crash, not a power cut): forebay pool create /dev/shm/try.pool --emulated, then: forebay store put --dir try --pool /dev/shm/try.pool greeting hello".to_owned(),
        "If the machine should have persistent memory (NVDIMM-N, CXL): look at ndctl list -RD and dmesg | grep -i nfit; the kernel needs CONFIG_LIBNVDIMM and CONFIG_FS_DAX. To develop without any, reserve ordinary memory as such with the kernel parameter memmap=1G!4G".to_owned(),
    ]
}

/// The directory's worth.
fn disk(report: &DoctorReport) -> Vec<String> {
    let directory = &report.directory;
    if directory.in_memory {
        return vec![format!(
            "{} lies in memory: a store there is lost with the machine. Choose a directory on a disk with --dir",
            directory.path.display()
        )];
    }
    if let Some(trouble) = &directory.trouble {
        return vec![format!(
            "The directory cannot be written: {trouble}. Choose another with --dir"
        )];
    }
    let Some(speed) = &directory.device else {
        return Vec::new();
    };
    let puts_synced = 1e6 / speed.fsync_us;
    let puts_streamed = speed.seq_write_mb_s * 1e6 / 4096.0;
    vec![format!(
        "One thread that syncs each 4 KiB write gets at most {:.0} of them a second from this disk; written sequentially it takes {:.0} a second. The difference, {:.0} \
         times, is a pool's gain",
        puts_synced,
        puts_streamed,
        puts_streamed / puts_synced
    )]
}
