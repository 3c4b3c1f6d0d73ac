//! The libraries that a program may have loaded, and which functions not every system has.

use libc::c_void;
use std::{
    ffi::{CStr, CString},
    ptr,
};

/// Libraries that a program may have loaded beside the C library.
#[derive(Clone, Copy)]
pub struct Libraries {
    aio: *mut c_void,
    uring: *mut c_void,
}

// SAFETY: handles of libraries, which stay.
unsafe impl Send for Libraries {}

impl Libraries {
    /// Loads them as a plugin would, for itself alone.
    pub fn load() -> Self {
        let open = |names: [&CStr; 2]| {
            names
                .iter()
                .map(|name| unsafe {
                    libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL)
                })
                .find(|library| !library.is_null())
                .unwrap_or(ptr::null_mut())
        };
        Self {
            aio: open([c"libaio.so.1", c"libaio.so.1t64"]),
            uring: open([c"liburing.so.2", c"liburing.so.1"]),
        }
    }

    /// A function as a program or a plugin would bind it.
    pub fn find(self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        unsafe { libc::dlerror() };
        let mut address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        for library in [self.aio, self.uring] {
            if address.is_null() && !library.is_null() {
                address = unsafe { libc::dlsym(library, name.as_ptr()) };
            }
        }
        address
    }

    /// Whether the function is there without Forebay too.
    pub fn have(self, name: &str) -> bool {
        let library = if name == "io_submit" {
            self.aio
        } else {
            self.uring
        };
        let name = CString::new(name).unwrap();
        !library.is_null() && !unsafe { libc::dlsym(library, name.as_ptr()) }.is_null()
    }
}

/// Whether a function is one by which all others are found here.
pub fn is_of_the_linker(name: &str) -> bool {
    ["dlopen", "dlmopen", "dlsym", "dlvsym"].contains(&name)
}

/// Whether a function is one that executes a program, which is compared with nothing here.
pub fn executes(name: &str) -> bool {
    ["exec", "fexec", "pidfd_spawn", "posix_spawn"]
        .iter()
        .any(|begin| name.starts_with(begin))
        || name == "system"
}

/// Whether a function is one that not every system has, or not every user may call.
pub fn may_be_missing(name: &str) -> bool {
    match name {
        // What they open is plain: crates/cli/tests/run_rings.rs.
        "open_by_handle_at" | "pidfd_getfd" => true,
        "openat2" => !has_openat2(),
        _ => name.starts_with("io_") && !Libraries::load().have(name),
    }
}

/// Whether the C library has it, whatever Forebay has.
pub fn has_openat2() -> bool {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    let library = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), flags) };
    !library.is_null() && !unsafe { libc::dlsym(library, c"openat2".as_ptr()) }.is_null()
}
