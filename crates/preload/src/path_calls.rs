//! `rename`, `unlink`, `remove`, `link`, `truncate`: changes of a file by its name.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    call_context::{FailedCall, checked, is_client, missing},
    client_call::client,
    handler::handlers,
    layer::{self, NameAt},
    memory, metadata, pages,
};
use forebay_files::client;
use libc::{AT_FDCWD, c_char, c_int, c_uint, off_t};
use rustix::io::Errno;
use std::ffi::CStr;

handlers! {
    fn rename(from: *const c_char, to: *const c_char) -> c_int;
    missing missing(-1);
    plain if is_client() && !client::counts_changes();
    else |real| rename_file((AT_FDCWD, from), (AT_FDCWD, to), 0, || {
        // SAFETY: our caller's arguments.
        unsafe { real(from, to) }
    });

    fn renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int;
    missing missing(-1);
    plain if is_client() && !client::counts_changes();
    else |real| rename_file((from_dir, from), (to_dir, to), 0, || {
        // SAFETY: our caller's arguments.
        unsafe { real(from_dir, from, to_dir, to) }
    });

    fn renameat2(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int;
    missing missing(-1);
    plain if is_client() && !client::counts_changes();
    else |real| rename_file((from_dir, from), (to_dir, to), flags, || {
        // SAFETY: our caller's arguments.
        unsafe { real(from_dir, from, to_dir, to, flags) }
    });

    fn unlink(path: *const c_char) -> c_int;
    missing missing(-1);
    plain if is_client() && !client::counts_changes();
    else |real| unlink_file(AT_FDCWD, path, || {
        // SAFETY: our caller's argument.
        unsafe { real(path) }
    });

    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    missing missing(-1);
    plain if (is_client() || flags != 0) && !client::counts_changes();
    else |real| {
        // SAFETY: our caller's arguments.
        let call = || unsafe { real(dir, path, flags) };
        match flags {
            _ if is_client() => metadata::somewhere(call),
            0 => unlink_file(dir, path, call),
            _ => metadata::removed((dir, path), call),
        }
    };

    fn remove(path: *const c_char) -> c_int;
    missing missing(-1);
    plain if is_client() && !client::counts_changes();
    else |real| unlink_file(AT_FDCWD, path, || {
        // SAFETY: our caller's argument.
        unsafe { real(path) }
    });

    fn link(from: *const c_char, to: *const c_char) -> c_int;
    missing missing(-1);
    plain if is_client() && !client::counts_changes();
    else |real| link_file((AT_FDCWD, from), (AT_FDCWD, to), 0, || {
        // SAFETY: our caller's arguments.
        unsafe { real(from, to) }
    });

    fn linkat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int;
    missing missing(-1);
    plain if is_client() && !client::counts_changes();
    else |real| link_file((from_dir, from), (to_dir, to), flags, || {
        // SAFETY: our caller's arguments.
        unsafe { real(from_dir, from, to_dir, to, flags) }
    });

    fn truncate(path: *const c_char, bytes: off_t) -> c_int;
    missing missing(-1);
    plain if bytes < 0;
    else |real| truncate_file(path, bytes.unsigned_abs(), || {
        // SAFETY: our caller's arguments.
        unsafe { real(path, bytes) }
    });
}

/// The client's answer as a C function gives it.
fn answer(result: Result<(), FailedCall>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(failed) => failed.with(-1),
    }
}

/// The path in the form in which the client takes it, if the kernel would.
fn path<'a>(path: *const c_char) -> Option<&'a CStr> {
    // SAFETY: our caller does not change the path while it is used.
    unsafe { memory::path(path) }
}

/// A name as a C function has it: a directory's descriptor, and a path.
type CName = (c_int, *const c_char);

/// Gives a file the name `to`, beside the name `from` or in its place, by `call`: inside the client
/// and with the names as that takes them.
fn name_file(
    from: CName,
    to: CName,
    mut real: impl FnMut() -> c_int,
    call: impl FnOnce(
        NameAt<'_>,
        NameAt<'_>,
        &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno>,
) -> c_int {
    if is_client() {
        return metadata::somewhere(real);
    }
    let (Some(from_path), Some(to_path)) = (path(from.1), path(to.1)) else {
        return real();
    };
    let mut real = || metadata::named(to, libc::AT_SYMLINK_NOFOLLOW, &mut real);
    let mut real = || checked(real()).map(drop);
    answer(client(|| {
        call((from.0, from_path), (to.0, to_path), &mut real)
    }))
}

fn rename_file(from: CName, to: CName, flags: c_uint, real: impl FnMut() -> c_int) -> c_int {
    name_file(from, to, real, |from, to, real| {
        match flags & libc::RENAME_EXCHANGE {
            0 => layer::rename(from, to, || {
                pages::rename(from, to, || client::rename(from, to, real))
            }),
            // Nothing is replaced, and two names change.
            _ => client::exchange(from, to, real),
        }
    })
}

fn link_file(from: CName, to: CName, flags: c_int, real: impl FnMut() -> c_int) -> c_int {
    name_file(from, to, real, |from, to, real| {
        client::link(from, to, flags, real)
    })
}

fn unlink_file(dir: c_int, name: *const c_char, real: impl FnOnce() -> c_int) -> c_int {
    if is_client() {
        return metadata::somewhere(real);
    }
    let Some(path) = path(name) else {
        return real();
    };
    let real = || metadata::removed((dir, name), real);
    answer(client(|| {
        layer::unlink((dir, path), || {
            pages::unlink(dir, path, || {
                client::unlink(dir, path, || checked(real()).map(drop))
            })
        })
    }))
}

fn truncate_file(name: *const c_char, bytes: u64, real: impl Fn() -> c_int) -> c_int {
    let Some(path) = path(name) else {
        return real();
    };
    let real = || metadata::named((AT_FDCWD, name), 0, &real);
    answer(client(|| {
        pages::truncate_path(name, bytes, || {
            client::truncate_path(path, bytes, || checked(real()).map(drop))
        })
    }))
}
