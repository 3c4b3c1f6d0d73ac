//! `fsync`, `fdatasync`, `sync_file_range`: of an absorbed descriptor, by the client.
//!
//! `sync` and `syncfs` are left alone: the kernel has everything that was written, and does them in full. So is `msync`: an absorbed file has no
//! shared mapping that could be written to ([`crate::map`]).
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    around::{cancellation_point, client, missing},
    real::hooks,
};
use forebay_files::client;
use libc::{c_int, c_uint, off_t};

hooks! {
    fn [fsync] (fd: c_int) -> c_int;
    missing missing(-1);
    plain if !client::absorbs(fd);
    else |_real| synchronise(fd);

    fn [fdatasync] (fd: c_int) -> c_int;
    missing missing(-1);
    plain if !client::absorbs(fd);
    else |_real| synchronise(fd);

    fn [sync_file_range] (fd: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int;
    missing missing(-1);
    plain if !client::absorbs(fd) || !does_something(offset, bytes, flags);
    else |_real| synchronise(fd);
}

fn synchronise(fd: c_int) -> c_int {
    cancellation_point();
    match client(|| client::sync(fd)) {
        Ok(()) => 0,
        Err(failed) => failed.with(-1),
    }
}

/// Whether `sync_file_range` is neither invalid nor without effect.
fn does_something(offset: off_t, bytes: off_t, flags: c_uint) -> bool {
    const KNOWN: c_uint = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    offset >= 0
        && bytes >= 0
        && offset.checked_add(bytes).is_some()
        && flags != 0
        && flags & !KNOWN == 0
}
