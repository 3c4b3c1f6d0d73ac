//! InnoDB's checkpoints: what must be durable of other files before one is written.
//!
//! A checkpoint says that all pages that were changed before it are durable. The server syncs its
//! page files first. But it takes a page for durable also if its write ended while that sync ran:
//! the sync of the log, which follows, flushes the device, and with it whatever was written there
//! past the page cache. Under Forebay that sync is no flush, and the page may be on its way to
//! flash. So before a write to the place of a checkpoint:
//!
//! 1. the pages that came into the flash cache become durable;
//! 2. the log is really synced, if it is absorbed: that flushes the device.

use crate::{
    call_context::FailedCall,
    client_call::client,
    layer::{self, FileEvent},
    pages,
};
use forebay_files::client;
use forebay_innodb::{is_redo_log, path_of};
use libc::c_int;
use rustix::{fd::BorrowedFd, io::Errno};
use std::{
    ffi::CStr,
    os::unix::ffi::OsStrExt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// The log's records begin here; its header and two checkpoints lie before.
const RECORDS: u64 = 12 << 10;

/// This process has opened a redo log that something is to be done about.
static HAS_LOG: AtomicBool = AtomicBool::new(false);

/// A file was opened as `fd` to be written to.
pub(crate) fn opened(fd: c_int, path: &CStr) {
    if is_redo_log(path.to_bytes()) && (client::absorbs(fd) || pages::is_configured()) {
        HAS_LOG.store(true, Relaxed);
    }
}

/// Whether a shared mapping of `fd` that can be written to is refused, behind a flash cache:
/// checkpoints would be written to memory, and nothing come before them. The server writes to its
/// log, then.
pub(crate) fn refuses_mapping(fd: c_int, protection: c_int) -> bool {
    protection & libc::PROT_WRITE != 0
        && may_come()
        && pages::is_configured()
        && is_log(pages::borrow(fd)) == Ok(true)
}

fn is_log(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(is_redo_log(path_of(file)?.as_os_str().as_bytes()))
}

/// Whether a write may be one of a checkpoint. Costs a load.
#[inline]
pub(crate) fn may_come() -> bool {
    HAS_LOG.load(Relaxed)
}

/// Before a write to `fd` at `offset`, which is any file's.
///
/// # Errors
/// Pages, or the device, cannot be made durable. Then there is no checkpoint.
pub(crate) fn before(fd: c_int, offset: Option<u64>) -> Result<(), FailedCall> {
    if offset.is_none_or(|offset| offset >= RECORDS) || !may_come() {
        return Ok(());
    }
    let log = pages::borrow(fd);
    // Of a file whose path cannot be told (without /proc, for example) it may be one.
    if is_log(log) == Ok(false) {
        return Ok(());
    }
    pages::sync_all()?;
    if !client::absorbs(fd) {
        return Ok(());
    }
    let begun = layer::begin(fd);
    client(|| rustix::fs::fdatasync(log))?;
    if let Some(begun) = begun {
        begun.done(FileEvent::Synced { data_only: true });
    }
    Ok(())
}
