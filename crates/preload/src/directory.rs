//! `readdir`: the processes of a run do not see the guard, which keeps a server without Forebay
//! from starting ([`forebay_files::guard`]).
#![expect(unsafe_code, reason = "exports a C function")]

use crate::{call_context::missing, handler::handlers};
use forebay_files::client;
use libc::{DIR, dirent64};
use std::{ffi::CStr, ptr};

handlers! {
    fn readdir(directory: *mut DIR) -> *mut dirent64;
    missing missing(ptr::null_mut());
    plain if !client::hides_names();
    else |real| loop {
        // SAFETY: our caller's argument.
        let entry = unsafe { real(directory) };
        // SAFETY: an entry that the C library has just returned; its name ends with a NUL.
        let is_hidden = |entry: *mut dirent64| client::hides(unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) });
        if entry.is_null() || !is_hidden(entry) {
            break entry;
        }
    };
}
