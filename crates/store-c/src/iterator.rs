//! Iterators.

use crate::{
    handles::{forebay_readoptions_t, forebay_t},
    pointers::{drop_handle, handle, handle_mut, slice, tell, told},
};
use forebay_bindings::{BindingError, StoreCursor};
use std::{ffi::c_char, ptr};

/// A place among the keys of a store as of when it was created, or of a snapshot.
pub struct forebay_iterator_t {
    cursor: StoreCursor,
    refused: Option<BindingError>,
}

/// An iterator, at no key yet. NULL on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_create_iterator(
    db: *mut forebay_t,
    options: *const forebay_readoptions_t,
    errptr: *mut *mut c_char,
) -> *mut forebay_iterator_t {
    let create = || {
        // SAFETY: by the rules.
        let (db, options) = unsafe {
            let options = handle(options, "forebay_readoptions_t")?;
            (handle(db, "forebay_t")?, options)
        };
        let snapshot = match &options.snapshot {
            Some(snapshot) => snapshot.clone(),
            None => db.snapshot()?,
        };
        Ok(Box::into_raw(Box::new(forebay_iterator_t {
            cursor: StoreCursor::new(snapshot),
            refused: None,
        })))
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, ptr::null_mut(), create) }
}

/// Ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_iter_destroy(iter: *mut forebay_iterator_t) {
    // SAFETY: it came from `forebay_create_iterator`, or is NULL.
    unsafe { drop_handle(iter) };
}

/// The iterator, of which nothing is refused any more.
///
/// # Safety
/// As [`handle_mut`].
unsafe fn moved<'a>(iter: *mut forebay_iterator_t) -> &'a mut forebay_iterator_t {
    // SAFETY: as the caller promises.
    let iter = unsafe { handle_mut(iter, "forebay_iterator_t") };
    iter.refused = None;
    iter
}

/// What it is at.
///
/// # Safety
/// As [`handle_mut`].
unsafe fn at<'a>(iter: *const forebay_iterator_t) -> Option<(&'a [u8], &'a [u8])> {
    // SAFETY: as the caller promises; nothing is changed.
    unsafe { handle_mut(iter.cast_mut(), "forebay_iterator_t") }
        .cursor
        .get()
}

/// 1 if it is at a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_iter_valid(iter: *const forebay_iterator_t) -> u8 {
    // SAFETY: by the rules.
    u8::from(unsafe { at(iter) }.is_some())
}

/// Goes to the first key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_iter_seek_to_first(iter: *mut forebay_iterator_t) {
    // SAFETY: by the rules.
    unsafe { moved(iter) }.cursor.seek_to_first();
}

/// Goes to the last key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_iter_seek_to_last(iter: *mut forebay_iterator_t) {
    // SAFETY: by the rules.
    unsafe { moved(iter) }.cursor.seek_to_last();
}

/// Goes to the first key that is k or behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_iter_seek(
    iter: *mut forebay_iterator_t,
    k: *const c_char,
    klen: usize,
) {
    // SAFETY: by the rules.
    match unsafe { (moved(iter), slice(k, klen, "key")) } {
        (iter, Ok(key)) => iter.cursor.seek(key),
        (iter, Err(error)) => iter.refused = Some(error),
    }
}

/// Goes to the last key that is k or before it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_iter_seek_for_prev(
    iter: *mut forebay_iterator_t,
    k: *const c_char,
    klen: usize,
) {
    // SAFETY: by the rules.
    match unsafe { (moved(iter), slice(k, klen, "key")) } {
        (iter, Ok(key)) => iter.cursor.seek_for_prev(key),
        (iter, Err(error)) => iter.refused = Some(error),
    }
}

/// Goes to the next key; behind the last one it is at none, and stays there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_iter_next(iter: *mut forebay_iterator_t) {
    // SAFETY: by the rules.
    unsafe { moved(iter) }.cursor.next();
}

/// Goes to the key before; before the first one it is at none, and stays there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_iter_prev(iter: *mut forebay_iterator_t) {
    // SAFETY: by the rules.
    unsafe { moved(iter) }.cursor.prev();
}

/// The key that it is at, the iterator's until it is moved or destroyed; NULL at none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_iter_key(
    iter: *const forebay_iterator_t,
    klen: *mut usize,
) -> *const c_char {
    // SAFETY: by the rules.
    unsafe { give(at(iter).map(|(key, _)| key), klen) }
}

/// The value of that key, likewise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_iter_value(
    iter: *const forebay_iterator_t,
    vlen: *mut usize,
) -> *const c_char {
    // SAFETY: by the rules.
    unsafe { give(at(iter).map(|(_, value)| value), vlen) }
}

/// Bytes as a pointer and a length.
///
/// # Safety
/// `len` can be written.
unsafe fn give(bytes: Option<&[u8]>, len: *mut usize) -> *const c_char {
    // SAFETY: as the caller promises.
    unsafe { *len = bytes.map_or(0, <[u8]>::len) };
    bytes.map_or(ptr::null(), |bytes| bytes.as_ptr().cast())
}

/// Says what went wrong since the last seek: the iterator is at no key then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_iter_get_error(
    iter: *const forebay_iterator_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: by the rules; nothing is changed.
    let iter = unsafe { handle_mut(iter.cast_mut(), "forebay_iterator_t") };
    if let Some(error) = &iter.refused {
        // SAFETY: by the rules.
        unsafe { tell(errptr, error) };
    } else if let Some(error) = iter.cursor.trouble() {
        // SAFETY: by the rules.
        unsafe { tell(errptr, error) };
    }
}
