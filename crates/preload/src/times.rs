//! `utimensat`, `futimens` and their elders: they set a file's modification time.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    call_context::{checked, is_client, missing},
    client_call::client,
    handler::handlers,
    memory, metadata,
};
use forebay_files::client;
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, timespec, timeval, utimbuf};

handlers! {
    fn futimens(fd: c_int, times: *const timespec) -> c_int;
    missing missing(-1);
    plain if !client::absorbs(fd) && !client::counts_changes();
    else |real| of_descriptor(fd, || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, times) }
    });

    fn futimes(fd: c_int, times: *const timeval) -> c_int;
    missing missing(-1);
    plain if !client::absorbs(fd) && !client::counts_changes();
    else |real| of_descriptor(fd, || {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, times) }
    });

    fn utimensat(dir: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int;
    missing missing(-1);
    plain if (is_client() || !client::is_absorbing()) && !client::counts_changes();
    else |real| of_path(dir, path, flags, || {
        // SAFETY: our caller's arguments.
        unsafe { real(dir, path, times, flags) }
    });

    fn futimesat(dir: c_int, path: *const c_char, times: *const timeval) -> c_int;
    missing missing(-1);
    plain if (is_client() || !client::is_absorbing()) && !client::counts_changes();
    else |real| of_path(dir, path, 0, || {
        // SAFETY: our caller's arguments.
        unsafe { real(dir, path, times) }
    });

    fn utimes(path: *const c_char, times: *const timeval) -> c_int;
    missing missing(-1);
    plain if (is_client() || !client::is_absorbing()) && !client::counts_changes();
    else |real| of_path(AT_FDCWD, path, 0, || {
        // SAFETY: our caller's arguments.
        unsafe { real(path, times) }
    });

    fn lutimes(path: *const c_char, times: *const timeval) -> c_int;
    missing missing(-1);
    plain if (is_client() || !client::is_absorbing()) && !client::counts_changes();
    else |real| of_path(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, || {
        // SAFETY: our caller's arguments.
        unsafe { real(path, times) }
    });

    fn utime(path: *const c_char, times: *const utimbuf) -> c_int;
    missing missing(-1);
    plain if (is_client() || !client::is_absorbing()) && !client::counts_changes();
    else |real| of_path(AT_FDCWD, path, 0, || {
        // SAFETY: our caller's arguments.
        unsafe { real(path, times) }
    });
}

/// Does `real` to an absorbed file's descriptor, which moves its modification time and none of its
/// bytes.
pub(crate) fn of_descriptor(fd: c_int, real: impl FnOnce() -> c_int) -> c_int {
    let real = || metadata::open(fd, real);
    if !client::absorbs(fd) {
        return real();
    }
    match client(|| client::touching(fd, || checked(real()))) {
        Ok(done) => done,
        Err(failed) => failed.with(-1),
    }
}

fn of_path(dir: c_int, path: *const c_char, flags: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if is_client() {
        return metadata::somewhere(real);
    }
    // SAFETY: our caller does not change the path while it is used.
    let Some(name) = (unsafe { memory::path(path) }) else {
        return of_descriptor(dir, real);
    };
    let real = || metadata::named((dir, path), flags, real);
    match client(|| client::touching_path(dir, name, flags, || checked(real()))) {
        Ok(done) => done,
        Err(failed) => failed.with(-1),
    }
}
