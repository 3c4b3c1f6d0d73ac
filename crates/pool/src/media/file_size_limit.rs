//! The limit on the size of files (`ulimit -f`): the kernel ends a process that writes beyond it,
//! by SIGXFSZ.

use rustix::{
    fs::FileType,
    process::{Resource, getrlimit},
};
use std::os::fd::AsFd;

/// The size up to which this process may write to `file`, if that is below `bytes`. A device has no
/// such limit.
#[must_use]
pub fn size_limit_below(file: impl AsFd, bytes: u64) -> Option<u64> {
    let limit = getrlimit(Resource::Fsize).current;
    let limit = limit.filter(|limit| *limit < bytes)?;
    let is_device = rustix::fs::fstat(file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile);
    (!is_device).then_some(limit)
}
