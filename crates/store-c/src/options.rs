//! Options: of opening, of reads, of writes.

use crate::{
    handles::{
        forebay_options_t, forebay_readoptions_t, forebay_snapshot_t, forebay_writeoptions_t,
    },
    pointers::{drop_handle, handle_mut, path, text, told},
};
use forebay_bindings::{BindingError, BindingOptions, PoolKind};
use forebay_store::Durability;
use std::ffi::{c_char, c_int};

/// A pool on an ordinary disk: a synced write costs one write to it, and survives a power cut.
pub const FOREBAY_POOL_DISK: c_int = 0;
/// A pool on persistent memory (DAX): a write costs a memory copy, and survives a power cut.
pub const FOREBAY_POOL_MEMORY: c_int = 1;
/// A pool in ordinary memory: a write costs a memory copy, and survives the process alone.
pub const FOREBAY_POOL_EMULATED: c_int = 2;

/// The defaults: a pool on a disk, no store is made.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_options_create() -> *mut forebay_options_t {
    let options = BindingOptions::default();
    Box::into_raw(Box::new(forebay_options_t { options }))
}

/// Ends options; the stores that were opened with them go on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_destroy(options: *mut forebay_options_t) {
    // SAFETY: it came from `forebay_options_create`, or is NULL.
    unsafe { drop_handle(options) };
}

/// Changes options.
///
/// # Safety
/// As [`handle_mut`].
unsafe fn change(
    options: *mut forebay_options_t,
    change: impl FnOnce(BindingOptions) -> BindingOptions,
) {
    // SAFETY: as the caller promises.
    let options = unsafe { handle_mut(options, "forebay_options_t") };
    options.options = change(options.options.clone());
}

/// Make the store, and its pool, if there is none. Default: 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_create_if_missing(
    options: *mut forebay_options_t,
    create: u8,
) {
    // SAFETY: by the rules.
    unsafe { change(options, |o| o.create_if_missing(create != 0)) };
}

/// A store that exists is an error. Default: 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_error_if_exists(
    options: *mut forebay_options_t,
    error_if_exists: u8,
) {
    // SAFETY: by the rules.
    unsafe { change(options, |o| o.error_if_exists(error_if_exists != 0)) };
}

/// The pool's path. NULL, the default: the file pool in the directory of the store's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_pool(
    options: *mut forebay_options_t,
    pool: *const c_char,
    errptr: *mut *mut c_char,
) {
    let set = || {
        let pool = match pool.is_null() {
            true => None,
            // SAFETY: by the rules.
            false => Some(unsafe { path(pool, "path of the pool") }?.to_owned()),
        };
        // SAFETY: by the rules.
        unsafe { change(options, |o| o.pool(pool)) };
        Ok(())
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, (), set) };
}

/// Sets the kind of pool that is made, and its size: FOREBAY_POOL_DISK and 67108864 (64 MiB) by
/// default. One that exists is opened as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_pool_kind(
    options: *mut forebay_options_t,
    kind: c_int,
    bytes: u64,
    errptr: *mut *mut c_char,
) {
    let set = || {
        let kind = match kind {
            FOREBAY_POOL_DISK => PoolKind::Disk,
            FOREBAY_POOL_MEMORY => PoolKind::Memory,
            FOREBAY_POOL_EMULATED => PoolKind::Emulated,
            _ => {
                return Err(BindingError::Argument(format!(
                    "there is no kind {kind} of a pool; give FOREBAY_POOL_DISK, _MEMORY or _EMULATED"
                )));
            }
        };
        // SAFETY: by the rules.
        unsafe { change(options, |o| o.pool_kind(kind).pool_bytes(bytes)) };
        Ok(())
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, (), set) };
}

/// Sets the moment at which a write is durable: "double" (the default: in two segments of the
/// pool), "single", "buffers=N" (in N segments, 1 to 64), "fsync" (without a pool: a write costs an
/// fsync), "nosync" (without a pool: a power cut loses writes that the kernel had not written).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_durability(
    options: *mut forebay_options_t,
    durability: *const c_char,
    errptr: *mut *mut c_char,
) {
    let set = || {
        // SAFETY: by the rules.
        let found = unsafe { text(durability, "durability") }?.to_string_lossy();
        let durability: Durability = found.parse().map_err(BindingError::Argument)?;
        // SAFETY: by the rules.
        unsafe { change(options, |o| o.durability(durability)) };
        Ok(())
    };
    // SAFETY: by the rules.
    unsafe { told(errptr, (), set) };
}

/// Bytes of memory for blocks of the index and values that are read often. Default: 128 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_cache_size(
    options: *mut forebay_options_t,
    bytes: u64,
) {
    // SAFETY: by the rules.
    unsafe { change(options, |o| o.with_store(|store| store.cache_size(bytes))) };
}

/// Bytes of memory of one of at most six tables of recent keys; at least 65536. Default: 64 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_write_buffer_size(
    options: *mut forebay_options_t,
    bytes: usize,
) {
    // SAFETY: by the rules.
    unsafe {
        change(options, |o| {
            o.with_store(|store| store.memtable_size(bytes))
        })
    };
}

/// Files that the store has open at a time; at least 16. Default: half of what the process may.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_options_set_max_open_files(
    options: *mut forebay_options_t,
    files: c_int,
) {
    let files = usize::try_from(files).unwrap_or(0);
    // SAFETY: by the rules.
    unsafe { change(options, |o| o.with_store(|store| store.open_files(files))) };
}

/// Options of reads by default: of the store as it is.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_readoptions_create() -> *mut forebay_readoptions_t {
    Box::into_raw(Box::default())
}

/// Ends them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_readoptions_destroy(options: *mut forebay_readoptions_t) {
    // SAFETY: it came from `forebay_readoptions_create`, or is NULL.
    unsafe { drop_handle(options) };
}

/// Read as of that snapshot, or, with NULL, of the store as it is. The options share the snapshot:
/// it may be released while they still use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_readoptions_set_snapshot(
    options: *mut forebay_readoptions_t,
    snapshot: *const forebay_snapshot_t,
) {
    // SAFETY: by the rules.
    let options = unsafe { handle_mut(options, "forebay_readoptions_t") };
    // SAFETY: by the rules: NULL, or a snapshot that was not released.
    options.snapshot = unsafe { snapshot.as_ref() }.map(|it| it.snapshot.clone());
}

/// Options of writes by default: synced.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_writeoptions_create() -> *mut forebay_writeoptions_t {
    Box::into_raw(Box::new(forebay_writeoptions_t { sync: true }))
}

/// Ends them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writeoptions_destroy(options: *mut forebay_writeoptions_t) {
    // SAFETY: it came from `forebay_writeoptions_create`, or is NULL.
    unsafe { drop_handle(options) };
}

/// 1, the default: a write is durable when the call returns, as far as the durability and the kind
/// of the pool go. 0, on a pool on a disk: a crash of the process or of the machine may take it,
/// and what was written after it, until forebay_commit or a synced write. Elsewhere both are the
/// same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_writeoptions_set_sync(
    options: *mut forebay_writeoptions_t,
    sync: u8,
) {
    // SAFETY: by the rules.
    unsafe { handle_mut(options, "forebay_writeoptions_t") }.sync = sync != 0;
}
