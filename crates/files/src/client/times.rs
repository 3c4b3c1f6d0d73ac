//! Changes of an absorbed file's modification time that change no byte: the client logs them, so
//! that a recovery does not take them for another process's change. docs/files-write.md, "Records".

use super::{
    call_depth::interrupted,
    fd_table::{self, FdEntry},
    lookup::{NamedFile, named},
    process::{HeldFile, generation, hold, mark_range_unknown},
    session,
};
use crate::sys;
use rustix::{
    fs::{AtFlags, Stat},
    io::Errno,
};
use std::{
    ffi::{CStr, c_int},
    os::fd::BorrowedFd,
};

/// Does `real` to an absorbed `fd`, which moves its modification time and no byte: setting it
/// (`futimens`), making room behind its end (`fallocate` that keeps its size). It may fail, and
/// have moved it all the same.
pub fn touching<T>(fd: c_int, real: impl FnOnce() -> T) -> T {
    let number = fd_table::entry(fd).and_then(FdEntry::file);
    let (Some(number), Some(raw)) = (number, sys::borrow(fd)) else {
        return real();
    };
    touch((number, generation(number)), real, || sys::stat_of(raw))
}

/// As [`touching`], of the file at a path, if it is absorbed (`utimensat`).
pub fn touching_path<T>(dir: c_int, path: &CStr, flags: c_int, real: impl FnOnce() -> T) -> T {
    let known = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let flags = AtFlags::from_bits_retain(flags as u32) & known;
    if !super::is_absorbing() || interrupted() {
        return real();
    }
    match named(dir, path, flags) {
        Some(NamedFile::Ours(file)) => touch(file, real, || {
            sys::stat_at(sys::directory(dir), path, flags)
        }),
        _ => real(),
    }
}

fn touch<T>(
    (number, generation): (usize, u32),
    real: impl FnOnce() -> T,
    stat: impl FnOnce() -> Result<Stat, Errno>,
) -> T {
    if interrupted() {
        mark_range_unknown(number);
        return real();
    }
    let session = session::current();
    // One that cannot be made plain, as it is to be, is not logged: its next sync says why.
    let held = session.and_then(|session| hold(session, number, generation).ok().flatten());
    let done = real();
    if let Some(held) = held
        && let Ok(stat) = stat()
        // By a path it may be another file by now.
        && (stat.st_dev, stat.st_ino) == held.shared.key()
    {
        log_touched(&held, &stat);
        // The kernel may make it durable at any time, and it may be a time far off.
        let _ = held.session.commit_all();
    }
    done
}

/// After a write that failed: it may have moved the file's time, and changed bytes all the same.
pub(super) fn failed_write(held: &HeldFile, fd: BorrowedFd<'_>) {
    held.shared.last_write.forget();
    if let Ok(stat) = sys::stat_of(fd) {
        log_touched(held, &stat);
    }
}

fn log_touched(held: &HeldFile, stat: &Stat) {
    let log = held.session.log();
    // If it cannot be logged, a replay takes it for another process's change, and refuses.
    let _ = log.touched(held.number, sys::modified(stat));
}
