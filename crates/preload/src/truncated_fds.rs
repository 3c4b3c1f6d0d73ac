//! Descriptors whose file was cut off by them. Ext4 and XFS write such a file back when it is
//! closed, and the next commit of the journal has its new size: so closing it counts as a change
//! ([`crate::metadata`]).
//!
//! A duplicate, and a forked child's descriptor, count for themselves. Not counted is what the end
//! of a process closes, or of a program that was executed with it.

use crate::file_status::device_of;
use forebay_files::client::{self, DESCRIPTORS};
use libc::c_int;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Relaxed},
};

const BITS: usize = u64::BITS as usize;

/// One bit a descriptor.
static MARKED: [AtomicU64; DESCRIPTORS / BITS] = [const { AtomicU64::new(0) }; DESCRIPTORS / BITS];

/// The word that has a descriptor's bit, and the bit.
#[inline]
fn place(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((MARKED.get(fd / BITS)?, 1 << (fd % BITS)))
}

/// The file that is open as `fd` was cut off.
pub(crate) fn mark(fd: c_int) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, AcqRel);
    }
}

/// True if closing `fd` counts. Costs a load.
#[inline]
pub(crate) fn is_marked(fd: c_int) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// The same, for the last time.
pub(crate) fn take(fd: c_int) -> bool {
    is_marked(fd) && place(fd).is_some_and(|(word, bit)| word.fetch_and(!bit, AcqRel) & bit != 0)
}

/// `to` is a duplicate of `from`.
pub(crate) fn duplicated(from: c_int, to: c_int) {
    if is_marked(from) {
        mark(to);
    }
}

/// Does `close`, which closes `fd`, or puts another file in its place.
pub(crate) fn closing<T>(fd: c_int, close: impl FnOnce() -> T) -> T {
    if !take(fd) {
        return close();
    }
    client::before_closing(fd);
    let device = device_of(fd);
    let done = close();
    client::changed_on(device);
    done
}
