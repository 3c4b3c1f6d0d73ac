//! Memory of this process that is the client's: the pool, the lane's state, the shared page, the
//! table of absorbed files, the counts of changes. A program that unmaps whatever it finds leaves
//! it as it is.
//!
//! Neither allocates nor locks: asked about by any call that changes what is mapped, a signal
//! handler's or the allocator's too.

use crate::sys;
use rustix::param::page_size;
use std::{
    ops::Range,
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// A mapping; none while it is empty.
struct PrivateMapping {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// The use of a mapping, and its place in [`OURS`].
#[derive(Clone, Copy)]
pub(super) enum MemoryUse {
    Table,
    Order,
    Asking,
    Page,
    Lane,
    Pool,
    Posts,
}

/// The mappings that a session has, and a process that is no member has not.
pub(super) const OF_SESSION: [MemoryUse; 4] = [
    MemoryUse::Page,
    MemoryUse::Lane,
    MemoryUse::Pool,
    MemoryUse::Posts,
];

static OURS: [PrivateMapping; 7] = [const {
    PrivateMapping {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
    }
}; 7];

impl PrivateMapping {
    #[inline]
    fn range(&self) -> Range<usize> {
        let end = self.end.load(Acquire);
        self.start.load(Relaxed)..end
    }

    fn set(&self, range: Range<usize>) {
        // Empty in between: never from the one's start to the other's end.
        self.end.store(0, Release);
        self.start.store(range.start, Release);
        self.end
            .store(range.end.next_multiple_of(page_size()), Release);
    }
}

/// From now on `range` is the client's.
pub(super) fn keep(of: MemoryUse, range: Range<usize>) {
    OURS[of as usize].set(range);
}

/// The program may do with it as it likes: it is not mapped any more.
pub(super) fn forget(of: MemoryUse) {
    OURS[of as usize].set(0..0);
}

/// In a forked child: it does not use its parent's memory of the session. Only the rest of a call
/// that the fork interrupted does, `is_above`: it gets memory of its own, and changes nothing of
/// the run's.
pub(super) fn forked(is_above: bool) {
    for of in OF_SESSION {
        let range = OURS[of as usize].range();
        if is_above && !range.is_empty() && sys::stand_in(range).is_err() {
            std::process::abort();
        }
        forget(of);
    }
}

/// Nothing of this process uses its memory of the session.
pub(super) fn give_back() {
    for of in OF_SESSION {
        let range = OURS[of as usize].range();
        forget(of);
        if !range.is_empty() {
            sys::unmap(range);
        }
    }
}

/// True if any of the `bytes` bytes at `address` is in memory of the client's, which no program
/// must unmap or make inaccessible.
#[inline]
#[must_use]
pub fn is_own_memory(address: usize, bytes: usize) -> bool {
    let end = address.saturating_add(bytes);
    OURS.iter().any(|ours| {
        let ours = ours.range();
        address < ours.end && ours.start < end
    })
}

/// Calls `change` for each part of the `bytes` bytes at `address` that is not the client's, with
/// its address and length, until one returns something else than 0, which is returned. The program
/// is told once.
pub fn around_own_memory(
    address: usize,
    bytes: usize,
    mut change: impl FnMut(usize, usize) -> i32,
) -> i32 {
    static TOLD: AtomicBool = AtomicBool::new(false);
    sys::complain_once(
        &TOLD,
        "the program unmaps memory that it did not map, and some of it is Forebay's: that part stays as it is",
    );
    let end = address.saturating_add(bytes);
    let mut from = address;
    while from < end {
        let first = OURS
            .iter()
            .map(PrivateMapping::range)
            .filter(|ours| from < ours.end && ours.start < end)
            .min_by_key(|ours| ours.start);
        let to = first.as_ref().map_or(end, |ours| ours.start.max(from));
        if from < to {
            let done = change(from, to - from);
            if done != 0 {
                return done;
            }
        }
        from = first.map_or(end, |ours| ours.end);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_around_the_clients_memory_is_the_programs() {
        let page = page_size();
        let parts = |address, bytes| {
            let mut parts = Vec::new();
            around_own_memory(address, bytes, |from, bytes| {
                parts.push((from / page, bytes / page));
                0
            });
            parts
        };
        assert!(!is_own_memory(0, usize::MAX));
        keep(MemoryUse::Page, 20 * page..22 * page - 5);
        keep(MemoryUse::Pool, 10 * page..15 * page);
        assert!(is_own_memory(21 * page, 1) && is_own_memory(0, 10 * page + 1));
        assert!(!is_own_memory(22 * page, page) && !is_own_memory(0, 10 * page));
        assert_eq!(parts(0, 30 * page), [(0, 10), (15, 5), (22, 8)]);
        assert_eq!(parts(12 * page, page), []);
        assert_eq!(parts(12 * page, 8 * page + 1), [(15, 5)]);
        assert_eq!(
            around_own_memory(0, 30 * page, |from, _| i32::from(from > 0)),
            1
        );
        // A length that no mapping has.
        assert_eq!(parts(12 * page, usize::MAX)[0], (15, 5));
        forked(false);
        assert!(!is_own_memory(0, usize::MAX));
    }
}
