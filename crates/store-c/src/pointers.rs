//! A caller's pointers as Rust's types, and errors as C's strings.

use forebay_bindings::BindingError;
use std::{
    ffi::{CStr, OsStr, c_char},
    fmt::Display,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr, slice,
};

/// The bytes of a key or value.
///
/// # Safety
/// `bytes` points to `len` bytes that stay as they are for `'a`, or is NULL.
pub(crate) unsafe fn slice<'a>(
    bytes: *const c_char,
    len: usize,
    what: &str,
) -> Result<&'a [u8], BindingError> {
    match (bytes.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(BindingError::Argument(format!(
            "the {what} is NULL, and has {len} bytes; give a pointer to them"
        ))),
        // SAFETY: as the caller promises.
        (false, _) => Ok(unsafe { slice::from_raw_parts(bytes.cast(), len) }),
    }
}

/// The target of a handle.
///
/// # Safety
/// It came from this library and was not given back, or is NULL.
pub(crate) unsafe fn handle<'a, T>(handle: *const T, what: &str) -> Result<&'a T, BindingError> {
    // SAFETY: as the caller promises.
    unsafe { handle.as_ref() }.ok_or_else(|| BindingError::Argument(format!("the {what} is NULL")))
}

/// The same, of a function that has no way to say so: the process ends.
///
/// # Safety
/// As [`handle`]; and nothing else uses it meanwhile.
pub(crate) unsafe fn handle_mut<'a, T>(handle: *mut T, what: &str) -> &'a mut T {
    // SAFETY: as the caller promises.
    match unsafe { handle.as_mut() } {
        Some(handle) => handle,
        None => end(&format!("the {what} is NULL")),
    }
}

/// Ends what a handle points to.
///
/// # Safety
/// It came from `Box::into_raw` and was not given back, or is NULL.
pub(crate) unsafe fn drop_handle<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// A string of C.
///
/// # Safety
/// It ends with a zero and stays as it is for `'a`, or is NULL.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, BindingError> {
    if text.is_null() {
        return Err(BindingError::Argument(format!("the {what} is NULL")));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A path.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'a>(path: *const c_char, what: &str) -> Result<&'a Path, BindingError> {
    // SAFETY: as the caller promises.
    let path = unsafe { text(path, what) }?.to_bytes();
    match path.is_empty() {
        true => Err(BindingError::Argument(format!("the {what} is empty"))),
        false => Ok(Path::new(OsStr::from_bytes(path))),
    }
}

/// The value of `done`; `otherwise`, and the message in `errptr`, if that is an error.
///
/// # Safety
/// `errptr` points to NULL, or to a pointer to memory of `malloc`.
pub(crate) unsafe fn told<T>(
    errptr: *mut *mut c_char,
    otherwise: T,
    done: impl FnOnce() -> Result<T, BindingError>,
) -> T {
    match done() {
        Ok(value) => value,
        Err(error) => {
            // SAFETY: as the caller promises.
            unsafe { tell(errptr, &error) };
            otherwise
        }
    }
}

/// Puts a message into `errptr`, and frees the one before.
///
/// # Safety
/// As [`told`].
pub(crate) unsafe fn tell(errptr: *mut *mut c_char, error: &dyn Display) {
    let error = error.to_string();
    if errptr.is_null() {
        end(&format!("errptr is NULL, and there is an error: {error}"));
    }
    // SAFETY: as the caller promises: it may be read and written, and what it points to be freed.
    unsafe {
        libc::free((*errptr).cast());
        *errptr = allocated_text(&error);
    }
}

/// A copy in memory of `malloc`; NULL never: with no memory left the process ends.
pub(crate) fn allocated(bytes: &[u8]) -> *mut c_char {
    // SAFETY: any length may be asked for; of 0 bytes some systems give NULL.
    let copy: *mut c_char = unsafe { libc::malloc(bytes.len().max(1)) }.cast();
    if copy.is_null() {
        end(&format!("no memory for {} bytes", bytes.len()));
    }
    // SAFETY: both have that length, and the copy is new.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), copy, bytes.len()) };
    copy
}

/// The same of a string, which gets a zero at its end; a zero within it ends it earlier.
pub(crate) fn allocated_text(text: &str) -> *mut c_char {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    allocated(&bytes)
}

/// Ends the process: what the caller does is not possible, and there is no way to tell it.
fn end(why: &str) -> ! {
    eprintln!("libforebay_store: {why}");
    std::process::abort()
}
