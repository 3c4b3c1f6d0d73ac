//! The dynamic linker's functions that ours hide (`dlsym`, `dlvsym`, `dlopen`, `dlmopen`), called
//! as the program would without us. They are found in the tables of the libraries
//! ([`next_definition`](crate::next_definition)): `dlsym` cannot be asked where it is, since this
//! library's own is the one that answers.
#![expect(
    unsafe_code,
    reason = "makes functions of the addresses that were found"
)]

use crate::next_definition::NextDefinition;
use libc::{Dl_info, c_char, c_int, c_void};
use std::{ffi::CStr, mem::MaybeUninit, ptr};

pub(crate) static DLSYM: NextDefinition = NextDefinition::new(c"dlsym");
pub(crate) static DLVSYM: NextDefinition = NextDefinition::new(c"dlvsym");
pub(crate) static DLOPEN: NextDefinition = NextDefinition::new(c"dlopen");
pub(crate) static DLMOPEN: NextDefinition = NextDefinition::new(c"dlmopen");

/// All of them.
pub(crate) static FUNCTIONS: [&NextDefinition; 4] = [&DLSYM, &DLVSYM, &DLOPEN, &DLMOPEN];

/// The target of a jump.
pub(crate) type JumpTarget = *mut c_void;

/// The next definition's address, or a function that fails, if there is no hidden function.
pub(crate) fn or_fail(next: &NextDefinition) -> JumpTarget {
    match next.get() {
        there if there.is_null() => fail as JumpTarget,
        there => there,
    }
}

unsafe extern "C-unwind" fn fail() -> *mut c_void {
    ptr::null_mut()
}

/// True if a library of this name is loaded, in the program's own namespace.
pub(crate) fn is_loaded(name: *const c_char) -> bool {
    // SAFETY: a string, as `dlopen` takes it.
    LoadedHandle::of(unsafe { CStr::from_ptr(name) }).is_some()
}

/// A library that is loaded in the program's own namespace, and stays so.
pub(crate) struct LoadedHandle(*mut c_void);

impl LoadedHandle {
    /// None if it is not loaded.
    pub(crate) fn of(name: &CStr) -> Option<Self> {
        let address = or_fail(&DLOPEN);
        // SAFETY: a function that is called `dlopen`, or one that takes no arguments and returns
        // null; a string.
        let library = unsafe {
            let real: unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void =
                std::mem::transmute(address);
            real(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD)
        };
        (!library.is_null()).then(|| Self(library))
    }

    /// Its symbol of that name, or that of a library it needs; null if there is none.
    pub(crate) fn find(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a handle, and a string.
        unsafe { hidden_dlsym(self.0, name.as_ptr()) }
    }
}

impl Drop for LoadedHandle {
    fn drop(&mut self) {
        // SAFETY: a handle that was given.
        unsafe { libc::dlclose(self.0) };
    }
}

/// The symbol of that name in the program, or in a library loaded with it; null if there is none.
pub(crate) fn find_globally(name: &CStr) -> *mut c_void {
    // SAFETY: a string; the handle is no library's.
    unsafe { hidden_dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Looks `name` up as the hidden `dlsym` does: functions that this library hides stay hidden.
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

/// The C library's files, and those that it consisted of before glibc 2.34.
const C_LIBRARY: [&[u8]; 5] = [
    b"libc.so.6",
    b"libm.so.6",
    b"libpthread.so.0",
    b"librt.so.1",
    b"libdl.so.2",
];

/// True if this is of the C library, in the parts of which it may consist.
pub(crate) fn is_c_librarys(place: *mut c_void) -> bool {
    let mut info = MaybeUninit::<Dl_info>::uninit();
    // SAFETY: any address can be asked about; the place is filled if the answer is not 0.
    let file = unsafe {
        match libc::dladdr(place, info.as_mut_ptr()) {
            0 => return false,
            _ => info.assume_init().dli_fname,
        }
    };
    if file.is_null() {
        return false;
    }
    // SAFETY: the name of a library, which is loaded: it has the function that the caller is about
    // to be given.
    let path = unsafe { CStr::from_ptr(file) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next();
    C_LIBRARY.iter().any(|part| name == Some(part))
}
