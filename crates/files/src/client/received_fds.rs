//! Descriptors that the kernel makes in other ways than by a name: by a file's handle, or from a
//! process that has one. What they are of may be absorbed, and is plain before the program has
//! them.

use super::{
    bypass::opened,
    call_depth::interrupted,
    config::CONFIG,
    descriptors::is_new,
    fd_table::{self, FdEntry},
    in_signal_handler,
    lookup::regular,
};
use crate::sys;
use rustix::io::Errno;
use std::ffi::c_int;

/// After a file was opened by its handle, past the client: as [`opened`]; and then it is cut to
/// nothing, if that is asked for.
///
/// # Errors
/// As [`opened`]; the kernel's.
pub fn opened_by_handle(fd: c_int, is_cut: bool) -> Result<(), Errno> {
    received(fd)?;
    match sys::borrow(fd).filter(|_| is_cut) {
        Some(raw) => sys::truncate_open(raw),
        None => Ok(()),
    }
}

/// After a descriptor was taken from a process, which may be this one. That a log is to be synced
/// with each write, the kernel does not know.
///
/// # Errors
/// As [`opened`].
pub fn taken_from_process(fd: c_int) -> Result<(), Errno> {
    let key = sys::borrow(fd).and_then(|raw| regular(raw).ok());
    let is_log = key.is_some_and(|(_, key)| CONFIG.get().is_some_and(|it| it.is_absorbed(key)));
    received(fd)?;
    if is_log && !sys::in_vforked_child() {
        fd_table::set_entry(fd, Some(FdEntry::new(None, libc::O_DSYNC)));
    }
    Ok(())
}

/// The kernel has made a descriptor in another way than by a name: no process absorbs its file any
/// more, if it is to be written to.
fn received(fd: c_int) -> Result<(), Errno> {
    let Some(raw) = sys::borrow(fd) else {
        return Ok(());
    };
    if sys::in_vforked_child() {
        fd_table::differs_in_child(fd);
    } else {
        is_new(fd);
    }
    if interrupted() {
        in_signal_handler::leave(raw);
        return Ok(());
    }
    opened(fd)
}
