//! Everything home. docs/flash-format.md, "Flush".
//!
//! Takes as long as there are dirty pages, however large the cache is. Each batch is written sorted, synced, and then recorded as clean: a
//! flush that is cut, or stopped, goes on where it was.

use super::{Cache, Homing};
use crate::{
    error::{FlashError, PageName},
    file::CachedFile,
    map::Version,
    options::WritePolicy,
    record::{CLEAN, DIRTY, FRONT, LOST},
};
use std::{io::IoSlice, ops::ControlFlow};

/// Slots that are looked at before readers get the map again.
const LOOKED_AT_ONCE: u64 = 4096;

/// How far a flush is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Pages that are home, or were superseded meanwhile.
    pub done: u64,
    /// Pages that were dirty when it began.
    pub of: u64,
}

/// What a flush did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Flushed {
    /// Pages written home.
    pub pages: u64,
    /// Pages that were damaged on flash, or that it could not read: their homes have older versions.
    pub lost: Vec<PageName>,
    /// False if the caller stopped it.
    pub complete: bool,
}

impl Cache {
    /// Makes all pages that were enqueued before this call durable, of whichever file: the open group goes out, flash is synced, the
    /// metadata is recorded.
    ///
    /// # Errors
    /// Then none of them is promised to be durable. They are kept, and the next sync tries it again.
    pub fn sync_pages(&self) -> Result<(), FlashError> {
        let rear = self.state.lock().map.rear;
        self.make_durable(rear)
    }

    /// As [`sync_pages`](Self::sync_pages), and what was written to `file` past the cache. With [`WritePolicy::Through`] the pages are home as well.
    ///
    /// # Errors
    /// Then none of them is promised to be durable. They are kept, and the next sync tries it again.
    pub fn sync(&self, file: &CachedFile) -> Result<(), FlashError> {
        self.sync_pages()?;
        self.settle(file)?;
        if self.policy() != WritePolicy::Through {
            return Ok(());
        }
        let flushed = self.flush(|_| ControlFlow::Continue(()))?;
        let lost = |page: &PageName| page.file == file.name();
        match flushed.lost.into_iter().find(lost) {
            Some(page) => Err(FlashError::DamagedPage { page }),
            None => Ok(()),
        }
    }

    /// Writes every page home that is newer than there, and says how far it is after each batch. The pages stay in the cache, clean. May be stopped,
    /// and repeated.
    ///
    /// # Errors
    /// What flash, the lane or a home says; what was flushed stays so.
    pub fn flush(
        &self,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Flushed, FlashError> {
        let rear = self.state.lock().map.rear;
        self.make_durable(rear)?;
        let dirty = self.dirty_below(rear);
        let mut flushed = Flushed {
            complete: true,
            ..Flushed::default()
        };
        let mut done = 0;
        for batch in dirty.chunks(self.options.group_pages as usize) {
            self.flush_batch(batch, &mut self.homing.lock(), &mut flushed)?;
            done += batch.len() as u64;
            let of = dirty.len() as u64;
            if progress(Progress { done, of }).is_break() {
                flushed.complete = done == of;
                break;
            }
        }
        if flushed.complete && flushed.lost.is_empty() {
            let map = &mut self.state.lock().map;
            map.clean_below = map.clean_below.max(rear);
        }
        Ok(flushed)
    }

    /// No slot is free, because lost pages have nearly all.
    pub(super) fn too_many_lost(&self) -> FlashError {
        let rear = self.state.lock().map.rear;
        let dirty = self.dirty_below(rear);
        let mut lost = dirty.iter().filter(|version| version.is(LOST));
        let first = lost.next();
        FlashError::DamagedPages {
            count: lost.count() + 1,
            first: first.map_or_else(
                || self.name(0, 0),
                |v| self.name(v.entry.file, v.entry.page),
            ),
        }
    }

    /// The pages of which only the cache has the newest version: what a flash device that is broken takes with it.
    #[must_use]
    pub fn newer_than_home(&self) -> Vec<PageName> {
        let rear = self.state.lock().map.rear;
        let dirty = self.dirty_below(rear);
        let names = dirty.iter().map(|v| self.name(v.entry.file, v.entry.page));
        names.collect()
    }

    /// The dirty pages in the queue below `rear`, in the order in which they go home.
    fn dirty_below(&self, rear: u64) -> Vec<Version> {
        let mut dirty = Vec::new();
        let mut at = 0;
        while at < rear {
            // Readers get the map in between. What changes meanwhile is seen when its batch begins.
            let map = &self.state.lock().map;
            at = at.max(map.front);
            if map.lost == 0 {
                at = at.max(map.clean_below);
            }
            let to = rear.min(at + LOOKED_AT_ONCE);
            let versions = (at..to).map(|position| map.version(position));
            dirty.extend(versions.filter(|version| version.newest && version.is(DIRTY)));
            at = to.max(at);
        }
        dirty.sort_unstable_by_key(|version| (version.entry.file, version.entry.page));
        dirty
    }

    /// As [`flush`](Self::flush), and then there is nothing in the cache, durably: the files are all there is, and may be changed
    /// without it. The caller has ended all writes.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); [`FlashError::DamagedPages`] if pages are lost, which a [tombstone](Self::forget_pages) gives up;
    /// [`FlashError::StillWritten`]. Nothing is given up then.
    pub fn empty(
        &self,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Flushed, FlashError> {
        let mut flushed = self.flush(&mut progress)?;
        if !flushed.complete {
            return Ok(flushed);
        }
        let count = flushed.lost.len();
        if let Some(first) = flushed.lost.drain(..).next() {
            return Err(FlashError::DamagedPages { count, first });
        }
        let _no_home_write = self.homing.lock();
        self.record(|cache, _| {
            let end = {
                let map = &cache.state.lock().map;
                if map.dirty > 0 || map.rear > map.recorded {
                    return Err(FlashError::StillWritten(
                        map.dirty.max(map.rear - map.recorded),
                    ));
                }
                map.rear
            };
            if !cache.try_append(FRONT, &[IoSlice::new(&end.to_le_bytes())])? {
                return Ok(None);
            }
            cache.state.lock().map.advance(end);
            Ok(Some(()))
        })?;
        Ok(flushed)
    }

    /// Writes home what of `batch` is still the newest and dirty, syncs it, and records it as clean.
    fn flush_batch(
        &self,
        batch: &[Version],
        homing: &mut Homing,
        flushed: &mut Flushed,
    ) -> Result<(), FlashError> {
        let size = self.page_bytes();
        let mut pages: Vec<Version> = Vec::with_capacity(batch.len());
        for version in batch {
            let newest = {
                let map = &self.state.lock().map;
                map.find(version.entry.file, version.entry.page)
            };
            // By homing, no other thread makes it clean or lets it go meanwhile.
            if newest.is_none_or(|v| v.position != version.position || !v.is(DIRTY)) {
                continue;
            }
            let at = pages.len() * size;
            let lost = version.is(LOST)
                || match self.read_version(version, &mut homing.bytes[at..at + size]) {
                    Ok(_) => false,
                    // What can be read goes home all the same.
                    Err(FlashError::DamagedPage { .. } | FlashError::UnreadablePage { .. }) => true,
                    Err(e) => return Err(e),
                };
            if lost {
                let page = self.name(version.entry.file, version.entry.page);
                flushed.lost.push(page);
            } else {
                pages.push(*version);
            }
        }
        let mut place = 0..;
        let places: Vec<(u64, u64)> = pages.iter().map(|v| v.position).zip(&mut place).collect();
        self.write_home(&pages, &homing.bytes, |version| {
            let found = places
                .iter()
                .find(|(position, _)| *position == version.position);
            found.map_or(0, |(_, place)| *place)
        })?;
        flushed.pages += pages.len() as u64;
        forebay_pool::failpoint!("flash:flushed");
        self.record_clean(&pages)
    }

    fn record_clean(&self, pages: &[Version]) -> Result<(), FlashError> {
        for some in pages.chunks((self.lane.payload_max() / 8).max(1)) {
            self.record(|cache, log| {
                log.clear();
                for version in some {
                    log.extend_from_slice(&version.position.to_le_bytes());
                }
                if !cache.try_append(CLEAN, &[IoSlice::new(log)])? {
                    return Ok(None);
                }
                let map = &mut cache.state.lock().map;
                for version in some {
                    map.clean(version.position);
                }
                Ok(Some(()))
            })?;
        }
        Ok(())
    }
}
