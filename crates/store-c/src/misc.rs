//! Memory that goes back, and the version.

use std::ffi::{c_char, c_int, c_void};

/// Frees what this library returned as char*. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_free(ptr: *mut c_void) {
    // SAFETY: it is memory of `malloc`, or NULL.
    unsafe { libc::free(ptr) };
}

/// Major version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_major_version() -> c_int {
    env!("CARGO_PKG_VERSION_MAJOR").parse().unwrap_or(0)
}

/// Minor version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_minor_version() -> c_int {
    env!("CARGO_PKG_VERSION_MINOR").parse().unwrap_or(0)
}

/// Version of the library, as text that stays.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
