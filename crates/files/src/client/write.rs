//! What changes an absorbed file and is logged, and what asks that it be durable.
//!
//! The kernel is asked first and the lane written second, under the file's lock, so that the lane's order is the kernel's.

use super::{
    CONFIG, FILES, FORKED, FORKS, above, interrupted,
    leaving::{leave, retire_file, retire_orphan},
    names::{Named, named},
    others::claim_inherited,
    session::{self, Session},
    table::{self, Entry, File},
    tail,
    times::failed_write,
};
use crate::sys;
use rustix::{
    fs::AtFlags,
    io::{Errno, ReadWriteFlags},
};
use std::{
    ffi::{CStr, c_int},
    io::IoSlice,
    os::fd::BorrowedFd,
    sync::atomic::Ordering::{Acquire, Relaxed},
};

/// Writes `parts` to an absorbed `fd`, at `offset` or, with `None`, at the file position, as `pwritev2` with `flags` (`RWF_…`) does,
/// and to the pool: when this returns, what was written is durable as soon as a sync says so. Not a cancellation point.
///
/// # Errors
/// The kernel's.
pub fn write(
    fd: c_int,
    parts: &[IoSlice<'_>],
    offset: Option<u64>,
    flags: c_int,
) -> Result<usize, Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    loop {
        let Some(entry) = table::entry(fd) else {
            return kernel_write(raw, parts, offset, flags);
        };
        let hidden = entry.hidden();
        let synchronous = hidden & libc::O_DSYNC != 0;
        let really = match synchronous {
            true if hidden & libc::O_SYNC == libc::O_SYNC => flags | libc::RWF_SYNC,
            true => flags | libc::RWF_DSYNC,
            false => flags,
        };
        let Some(number) = entry.file() else {
            if entry.is_inherited() {
                claim_inherited(fd, entry)?;
            }
            return kernel_write(raw, parts, offset, really);
        };
        if FORKED.load(Relaxed) {
            leave(raw, number)?;
            continue;
        }
        if interrupted() {
            // A signal handler, above a call that may have a record unfinished: no other would ever become durable.
            FILES[number].lose_track();
            let written = kernel_write(raw, parts, offset, flags)?;
            if synchronous || flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0 {
                sync(fd)?;
            }
            return Ok(written);
        }
        let Some(session) = session::current() else {
            return kernel_write(raw, parts, offset, flags);
        };
        if session.page.files[number].retire.load(Relaxed) != 0 {
            if retire_file(session, number).is_ok() {
                continue;
            }
            // Its writes are unlogged, and its syncs are real; and another process may write to it now.
            FILES[number].lose_track();
        }
        if session.is_orphan() && retire_orphan(session, number).is_ok() {
            continue;
        }
        let guard = FILES[number].file.lock();
        if table::entry(fd) != Some(entry) {
            continue;
        }
        let Ok(mut cell) = guard.try_borrow_mut() else {
            // Above a write of the same thread to the same file: which of the two the kernel has first is not for us to say.
            FILES[number].lose_track();
            return kernel_write(raw, parts, offset, flags);
        };
        let Some(file) = &mut *cell else {
            return kernel_write(raw, parts, offset, flags);
        };
        let written = kernel_write(raw, parts, offset, flags)
            .inspect_err(|_| failed_write(session, number, file, raw))?;
        if written > 0 {
            match place(fd, raw, entry, file, offset, flags, written) {
                Ok(at) => tail::log_write(session, number, file, at, parts, written),
                Err(_) => FILES[number].lose_track(),
            }
        }
        drop(cell);
        drop(guard);
        if synchronous && FILES[number].unlogged.load(Relaxed) {
            sync(fd)?;
        }
        return Ok(written);
    }
}

/// Where in the file the kernel put the last `written` bytes.
#[inline]
pub(super) fn place(
    fd: c_int,
    raw: BorrowedFd<'_>,
    entry: Entry,
    file: &mut File,
    offset: Option<u64>,
    flags: c_int,
    written: usize,
) -> Result<u64, Errno> {
    /// `RWF_NOAPPEND`, which is younger than the C library's headers.
    const NOAPPEND: c_int = 0x20;
    let written = written as u64;
    let appends = (entry.append() || flags & libc::RWF_APPEND != 0) && flags & NOAPPEND == 0;
    if offset.is_none() {
        // Asked only when we cannot know: an append goes where the file ends, whoever wrote there.
        let end = match file.position {
            Some((last, at)) if last == fd && flags == 0 => at + written,
            _ => rustix::fs::tell(raw)?,
        };
        let ours = entry.position_is_ours() && !FORKS.load(Relaxed);
        file.position = ours.then_some((fd, end));
        return Ok(end.saturating_sub(written));
    }
    match offset {
        Some(offset) if !appends => Ok(offset),
        // Linux appends also what is written at an offset, if the descriptor appends.
        _ => {
            let end = u64::try_from(rustix::fs::fstat(raw)?.st_size).unwrap_or(0);
            Ok(end.saturating_sub(written))
        }
    }
}

pub(super) fn kernel_write(
    fd: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    offset: Option<u64>,
    flags: c_int,
) -> Result<usize, Errno> {
    match (parts, offset) {
        ([part], None) if flags == 0 => rustix::io::write(fd, part),
        ([part], Some(offset)) if flags == 0 => rustix::io::pwrite(fd, part, offset),
        (parts, None) if flags == 0 => rustix::io::writev(fd, parts),
        (parts, Some(offset)) if flags == 0 => rustix::io::pwritev(fd, parts, offset),
        (parts, offset) => {
            let flags = ReadWriteFlags::from_bits_retain(flags as u32);
            rustix::io::pwritev2(fd, parts, offset.unwrap_or(u64::MAX), flags)
        }
    }
}

/// `fsync`, `fdatasync`, `sync_file_range`, `msync` of an absorbed `fd`: everything that was written to it is durable when this
/// returns.
///
/// # Errors
/// The kernel's, if the file cannot be synced.
pub fn sync(fd: c_int) -> Result<(), Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let (number, session) = match (table::entry(fd).and_then(Entry::file), session::current()) {
        (Some(number), Some(session)) if !FORKED.load(Relaxed) => (number, session),
        _ => return rustix::fs::fsync(raw),
    };
    let shared = &session.page.files[number];
    let slot = &FILES[number];
    shared.syncs.fetch_add(1, Relaxed);
    if interrupted() {
        return above::sync(session, number, raw);
    }
    if slot.unlogged.load(Acquire) {
        session.settle()?;
        let guard = slot.file.lock();
        let mut cell = guard.try_borrow_mut().map_err(|_| Errno::DEADLK)?;
        if let Some(file) = &mut *cell {
            // Once more, now that nobody else can log: no record may be left that is older than what was not logged.
            session.drain(Some((number, file)))?;
            rustix::fs::fsync(raw)?;
            slot.settled(file);
        } else {
            rustix::fs::fsync(raw)?;
        }
        drop(cell);
        drop(guard);
        slot.take_owed()?;
    } else if shared.errno.load(Relaxed) != 0 {
        session.settle()?;
    }
    if shared.retire.load(Relaxed) != 0 {
        return retire_file(session, number);
    }
    if session.is_orphan() {
        return retire_orphan(session, number);
    }
    Ok(())
}

/// Does `call` while nobody moves the file position of an absorbed `fd`: for `read`, `readv`, `lseek`.
pub fn at_position<T>(fd: c_int, call: impl FnOnce() -> T) -> T {
    let number = table::entry(fd).and_then(Entry::file);
    let guard = match number {
        Some(number) if interrupted() => {
            FILES[number].lose_track();
            return call();
        }
        Some(number) if !FORKED.load(Relaxed) => FILES[number].file.lock(),
        _ => return call(),
    };
    if let Ok(mut cell) = guard.try_borrow_mut()
        && let Some(file) = &mut *cell
    {
        file.position = None;
    }
    call()
}

/// `ftruncate` of an absorbed `fd`.
///
/// # Errors
/// The kernel's.
pub fn truncate(fd: c_int, bytes: u64) -> Result<(), Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let real = || rustix::fs::ftruncate(raw, bytes);
    loop {
        let Some((entry, number)) = table::entry(fd).and_then(|e| Some((e, e.file()?))) else {
            if let Some(entry) = table::entry(fd).filter(|entry| entry.is_inherited()) {
                claim_inherited(fd, entry)?;
            }
            return real();
        };
        if FORKED.load(Relaxed) {
            leave(raw, number)?;
            return real();
        }
        let is_it = |_: &File| table::entry(fd) == Some(entry);
        if let Some(done) = truncate_file(number, is_it, bytes, real) {
            return done;
        }
    }
}

/// Truncates the file with this number, unless it is another by now: then none.
pub(super) fn truncate_file(
    number: usize,
    is_it: impl Fn(&File) -> bool,
    bytes: u64,
    real: impl Fn() -> Result<(), Errno>,
) -> Option<Result<(), Errno>> {
    change_file(number, is_it, |logged| {
        real()?;
        if let Some((session, file)) = logged {
            session.log_truncate(number, file, bytes);
        }
        Ok(())
    })
}

/// Does `change` to the file with this number under its lock, unless it is another by now: then none. Where it is given no file, what it does
/// cannot be logged, and the file is unlogged.
fn change_file<T>(
    number: usize,
    is_it: impl Fn(&File) -> bool,
    change: impl FnOnce(Option<(&Session, &mut File)>) -> T,
) -> Option<T> {
    if interrupted() {
        FILES[number].lose_track();
        return Some(change(None));
    }
    let session = session::current()?;
    if session.page.files[number].retire.load(Relaxed) != 0 && retire_file(session, number).is_err()
    {
        // A record would hide from a replay what another process writes meanwhile.
        FILES[number].lose_track();
    }
    let guard = FILES[number].file.lock();
    let Ok(mut cell) = guard.try_borrow_mut() else {
        FILES[number].lose_track();
        return Some(change(None));
    };
    let file = cell.as_mut().filter(|file| is_it(file))?;
    Some(change(Some((session, file))))
}

/// Does `real` to an absorbed `fd`, which makes room in the file (`fallocate`, `posix_fallocate`): it may be longer then, by zeros, and no
/// byte that it had has changed, whether that failed or not.
///
/// # Errors
/// The kernel's.
pub fn extending(fd: c_int, real: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    loop {
        let Some((entry, number)) = table::entry(fd).and_then(|e| Some((e, e.file()?))) else {
            if let Some(entry) = table::entry(fd).filter(|entry| entry.is_inherited()) {
                claim_inherited(fd, entry)?;
            }
            return real();
        };
        if FORKED.load(Relaxed) {
            leave(raw, number)?;
            return real();
        }
        let is_it = |_: &File| table::entry(fd) == Some(entry);
        let extended = change_file(number, is_it, |logged| {
            let before = rustix::fs::fstat(raw)?;
            let done = real();
            let Some((session, file)) = logged else {
                return done;
            };
            match rustix::fs::fstat(raw) {
                Ok(after) if after.st_size != before.st_size => {
                    session.log_truncate(number, file, after.st_size.unsigned_abs());
                }
                // No byte of it changed, but its time may have.
                Ok(_) => failed_write(session, number, file, raw),
                Err(_) => FILES[number].lose_track(),
            }
            done
        });
        if let Some(done) = extended {
            return done;
        }
    }
}

/// Truncates by path: `real` does it. Logged if the file is absorbed.
///
/// # Errors
/// The kernel's.
pub fn truncate_path(
    path: &CStr,
    bytes: u64,
    real: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    if interrupted() {
        above::leave_path((libc::AT_FDCWD, path));
        return real();
    }
    loop {
        match named(libc::AT_FDCWD, path, AtFlags::empty()) {
            Some(Named::Ours(number, key)) => {
                let is_it = |file: &File| (file.dev, file.ino) == key;
                if let Some(done) = truncate_file(number, is_it, bytes, &real) {
                    return done;
                }
            }
            Some(Named::Foreign(key)) => {
                CONFIG.get().map_or(Ok(()), |config| config.claim(key))?;
                return real();
            }
            None => return real(),
        }
    }
}
