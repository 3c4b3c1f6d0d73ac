//! `read`, `readv`, `lseek`: what moves the file position of an absorbed descriptor does so while no write is moving it.
//!
//! `preadv2` is here for its offset -1, which is the position.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    around::{cancellation_point, checked, client, missing},
    real::hooks,
};
use forebay_files::client;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

hooks! {
    fn [read __read] (fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t;
    missing missing(-1);
    plain if !client::absorbs(fd);
    else |real| reading(fd, || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, buffer, bytes) }
    });

    fn [__read_chk] (fd: c_int, buffer: *mut c_void, bytes: size_t, room: size_t) -> ssize_t;
    missing missing(-1);
    plain if !client::absorbs(fd);
    else |real| reading(fd, || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, buffer, bytes, room) }
    });

    fn [readv] (fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    missing missing(-1);
    plain if !client::absorbs(fd);
    else |real| reading(fd, || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, parts, count) }
    });

    fn [preadv2 preadv64v2] (fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    missing missing(-1);
    plain if offset != -1 || !client::absorbs(fd);
    else |real| reading(fd, || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, parts, count, offset, flags) }
    });

    fn [lseek lseek64 __lseek] (fd: c_int, offset: off_t, whence: c_int) -> off_t;
    missing missing(-1);
    plain if !client::absorbs(fd);
    else |real| at_position(fd, || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, offset, whence) }
    });
}

fn reading(fd: c_int, read: impl FnOnce() -> ssize_t) -> ssize_t {
    cancellation_point();
    at_position(fd, || read() as i64) as ssize_t
}

fn at_position(fd: c_int, call: impl FnOnce() -> i64) -> i64 {
    client(|| client::at_position(fd, || checked(call()))).unwrap_or_else(|failed| failed.with(-1))
}
