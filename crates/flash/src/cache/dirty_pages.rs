//! Pages whose newest version only the cache has.

use super::Cache;
use crate::{
    error::{FlashError, PageName},
    file::CachedFile,
    map::PageVersion,
    record::{DIRTY, LOST},
};

/// Slots that are looked at before readers get the map again.
const LOOKED_AT_ONCE: u64 = 4096;
/// Ranges of so many pages at most are looked up page by page.
const LOOKED_UP_MAX: u32 = 256;

/// File and number.
fn page_of(version: &PageVersion) -> (u32, u32) {
    (version.entry.file, version.entry.page)
}

impl Cache {
    /// No slot is free, because lost pages have nearly all.
    pub(super) fn too_many_lost(&self) -> FlashError {
        let lost = self.lost_pages();
        let first = lost.first().cloned();
        FlashError::DamagedPages {
            count: lost.len().max(1),
            first: first.unwrap_or_else(|| self.name(0, 0)),
        }
    }

    /// The pages that were found damaged or unreadable when they were to leave flash, and that only
    /// it had the newest version of. They stay so until they are written again or given up.
    #[must_use]
    pub fn lost_pages(&self) -> Vec<PageName> {
        let dirty = self.dirty_versions(|_| true);
        let lost = dirty.iter().filter(|version| version.is(LOST));
        lost.map(|v| self.name(v.entry.file, v.entry.page))
            .collect()
    }

    /// The pages of which only the cache has the newest version: a flash device that is broken
    /// takes them with it.
    #[must_use]
    pub fn newer_than_home(&self) -> Vec<PageName> {
        let dirty = self.dirty_versions(|_| true);
        let names = dirty.iter().map(|v| self.name(v.entry.file, v.entry.page));
        names.collect()
    }

    /// The number of a file's pages of which only the cache has the newest version.
    #[must_use]
    pub fn newer_pages_of(&self, file: &CachedFile) -> u64 {
        self.state.lock().map.dirty_of(file.id().number)
    }

    /// The newest versions that are dirty, of those that are `wanted`; in the order in which they
    /// go home.
    fn dirty_versions(&self, wanted: impl Fn(&PageVersion) -> bool) -> Vec<PageVersion> {
        let mut dirty = self.versions(|v| v.newest && v.is(DIRTY) && wanted(v));
        dirty.sort_unstable_by_key(page_of);
        dirty.dedup_by_key(|version| page_of(version));
        dirty
    }

    /// The pages of a file from `first` to `last` that home may not have.
    pub(super) fn dirty_pages_of(&self, file: u32, [first, last]: [u32; 2]) -> Vec<(u32, u32)> {
        if last.saturating_sub(first) < LOOKED_UP_MAX {
            let pages = (first..=last).filter(|&page| self.is_dirty(file, page));
            return pages.map(|page| (file, page)).collect();
        }
        if self.state.lock().map.dirty_of(file) == 0 {
            return Vec::new();
        }
        let is_there = |page| (first..=last).contains(&page);
        self.dirty_pages(|v| v.entry.file == file && is_there(v.entry.page))
    }

    /// The pages that home may not have, of those whose versions are `wanted`; in the order in
    /// which they go home: file and number.
    pub(super) fn dirty_pages(&self, wanted: impl Fn(&PageVersion) -> bool) -> Vec<(u32, u32)> {
        self.dirty_versions(wanted).iter().map(page_of).collect()
    }

    fn is_dirty(&self, file: u32, page: u32) -> bool {
        let newest = self.state.lock().map.find(file, page);
        newest.is_some_and(|version| version.is(DIRTY))
    }

    /// Of the queue, from where something may be dirty, what is `wanted`. As far as it goes by
    /// then: so a page that gets a second chance meanwhile is found at the rear, perhaps for the
    /// second time.
    fn versions(&self, wanted: impl Fn(&PageVersion) -> bool) -> Vec<PageVersion> {
        let mut found = Vec::new();
        let mut at = 0;
        let mut layout = None;
        loop {
            // Readers get the map in between. What changes meanwhile is seen when its batch begins.
            let state = self.state.lock();
            let map = &state.map;
            let now = Some(self.geometry().layout());
            if now != layout {
                // A resize gives everything another position.
                (layout, at) = (now, 0);
                found.clear();
            }
            at = at.max(map.front);
            if map.lost == 0 {
                at = at.max(map.clean_below);
            }
            if at >= map.rear {
                return found;
            }
            let to = map.rear.min(at + LOOKED_AT_ONCE);
            let versions = (at..to).map(|position| map.version(position));
            found.extend(versions.filter(&wanted));
            at = to;
        }
    }
}
