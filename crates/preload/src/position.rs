//! `read`, `readv`, `lseek`: what moves the file position of an absorbed descriptor does so while no write is moving it.
//!
//! `preadv2` is here for its offset -1, which is the position; `pread` and `preadv` for a [layer](crate::layer).
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    call_context::{cancellation_point, checked, missing},
    client_call::client,
    layer::{self, Done},
    pages,
    plain::is_plain,
    real::hooks,
};
use forebay_files::client;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

hooks! {
    fn [read __read] (fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t;
    missing missing(-1);
    plain if is_plain(fd);
    else |real| match pages::is_cached(fd) {
        true => pages::read(fd, buffer, bytes),
        false => reading(fd, || {
            // SAFETY: our caller's arguments.
            unsafe { real(fd, buffer, bytes) }
        }),
    };

    fn [__read_chk] (fd: c_int, buffer: *mut c_void, bytes: size_t, room: size_t) -> ssize_t;
    missing missing(-1);
    plain if is_plain(fd);
    else |real| match pages::is_cached(fd) && bytes <= room {
        true => pages::read(fd, buffer, bytes),
        false => reading(fd, || {
            // SAFETY: our caller's arguments.
            unsafe { real(fd, buffer, bytes, room) }
        }),
    };

    fn [readv] (fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    missing missing(-1);
    plain if is_plain(fd);
    else |real| match pages::leave(fd) {
        Ok(()) => reading(fd, || {
            // SAFETY: our caller's arguments.
            unsafe { real(fd, parts, count) }
        }),
        Err(failed) => failed.with(-1),
    };

    fn [preadv2 preadv64v2] (fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    missing missing(-1);
    plain if is_plain(fd);
    else |real| {
        if let Err(failed) = pages::leave(fd) {
            return failed.with(-1);
        }
        // SAFETY: our caller's arguments.
        let read = || unsafe { real(fd, parts, count, offset, flags) };
        if offset == -1 { reading(fd, read) } else { reading_at(fd, offset, read) }
    };

    fn [pread pread64 __pread64] (fd: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t;
    missing missing(-1);
    plain if !layer::sees(fd) && !pages::is_cached(fd);
    else |real| match pages::is_cached(fd) {
        true => pages::read_at(fd, buffer, bytes, offset),
        false => reading_at(fd, offset, || {
            // SAFETY: our caller's arguments.
            unsafe { real(fd, buffer, bytes, offset) }
        }),
    };

    fn [__pread_chk __pread64_chk] (fd: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t;
    missing missing(-1);
    plain if !layer::sees(fd) && !pages::is_cached(fd);
    else |real| match pages::is_cached(fd) && bytes <= room {
        true => pages::read_at(fd, buffer, bytes, offset),
        false => reading_at(fd, offset, || {
            // SAFETY: our caller's arguments.
            unsafe { real(fd, buffer, bytes, offset, room) }
        }),
    };

    fn [preadv preadv64] (fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    missing missing(-1);
    plain if !layer::sees(fd) && !pages::is_cached(fd);
    else |real| match pages::leave(fd) {
        Ok(()) => reading_at(fd, offset, || {
            // SAFETY: our caller's arguments.
            unsafe { real(fd, parts, count, offset) }
        }),
        Err(failed) => failed.with(-1),
    };

    fn [lseek lseek64 __lseek] (fd: c_int, offset: off_t, whence: c_int) -> off_t;
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
        begun.done(Done::Read {
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
        begun.done(Done::Read {
            offset: Some(offset.unsigned_abs()),
            bytes,
        });
    }
    bytes
}

fn at_position(fd: c_int, call: impl FnOnce() -> i64) -> i64 {
    if !client::is_followed(fd) {
        // It may wait, and be cancelled meanwhile.
        return call();
    }
    client(|| client::at_position(fd, || checked(call()))).unwrap_or_else(|failed| failed.with(-1))
}
