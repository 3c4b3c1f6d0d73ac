//! Mappings that are to be charged.

use super::{PAGE, TABLE, TAKEN, USED, handler::install, protect};
use forebay::layer::guard_memory;
use forebay_device::FileKey;
use libc::c_int;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

/// A fresh mapping of a file on a device.
pub(crate) struct Mapping {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    /// Offset in the file of its first byte.
    pub(crate) offset: u64,
    pub(crate) protection: c_int,
    /// The device's number.
    pub(crate) device: usize,
    pub(crate) file: FileKey,
    /// The file's size.
    pub(crate) file_end: u64,
}

/// Makes its pages inaccessible, to charge them. If that cannot be, the mapping is free.
pub(crate) fn charge(mapping: &Mapping) {
    if !install() {
        return;
    }
    let Some(at) = TABLE.iter().position(|guard| {
        guard
            .start
            .compare_exchange(0, TAKEN, AcqRel, Relaxed)
            .is_ok()
    }) else {
        return;
    };
    let guard = &TABLE[at];
    let start = mapping.address;
    let end = start + mapping.bytes.next_multiple_of(PAGE);
    guard.end.store(end, Relaxed);
    guard.offset.store(mapping.offset, Relaxed);
    guard.file_end.store(mapping.file_end, Relaxed);
    guard.key.store(mapping.file.to_word(), Relaxed);
    guard.device.store(mapping.device, Relaxed);
    guard.protection.store(mapping.protection, Relaxed);
    USED.fetch_max(at + 1, AcqRel);
    guard_memory();
    guard.start.store(start, Release);
    if !protect(start, end, libc::PROT_NONE) {
        guard.start.store(0, Release);
    }
}
