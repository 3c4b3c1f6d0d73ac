//! `open`, `openat`, `openat2`, `creat` in all spellings: an open that can change a file goes
//! through the client.
//!
//! What cannot (read-only without `O_TRUNC`, `O_PATH`, a directory, an unnamed file) is opened
//! plainly. Opening through the client is a cancellation point at its start, but cannot be
//! cancelled while it blocks. So does what a signal handler opens above a call of the client; the
//! client itself opens nothing to change it by these functions.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    call_context::{FailedCall, cancellation_point, is_client, missing},
    checkpoint,
    client_call::client,
    handler::{HookHandler as _, handlers},
    kernel, layer, memory, metadata, pages,
};
use forebay_files::client;
use libc::{AT_FDCWD, c_char, c_int, c_void, mode_t, size_t};
use rustix::io::Errno;
use std::mem::MaybeUninit;

handlers! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    missing missing(-1);
    plain if is_plain(flags);
    else |real| open_file(AT_FDCWD, path, flags, |flags| {
        // SAFETY: our caller's arguments, but for the flags.
        unsafe { real(path, flags, mode) }
    });

    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    missing missing(-1);
    plain if is_plain(flags);
    else |real| open_file(dir, path, flags, |flags| {
        // SAFETY: our caller's arguments, but for the flags.
        unsafe { real(dir, path, flags, mode) }
    });

    // In the C library since glibc 2.43; before, programs call it by `syscall`, which comes here.
    fn openat2(dir: c_int, path: *const c_char, how: *const c_void, bytes: size_t) -> c_int;
    missing open_how(dir, path, (how, bytes), |how| {
        // SAFETY: our caller's arguments, but for the flags.
        unsafe { kernel::by_number::of_4::<{ libc::SYS_openat2 }, _, _, _, _, _>(dir, path, how, bytes) }
    });
    plain if false;
    else |real| open_how(dir, path, (how, bytes), |how| {
        // SAFETY: as above.
        unsafe { real(dir, path, how, bytes) }
    });

    fn __open_2(path: *const c_char, flags: c_int) -> c_int;
    missing missing(-1);
    plain if is_plain(flags);
    else |real| open_file(AT_FDCWD, path, flags, |flags| {
        // SAFETY: our caller's arguments, but for the flags.
        unsafe { real(path, flags) }
    });

    fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    missing missing(-1);
    plain if is_plain(flags);
    else |real| open_file(dir, path, flags, |flags| {
        // SAFETY: our caller's arguments, but for the flags.
        unsafe { real(dir, path, flags) }
    });

    fn creat(path: *const c_char, mode: mode_t) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| open_file(AT_FDCWD, path, CREAT, |flags| match open::hidden() {
        // The client truncates the file itself, at another moment. SAFETY: our caller's arguments,
        // and some of the flags that `creat` has.
        Some(open) if flags != CREAT => unsafe { open(path, flags, mode) },
        // SAFETY: our caller's arguments.
        _ => unsafe { real(path, mode) },
    });
}

/// The flags of `creat`.
const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

fn is_plain(flags: c_int) -> bool {
    let is_watched = layer::is_there() || pages::is_configured();
    !may_matter(flags) && (!is_watched || flags & libc::O_PATH != 0 || is_client())
}

/// True if a file opened with `flags` can be changed, by opening it or through the descriptor.
pub(crate) fn can_change(flags: c_int) -> bool {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
    // O_TMPFILE has the bit of O_DIRECTORY; the file that it makes has no name.
    writes && flags & (libc::O_PATH | libc::O_DIRECTORY) == 0
}

/// True if opening a file with `flags` is more than the kernel's business, without a layer and a
/// cache.
pub(crate) fn may_matter(flags: c_int) -> bool {
    can_change(flags) || flags & libc::O_CREAT != 0 && client::counts_changes()
}

/// The bytes of a `struct open_how` that are known: it had 24 at first, and may grow.
const HOW_BYTES: usize = 128;

/// Opens a file as `how` says, whose first field are the flags; `real` opens it by another one.
fn open_how(
    dir: c_int,
    path: *const c_char,
    (how, bytes): (*const c_void, size_t),
    mut real: impl FnMut(*const c_void) -> c_int,
) -> c_int {
    const FLAGS: usize = size_of::<u64>();
    if bytes > HOW_BYTES {
        // As a kernel that knows less than its caller.
        return FailedCall::of(Errno::TOOBIG).with(-1);
    }
    let mut place = [const { MaybeUninit::uninit() }; HOW_BYTES];
    // SAFETY: our caller does not change it meanwhile; any bytes are bytes.
    let Some(how_bytes) = (unsafe { memory::read_all(how.cast::<u8>(), &mut place[..bytes]) })
    else {
        return real(how);
    };
    let Some(first) = how_bytes.first_chunk_mut::<FLAGS>() else {
        return real(how);
    };
    let wanted = u64::from_ne_bytes(*first);
    let flags = wanted as c_int;
    if is_plain(flags) {
        return real(how);
    }
    open_file(dir, path, flags, |flags| {
        let others = wanted & !u64::from(u32::MAX);
        let flags = others | u64::from(flags.cast_unsigned());
        if let Some(first) = how_bytes.first_chunk_mut::<FLAGS>() {
            *first = flags.to_ne_bytes();
        }
        real(how_bytes.as_ptr().cast())
    })
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
    let before = metadata::before_open(dir, path.as_ptr(), flags);
    let opened = client(|| client::open(dir, path, flags, |flags| layer::open(flags, &mut real)));
    match opened {
        Ok(fd) => {
            metadata::opened(before, fd);
            layer::opened(fd);
            checkpoint::opened(fd, path);
            pages::opened(fd, path, flags)
        }
        Err(failed) => failed.with(-1),
    }
}
