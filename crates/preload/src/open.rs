//! `open`, `openat`, `creat` in all spellings: what can change a file is opened through the client.
//!
//! What cannot (read-only without `O_TRUNC`, `O_PATH`, a directory, an unnamed file) is opened plainly. Opening through the client is a
//! cancellation point at its start, but cannot be cancelled while it blocks. So does what a signal handler opens above a call of the client; the
//! client itself opens nothing to change it by these functions.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    call_context::{cancellation_point, client, is_client, missing},
    checkpoint, layer, memory, pages,
    real::hooks,
};
use forebay_files::client;
use libc::{AT_FDCWD, c_char, c_int, mode_t};

hooks! {
    fn [open open64 __open __open64] (path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    missing missing(-1);
    plain if is_plain(flags);
    else |real| open_file(AT_FDCWD, path, flags, |flags| {
        // SAFETY: our caller's arguments, but for the flags.
        unsafe { real(path, flags, mode) }
    });

    fn [openat openat64] (dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    missing missing(-1);
    plain if is_plain(flags);
    else |real| open_file(dir, path, flags, |flags| {
        // SAFETY: our caller's arguments, but for the flags.
        unsafe { real(dir, path, flags, mode) }
    });

    fn [__open_2 __open64_2] (path: *const c_char, flags: c_int) -> c_int;
    missing missing(-1);
    plain if is_plain(flags);
    else |real| open_file(AT_FDCWD, path, flags, |flags| {
        // SAFETY: our caller's arguments, but for the flags.
        unsafe { real(path, flags) }
    });

    fn [__openat_2 __openat64_2] (dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    missing missing(-1);
    plain if is_plain(flags);
    else |real| open_file(dir, path, flags, |flags| {
        // SAFETY: our caller's arguments, but for the flags.
        unsafe { real(dir, path, flags) }
    });

    fn [creat creat64] (path: *const c_char, mode: mode_t) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| open_file(AT_FDCWD, path, CREAT, |flags| match hidden::open.get() {
        // The client truncates the file itself, at another moment.
        // SAFETY: our caller's arguments, and some of the flags that `creat` has.
        Some(open) if flags != CREAT => unsafe { open(path, flags, mode) },
        // SAFETY: our caller's arguments.
        _ => unsafe { real(path, mode) },
    });
}

/// The flags of `creat`.
const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

fn is_plain(flags: c_int) -> bool {
    let may_matter = layer::is_there() || pages::is_configured();
    !can_change(flags) && (!may_matter || flags & libc::O_PATH != 0 || is_client())
}

/// Whether a file opened with `flags` can be changed, by opening it or through the descriptor.
pub(crate) fn can_change(flags: c_int) -> bool {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
    // O_TMPFILE has the bit of O_DIRECTORY; the file that it makes has no name.
    writes && flags & (libc::O_PATH | libc::O_DIRECTORY) == 0
}

fn open_file(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mut real: impl FnMut(c_int) -> c_int,
) -> c_int {
    // SAFETY: our caller does not change the path while we open it.
    let Some(path) = (unsafe { memory::path(path) }) else {
        return real(flags);
    };
    cancellation_point();
    if let Err(failed) = pages::truncating(dir, path, flags) {
        return failed.with(-1);
    }
    let opened = client(|| client::open(dir, path, flags, |flags| layer::open(flags, &mut real)));
    match opened {
        Ok(fd) => {
            layer::opened(fd);
            checkpoint::opened(fd, path);
            pages::opened(fd, path)
        }
        Err(failed) => failed.with(-1),
    }
}
