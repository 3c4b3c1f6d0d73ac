//! Everything home. docs/flash-format.md, "Flush".
//!
//! Takes as long as there are dirty pages, however large the cache is. Each batch is written
//! sorted, synced, and then recorded as clean: a flush that is cut, or stopped, goes on where it
//! was.

use super::{Cache, HomeBatch};
use crate::{
    error::{FlashError, PageName},
    file::CachedFile,
    map::{Map, PageVersion},
    options::WritePolicy,
    record::{CLEAN, DIRTY, FRONT, LOST},
};
use std::{collections::BTreeSet, io::IoSlice, ops::ControlFlow, sync::Arc};

/// The progress of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushProgress {
    /// Pages that are home, or were superseded meanwhile.
    pub done: u64,
    /// Pages that were dirty when it began.
    pub of: u64,
}

/// The outcome of a flush.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Flushed {
    /// Pages written home.
    pub pages: u64,
    /// Pages that were damaged on flash, or that it could not read: their homes have older
    /// versions.
    pub lost: Vec<PageName>,
    /// False if the caller stopped it.
    pub complete: bool,
}

impl Cache {
    /// Makes all pages that were enqueued before this call durable, of whichever file: the open
    /// group goes out, flash is synced, the metadata is recorded.
    ///
    /// # Errors
    /// Then none of them is promised to be durable. They are kept, and the next sync tries it
    /// again.
    pub fn sync_pages(&self) -> Result<(), FlashError> {
        let rear = self.state.lock().map.rear;
        self.make_durable(rear)
    }

    /// As [`sync_pages`](Self::sync_pages), with the writes to `file` past the cache. With
    /// [`WritePolicy::Through`] the pages are home as well.
    ///
    /// # Errors
    /// Then none of them is promised to be durable. They are kept, and the next sync tries it
    /// again.
    pub fn sync(&self, file: &CachedFile) -> Result<(), FlashError> {
        self.sync_pages()?;
        self.settle(file)?;
        if self.policy() != WritePolicy::Through {
            return Ok(());
        }
        let flushed = self.flush(|_| ControlFlow::Continue(()))?;
        let lost = |page: &PageName| *page.file == *file.name();
        match flushed.lost.into_iter().find(lost) {
            Some(page) => Err(FlashError::DamagedPage { page }),
            None => Ok(()),
        }
    }

    /// As [`sync`](Self::sync) of every file: for a writer that gives up the log of these pages
    /// afterwards.
    ///
    /// # Errors
    /// Then the log of none of them may be given up. With [`WritePolicy::Through`] also [`FlashError::DamagedPages`]: pages are only in the
    /// cache, which cannot give them.
    pub fn sync_all(&self) -> Result<(), FlashError> {
        self.sync_pages()?;
        let files = self.files();
        for file in files.iter().filter(|file| file.has_past_writes()) {
            match self.settle(file) {
                // Nothing of a file that was dropped meanwhile is needed, and its home may be
                // closed.
                Err(_) if file.is_dropped() => {}
                settled => settled?,
            }
        }
        if self.policy() != WritePolicy::Through {
            return Ok(());
        }
        let flushed = self.flush(|_| ControlFlow::Continue(()))?;
        none_lost(flushed.lost)
    }

    /// Writes every page home that is newer than there, and says how far it is after each batch.
    /// The pages stay in the cache, clean. May be stopped, and repeated.
    ///
    /// # Errors
    /// What flash, the lane or a home says; what was flushed stays so.
    pub fn flush(
        &self,
        mut progress: impl FnMut(FlushProgress) -> ControlFlow<()>,
    ) -> Result<Flushed, FlashError> {
        let rear = self.state.lock().map.rear;
        self.make_durable(rear)?;
        let pages = self.dirty_pages(|_| true);
        let mut flushed = Flushed {
            complete: true,
            ..Flushed::default()
        };
        let mut done = 0;
        for batch in pages.chunks(self.options.group_pages as usize) {
            self.flush_batch(batch, &mut self.homing.lock(), &mut flushed)?;
            done += batch.len() as u64;
            let of = pages.len() as u64;
            if progress(FlushProgress { done, of }).is_break() {
                flushed.complete = done == of;
                break;
            }
        }
        if flushed.complete && flushed.lost.is_empty() {
            let map = &mut self.state.lock().map;
            // If the cache was resized since, this lies before the front.
            map.clean_below = map.clean_below.max(rear);
        }
        Ok(flushed)
    }

    /// Before the pages from `first` to `last`, both included, are [forgotten](Self::forget_pages)
    /// for a change of the file that may be refused: brings home those that are newer than there.
    /// If the change is not made, the file has them.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); [`FlashError::DamagedPages`] if one of them cannot be read. They
    /// are kept, and must not be forgotten.
    pub fn bring_home(&self, file: &CachedFile, first: u32, last: u32) -> Result<(), FlashError> {
        let pages = self.dirty_pages_of(file.id().number, [first, last]);
        none_lost(self.bring(&pages)?)
    }

    /// The same of all pages of several files, by one look through the queue: those that cannot be
    /// read, which are kept.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn bring_files_home(&self, files: &[Arc<CachedFile>]) -> Result<Vec<PageName>, FlashError> {
        let numbers: BTreeSet<u32> = files.iter().map(|file| file.id().number).collect();
        self.bring(&self.dirty_pages(|version| numbers.contains(&version.entry.file)))
    }

    /// Brings these home, none of which is written meanwhile: those that cannot be read.
    fn bring(&self, pages: &[(u32, u32)]) -> Result<Vec<PageName>, FlashError> {
        let mut flushed = Flushed::default();
        if !pages.is_empty() {
            self.sync_pages()?;
        }
        for batch in pages.chunks(self.options.group_pages as usize) {
            self.flush_batch(batch, &mut self.homing.lock(), &mut flushed)?;
        }
        Ok(flushed.lost)
    }

    /// Brings home the newer pages of a file that is not written meanwhile. The caller holds
    /// `homing`, so no page gets a second chance, and with it a newer version than home, until it
    /// gives that back.
    pub(super) fn bring_file_within(
        &self,
        file: &CachedFile,
        homing: &mut HomeBatch,
    ) -> Result<(), FlashError> {
        let pages = self.dirty_pages_of(file.id().number, [0, u32::MAX]);
        if !pages.is_empty() {
            let rear = self.state.lock().map.rear;
            self.make_durable_within(rear, homing)?;
        }
        let mut flushed = Flushed::default();
        for batch in pages.chunks(self.options.group_pages as usize) {
            self.flush_batch(batch, homing, &mut flushed)?;
        }
        none_lost(flushed.lost)
    }

    /// As [`flush`](Self::flush), and then there is nothing in the cache, durably: the files are
    /// all there is, and may be changed without it. The caller has ended all writes.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); [`FlashError::DamagedPages`] if pages are lost, which a
    /// [tombstone](Self::forget_pages) gives up; [`FlashError::StillWritten`]. Nothing is given up
    /// then.
    pub fn empty(
        &self,
        mut progress: impl FnMut(FlushProgress) -> ControlFlow<()>,
    ) -> Result<Flushed, FlashError> {
        let mut flushed = self.flush(&mut progress)?;
        if !flushed.complete {
            return Ok(flushed);
        }
        none_lost(std::mem::take(&mut flushed.lost))?;
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

    /// Writes home the dirty ones of the pages in `batch`, syncs them, and records them as clean.
    pub(super) fn flush_batch(
        &self,
        batch: &[(u32, u32)],
        homing: &mut HomeBatch,
        flushed: &mut Flushed,
    ) -> Result<(), FlashError> {
        let size = self.page_bytes();
        let mut pages: Vec<PageVersion> = Vec::with_capacity(batch.len());
        for &(file, page) in batch {
            // By homing, no other thread makes it clean or lets it go meanwhile. One whose newest
            // version is clean home has already, whatever is recorded of an earlier one.
            let (newest, recorded) = {
                let map = &self.state.lock().map;
                let newest = map.find(file, page).filter(|newest| newest.is(DIRTY));
                (
                    newest,
                    newest.and_then(|newest| map.recorded_before(newest)),
                )
            };
            let (Some(newest), Some(version)) = (newest, recorded.filter(|v| v.is(DIRTY))) else {
                continue;
            };
            // What was lost is written again, and the next flush finds it.
            if version.is(LOST) && !newest.is(LOST) {
                continue;
            }
            let at = pages.len() * size;
            let lost = version.is(LOST)
                || match self.read_version(&version, &mut homing.bytes[at..at + size]) {
                    Ok(_) => false,
                    // What can be read goes home all the same.
                    Err(FlashError::DamagedPage { .. } | FlashError::UnreadablePage { .. }) => true,
                    Err(e) => return Err(e),
                };
            if lost {
                flushed.lost.push(self.name(file, page));
            } else {
                pages.push(version);
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
        let positions: Vec<u64> = pages.iter().map(|version| version.position).collect();
        self.record_positions(CLEAN, &positions, Map::clean)
    }
}

fn none_lost(lost: Vec<PageName>) -> Result<(), FlashError> {
    let count = lost.len();
    match lost.into_iter().next() {
        Some(first) => Err(FlashError::DamagedPages { count, first }),
        None => Ok(()),
    }
}
