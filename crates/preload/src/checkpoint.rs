//! Writes of InnoDB's checkpoints, before which something must be durable
//! (`crates/innodb/src/checkpoint.rs`): pages, and the log, which a sync of it in the pool does not
//! make so on its disk.

use crate::{
    call_context::FailedCall,
    client_call::client,
    layer::{self, FileEvent},
    pages,
};
use forebay_files::client;
pub(crate) use forebay_innodb::checkpoints_may_come as may_come;
use libc::c_int;
use std::ffi::CStr;

/// A file was opened as `fd` to be written to.
pub(crate) fn opened(fd: c_int, path: &CStr) {
    forebay_innodb::log_opened(path.to_bytes(), client::absorbs(fd));
}

/// True if a shared mapping of `fd` is refused.
pub(crate) fn refuses_mapping(fd: c_int, protection: c_int) -> bool {
    protection & libc::PROT_WRITE != 0 && forebay_innodb::refuses_mapping(pages::borrow(fd))
}

/// Before a write to `fd` at `offset`, which is any file's.
///
/// # Errors
/// Pages, or the device, cannot be made durable. Then there is no checkpoint.
pub(crate) fn before(fd: c_int, offset: Option<u64>) -> Result<(), FailedCall> {
    let log = pages::borrow(fd);
    if !forebay_innodb::is_checkpoint(log, offset) {
        return Ok(());
    }
    client(forebay_innodb::sync_all)?;
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
