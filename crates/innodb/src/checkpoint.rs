//! InnoDB's checkpoints: page files must be durable up to one before it is written.
//!
//! A checkpoint says that all pages that were changed before it are durable. The server syncs its
//! page files first. But it takes a page for durable also if its write ended while that sync ran.
//! The sync of the log, which follows, flushes the device, and with it whatever was written there
//! past the page cache. Under Forebay that sync is no flush, and the page may be on its way to
//! flash. So before a write to the place of a checkpoint:
//!
//! 1. the pages that came into the flash cache become durable ([`sync_all`](crate::sync_all));
//! 2. the log is really synced by the caller, if it is absorbed: that flushes the device.

use crate::{descriptor::path_of, environment, file_kinds::is_redo_log};
use rustix::{fd::BorrowedFd, io::Errno};
use std::{
    os::unix::ffi::OsStrExt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// The log's records begin here; its header and two checkpoints lie before.
const RECORDS: u64 = 12 << 10;

/// This process has opened a redo log that something is to be done about.
static HAS_LOG: AtomicBool = AtomicBool::new(false);

/// A file was opened by `path` to be written to, which is absorbed or not.
pub fn log_opened(path: &[u8], is_absorbed: bool) {
    if is_redo_log(path) && (is_absorbed || environment::is_configured()) {
        HAS_LOG.store(true, Relaxed);
    }
}

/// True if a shared mapping of `fd` that can be written to is refused, behind a flash cache:
/// checkpoints would be written to memory, and nothing come before them. The server writes to its
/// log, then.
#[must_use]
pub fn refuses_mapping(fd: BorrowedFd<'_>) -> bool {
    checkpoints_may_come() && environment::is_configured() && is_log(fd) == Ok(true)
}

fn is_log(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(is_redo_log(path_of(file)?.as_os_str().as_bytes()))
}

/// True if a write may be one of a checkpoint. Costs a load.
#[inline]
#[must_use]
pub fn checkpoints_may_come() -> bool {
    HAS_LOG.load(Relaxed)
}

/// True if a write to `fd` at `offset`, which is any file's, may be one of a checkpoint.
#[must_use]
pub fn is_checkpoint(fd: BorrowedFd<'_>, offset: Option<u64>) -> bool {
    // Of a file whose path cannot be told (without /proc, for example) it may be one.
    offset.is_some_and(|offset| offset < RECORDS)
        && checkpoints_may_come()
        && is_log(fd) != Ok(false)
}
