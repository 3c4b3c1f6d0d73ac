//! The page cache's tags: a set-associative table of pages in memory, shared by all processes,
//! without locks.
//!
//! Two processes that change one set at the same time may lose a page, which is then charged once
//! more.

use crate::shared::{Set, WAYS};
use std::sync::atomic::Ordering::Relaxed;

/// Second chance: read since it was last looked at.
const REFERENCED: u64 = 1;
const EPOCH_SHIFT: u32 = 1;
const EPOCH_MASK: u64 = 0xffff;
const TAG_SHIFT: u32 = 17;

/// The epoch of a page that need not be written back.
pub(crate) const CLEAN: u16 = 0;

/// The pages of one device's cache. A power of two of sets.
pub(crate) struct Pages<'a>(pub(crate) &'a [Set]);

impl Pages<'_> {
    fn set(&self, page: u64) -> &Set {
        &self.0[page as usize & (self.0.len() - 1)]
    }

    /// What distinguishes a page in its set; never 0, so that a place with one never looks empty.
    fn tag(page: u64) -> u64 {
        (page >> TAG_SHIFT) | 1 << (63 - TAG_SHIFT)
    }

    /// The epoch in which the page was written, or [`CLEAN`]; none if it is not in memory.
    pub(crate) fn find(&self, page: u64) -> Option<u16> {
        let tag = Self::tag(page);
        for way in &self.set(page).0 {
            let word = way.load(Relaxed);
            if word >> TAG_SHIFT == tag {
                if word & REFERENCED == 0 {
                    way.store(word | REFERENCED, Relaxed);
                }
                return Some((word >> EPOCH_SHIFT & EPOCH_MASK) as u16);
            }
        }
        None
    }

    /// Puts a page into memory, or changes its epoch. Another leaves if there is no room: one that
    /// was not referenced since it was last looked at.
    pub(crate) fn insert(&self, page: u64, epoch: u16) {
        let tag = Self::tag(page);
        let word = tag << TAG_SHIFT | u64::from(epoch) << EPOCH_SHIFT;
        let set = &self.set(page).0;
        let is_free = |held: u64| held == 0 || held >> TAG_SHIFT == tag;
        let found = set.iter().find(|way| way.load(Relaxed) >> TAG_SHIFT == tag);
        if let Some(way) = found.or_else(|| set.iter().find(|way| is_free(way.load(Relaxed)))) {
            way.store(word, Relaxed);
            return;
        }
        // A clock whose hand begins anywhere: those it passes lose their second chance.
        let hand = (page >> 40) as usize;
        let mut passed = (hand..hand + WAYS).map(|at| &set[at % WAYS]);
        let unreferenced = passed
            .find(|way| way.fetch_and(!REFERENCED, Relaxed) & REFERENCED == 0)
            .unwrap_or(&set[hand % WAYS]);
        unreferenced.store(word, Relaxed);
    }

    /// Takes a page out of memory.
    pub(crate) fn remove(&self, page: u64) {
        let tag = Self::tag(page);
        for way in &self.set(page).0 {
            if way.load(Relaxed) >> TAG_SHIFT == tag {
                way.store(0, Relaxed);
            }
        }
    }
}
