//! Writes: into memory, and from there to the device while too much waits; or past memory.

use super::{Device, FileKey, Mode, epoch, pages, requests::Kind};
use crate::{PAGE_BYTES, cache::CLEAN, shared::FileState};
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// What is written back at once while too much waits.
const WRITE_BACK_BYTES: u64 = 4 << 20;

/// Files that are looked at for one of which more waits.
const LOOKED_AT: u64 = 64;

/// Behind, no more is written back while the device is busy for so long.
const BACKLOG_NS: u64 = 20_000_000;

impl Device<'_> {
    /// `bytes` were written at `offset`: when the caller may go on.
    #[must_use]
    pub fn write(&self, key: FileKey, offset: u64, bytes: u64, mode: Mode, now: u64) -> u64 {
        if bytes == 0 {
            return now;
        }
        let file = self.file(key);
        let end = offset.saturating_add(bytes);
        let done = if mode.direct || !self.profile.cache.writes {
            self.write_through(key, file, offset, bytes, now)
        } else {
            self.write_behind(key, file, offset, bytes, now)
        };
        file.end.fetch_max(end, AcqRel);
        file.data_end.fetch_max(end, Relaxed);
        if mode.synced {
            self.sync(key, end.max(file.end.load(Relaxed)), true, done)
        } else {
            done
        }
    }

    fn write_through(
        &self,
        key: FileKey,
        file: &FileState,
        offset: u64,
        bytes: u64,
        now: u64,
    ) -> u64 {
        if self.profile.cache.reads {
            for number in pages(offset, bytes.min(self.cached_bytes_max())) {
                self.pages.insert(self.page(key, file, number), CLEAN);
            }
        }
        self.request(Kind::Write, key, offset, bytes, now)
    }

    fn write_behind(
        &self,
        key: FileKey,
        file: &FileState,
        offset: u64,
        bytes: u64,
        now: u64,
    ) -> u64 {
        let mut done = now;
        let (end, data_end) = (offset + bytes, file.data_end.load(Relaxed));
        let dirty = epoch(file);
        let mut new_pages = 0;
        let mut first_new = None;
        for number in pages(offset, bytes) {
            let page = self.page(key, file, number);
            let held = self.pages.find(page);
            let (from, to) = (number * PAGE_BYTES, (number + 1) * PAGE_BYTES);
            let is_partial = offset > from || end < to.min(data_end);
            if held.is_none() && is_partial && from < data_end {
                // The rest of the page has to be read first.
                done = done.max(self.request(Kind::Read, key, from, PAGE_BYTES, now));
            }
            if held != Some(dirty) {
                self.pages.insert(page, dirty);
                new_pages += 1;
                first_new.get_or_insert(number);
            }
        }
        if let Some(first) = first_new {
            // A log's last block is written again with what follows it: that is one place still.
            let before = file.write_end.swap(end, Relaxed);
            let joins = first == before / PAGE_BYTES || first == before.div_ceil(PAGE_BYTES);
            if !joins || file.runs.load(Relaxed) == 0 {
                file.runs.fetch_add(1, Relaxed);
            }
            file.dirty.fetch_add(new_pages * PAGE_BYTES, Relaxed);
            self.state.dirty.fetch_add(new_pages * PAGE_BYTES, Relaxed);
        }
        self.write_back(key, file, done)
    }

    /// Writes some of a file back if too much waits: behind from half of the limit on, and from the
    /// limit on at the writer's cost.
    fn write_back(&self, key: FileKey, file: &FileState, now: u64) -> u64 {
        let limit = self.profile.cache.dirty_mib << 20;
        let waiting = self.state.dirty.load(Relaxed);
        if waiting <= limit / 2 {
            return now;
        }
        let is_busy = self.state.queue.free_at(self.profile.channels) > now + BACKLOG_NS;
        if waiting <= limit && is_busy {
            return now;
        }
        let (key, file) = self.fullest(key, file);
        let taken = self.take_dirty(file, WRITE_BACK_BYTES);
        let done = self.request_runs(key, taken, now);
        if waiting > limit { done } else { now }
    }

    /// The file if enough of it waits to be written, or one of which more does: what a writer has
    /// finished with is written back as well.
    fn fullest<'a>(&'a self, key: FileKey, file: &'a FileState) -> (FileKey, &'a FileState) {
        let waits = |file: &FileState| file.dirty.load(Relaxed);
        if waits(file) >= WRITE_BACK_BYTES {
            return (key, file);
        }
        let from = self.state.hand.fetch_add(LOOKED_AT, Relaxed) as usize;
        let on_this = |file: &&FileState| file.device.load(Relaxed) == self.number as u64 + 1;
        (from..from + LOOKED_AT as usize)
            .map(|at| &self.files[at % self.files.len()])
            .filter(on_this)
            .max_by_key(|other| waits(other))
            .filter(|other| waits(other) > waits(file))
            .map_or((key, file), |other| {
                (FileKey::of_word(other.key.load(Relaxed)), other)
            })
    }
}
