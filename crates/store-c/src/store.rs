//! Stores: opening, reading, writing, snapshots, copies, and the end.

use crate::{
    batch::forebay_writebatch_t,
    handles::{
        StoreAccess, forebay_options_t, forebay_readoptions_t, forebay_snapshot_t, forebay_t,
        forebay_writeoptions_t,
    },
    pointers::{allocated, allocated_text, drop_handle, handle, path, slice, tell, text, told},
};
use forebay_bindings::{BindingError, BindingOptions, BoundReader, BoundStore, destroy};
use forebay_store::ScanRange;
use std::{
    ffi::{c_char, c_int},
    ops::Bound,
    path::Path,
    ptr,
};

/// The options of a store's opening.
///
/// # Safety
/// As [`handle`].
unsafe fn opening<'a>(
    options: *const forebay_options_t,
) -> Result<&'a BindingOptions, BindingError> {
    // SAFETY: as the caller promises.
    Ok(&unsafe { handle(options, "forebay_options_t") }?.options)
}

/// The handle of the store of that name, as `open` opens it; null on failure.
///
/// # Safety
/// As [`told`], [`opening`] and [`path`].
unsafe fn opened(
    options: *const forebay_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
    open: impl FnOnce(&BindingOptions, &Path) -> Result<StoreAccess, BindingError>,
) -> *mut forebay_t {
    let open = || {
        // SAFETY: as the caller promises.
        let (options, name) = unsafe { (opening(options)?, path(name, "name of the store")?) };
        let opened = open(options, name)?;
        Ok(Box::into_raw(Box::new(forebay_t { opened })))
    };
    // SAFETY: as the caller promises.
    unsafe { told(errptr, ptr::null_mut(), open) }
}

/// Opens the store of that name, a directory (docs/store-c.md, "Where it is"). NULL on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_open(
    options: *const forebay_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut forebay_t {
    let owner = |options: &_, name: &_| Ok(StoreAccess::Owner(BoundStore::open(options, name)?));
    // SAFETY: by the rules.
    unsafe { opened(options, name, errptr, owner) }
}

/// Opens the store of that name for reading alone, beside the process that has it open, or with
/// none: as of now, and then as of forebay_refresh. It needs no permission to write. Of the options
/// the pool counts, the cache and the open files. NULL on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_open_for_read_only(
    options: *const forebay_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut forebay_t {
    let reader = |options: &_, name: &_| Ok(StoreAccess::Reader(BoundReader::open(options, name)?));
    // SAFETY: by the rules.
    unsafe { opened(options, name, errptr, reader) }
}

/// Has a store that is only read be as of now; on failure it stays as it was. Iterators and
/// snapshots stay as they are. One that forebay_open opened is always as of now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_refresh(db: *mut forebay_t, errptr: *mut *mut c_char) {
    // SAFETY: by the rules.
    let refresh = || match &unsafe { handle(db, "forebay_t") }?.opened {
        StoreAccess::Owner(_) => Ok(()),
        StoreAccess::Reader(reader) => Ok(reader.refresh()?),
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, (), refresh) };
}

/// Closes the store as well as that goes, as leveldb_close does. Nothing that was acknowledged is
/// lost, whatever happens here: the next opening recovers it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_close(db: *mut forebay_t) {
    // SAFETY: it came from `forebay_open`, or is NULL. A store that is dropped is closed.
    unsafe { drop_handle(db) };
}

/// The same, and says what went wrong. The store is closed all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_close_checked(db: *mut forebay_t, errptr: *mut *mut c_char) {
    if !db.is_null() {
        // SAFETY: it came from `forebay_open`.
        let db = unsafe { Box::from_raw(db) };
        let close = || match db.opened {
            StoreAccess::Owner(store) => store.close(),
            StoreAccess::Reader(_) => Ok(()),
        };
        // SAFETY: by the rules.
        unsafe { told(errptr, (), close) };
    }
}

/// The store and whether a write is to be synced.
///
/// # Safety
/// As [`handle`], of both.
unsafe fn writing<'a>(
    db: *mut forebay_t,
    options: *const forebay_writeoptions_t,
) -> Result<(&'a BoundStore, bool), BindingError> {
    // SAFETY: as the caller promises.
    let options = unsafe { handle(options, "forebay_writeoptions_t") }?;
    // SAFETY: as the caller promises.
    Ok((unsafe { handle(db, "forebay_t") }?.owner()?, options.sync))
}

/// Puts a key of 1 to 65529 bytes, with a value of at most 1 GiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_put(
    db: *mut forebay_t,
    options: *const forebay_writeoptions_t,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    let put = || {
        // SAFETY: by the rules.
        let (store, sync) = unsafe { writing(db, options) }?;
        // SAFETY: by the rules.
        let (key, value) = unsafe { (slice(key, keylen, "key")?, slice(val, vallen, "value")?) };
        store.put_as(key, value, sync)
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, (), put) };
}

/// Deletes a key. One that is not there is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_delete(
    db: *mut forebay_t,
    options: *const forebay_writeoptions_t,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) {
    let delete = || {
        // SAFETY: by the rules.
        let (store, sync) = unsafe { writing(db, options) }?;
        // SAFETY: by the rules.
        store.delete_as(unsafe { slice(key, keylen, "key") }?, sync)
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, (), delete) };
}

/// Does all that the batch has, or nothing. The batch stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_write(
    db: *mut forebay_t,
    options: *const forebay_writeoptions_t,
    batch: *const forebay_writebatch_t,
    errptr: *mut *mut c_char,
) {
    let write = || {
        // SAFETY: by the rules.
        let (store, sync) = unsafe { writing(db, options) }?;
        // SAFETY: by the rules.
        let batch = unsafe { handle(batch, "forebay_writebatch_t") }?;
        store.write_as(&batch.to_batch(store)?, sync)
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, (), write) };
}

/// Makes durable what was written before without being synced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_commit(db: *mut forebay_t, errptr: *mut *mut c_char) {
    // SAFETY: by the rules.
    let commit = || Ok(unsafe { handle(db, "forebay_t") }?.owner()?.commit()?);
    // SAFETY: by the rules.
    unsafe { told(errptr, (), commit) };
}

/// The value of a key, and in vallen its length. NULL if there is none, and on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_get(
    db: *mut forebay_t,
    options: *const forebay_readoptions_t,
    key: *const c_char,
    keylen: usize,
    vallen: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    let get = || {
        // SAFETY: by the rules.
        let (db, options) = unsafe {
            let options = handle(options, "forebay_readoptions_t")?;
            (handle(db, "forebay_t")?, options)
        };
        // SAFETY: by the rules.
        let key = unsafe { slice(key, keylen, "key") }?;
        let found = match &options.snapshot {
            Some(snapshot) => snapshot.get(key)?,
            None => db.get(key)?,
        };
        if !vallen.is_null() {
            // SAFETY: by the rules it can be written.
            unsafe { *vallen = found.as_ref().map_or(0, |value| value.len()) };
        }
        Ok(found.map_or(ptr::null_mut(), |value| allocated(&value)))
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, ptr::null_mut(), get) }
}

/// The store as of now, for forebay_readoptions_set_snapshot. At most 1000 of different moments are
/// open at a time. NULL on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_create_snapshot(
    db: *mut forebay_t,
    errptr: *mut *mut c_char,
) -> *const forebay_snapshot_t {
    let create = || {
        // SAFETY: by the rules.
        let snapshot = unsafe { handle(db, "forebay_t") }?.snapshot()?;
        Ok(Box::into_raw(Box::new(forebay_snapshot_t { snapshot })).cast_const())
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, ptr::null(), create) }
}

/// Ends a snapshot. Iterators and read options that were given it keep what they see.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_release_snapshot(
    _db: *mut forebay_t,
    snapshot: *const forebay_snapshot_t,
) {
    // SAFETY: it came from `forebay_create_snapshot`, or is NULL.
    unsafe { drop_handle(snapshot.cast_mut()) };
}

/// A property of the store: "forebay.stats", as JSON (docs.rs, forebay_store::Stats);
/// "forebay.trouble", in words, empty if there is none. NULL for any other name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_property_value(
    db: *mut forebay_t,
    propname: *const c_char,
) -> *mut c_char {
    // SAFETY: by the rules.
    let (db, name) = unsafe {
        (
            handle(db, "forebay_t"),
            text(propname, "name of a property"),
        )
    };
    let (Ok(db), Ok(name)) = (db, name) else {
        return ptr::null_mut();
    };
    let stats = db.stats();
    let said = match name.to_bytes() {
        b"forebay.stats" => serde_json::to_string_pretty(&stats).ok(),
        b"forebay.trouble" => Some(stats.trouble.unwrap_or_default()),
        _ => None,
    };
    said.map_or(ptr::null_mut(), |said| allocated_text(&said))
}

/// Bytes of the keys and values in each range, from its start to before its limit: they are read,
/// so it costs as much as iterating over them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_approximate_sizes(
    db: *mut forebay_t,
    num_ranges: c_int,
    range_start_key: *const *const c_char,
    range_start_key_len: *const usize,
    range_limit_key: *const *const c_char,
    range_limit_key_len: *const usize,
    sizes: *mut u64,
    errptr: *mut *mut c_char,
) {
    let measure = || {
        // SAFETY: by the rules.
        let store = unsafe { handle(db, "forebay_t") }?.snapshot()?;
        for i in 0..usize::try_from(num_ranges).unwrap_or(0) {
            // SAFETY: each has so many elements, as the rules say of an array with a number.
            let (start, limit, size) = unsafe {
                (
                    slice(
                        *range_start_key.add(i),
                        *range_start_key_len.add(i),
                        "start",
                    )?,
                    slice(
                        *range_limit_key.add(i),
                        *range_limit_key_len.add(i),
                        "limit",
                    )?,
                    &mut *sizes.add(i),
                )
            };
            *size = 0;
            if start >= limit {
                continue;
            }
            let keys = (Bound::Included(start), Bound::Excluded(limit));
            for pair in store.scan(ScanRange::new::<&[u8]>(keys))? {
                let (key, value) = pair?;
                *size += (key.len() + value.len()) as u64;
            }
        }
        Ok(())
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, (), measure) };
}

/// Collects garbage now, and waits for it: space of what was deleted and replaced comes back. The
/// store does so by itself in the background.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_collect(db: *mut forebay_t, errptr: *mut *mut c_char) {
    // SAFETY: by the rules.
    let collect = || {
        // SAFETY: by the rules.
        let db = unsafe { handle(db, "forebay_t") }?;
        Ok(db.owner()?.gc().map(drop)?)
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, (), collect) };
}

/// Makes of an empty directory, or one that is not there, a store of its own with everything that
/// this one has now. No writer waits for it. forebay_open opens it by that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_checkpoint(
    db: *mut forebay_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    let copy = || {
        // SAFETY: by the rules.
        let (db, name) = unsafe { (handle(db, "forebay_t")?, path(name, "name of the copy")?) };
        db.owner()?.checkpoint(name)?;
        Ok(())
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, (), copy) };
}

/// Removes the store of that name, with everything in it, and its pool, unless the options name
/// one. No store is no error; a store in use, or one that does not open, is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_destroy_db(
    options: *const forebay_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    let remove = || {
        // SAFETY: by the rules.
        let (options, name) = unsafe { (opening(options)?, path(name, "name of the store")?) };
        destroy(options, name)
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, (), remove) };
}

/// Opens a store that contradicts itself or has unreadable records, gives those up, and closes it.
/// What was given up, in words, a line each; NULL if nothing was, and on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_repair_db(
    options: *const forebay_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    let repair = || {
        // SAFETY: by the rules.
        let (options, name) = unsafe { (opening(options)?, path(name, "name of the store")?) };
        let options = options.clone().error_if_exists(false);
        let store = BoundStore::open(&options.with_store(|store| store.salvage(true)), name)?;
        let given_up = store.given_up();
        let closed = store.close();
        let said = match given_up.is_empty() {
            true => ptr::null_mut(),
            false => allocated_text(&given_up.join("\n")),
        };
        Ok((said, closed))
    };
    // SAFETY: by the rules.
    let (said, closed) = unsafe { told(errptr, (ptr::null_mut(), Ok(())), repair) };
    if let Err(error) = closed {
        // SAFETY: by the rules.
        unsafe { tell(errptr, &error) };
    }
    said
}
