//! `mmap`: a shared mapping of an absorbed file, which is open for writing, can be written to now or after `mprotect`.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{around::missing, change::retire, real::hooks};
use forebay_files::client;
use libc::{c_int, c_void, off_t, size_t};

hooks! {
    fn [mmap mmap64] (address: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    missing missing(libc::MAP_FAILED);
    plain if !is_shared(flags) || !client::absorbs(fd);
    else |real| match retire(fd) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(address, bytes, protection, flags, fd, offset) },
        Err(failed) => failed.with(libc::MAP_FAILED),
    };
}

/// Whether a mapping with `flags` is of a file and writes to it.
fn is_shared(flags: c_int) -> bool {
    matches!(
        flags & libc::MAP_TYPE,
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE
    ) && flags & libc::MAP_ANONYMOUS == 0
}
