//! `fsync`, `fdatasync`, `sync_file_range`: of an absorbed descriptor, by the client.
//!
//! `sync`, `syncfs`, `msync`, and an `fsync` by a descriptor that the client does not know (one
//! that cannot write) are the kernel's: it has everything that was written, and does them in full.
//! But what it makes durable, a pool on a disk has to have before: or a recovery would write over
//! it what the pool has, which is older.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    call_context::{cancellation_point, missing},
    client_call::client,
    handler::handlers,
    layer::{self, FileEvent},
    pages,
    plain::is_plain,
};
use forebay_files::client::{self, SyncKind, SyncOutcome};
use libc::{c_int, c_uint, c_void, off_t, size_t};

handlers! {
    fn fsync(fd: c_int) -> c_int;
    missing missing(-1);
    plain if is_plain(fd) && !client::is_to_be_committed(fd);
    else |real| synchronise(fd, SyncKind::Full, || {
        // SAFETY: our caller's argument.
        unsafe { real(fd) }
    });

    fn fdatasync(fd: c_int) -> c_int;
    missing missing(-1);
    plain if is_plain(fd) && !client::is_to_be_committed(fd);
    else |real| synchronise(fd, SyncKind::Data, || {
        // SAFETY: our caller's argument.
        unsafe { real(fd) }
    });

    fn sync_file_range(fd: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int;
    missing missing(-1);
    plain if is_plain(fd) || !does_something(offset, bytes, flags);
    else |real| synchronise_range(fd, flags, || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, offset, bytes, flags) }
    });

    fn sync() -> ();
    missing {
        missing(0);
    };
    plain if !client::commits();
    else |real| {
        // It says nothing of errors; the files whose pool failed are plain from now on.
        let _ = client(client::commit);
        // SAFETY: it takes nothing.
        unsafe { real() }
    };

    fn syncfs(fd: c_int) -> c_int;
    missing missing(-1);
    plain if !client::commits();
    else |real| match client(client::commit) {
        // SAFETY: our caller's argument.
        Ok(()) => unsafe { real(fd) },
        Err(failed) => failed.with(-1),
    };

    fn msync(at: *mut c_void, bytes: size_t, flags: c_int) -> c_int;
    missing missing(-1);
    plain if flags & libc::MS_SYNC == 0 || !client::commits();
    else |real| match client(client::commit) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(at, bytes, flags) },
        Err(failed) => failed.with(-1),
    };
}

/// Of an absorbed file the client knows what is durable. Of another that a layer sees the sync is
/// `real`, and the layer hears of it.
fn synchronise(fd: c_int, durability: SyncKind, mut real: impl FnMut() -> c_int) -> c_int {
    let data_only = durability != SyncKind::Full;
    if pages::is_cached(fd) {
        return pages::sync(fd, data_only, real);
    }
    if client::is_in_pool(fd) {
        return of_client(fd, durability);
    }
    let Some(begun) = layer::begin(fd) else {
        return of_client(fd, durability);
    };
    let result = real();
    if result == 0 {
        begun.done(FileEvent::Synced { data_only });
    }
    result
}

/// A layer hears only of one that waits for the writes.
fn synchronise_range(fd: c_int, flags: c_uint, mut real: impl FnMut() -> c_int) -> c_int {
    if !pages::is_cached(fd)
        && flags & libc::SYNC_FILE_RANGE_WAIT_AFTER == 0
        && !client::is_in_pool(fd)
        && layer::sees(fd)
    {
        return real();
    }
    synchronise(fd, SyncKind::Range, real)
}

fn of_client(fd: c_int, durability: SyncKind) -> c_int {
    cancellation_point();
    match client(|| client::sync(fd, durability)) {
        Ok(SyncOutcome::InPool) => 0,
        Ok(SyncOutcome::Really) => {
            // What the device took for it, a layer may want to know.
            if let Some(begun) = layer::begin(fd) {
                let data_only = durability != SyncKind::Full;
                begun.done(FileEvent::Synced { data_only });
            }
            0
        }
        Err(failed) => failed.with(-1),
    }
}

/// True if `sync_file_range` is neither invalid nor without effect.
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
