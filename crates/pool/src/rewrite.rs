//! Writes bytes again that a failed write-back may have lost, so that they are on the disk when a
//! sync has succeeded.
//!
//! The same bytes written over the same pages are not enough. Ext4 allocates what is written for
//! the first time as *unwritten*: it reads as zeros until the write-back is done. When that fails,
//! the pages stay in the page cache with a note of where they go, and without one that the place is
//! unwritten. Written and synced again they go there, the sync succeeds, and the disk says zeros
//! still. So whoever repairs a file
//!
//! 1. writes what is dirty to the disk, and drops its pages: dirty ones cannot be dropped;
//! 2. writes;
//! 3. syncs;
//! 4. asks the file system (FIEMAP) whether it takes any of that for unwritten: then the sync has
//!    failed, whatever it said.
//!
//! [`write`] is 1 and 2, [`check`] is 4. [`RewrittenFile`] does all that for a file that its owner
//! writes to again after a failed sync: 1 as soon as it failed, and nothing before.

use crate::extents;
use parking_lot::Mutex;
use rustix::{
    fs::{Advice, fadvise, fdatasync},
    io::Errno,
};
use std::{
    fs::File,
    io,
    num::NonZeroU64,
    ops::Range,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
    time::Duration,
};

/// Pages are dropped in whole pieces of this, at both ends: one that is part of a larger piece of
/// the page cache stays.
const PIECE: u64 = 2 << 20;
/// Looks at a file system that has not noted yet the bytes that it has written, and their interval.
const LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Writes dirty pages to the disk: only then can they be dropped. An error is that which is being
/// repaired.
pub fn flush(file: impl AsFd) {
    let _ = fdatasync(file);
}

/// Drops the pages of these ranges that are not dirty: the next read or write there goes to the
/// disk. Between this and the writing the file may hold less than it did.
pub fn drop_pages(file: impl AsFd, ranges: impl IntoIterator<Item = Range<u64>>) {
    let file = file.as_fd();
    for range in merged(ranges) {
        // Up to the end of any file.
        let is_all = i64::try_from(range.end).is_err();
        let length = NonZeroU64::new(range.end - range.start).filter(|_| !is_all);
        // Advice: whether it was taken is seen in the end.
        let _ = fadvise(file, range.start, length, Advice::DontNeed);
    }
}

/// Writes these parts again, to be synced.
///
/// # Errors
/// The kernel's.
pub fn write(file: impl AsFd, parts: &[(u64, &[u8])]) -> Result<(), Errno> {
    let file = file.as_fd();
    flush(file);
    drop_pages(file, ranges_of(parts));
    parts
        .iter()
        .try_for_each(|(at, bytes)| write_at(file, bytes, *at))
}

/// After the sync: fails unless the file system has these parts for written.
///
/// # Errors
/// `EIO` if it has not: the sync has failed.
pub fn check(file: impl AsFd, parts: &[(u64, &[u8])]) -> Result<(), Errno> {
    check_ranges(file, ranges_of(parts))
}

/// As [`check`], of ranges.
///
/// # Errors
/// As there.
pub fn check_ranges(
    file: impl AsFd,
    ranges: impl IntoIterator<Item = Range<u64>>,
) -> Result<(), Errno> {
    let file = file.as_fd();
    merged_exactly(ranges).into_iter().try_for_each(|range| {
        for _ in 0..LOOKS {
            if !extents::has_unwritten(file, &range) {
                return Ok(());
            }
            thread::sleep(LOOK_AGAIN);
        }
        Err(Errno::IO)
    })
}

/// Ranges of parts.
pub fn ranges_of<'a>(parts: &'a [(u64, &[u8])]) -> impl Iterator<Item = Range<u64>> + 'a {
    let parts = parts.iter().filter(|(_, bytes)| !bytes.is_empty());
    parts.map(|(at, bytes)| *at..at.saturating_add(bytes.len() as u64))
}

/// Sorted, in whole pieces, and those that touch as one.
fn merged(ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let outward = |range: Range<u64>| {
        let end = range.end.checked_next_multiple_of(PIECE);
        range.start / PIECE * PIECE..end.unwrap_or(u64::MAX)
    };
    merged_exactly(ranges.into_iter().map(outward))
}

fn merged_exactly(ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = ranges.into_iter().collect();
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, before| {
        let touches = next.start <= before.end;
        if touches {
            before.end = before.end.max(next.end);
        }
        touches
    });
    ranges
}

/// Writes all of `bytes` at offset `at`.
///
/// # Errors
/// The kernel's; `ENOSPC` if it takes nothing. Part may have been written.
pub fn write_at(file: BorrowedFd<'_>, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let done = match rustix::io::pwrite(file, bytes, at) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(done) => done,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        };
        bytes = &bytes[done..];
        at += done as u64;
    }
    Ok(())
}

/// The whole of any file.
pub const ALL: Range<u64> = 0..u64::MAX;

/// A file whose owner writes bytes again that a failed sync may have lost, by these calls: as long
/// as none has failed they are the kernel's.
#[derive(Debug, Default)]
pub struct RewrittenFile {
    /// It was written to.
    begun: AtomicBool,
    /// A sync failed: from then on what is written is noted.
    failed: AtomicBool,
    /// Ranges written since, and not known to be on the disk.
    ranges: Mutex<Vec<Range<u64>>>,
}

impl RewrittenFile {
    /// Writes all of `bytes` at offset `at`.
    ///
    /// # Errors
    /// The kernel's; part may have been written.
    #[inline]
    pub fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        if !self.begun.load(Relaxed) {
            // A process before this one may have seen a sync of it fail, and have died of that:
            // what that left is clean.
            let _ = fadvise(file, 0, None, Advice::DontNeed);
            self.begun.store(true, Relaxed);
        }
        file.write_all_at(bytes, at)?;
        if self.failed.load(Acquire) {
            self.ranges
                .lock()
                .push(at..at.saturating_add(bytes.len() as u64));
        }
        Ok(())
    }

    /// Syncs its writes: by `sync`.
    ///
    /// # Errors
    /// Of that; `EIO` if it succeeds, and something that was written again is not on the disk. What
    /// was written since the last sync that succeeded is to be written again then.
    pub fn sync(&self, file: &File, sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        let ranges = match self.failed.load(Acquire) {
            true => std::mem::take(&mut *self.ranges.lock()),
            false => Vec::new(),
        };
        let synced = sync(file).and_then(|()| Ok(check_ranges(file, ranges)?));
        if synced.is_err() {
            self.failed.store(true, Release);
            flush(file);
            drop_pages(file, [ALL]);
        }
        synced
    }
}

#[cfg(test)]
mod tests;
