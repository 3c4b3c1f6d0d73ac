//! Pages on their way home, and the syncs of homes. docs/flash-format.md, "Home".
//!
//! A sync that fails may lose whatever was written home since the last one that did not. The kernel
//! says so once, whichever thread asks, and a device that could not flush has lost what other files
//! had in it, too. So it counts for the pages of every thread that are on their way: they are not
//! home, whatever the sync says that their own thread makes afterwards. They are written once more.
//! Of what was written past the cache there is no other copy: later syncs of its file fail.

use super::Cache;
use crate::{
    error::FlashError,
    file::{CachedFile, FileId},
    io::HomePage,
    map::PageVersion,
    stats::add,
};
use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// The step at which a sync fails.
const SYNCING: &str = "syncing it";
/// Number of times that a batch is written whose own syncs succeed while others fail.
const ATTEMPTS: usize = 3;

impl Cache {
    /// Writes `pages`, whose bytes are in `bytes` at the page that `place` says, sorted, and then
    /// syncs each file.
    pub(super) fn write_home(
        &self,
        pages: &[PageVersion],
        bytes: &[u8],
        place: impl Fn(&PageVersion) -> u64,
    ) -> Result<(), FlashError> {
        let size = self.page_bytes();
        let batch = self.batch_of(pages, |version| {
            let at = place(version) as usize * size;
            &bytes[at..at + size]
        });
        self.write_batch(&batch)
    }

    /// Pages on their way home, sorted; `bytes_of` gives their bytes.
    pub(super) fn batch_of<'a>(
        &self,
        pages: &[PageVersion],
        bytes_of: impl Fn(&PageVersion) -> &'a [u8],
    ) -> Vec<HomePage<'a>> {
        let mut batch = Vec::with_capacity(pages.len());
        {
            let files = self.files.read();
            for version in pages {
                let Some(file) = files.get(version.entry.file) else {
                    continue;
                };
                batch.push(HomePage {
                    file: file.id(),
                    offset: self.home_offset(version.entry.page),
                    bytes: bytes_of(version),
                });
            }
        }
        batch.sort_unstable_by_key(|page| (page.file.number, page.offset));
        batch
    }

    /// Writes pages home, and syncs each file: again if another thread's sync of a home failed
    /// since the first one was written.
    pub(super) fn write_batch(&self, batch: &[HomePage<'_>]) -> Result<(), FlashError> {
        let Some(first) = batch.first() else {
            return Ok(());
        };
        for _ in 0..ATTEMPTS {
            let failures = self.home_failures.load(Relaxed);
            self.write_and_sync(batch)?;
            // One that is under way may have failed, and not be counted yet.
            let _none_is_under_way = self.home_sync.write();
            if self.home_failures.load(Relaxed) == failures {
                forebay_pool::failpoint!("flash:home-synced");
                return Ok(());
            }
        }
        let e = io::Error::other("another sync failed meanwhile");
        Err(self.home_error(first.file, SYNCING, e))
    }

    fn write_and_sync(&self, batch: &[HomePage<'_>]) -> Result<(), FlashError> {
        forebay_pool::failpoint!("flash:home");
        self.home
            .write(batch)
            .map_err(|(file, e)| self.home_error(file, "writing pages home", e))?;
        forebay_pool::failpoint!("flash:home-written");
        add(&self.counters.home_batches, 1);
        add(&self.counters.home_pages, batch.len() as u64);
        let bytes: usize = batch.iter().map(|page| page.bytes.len()).sum();
        add(&self.counters.home_bytes, bytes as u64);
        self.home_limit.spend(bytes as u64);
        if forebay_pool::fault_enabled!("flash-no-home-sync") {
            return Ok(());
        }
        self.sync_homes(batch)
    }

    /// Syncs each file of a sorted batch, all at the same time: the first error, after all have
    /// ended.
    fn sync_homes(&self, batch: &[HomePage<'_>]) -> Result<(), FlashError> {
        let files: Vec<Arc<CachedFile>> = {
            let known = self.files.read();
            let different = batch.chunk_by(|a, b| a.file == b.file);
            let numbers = different.map(|pages| pages[0].file.number);
            numbers
                .filter_map(|file| known.get(file).cloned())
                .collect()
        };
        let ids: Vec<FileId> = files.iter().map(|file| file.id()).collect();
        self.syncing_home(|| {
            let synced = self.home.sync_files(&ids);
            add(&self.counters.home_syncs, ids.len() as u64);
            let mut all = Ok(());
            for (file, synced) in files.iter().zip(synced) {
                if let Err(source) = synced {
                    let failed = Self::sync_failed(file, SYNCING, source);
                    all = all.and(Err(failed));
                }
            }
            all
        })
    }

    /// Syncs a home file.
    pub(super) fn sync_home(&self, file: &CachedFile) -> Result<(), FlashError> {
        self.syncing(|| self.home.sync(file.id()), was_tried)
            .map_err(|source| Self::sync_failed(file, SYNCING, source))
    }

    /// Runs `sync`, which syncs a home: the owner of the homes may do so past the cache. If it
    /// fails, what is on its way home meanwhile is written there again.
    ///
    /// # Errors
    /// Those of `sync`.
    pub fn syncing_home<T, E>(&self, sync: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.syncing(sync, |_| true)
    }

    /// The same of a `sync` that may fail without having `failed` to sync anything.
    fn syncing<T, E>(
        &self,
        sync: impl FnOnce() -> Result<T, E>,
        failed: impl FnOnce(&E) -> bool,
    ) -> Result<T, E> {
        let _under_way = self.home_sync.read();
        sync().inspect_err(|e| {
            if failed(e) {
                self.home_failures.fetch_add(1, Relaxed);
                self.files().iter().for_each(|file| file.home_failed());
            }
        })
    }

    /// A sync of a home file failed while `doing` something to it.
    fn sync_failed(file: &CachedFile, doing: &'static str, source: io::Error) -> FlashError {
        file.sync_failed();
        FlashError::Home {
            file: file.name().to_string(),
            doing,
            source,
        }
    }

    pub(super) fn home_error(
        &self,
        file: FileId,
        doing: &'static str,
        source: io::Error,
    ) -> FlashError {
        FlashError::Home {
            file: self.name(file.number, 0).file,
            doing,
            source,
        }
    }

    /// The durable length of the file at home: it is asked for anew. After it was cut off, for
    /// example, so that it may grow to what it was at once.
    ///
    /// # Errors
    /// What the home says. It may have been a sync that failed: then what was written to the file
    /// past the cache may be lost, and no later sync succeeds.
    pub fn durable_bytes(&self, file: &CachedFile) -> Result<u64, FlashError> {
        let asked = self.syncing(|| self.home.durable_bytes(file.id()), was_tried);
        let bytes = asked.map_err(|source| {
            Self::sync_failed(file, "finding out how long it is, durably", source)
        })?;
        file.set_durable_bytes(bytes);
        Ok(bytes)
    }
}

/// False if there is no home any more, which there is nothing of to be lost: its file was dropped
/// meanwhile.
fn was_tried(e: &io::Error) -> bool {
    e.kind() != io::ErrorKind::NotFound
}
