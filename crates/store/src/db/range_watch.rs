//! [`RangeWatches`]: ranges of keys in which a transaction that is being committed is told of every
//! write.
//!
//! A writer that has appended asks by one load whether there is any; the load is of a line of its
//! own, which changes with such a commit only. The order is that of a snapshot's beginning
//! ([`snapshot`](super::snapshot)): the watch begins before the tail is read, so who appends behind
//! that tail finds it when it inserts.

use super::range::ScanRange;
use crate::range_tombstones::RangeTombstone;
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{
            AtomicUsize,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
};

/// Keys that a watch notes at a time. With more it is known to be in vain.
pub(super) const NOTED_MAX: usize = 1024;

/// All watches of a store.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct RangeWatches {
    count: AtomicUsize,
    watched: RwLock<Vec<Arc<WatchedRanges>>>,
}

/// What one watch watches, and what was written there since it began.
struct WatchedRanges {
    ranges: Vec<ScanRange>,
    written: Mutex<NotedKeys>,
}

/// Keys that were written.
#[derive(Default)]
pub(super) struct NotedKeys {
    pub(super) keys: BTreeSet<Vec<u8>>,
    /// One that was written beside them, if there were too many, or a range was deleted.
    pub(super) not_noted: Option<Vec<u8>>,
}

impl RangeWatches {
    /// True if a write has to be [noted](Self::note). Asked after the append, behind
    /// [`keep_below`](super::snapshot::Snapshots::keep_below), whose fence it needs as well.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    /// The key was written.
    #[cold]
    pub(super) fn note(&self, key: &[u8]) {
        for watched in self.watched.read().iter() {
            if watched.ranges.iter().any(|range| range.contains(key)) {
                let mut written = watched.written.lock();
                if written.keys.len() < NOTED_MAX {
                    written.keys.insert(key.to_vec());
                } else if !written.keys.contains(key) {
                    written.not_noted.get_or_insert_with(|| key.to_vec());
                }
            }
        }
    }

    /// A range was deleted: what that did to a watched range that has any of its
    /// keys is for a comparison of all.
    #[cold]
    pub(super) fn note_range(&self, deleted: &RangeTombstone) {
        for watched in self.watched.read().iter() {
            if watched.ranges.iter().any(|range| range.overlaps(deleted)) {
                let mut written = watched.written.lock();
                written
                    .not_noted
                    .get_or_insert_with(|| deleted.start.to_vec());
            }
        }
    }

    /// Begins to watch `ranges`.
    pub(super) fn watch(&self, ranges: Vec<ScanRange>) -> RangeWatch<'_> {
        let watched = Arc::new(WatchedRanges {
            ranges,
            written: Mutex::default(),
        });
        self.watched.write().push(Arc::clone(&watched));
        self.count.fetch_add(1, SeqCst);
        fence(SeqCst);
        RangeWatch { all: self, watched }
    }
}

/// A watch that goes on until it is dropped.
pub(super) struct RangeWatch<'w> {
    all: &'w RangeWatches,
    watched: Arc<WatchedRanges>,
}

impl RangeWatch<'_> {
    /// The keys of its ranges that were written since it began, or since this was asked last. A
    /// writer notes its key while it holds the key's lock and its stripe, before it inserts.
    pub(super) fn take(&self) -> NotedKeys {
        std::mem::take(&mut *self.watched.written.lock())
    }
}

impl Drop for RangeWatch<'_> {
    fn drop(&mut self) {
        self.all.count.fetch_sub(1, Relaxed);
        let others = |watched: &Arc<WatchedRanges>| !Arc::ptr_eq(watched, &self.watched);
        self.all.watched.write().retain(others);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_notes_the_writes_of_its_ranges_while_it_goes_on() {
        let watches = RangeWatches::default();
        assert!(!watches.is_any());
        let ranges = vec![ScanRange::new("b".."d"), ScanRange::prefix("x/")];
        let first = watches.watch(ranges);
        let second = watches.watch(vec![ScanRange::all()]);
        for key in ["a", "b", "c", "d", "x/1", "y"] {
            assert!(watches.is_any());
            watches.note(key.as_bytes());
        }
        let noted: Vec<_> = first.take().keys.into_iter().collect();
        assert_eq!(noted, [&b"b"[..], b"c", b"x/1"]);
        assert_eq!(second.take().keys.len(), 6);
        drop(second);
        assert!(first.take().keys.is_empty());
        let key = |i: usize| format!("c{i:05}");
        for i in 0..NOTED_MAX {
            watches.note(key(i).as_bytes());
            watches.note(key(i / 2).as_bytes());
        }
        assert!(first.watched.written.lock().not_noted.is_none());
        watches.note(key(NOTED_MAX).as_bytes());
        let noted = first.take();
        assert_eq!(noted.keys.len(), NOTED_MAX);
        assert_eq!(noted.not_noted, Some(key(NOTED_MAX).into_bytes()));
        drop(first);
        assert!(!watches.is_any() && watches.watched.read().is_empty());
    }
}
