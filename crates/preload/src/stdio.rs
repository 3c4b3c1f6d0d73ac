//! Streams: the C library writes to their files without coming by here, so a file that gets one is
//! retired first.
//!
//! `fclose` and `freopen` close a descriptor, which the client must hear of as of
//! [`crate::descriptor`]'s. `dprintf` is in [`crate::dprintf`]. `vdprintf` and
//! `backtrace_symbols_fd` are here, since they write in the same way.
#![expect(unsafe_code, reason = "exports C functions; reads a mode string")]

use crate::{
    call_context::{FailedCall, is_client, missing},
    client_call::{client, tell_client},
    descriptor::note_standard_error,
    execute::before_shell,
    handler::handlers,
    layer, memory, metadata,
    metadata::MayCreate,
    pages,
    retire::retire,
    truncated_fds,
};
use forebay_files::client;
use libc::{AT_FDCWD, FILE, c_char, c_int, c_void};
use std::ptr;

handlers! {
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    missing missing(ptr::null_mut());
    plain if is_client();
    else |real| match retire(fd) {
        Ok(()) => {
            // SAFETY: our caller's arguments.
            let stream = unsafe { real(fd, mode) };
            note(stream);
            stream
        }
        Err(failed) => failed.with(ptr::null_mut()),
    };

    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    missing missing(ptr::null_mut());
    plain if is_client();
    else |real| {
        if !is_plain(mode)
            && let Err(failed) = retire_path(path).and_then(|()| pages::exporting(path))
        {
            return failed.with(ptr::null_mut());
        }
        let before = before_open(path, mode);
        // SAFETY: our caller's arguments.
        let stream = unsafe { real(path, mode) };
        note_opened(before, stream);
        claimed(mode, stream)
    };

    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    missing missing(ptr::null_mut());
    plain if is_client();
    else |real| match before_reopening(path, mode, stream) {
        Ok(()) => {
            let before = before_open(path, mode);
            // SAFETY: our caller's arguments.
            let reopen = || unsafe { real(path, mode, stream) };
            let stream = truncated_fds::closing(number(stream), reopen);
            note_opened(before, stream);
            if path.is_null() && !stream.is_null() && flags_of(mode) & libc::O_TRUNC != 0 {
                metadata::cut_off(number(stream));
            }
            if !stream.is_null() && number(stream) == libc::STDERR_FILENO {
                note_standard_error();
            }
            claimed(mode, stream)
        }
        Err(failed) => failed.with(ptr::null_mut()),
    };

    fn fclose(stream: *mut FILE) -> c_int;
    missing missing(libc::EOF);
    plain if is_client();
    else |real| {
        closing(stream);
        // SAFETY: our caller's argument.
        truncated_fds::closing(number(stream), || unsafe { real(stream) })
    };

    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
    missing missing(ptr::null_mut());
    plain if is_client();
    else |real| {
        if let Err(failed) = before_shell() {
            return failed.with(ptr::null_mut());
        }
        // SAFETY: our caller's arguments.
        let stream = unsafe { real(command, mode) };
        note(stream);
        stream
    };

    fn pclose(stream: *mut FILE) -> c_int;
    missing missing(-1);
    plain if is_client();
    else |real| {
        closing(stream);
        // SAFETY: our caller's argument.
        unsafe { real(stream) }
    };

    fn tmpfile() -> *mut FILE;
    missing missing(ptr::null_mut());
    plain if is_client();
    else |real| {
        // SAFETY: our caller's wish.
        let stream = unsafe { real() };
        note(stream);
        stream
    };

    // The list of arguments is a pointer in both ABIs.
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    missing missing(-1);
    plain if !client::absorbs(fd);
    else |real| match retire(fd) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(fd, format, arguments) },
        Err(failed) => failed.with(-1),
    };

    // Written by the C library itself, and most probably by a signal handler.
    fn backtrace_symbols_fd(frames: *const *mut c_void, count: c_int, fd: c_int) -> ();
    missing missing(());
    plain if !client::absorbs(fd);
    else |real| match retire(fd) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(frames, count, fd) },
        Err(failed) => failed.with(()),
    };

    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    missing missing(-1);
    plain if !client::absorbs(fd);
    else |real| match retire(fd) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(fd, flag, format, arguments) },
        Err(failed) => failed.with(-1),
    };
}

/// A stream was just opened: what the program puts in the place of its descriptor, the stream
/// writes to past the client.
fn note(stream: *mut FILE) {
    if !stream.is_null() {
        client::stream_opened(number(stream));
    }
}

/// And its descriptor with it.
fn note_new(stream: *mut FILE) {
    note(stream);
    if !stream.is_null() && layer::is_there() {
        layer::opened(number(stream));
    }
}

/// Before the file at `path` is opened in this mode: what that may change of names and sizes.
fn before_open(path: *const c_char, mode: *const c_char) -> Option<MayCreate> {
    if path.is_null() || !client::counts_changes() {
        return None;
    }
    metadata::before_open(AT_FDCWD, path, flags_of(mode))
}

/// Flags for the effect of opening a stream in this mode on names and sizes.
fn flags_of(mode: *const c_char) -> c_int {
    // SAFETY: the C library reads the first letter as well.
    match unsafe { *mode.cast::<u8>() } {
        b'w' => libc::O_CREAT | libc::O_TRUNC,
        b'a' => libc::O_CREAT,
        _ => 0,
    }
}

/// A stream was just opened by a path.
fn note_opened(before: Option<MayCreate>, stream: *mut FILE) {
    if !stream.is_null() {
        metadata::opened(before, number(stream));
    }
    note_new(stream);
}

/// A stream that was just opened, when no other process absorbs its file any more; null if that
/// cannot be achieved.
fn claimed(mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    if stream.is_null() || is_plain(mode) {
        return stream;
    }
    match client(|| client::opened(number(stream))) {
        Ok(()) => stream,
        Err(failed) => {
            // SAFETY: the program has not got it yet.
            unsafe { libc::fclose(stream) };
            failed.with(ptr::null_mut())
        }
    }
}

/// True if a stream of this mode leaves the file that it opens as it is.
fn is_plain(mode: *const c_char) -> bool {
    // SAFETY: the C library reads the mode in the same way.
    !unsafe { writes(mode) } || is_client()
}

/// # Safety
///
/// `mode` is a string.
unsafe fn writes(mode: *const c_char) -> bool {
    // SAFETY: our caller says so; nothing after the NUL is read.
    let letters = (0..).map(|at| unsafe { *mode.cast::<u8>().add(at) });
    // After a comma there is only a character set.
    letters
        .take_while(|letter| !matches!(letter, 0 | b','))
        .any(|letter| matches!(letter, b'w' | b'a' | b'+'))
}

/// Makes the file at `path` plain. A path that the kernel would not take is left to it.
fn retire_path(path: *const c_char) -> Result<(), FailedCall> {
    // SAFETY: our caller does not change the path meanwhile.
    match unsafe { memory::path(path) } {
        Some(path) => client(|| client::retire_path(AT_FDCWD, path)),
        None => Ok(()),
    }
}

fn before_reopening(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> Result<(), FailedCall> {
    if !path.is_null() && !is_plain(mode) {
        retire_path(path)?;
    }
    retire(number(stream))?;
    closing(stream);
    Ok(())
}

fn is_followed(fd: c_int) -> bool {
    client::absorbs(fd) || layer::sees(fd)
}

fn closing(stream: *mut FILE) {
    let fd = number(stream);
    client::stream_closing(fd);
    if is_followed(fd) {
        tell_client(|| client::closing(fd));
        layer::closing(fd);
    }
}

/// The stream's descriptor, or a negative number if it has none. Leaves errno alone.
fn number(stream: *mut FILE) -> c_int {
    let before = crate::call_context::errno();
    // SAFETY: it is a stream: our caller wants to close it.
    let fd = unsafe { libc::fileno(stream) };
    crate::call_context::set_errno(before);
    fd
}
