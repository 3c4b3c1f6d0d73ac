//! The functions that ours hide: found once by name, among the libraries after this one, then
//! called through a pointer.
//!
//! Some hidden functions are variadic (`open`, `fcntl`, `ioctl`, `syscall`), which stable Rust
//! cannot declare. They are declared with the arguments that they may have. Linux on x86-64 and
//! aarch64 passes variadic integers and pointers where it passes others, and an argument that the
//! caller did not give is only handed on, as the C library does.
#![expect(
    unsafe_code,
    reason = "makes functions of the addresses that the dynamic linker knows"
)]

use crate::{
    call_context::{errno, set_errno},
    linker::hidden_dlsym,
    table,
};
use libc::c_void;
use std::{
    ffi::CStr,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("libforebay.so translates the GNU C library's functions on x86-64 and aarch64");

const _: () = assert!(
    size_of::<libc::off_t>() == size_of::<libc::off64_t>(),
    "the 64 spellings must be the same functions"
);

/// A hidden function.
pub(crate) struct HiddenSymbol {
    name: &'static CStr,
    /// Null until it was looked for with success.
    address: AtomicPtr<c_void>,
}

impl HiddenSymbol {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(crate) fn name(&self) -> &'static CStr {
        self.name
    }

    /// The function, if it was looked for with success before.
    ///
    /// # Safety
    ///
    /// Whatever a library exports under this name can be called as an `F`, an `unsafe extern
    /// "C-unwind" fn`.
    #[inline(always)]
    pub(crate) unsafe fn found<F>(&self) -> Option<F> {
        // SAFETY: our caller says so.
        unsafe { function(self.found_address()) }
    }

    /// The function, or `None` if no library has it. Leaves errno alone.
    ///
    /// # Safety
    ///
    /// As of [`found`](Self::found).
    pub(crate) unsafe fn get<F>(&self) -> Option<F> {
        // SAFETY: our caller says so.
        unsafe { function(self.address()) }
    }

    /// Its address, if it was looked for with success before; null otherwise.
    #[inline(always)]
    pub(crate) fn found_address(&self) -> *mut c_void {
        self.address.load(Ordering::Acquire)
    }

    /// Its address; null if no library has it. Leaves errno alone.
    pub(crate) fn address(&self) -> *mut c_void {
        match self.found_address() {
            unknown if unknown.is_null() => self.find(),
            address => address,
        }
    }

    #[cold]
    #[inline(never)]
    fn find(&self) -> *mut c_void {
        let before = errno();
        // SAFETY: `name` is a string; RTLD_NEXT needs nothing.
        let mut address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if address.is_null() {
            address = in_private_library(self.name);
            // SAFETY: it needs nothing. The failure is ours; the program's next `dlerror` must not
            // show it.
            unsafe { libc::dlerror() };
        }
        self.address.store(address, Ordering::Release);
        set_errno(before);
        address
    }
}

/// An address as an optional function.
///
/// # Safety
///
/// It is null, or one that can be called as an `F`.
#[inline(always)]
unsafe fn function<F>(address: *mut c_void) -> Option<F> {
    const {
        assert!(
            size_of::<Option<F>>() == size_of::<*mut c_void>(),
            "F is a function pointer"
        );
    }
    // SAFETY: an optional function pointer is an address or null, and our caller vouches for its
    // type.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Searches the libraries whose functions we hide beside the C library's, which a plugin may have
/// loaded for itself alone: RTLD_NEXT does not see them then.
fn in_private_library(name: &CStr) -> *mut c_void {
    const LIBRARIES: [&CStr; 4] = [
        c"libaio.so.1",
        c"libaio.so.1t64",
        c"liburing.so.2",
        c"liburing.so.1",
    ];
    if !name.to_bytes().starts_with(b"io_") {
        return ptr::null_mut();
    }
    for library in LIBRARIES {
        // SAFETY: both are strings; RTLD_NOLOAD only finds a library that is loaded. The reference
        // that this takes is never given back, so the function stays.
        let address = unsafe {
            let library = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if library.is_null() {
                continue;
            }
            hidden_dlsym(library, name.as_ptr())
        };
        if !address.is_null() {
            return address;
        }
    }
    ptr::null_mut()
}

macro_rules! c_name {
    ($name:ident) => {{
        const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
            concat!(stringify!($name), "\0").as_bytes(),
        ) {
            Ok(name) => name,
            Err(_) => panic!("a name without NUL"),
        };
        NAME
    }};
}

/// Defines [`hidden`].
macro_rules! places {
    ($($kind:ident $module:ident $handler:ident $arguments:tt $name:ident;)+) => {
        /// The hidden functions, by their names, but for the dynamic linker's.
        #[allow(non_upper_case_globals, reason = "named as the functions are")]
        pub(crate) mod hidden {
            use super::HiddenSymbol;

            $(pub(crate) static $name: HiddenSymbol = HiddenSymbol::new(c_name!($name));)+

            /// All of it.
            pub(crate) static ALL: &[&HiddenSymbol] = &[$(&$name),+];
        }
    };
}

table::names! { places }
