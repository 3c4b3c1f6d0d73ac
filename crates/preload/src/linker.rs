//! The dynamic linker's functions that ours hide (`dlsym`, `dlvsym`, `dlopen`, `dlmopen`), called
//! as the program would without us. They are found in the tables of the libraries
//! ([`next_definition`](crate::next_definition)): `dlsym` cannot be asked where it is, since this
//! library's own is the one that answers.
#![expect(
    unsafe_code,
    reason = "makes functions of the addresses that were found"
)]

use crate::next_definition::NextDefinition;
use libc::{c_char, c_int, c_void};
use std::ptr;

pub(crate) static DLSYM: NextDefinition = NextDefinition::new(c"dlsym");
pub(crate) static DLVSYM: NextDefinition = NextDefinition::new(c"dlvsym");
pub(crate) static DLOPEN: NextDefinition = NextDefinition::new(c"dlopen");
pub(crate) static DLMOPEN: NextDefinition = NextDefinition::new(c"dlmopen");

/// All of them.
pub(crate) static FUNCTIONS: [&NextDefinition; 4] = [&DLSYM, &DLVSYM, &DLOPEN, &DLMOPEN];

/// Where a jump goes.
pub(crate) type JumpTarget = *mut c_void;

/// Where it goes if there is no hidden function.
pub(crate) fn or_fail(next: &NextDefinition) -> JumpTarget {
    match next.get() {
        there if there.is_null() => fail as JumpTarget,
        there => there,
    }
}

unsafe extern "C-unwind" fn fail() -> *mut c_void {
    ptr::null_mut()
}

/// Whether a library of this name is loaded, in the program's own namespace.
pub(crate) fn is_loaded(name: *const c_char) -> bool {
    let address = or_fail(&DLOPEN);
    // SAFETY: a function that is called `dlopen`, or one that takes no arguments and returns null;
    // a string, and a handle that was just given.
    unsafe {
        let real: unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void =
            std::mem::transmute(address);
        let library = real(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        !library.is_null() && {
            libc::dlclose(library);
            true
        }
    }
}

/// Looks `name` up as the hidden `dlsym` does: what this library hides stays what it is.
///
/// # Safety
///
/// As `dlsym`; the handle is one.
pub(crate) unsafe fn hidden_dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let address = or_fail(&DLSYM);
    // SAFETY: a function that is called `dlsym`, or one that takes no arguments and returns null.
    unsafe {
        let real: unsafe extern "C-unwind" fn(*mut c_void, *const c_char) -> *mut c_void =
            std::mem::transmute(address);
        real(handle, name)
    }
}
