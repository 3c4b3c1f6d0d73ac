//! `read`, `readv`, `lseek`: they move the file position of an absorbed descriptor while no write
//! is moving it.
//!
//! `preadv2` is here for its offset -1, which is the position; `pread` and `preadv` for a
//! [layer](crate::layer).
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    call_context::{FailedCall, cancellation_point, checked, missing},
    client_call::client,
    handler::handlers,
    layer::{self, FileEvent},
    memory, pages,
    plain::is_plain,
};
use forebay_files::client;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

/// `UIO_MAXIOV`: the kernel refuses more parts.
const PARTS_MAX: usize = 1024;

handlers! {
    fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t;
    missing missing(-1);
    plain if is_plain(fd);
    else |real| match pages::is_cached(fd) {
        true => pages::read(fd, buffer, bytes),
        false => reading(fd, || direct(fd, (buffer, bytes), None, || {
            // SAFETY: our caller's arguments.
            unsafe { real(fd, buffer, bytes) }
        })),
    };

    fn __read_chk(fd: c_int, buffer: *mut c_void, bytes: size_t, room: size_t) -> ssize_t;
    missing missing(-1);
    plain if is_plain(fd);
    else |real| match pages::is_cached(fd) && bytes <= room {
        true => pages::read(fd, buffer, bytes),
        false => reading(fd, || direct(fd, (buffer, bytes), None, || {
            // SAFETY: our caller's arguments.
            unsafe { real(fd, buffer, bytes, room) }
        })),
    };

    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    missing missing(-1);
    plain if is_plain(fd);
    else |real| match pages::leave(fd) {
        Ok(()) => reading(fd, || direct_parts(fd, (parts, count), None, || {
            // SAFETY: our caller's arguments.
            unsafe { real(fd, parts, count) }
        })),
        Err(failed) => failed.with(-1),
    };

    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    missing missing(-1);
    plain if is_plain(fd);
    else |real| {
        if let Err(failed) = pages::leave(fd) {
            return failed.with(-1);
        }
        // SAFETY: our caller's arguments.
        let real = || unsafe { real(fd, parts, count, offset, flags) };
        let read = || direct_parts(fd, (parts, count), Some(offset).filter(|offset| *offset != -1), real);
        if offset == -1 { reading(fd, read) } else { reading_at(fd, offset, read) }
    };

    fn pread(fd: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t;
    missing missing(-1);
    plain if !layer::sees(fd) && !pages::is_cached(fd) && !client::is_direct(fd);
    else |real| match pages::is_cached(fd) {
        true => pages::read_at(fd, buffer, bytes, offset),
        false => reading_at(fd, offset, || direct(fd, (buffer, bytes), Some(offset), || {
            // SAFETY: our caller's arguments.
            unsafe { real(fd, buffer, bytes, offset) }
        })),
    };

    fn __pread_chk(fd: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t;
    missing missing(-1);
    plain if !layer::sees(fd) && !pages::is_cached(fd) && !client::is_direct(fd);
    else |real| match pages::is_cached(fd) && bytes <= room {
        true => pages::read_at(fd, buffer, bytes, offset),
        false => reading_at(fd, offset, || direct(fd, (buffer, bytes), Some(offset), || {
            // SAFETY: our caller's arguments.
            unsafe { real(fd, buffer, bytes, offset, room) }
        })),
    };

    fn preadv(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    missing missing(-1);
    plain if !layer::sees(fd) && !pages::is_cached(fd) && !client::is_direct(fd);
    else |real| match pages::leave(fd) {
        Ok(()) => reading_at(fd, offset, || direct_parts(fd, (parts, count), Some(offset), || {
            // SAFETY: our caller's arguments.
            unsafe { real(fd, parts, count, offset) }
        })),
        Err(failed) => failed.with(-1),
    };

    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    missing missing(-1);
    plain if !client::is_followed(fd);
    else |real| at_position(fd, || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, offset, whence) }
    });
}

fn reading(fd: c_int, read: impl FnOnce() -> ssize_t) -> ssize_t {
    cancellation_point();
    let begun = layer::begin(fd);
    let bytes = at_position(fd, || read() as i64) as ssize_t;
    if let (Some(begun), Ok(bytes)) = (begun, usize::try_from(bytes)) {
        begun.done(FileEvent::Read {
            offset: None,
            bytes,
        });
    }
    bytes
}

/// Reads at an offset, which only a layer wants to know of.
fn reading_at(fd: c_int, offset: off_t, read: impl FnOnce() -> ssize_t) -> ssize_t {
    let begun = layer::begin(fd);
    let bytes = read();
    if let (Some(begun), Ok(bytes)) = (begun, usize::try_from(bytes)) {
        begun.done(FileEvent::Read {
            offset: Some(offset.unsigned_abs()),
            bytes,
        });
    }
    bytes
}

/// Reads by a descriptor that the program has opened with `O_DIRECT`: what is not aligned is
/// refused.
fn direct(
    fd: c_int,
    (buffer, bytes): (*mut c_void, size_t),
    offset: Option<off_t>,
    read: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let place = || std::iter::once((buffer.addr(), bytes));
    direct_to(fd, place, offset, read)
}

/// The same of several places. From the first part on that cannot be read, the kernel refuses them.
fn direct_parts(
    fd: c_int,
    (parts, count): (*const iovec, c_int),
    offset: Option<off_t>,
    read: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let places = || {
        let numbers = 0..usize::try_from(count).unwrap_or(0).min(PARTS_MAX);
        // SAFETY: our caller does not change them while they are read; any bytes are an `iovec`.
        let parts = numbers.map_while(move |at| unsafe { memory::read(parts.wrapping_add(at)) });
        parts.map(|part| (part.iov_base.addr(), part.iov_len))
    };
    direct_to(fd, places, offset, read)
}

fn direct_to<P: Iterator<Item = (usize, usize)>>(
    fd: c_int,
    places: impl FnOnce() -> P,
    offset: Option<off_t>,
    read: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if !client::is_direct(fd) {
        return read();
    }
    match client::before_read(fd, places(), offset.map(i64::unsigned_abs)) {
        Ok(()) => read(),
        Err(errno) => FailedCall::of(errno).with(-1),
    }
}

fn at_position(fd: c_int, call: impl FnOnce() -> i64) -> i64 {
    if !client::is_followed(fd) {
        // It may wait, and be cancelled meanwhile.
        return call();
    }
    client(|| client::at_position(fd, || checked(call()))).unwrap_or_else(|failed| failed.with(-1))
}
