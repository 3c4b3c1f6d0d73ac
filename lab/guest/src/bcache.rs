//! bcache, which Linux itself has: a disk in front of another, in writeback mode.
//!
//! Both get their superblocks on this machine, by `make-bcache`; the guest registers them. What is
//! said here of its settings is in the kernel's Documentation/admin-guide/bcache.rst.

use crate::{Failure, disk, run};
use std::{path::Path, process::Command};

/// Kernel module of it.
pub const MODULE: &str = "bcache";

/// What makes the superblocks: Debian's bcache-tools.
pub const PROGRAM: &str = "/usr/sbin/make-bcache";

/// Where the data begins on a disk that is cached: 16 sectors, bcache's default.
pub const DATA_OFFSET: u64 = 8192;

/// A cache of so few of its units, which bcache calls buckets, the kernel refuses; twice as many
/// are asked for here.
const BUCKETS_MIN: u64 = 512;
/// The default of `make-bcache`, for caches of gigabytes.
const BUCKET_MAX: u64 = 512 << 10;

/// Bytes of a bucket: as many as there are by default, if the cache is large enough for that;
/// otherwise the most that it can have, a power of two.
fn bucket(cache_bytes: u64) -> u64 {
    let most = cache_bytes / (2 * BUCKETS_MIN);
    // The power of two that is not larger.
    let power = 1 << most.max(4096).ilog2();
    BUCKET_MAX.min(power)
}

/// Makes `backing`, which has a file system at [`DATA_OFFSET`], a disk that the one of so many
/// bytes in the new file `cache` is in front of.
///
/// # Errors
/// I/O errors; `make-bcache` is not installed, or fails.
pub fn make(backing: &Path, cache: &Path, bytes: u64) -> Result<(), Failure> {
    disk::blank(cache, bytes)?;
    run(Command::new(PROGRAM)
        .args(["--block", "512", "--writeback", "--bucket"])
        .arg(format!("{}k", bucket(bytes) >> 10))
        .arg("--cache")
        .arg(cache)
        .arg("--bdev")
        .arg(backing))
}

/// What the guest does to have `/dev/bcache0` of the disk `/dev/vda` and its cache `/dev/vdb`, set
/// as its users set it where flash is to take all it can: no read or write goes past it because it
/// is busy. All else is left at its defaults: `sequential_cutoff` 4 MiB, `writeback_percent` 10.
pub const ATTACH: &str = "
for disk in vdb vda; do echo /dev/$disk > /sys/fs/bcache/register; done
until [ -e /sys/block/bcache0/bcache/cache ] && [ -b /dev/bcache0 ]; do sleep 0.1; done
echo writeback > /sys/block/bcache0/bcache/cache_mode
for of in read write; do echo 0 > /sys/block/bcache0/bcache/cache/congested_${of}_threshold_us; done
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_as_by_default_where_there_are_enough_of_them() {
        let sizes = [20, 80, 400, 2048].map(|mib| bucket(mib << 20) >> 10);
        assert_eq!(sizes, [16, 64, 256, 512]);
    }
}
