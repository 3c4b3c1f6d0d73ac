//! Page files behind the flash cache ([`forebay_innodb`]): the functions of the C library in its
//! terms.
//!
//! What the cache has not got is read from and written to the file itself by the program's own
//! descriptor, and a [layer](crate::layer) hears of it as of any other I/O.
#![expect(
    unsafe_code,
    reason = "makes slices of its arguments; borrows descriptors"
)]

use crate::{
    call_context::{FailedCall, cancellation_point, checked, is_client},
    client_call::{client, tell_client},
    layer::{self, FileEvent},
    memory,
};
use forebay_files::client;
use libc::{c_int, c_void, off_t, size_t, ssize_t};
use rustix::{
    fd::BorrowedFd,
    fs::{CWD, OFlags},
    io::Errno,
};
use std::{ffi::CStr, slice};

pub(crate) use forebay_innodb::{is_cached, is_configured};

/// The program's descriptor, for system calls, which say `EBADF` if it is none; or a directory's,
/// where `AT_FDCWD` is negative.
pub(crate) fn borrow(fd: c_int) -> BorrowedFd<'static> {
    match fd {
        0.. => {
            // SAFETY: not -1, and used for system calls only, which take any number.
            unsafe { BorrowedFd::borrow_raw(fd) }
        }
        _ => CWD,
    }
}

fn real_read(fd: c_int, to: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let begun = layer::begin(fd);
    let read = rustix::io::pread(borrow(fd), to, offset)?;
    if let Some(begun) = begun {
        begun.done(FileEvent::Read {
            offset: Some(offset),
            bytes: read,
        });
    }
    Ok(read)
}

fn real_write(fd: c_int, from: &[u8], offset: u64) -> Result<usize, Errno> {
    let begun = layer::begin(fd);
    let written = rustix::io::pwrite(borrow(fd), from, offset)?;
    if let Some(begun) = begun {
        begun.done(FileEvent::Wrote {
            offset: Some(offset),
            bytes: written,
            flags: 0,
        });
    }
    Ok(written)
}

/// Reads at an offset from a page file.
pub(crate) fn read_at(fd: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t {
    let Ok(at) = u64::try_from(offset) else {
        return FailedCall::of(Errno::INVAL).with(-1);
    };
    into(buffer, bytes, |to| {
        forebay_innodb::read(fd, to, at, &mut |to, at| real_read(fd, to, at))
    })
}

/// Reads from a page file at its position.
pub(crate) fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t {
    into(buffer, bytes, |to| {
        forebay_innodb::read_on(borrow(fd), to, &mut |to, at| real_read(fd, to, at))
    })
}

/// Reads into the program's memory.
fn into(
    buffer: *mut c_void,
    bytes: size_t,
    read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
) -> ssize_t {
    if ssize_t::try_from(bytes).is_err() || buffer.is_null() {
        return FailedCall::of(Errno::FAULT).with(-1);
    }
    cancellation_point();
    let read = client(|| {
        // SAFETY: our caller's memory, which it lends to be written to, and which no other thread
        // uses meanwhile.
        read(unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), bytes) })
    });
    read.map_or_else(|failed| failed.with(-1), |bytes| bytes as ssize_t)
}

/// Writes at an offset to a page file.
pub(crate) fn write_at(fd: c_int, from: &[u8], offset: u64) -> ssize_t {
    cancellation_point();
    let written = client(|| {
        forebay_innodb::write(borrow(fd), from, offset, &mut |from, at| {
            real_write(fd, from, at)
        })
    });
    written.map_or_else(|failed| failed.with(-1), |bytes| bytes as ssize_t)
}

/// Syncs a page file; `real` syncs the file itself.
pub(crate) fn sync(fd: c_int, data_only: bool, mut real: impl FnMut() -> c_int) -> c_int {
    cancellation_point();
    let synced = client(|| {
        forebay_innodb::sync(fd, &mut || {
            let begun = layer::begin(fd);
            checked(real())?;
            if let Some(begun) = begun {
                begun.done(FileEvent::Synced { data_only });
            }
            Ok(())
        })
    });
    synced.map_or_else(|failed| failed.with(-1), |()| 0)
}

/// Gives a page file another length by `real`.
pub(crate) fn truncate(
    fd: c_int,
    bytes: u64,
    mut real: impl FnMut() -> c_int,
) -> Result<(), FailedCall> {
    client(|| forebay_innodb::truncate(fd, bytes, &mut || checked(real()).map(drop)))
}

/// Makes room or holes in a page file by `real`.
pub(crate) fn allocate(
    fd: c_int,
    mode: c_int,
    [offset, bytes]: [off_t; 2],
    mut real: impl FnMut() -> Result<(), Errno>,
) -> Result<(), FailedCall> {
    let range = [offset.unsigned_abs(), bytes.unsigned_abs()];
    client(|| forebay_innodb::allocate(fd, mode, range, &mut real))
}

/// Before something is done to a descriptor that the cache cannot follow.
pub(crate) fn leave(fd: c_int) -> Result<(), FailedCall> {
    if is_cached(fd) {
        return client(|| forebay_innodb::leave(fd));
    }
    Ok(())
}

/// `fd` was opened by `path`, with these flags: it is given to the program, unless it must not be.
pub(crate) fn opened(fd: c_int, path: &CStr, flags: c_int) -> c_int {
    if !is_configured() || is_client() {
        return fd;
    }
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    match client(|| forebay_innodb::opened(borrow(fd), path.to_bytes(), flags)) {
        Ok(()) => fd,
        Err(failed) => {
            tell_client(|| client::closing(fd));
            closing(fd);
            // SAFETY: the program has not got it yet.
            unsafe { libc::close(fd) };
            failed.with(-1)
        }
    }
}

/// Before a file is opened with these flags.
pub(crate) fn truncating(dir: c_int, path: &CStr, flags: c_int) -> Result<(), FailedCall> {
    if !is_configured() || is_client() {
        return Ok(());
    }
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    client(|| forebay_innodb::truncating(borrow(dir), path, flags))
}

/// Before a file of this path is made by a stream.
pub(crate) fn exporting(path: *const libc::c_char) -> Result<(), FailedCall> {
    // SAFETY: our caller does not change the path while it is used.
    match unsafe { memory::path(path) }.filter(|_| is_configured()) {
        Some(path) => client(|| forebay_innodb::exporting(CWD, path)),
        None => Ok(()),
    }
}

/// Truncates a file by name, by `real`.
pub(crate) fn truncate_path(
    path: *const libc::c_char,
    bytes: u64,
    mut real: impl FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    // SAFETY: our caller does not change the path while it is used.
    match unsafe { memory::path(path) }.filter(|_| is_configured()) {
        Some(path) => forebay_innodb::truncate_path(CWD, path, bytes, &mut real),
        None => real(),
    }
}

/// Unlinks a file by `real`, within a call of the client.
pub(crate) fn unlink(
    dir: c_int,
    path: &CStr,
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    forebay_innodb::unlink(borrow(dir), path, real)
}

/// Renames a file by `real`, within a call of the client.
pub(crate) fn rename(
    from: (c_int, &CStr),
    to: (c_int, &CStr),
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    forebay_innodb::rename((borrow(from.0), from.1), (borrow(to.0), to.1), real)
}

/// `fd` is about to be closed.
pub(crate) fn closing(fd: c_int) {
    // A vforked child shares our memory, but not our descriptors.
    if is_cached(fd) && !client::in_vforked_child() {
        forebay_innodb::closing(fd);
    }
}

/// `to` is a duplicate of `from` from now on, whatever it was.
pub(crate) fn duplicated(from: c_int, to: c_int) {
    if from != to && (is_cached(from) || is_cached(to)) && !client::in_vforked_child() {
        tell_client(|| forebay_innodb::duplicated(from, to));
    }
}
