//! The functions that ours hide: found once by name, among the libraries after this one, then
//! called through a pointer.
//!
//! [`hooks!`] declares an exported function under each of its names (`pwrite`, `pwrite64`, …: on
//! 64-bit Linux they are the same function); each goes on to the hidden function of exactly its own
//! name, so that another preloaded library behind this one sees what it would see without.
//!
//! The ABI is "C-unwind", and nothing on the way to the hidden function has to be dropped:
//! `pthread_cancel` unwinds through it.
//!
//! Some hidden functions are variadic (`open`, `fcntl`, `ioctl`, `syscall`), which stable Rust
//! cannot declare. They are declared with the arguments that they may have: x86-64 and aarch64
//! Linux pass variadic integers and pointers where they pass others, and an argument that the
//! caller did not give is only handed on, as the C library does.
#![expect(
    unsafe_code,
    reason = "makes functions of the addresses that the dynamic linker knows"
)]

use crate::{
    call_context::{errno, set_errno},
    linker::hidden_dlsym,
};
use libc::c_void;
use std::{
    ffi::CStr,
    marker::PhantomData,
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

/// A hidden function of type `F`, an `unsafe extern "C-unwind" fn`.
pub(crate) struct Real<F> {
    pub(crate) hidden: Hidden,
    function: PhantomData<F>,
}

/// A hidden function, of which only the address is used.
pub(crate) struct Hidden {
    name: &'static CStr,
    /// Null until it was looked for with success.
    address: AtomicPtr<c_void>,
}

/// A function of ours, and what it hides.
pub(crate) struct Hook {
    hidden: &'static Hidden,
    ours: *const (),
}

// SAFETY: addresses of functions, which are the same for all threads.
unsafe impl Sync for Hook {}

impl Hook {
    pub(crate) const fn new(hidden: &'static Hidden, ours: *const ()) -> Self {
        Self { hidden, ours }
    }

    pub(crate) fn name(&self) -> &'static CStr {
        self.hidden.name
    }

    /// The address of what it hides, if that was looked for with success.
    pub(crate) fn found(&self) -> *mut c_void {
        self.hidden.address.load(Ordering::Acquire)
    }

    /// The address of what it hides; null if no library has that.
    pub(crate) fn hidden(&self) -> *mut c_void {
        self.hidden.get()
    }

    pub(crate) fn ours(&self) -> *mut c_void {
        self.ours.cast_mut().cast()
    }
}

impl<F> Real<F> {
    /// # Safety
    ///
    /// Whatever a library exports as `name` can be called as an `F`.
    pub(crate) const unsafe fn new(name: &'static CStr) -> Self {
        const {
            assert!(
                size_of::<Option<F>>() == size_of::<*mut c_void>(),
                "F is a function pointer"
            );
        }
        Self {
            hidden: Hidden {
                name,
                address: AtomicPtr::new(ptr::null_mut()),
            },
            function: PhantomData,
        }
    }

    /// The function, if it was looked for with success before.
    #[inline(always)]
    pub(crate) fn found(&self) -> Option<F> {
        Self::function(self.hidden.address.load(Ordering::Acquire))
    }

    /// The function, or `None` if no library has it. Leaves errno alone.
    pub(crate) fn get(&self) -> Option<F> {
        self.found().or_else(|| Self::function(self.hidden.find()))
    }

    #[inline(always)]
    fn function(address: *mut c_void) -> Option<F> {
        // SAFETY: an optional function pointer is an address or null (the size is asserted in
        // `new`), and `new`'s caller vouches for its type.
        unsafe { std::mem::transmute_copy(&address) }
    }
}

impl Hidden {
    fn get(&self) -> *mut c_void {
        match self.address.load(Ordering::Acquire) {
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

/// Declares exported functions, each under all of its names:
///
/// * `missing`: what is returned if there is no hidden function;
/// * `plain if`: the hidden function is called and nothing else happens (a tail call);
/// * `else`: what happens otherwise, with the hidden function in a variable.
///
/// It also defines `HOOKS`, the table of the module's functions, and `over`, where each of them
/// goes on to a function that its caller gives: a system call that is made by its number must not
/// come back to the hidden function of that name, which may be the one that makes it.
macro_rules! hooks {
    ($(
        fn [$($name:ident)+] $arguments:tt -> $result:ty;
        missing $missing:expr;
        plain if $plain:expr;
        else |$real:ident| $otherwise:expr;
    )*) => {
        #[allow(non_upper_case_globals, reason = "named as the functions are")]
        mod hidden {
            #[allow(unused_imports, reason = "not every module has types to import")]
            use super::*;
            $($(
                pub(super) static $name: $crate::real::Real<$crate::real::signature!($arguments -> $result)> = {
                    // SAFETY: the signatures are those of the manual pages.
                    unsafe { $crate::real::Real::new($crate::real::c_name!($name)) }
                };
            )+)*
        }

        /// The functions of this module.
        pub(crate) static HOOKS: &[$crate::real::Hook] = &[
            $($( $crate::real::Hook::new(&hidden::$name.hidden, $name as *const ()), )+)*
        ];

        /// The same over another function than the one that each hides.
        #[allow(non_snake_case, reason = "named as the functions are")]
        pub(crate) mod over {
            #[allow(unused_imports, reason = "not every module has types to import")]
            use super::*;
            $($(
                $crate::real::over! { $name $arguments -> $result; $plain; $real; $otherwise }
            )+)*
        }

        $($(
            $crate::real::hook! { $name $arguments -> $result; $missing; $plain }
        )+)*
    };
}

macro_rules! hook {
    ($name:ident ($($argument:ident: $type:ty),*) -> $result:ty; $missing:expr; $plain:expr) => {
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            // Apart, so that the plain way needs no stack: it is a few loads and a jump.
            #[inline(never)]
            fn in_full($($argument: $type),*) -> $result {
                match hidden::$name.get() {
                    // SAFETY: it is called with what our caller wanted to call it with.
                    Some(real) => unsafe { over::$name(real, $($argument),*) },
                    None => $missing,
                }
            }
            match hidden::$name.found() {
                // SAFETY: as above.
                Some(real) if $plain => unsafe { real($($argument),*) },
                _ => in_full($($argument),*),
            }
        }
    };
}

macro_rules! over {
    ($name:ident ($($argument:ident: $type:ty),*) -> $result:ty; $plain:expr; $real:ident; $otherwise:expr) => {
        pub(crate) unsafe fn $name(
            $real: $crate::real::signature!(($($argument: $type),*) -> $result),
            $($argument: $type),*
        ) -> $result {
            if $plain {
                // SAFETY: it is called with what our caller wanted to call it with.
                return unsafe { $real($($argument),*) };
            }
            $otherwise
        }
    };
}

macro_rules! signature {
    (($($argument:ident: $type:ty),*) -> $result:ty) => {
        unsafe extern "C-unwind" fn($($type),*) -> $result
    };
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

pub(crate) use {c_name, hook, hooks, over, signature};
