//! Batches, which grow without errors, as LevelDB's do: an error is reported when one is written.

use crate::pointers::{drop_handle, handle_mut, slice};
use forebay_bindings::BindingError;
use forebay_store::{Batch, Store};
use std::ffi::{c_char, c_void};

/// Puts and deletes that are done as one.
#[derive(Default)]
pub struct forebay_writebatch_t {
    ops: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// What could not be added.
    refused: Option<String>,
}

impl forebay_writebatch_t {
    pub(crate) fn to_batch(&self, store: &Store) -> Result<Batch, BindingError> {
        if let Some(refused) = &self.refused {
            return Err(BindingError::Argument(refused.clone()));
        }
        let mut batch = store.batch();
        for (key, value) in &self.ops {
            match value {
                Some(value) => batch.put(key, value)?,
                None => batch.delete(key)?,
            }
        }
        Ok(batch)
    }

    fn add(
        &mut self,
        key: Result<&[u8], BindingError>,
        value: Option<Result<&[u8], BindingError>>,
    ) {
        match (key, value.transpose()) {
            (Ok(key), Ok(value)) => self.ops.push((key.to_vec(), value.map(<[u8]>::to_vec))),
            (Err(error), _) | (_, Err(error)) => self.refused = Some(error.to_string()),
        }
    }
}

/// Called by a batch for each put that it has.
pub type forebay_put_fn = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        key: *const c_char,
        keylen: usize,
        val: *const c_char,
        vallen: usize,
    ),
>;

/// The same for a delete.
pub type forebay_deleted_fn =
    Option<unsafe extern "C" fn(state: *mut c_void, key: *const c_char, keylen: usize)>;

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_writebatch_create() -> *mut forebay_writebatch_t {
    Box::into_raw(Box::default())
}

/// Ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writebatch_destroy(batch: *mut forebay_writebatch_t) {
    // SAFETY: it came from `forebay_writebatch_create`, or is NULL.
    unsafe { drop_handle(batch) };
}

/// Empties it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writebatch_clear(batch: *mut forebay_writebatch_t) {
    // SAFETY: by the rules.
    let batch = unsafe { handle_mut(batch, "forebay_writebatch_t") };
    batch.ops.clear();
    batch.refused = None;
}

/// Adds a put. Of several on a key the last one counts. What is not possible is said by
/// forebay_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writebatch_put(
    batch: *mut forebay_writebatch_t,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
) {
    // SAFETY: by the rules.
    let (batch, key, value) = unsafe {
        let batch = handle_mut(batch, "forebay_writebatch_t");
        (batch, slice(key, klen, "key"), slice(val, vlen, "value"))
    };
    batch.add(key, Some(value));
}

/// Adds a delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writebatch_delete(
    batch: *mut forebay_writebatch_t,
    key: *const c_char,
    klen: usize,
) {
    // SAFETY: by the rules.
    let (batch, key) = unsafe {
        let batch = handle_mut(batch, "forebay_writebatch_t");
        (batch, slice(key, klen, "key"))
    };
    batch.add(key, None);
}

/// Calls put or deleted for each operation, in order. They may not change the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writebatch_iterate(
    batch: *const forebay_writebatch_t,
    state: *mut c_void,
    put: forebay_put_fn,
    deleted: forebay_deleted_fn,
) {
    // SAFETY: by the rules; nothing is changed.
    let batch = unsafe { handle_mut(batch.cast_mut(), "forebay_writebatch_t") };
    for (key, value) in &batch.ops {
        let key_at = key.as_ptr().cast();
        match (value, put, deleted) {
            (Some(value), Some(put), _) => {
                // SAFETY: the caller's function, with what its type says.
                unsafe { put(state, key_at, key.len(), value.as_ptr().cast(), value.len()) };
            }
            // SAFETY: likewise.
            (None, _, Some(deleted)) => unsafe { deleted(state, key_at, key.len()) },
            _ => {}
        }
    }
}

/// Adds all that source has to destination, which is another batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writebatch_append(
    destination: *mut forebay_writebatch_t,
    source: *const forebay_writebatch_t,
) {
    if std::ptr::eq(destination, source) {
        // SAFETY: by the rules.
        let batch = unsafe { handle_mut(destination, "forebay_writebatch_t") };
        let again = batch.ops.clone();
        batch.ops.extend(again);
        return;
    }
    // SAFETY: by the rules; they are two.
    let (destination, source) = unsafe {
        let source = handle_mut(source.cast_mut(), "forebay_writebatch_t");
        (handle_mut(destination, "forebay_writebatch_t"), source)
    };
    destination.ops.extend_from_slice(&source.ops);
    if source.refused.is_some() {
        destination.refused.clone_from(&source.refused);
    }
}
