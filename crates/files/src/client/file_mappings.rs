//! Mappings of absorbed files, from which a program may write to the same file: a compaction in
//! place does (`pwrite(fd, map + head, rest, 0)`). While the kernel copies such bytes they change,
//! and when they are logged they are others. So they are copied first, and the kernel and the lane
//! get the copy.
//!
//! A file is not absorbed while it is mapped, and a shared mapping that can be written to makes it
//! plain; what is noted here are the others, as they are made. Neither allocates nor locks, but for
//! the copy.

use super::{config::CONFIG, lookup::regular};
use crate::sys;
use rustix::io::Errno;
use std::{
    ffi::c_int,
    io::IoSlice,
    ops::Range,
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

/// Mappings that are known at a time; with more, whatever is written counts as mapped.
const MANY: usize = 32;
/// Larger writes from a mapping are not copied: their file is made plain.
const COPY_MAX: usize = 16 << 20;

/// A mapping; none while its end is 0.
struct FileMapping {
    start: AtomicUsize,
    end: AtomicUsize,
}

static KNOWN: [FileMapping; MANY] = [const {
    FileMapping {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
    }
}; MANY];
static ANY: AtomicBool = AtomicBool::new(false);
static TOO_MANY: AtomicBool = AtomicBool::new(false);

impl FileMapping {
    fn range(&self) -> Range<usize> {
        let end = self.end.load(Acquire);
        self.start.load(Relaxed)..end
    }

    /// False if it is another already.
    fn set(&self, range: &Range<usize>) -> bool {
        let free = self
            .start
            .compare_exchange(0, range.start, AcqRel, Relaxed)
            .is_ok();
        if free {
            self.end.store(range.end, Release);
        }
        free
    }
}

/// True if changes of mappings have to be told to [`unmapping`].
#[inline]
#[must_use]
pub fn has_mapped() -> bool {
    ANY.load(Relaxed)
}

/// Notes that the program has mapped the file that is open as `fd`.
pub fn mapped(fd: c_int, address: usize, bytes: usize) {
    let key = sys::borrow(fd).and_then(|raw| regular(raw).ok());
    let is_absorbed = |key| CONFIG.get().is_some_and(|config| config.is_absorbed(key));
    if key.is_some_and(|(_, key)| is_absorbed(key)) {
        note(address..address.saturating_add(bytes));
    }
}

/// Hears that it is about to unmap a range, or to move it: afterwards another thread's mapping may
/// be there. True if anything is known of it: then [where it is](stays_mapped) afterwards is to be
/// told, if it is anywhere.
#[must_use]
pub fn unmapping(range: &Range<usize>) -> bool {
    let is_known = overlaps(range);
    for mapping in &KNOWN {
        let known = mapping.range();
        if known.end != 0 && range.start <= known.start && known.end <= range.end {
            mapping.end.store(0, Release);
            mapping.start.store(0, Release);
        }
    }
    is_known
}

/// Notes that a range which was about to be unmapped or moved is here now.
pub fn stays_mapped(range: Range<usize>) {
    note(range);
}

fn note(range: Range<usize>) {
    ANY.store(true, Relaxed);
    if !KNOWN.iter().any(|mapping| mapping.set(&range)) {
        TOO_MANY.store(true, Release);
    }
}

fn overlaps(range: &Range<usize>) -> bool {
    let is_in = |mapping: &FileMapping| {
        let known = mapping.range();
        range.start < known.end && known.start < range.end
    };
    TOO_MANY.load(Acquire) || KNOWN.iter().any(is_in)
}

/// A copy of the bytes to be written, if any of them lie in a mapping of an absorbed file.
///
/// # Errors
/// It cannot be copied: the file is to be plain.
#[inline]
pub(super) fn copied(parts: &[IoSlice<'_>]) -> Result<Option<Vec<u8>>, Errno> {
    match has_mapped() && parts.iter().any(|part| overlaps(&sys::range_of(part))) {
        false => Ok(None),
        true => copy_of(parts).map(Some),
    }
}

#[cold]
fn copy_of(parts: &[IoSlice<'_>]) -> Result<Vec<u8>, Errno> {
    let lengths = parts.iter().map(|part| part.len());
    let bytes = lengths.fold(0, usize::saturating_add);
    if bytes > COPY_MAX {
        return Err(Errno::NOMEM);
    }
    // Pages behind the file's end, or that are mapped no more, are the kernel's to refuse.
    sys::copy_of(parts, bytes)
}
