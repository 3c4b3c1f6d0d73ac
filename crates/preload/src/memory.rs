//! The caller's memory, read without trusting its pointers: where the kernel says `EFAULT`, this
//! library must not crash.
#![expect(
    unsafe_code,
    reason = "reads memory that the kernel found to be readable"
)]

use crate::{
    call_context::{errno, set_errno},
    kernel::by_number,
};
use libc::{c_char, c_int, c_void};
use std::{ffi::CStr, mem::MaybeUninit, ptr};

/// Memory is readable or not by pages of at least this size.
const PAGE_BYTES: usize = 4096;

/// A path as the kernel takes it: NUL-terminated within `PATH_MAX` bytes of readable memory. `None`
/// otherwise; then the C library's function, called with the same pointer, fails as it should.
///
/// # Safety
///
/// What `path` points to stays as it is while the string is used.
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Option<&'a CStr> {
    let start = path.addr();
    let end = start.checked_add(libc::PATH_MAX as usize)?;
    let mut at = start;
    while at < end {
        let page_end = (at | (PAGE_BYTES - 1)).checked_add(1)?.min(end);
        if !is_readable(at) {
            return None;
        }
        // SAFETY: one byte of the page was readable, so all are; the caller keeps them in place.
        let nul = unsafe { libc::memchr(path.add(at - start).cast(), 0, page_end - at) };
        if !nul.is_null() {
            // SAFETY: there is a NUL, and all before it is readable.
            return Some(unsafe { CStr::from_ptr(path) });
        }
        at = page_end;
    }
    None
}

/// `*pointer`, if it can be read.
///
/// # Safety
///
/// No thread changes it meanwhile, and any bytes are a `T`.
pub(crate) unsafe fn read<T: Copy>(pointer: *const T) -> Option<T> {
    let mut place = [MaybeUninit::uninit()];
    // SAFETY: our caller's promise.
    unsafe { read_all(pointer, &mut place) }.map(|values| values[0])
}

/// As many values as `places` has, from `pointer` on, if they can be read. The pointer need not be
/// aligned.
///
/// # Safety
///
/// No thread changes them meanwhile, and any bytes are a `T`.
pub(crate) unsafe fn read_all<T: Copy>(
    pointer: *const T,
    places: &mut [MaybeUninit<T>],
) -> Option<&mut [T]> {
    let start = pointer.addr();
    let end = start.checked_add(size_of_val(places))?;
    let mut at = start;
    while at < end {
        if !is_readable(at) {
            return None;
        }
        at = (at | (PAGE_BYTES - 1)).checked_add(1)?;
    }
    // SAFETY: all pages from the first byte to the last are readable; `places` is ours, and
    // initialised by the copy.
    unsafe {
        let bytes = size_of_val(places);
        ptr::copy_nonoverlapping(pointer.cast::<u8>(), places.as_mut_ptr().cast(), bytes);
        Some(&mut *(ptr::from_mut(places) as *mut [T]))
    }
}

/// Asks the kernel whether the word around an address can be read: it copies a signal mask from
/// there before it finds that the other argument makes no sense.
pub fn is_readable(address: usize) -> bool {
    const NO_SUCH_HOW: c_int = -1;
    const MASK_BYTES: usize = 8;
    let word = (address & !(MASK_BYTES - 1)) as *const c_void;
    if word.is_null() {
        // To the kernel this would be no mask, which makes sense.
        return false;
    }
    let before = errno();
    // SAFETY: the kernel checks the address, and changes nothing because of the first argument.
    let _: c_int = unsafe {
        by_number::of_4::<{ libc::SYS_rt_sigprocmask }, _, _, _, _, _>(
            NO_SUCH_HOW,
            word,
            ptr::null::<c_void>(),
            MASK_BYTES,
        )
    };
    let is_readable = errno() != libc::EFAULT;
    set_errno(before);
    is_readable
}
