//! A disk's logical sector, which it writes at once. A pool writes pages, and relies on each being
//! old or new where a sector is.

use crate::{
    error::{PoolError, PoolErrorKind},
    format::layout::PAGE,
    sysfs,
};
use rustix::fs::{FileType, fstat};
use std::{fs, os::fd::AsFd, path::Path};

/// Refuses the disk that `file` is, or lies on, if it cannot write a page alone.
pub(crate) fn check(path: &Path, file: impl AsFd) -> Result<(), PoolError> {
    match bytes(file).filter(|bytes| *bytes > PAGE) {
        Some(found) => Err(PoolError::new(
            path,
            PoolErrorKind::SectorTooLarge { found },
        )),
        None => Ok(()),
    }
}

/// Bytes of a sector of the block device that `file` is, or lies on; none if that is not known, as
/// of file systems over several devices.
fn bytes(file: impl AsFd) -> Option<u64> {
    let found = fstat(file).ok()?;
    let is_device = FileType::from_raw_mode(found.st_mode).is_block_device();
    let number = if is_device {
        found.st_rdev
    } else {
        found.st_dev
    };
    let about = sysfs::of_block_device(number)?;
    // A partition's is its disk's.
    ["queue", "../queue"].iter().find_map(|queue| {
        let said = fs::read_to_string(about.join(queue).join("logical_block_size")).ok()?;
        said.trim().parse().ok()
    })
}
