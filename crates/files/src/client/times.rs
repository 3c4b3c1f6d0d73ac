//! What moves an absorbed file's modification time and changes no byte of it: it is logged, so that a recovery does not take it for another
//! process's change. docs/files-protocol.md, "Records".

use super::{
    FILES, FORKED, interrupted,
    names::{Named, named},
    session::{self, Session},
    table::{self, Entry, File},
};
use crate::sys;
use rustix::{
    fs::{AtFlags, Stat},
    io::Errno,
};
use std::{
    ffi::{CStr, c_int},
    os::fd::BorrowedFd,
    sync::atomic::Ordering::Relaxed,
};

/// Does `real` to an absorbed `fd`, which moves its modification time and no byte: setting it (`futimens`), making room behind its end
/// (`fallocate` that keeps its size). It may fail, and have moved it all the same.
pub fn touching<T>(fd: c_int, real: impl FnOnce() -> T) -> T {
    let number = table::entry(fd).and_then(Entry::file);
    let (Some(number), Some(raw)) = (number, sys::borrow(fd)) else {
        return real();
    };
    touch(number, real, || rustix::fs::fstat(raw))
}

/// As [`touching`], of the file at a path, if it is absorbed (`utimensat`).
pub fn touching_path<T>(dir: c_int, path: &CStr, flags: c_int, real: impl FnOnce() -> T) -> T {
    let flags = AtFlags::from_bits_retain(flags as u32) & AtFlags::SYMLINK_NOFOLLOW;
    if !super::is_absorbing() || FORKED.load(Relaxed) || interrupted() {
        return real();
    }
    match named(dir, path, flags) {
        Some(Named::Ours(number, _)) => touch(number, real, || {
            rustix::fs::statat(sys::directory(dir), path, flags)
        }),
        _ => real(),
    }
}

fn touch<T>(
    number: usize,
    real: impl FnOnce() -> T,
    stat: impl FnOnce() -> Result<Stat, Errno>,
) -> T {
    let session = session::current().filter(|_| !FORKED.load(Relaxed) && !interrupted());
    let Some(session) = session else {
        return real();
    };
    let guard = FILES[number].file.lock();
    let done = real();
    if let Ok(mut cell) = guard.try_borrow_mut()
        && let Some(file) = &mut *cell
        && let Ok(stat) = stat()
        // By a path it may be another file by now.
        && (stat.st_dev, stat.st_ino) == (file.dev, file.ino)
    {
        session.log_touched(number, file, modified(&stat));
    }
    done
}

/// After a write that failed, under the file's lock: it may have moved the file's time.
pub(super) fn failed_write(session: &Session, number: usize, file: &mut File, fd: BorrowedFd<'_>) {
    if let Ok(stat) = rustix::fs::fstat(fd) {
        session.log_touched(number, file, modified(&stat));
    }
}

fn modified(stat: &Stat) -> u64 {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(stat.st_mtime_nsec)
}
