//! Syncs: what waits is written, the file system's journal after it, and the device's cache is
//! flushed.

use super::{
    Device,
    key::{FileKey, mixed},
};
use crate::{PAGE_BYTES, profile::ns, shared::count};
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

impl Device<'_> {
    /// The file is synced (`data_only`: as `fdatasync` does it), and has `size` bytes: when that is
    /// done.
    #[must_use]
    pub fn sync(&self, key: FileKey, size: u64, data_only: bool, now: u64) -> u64 {
        let file = self.file(key);
        let mut taken = self.take_dirty(file, u64::MAX);
        // By ways that are not seen: streams, sendfile, …
        let unseen = size.saturating_sub(file.end.fetch_max(size, AcqRel));
        taken.bytes += unseen.div_ceil(PAGE_BYTES) * PAGE_BYTES;
        taken.runs += u64::from(unseen > 0);
        if taken.bytes == 0 && file.stored.load(Relaxed) != 0 {
            taken.bytes = PAGE_BYTES;
            taken.runs = 1;
        }
        if unseen > 0 {
            file.data_end.fetch_max(size, Relaxed);
        }
        let grown = file.synced_end.swap(size, Relaxed) != size;
        let mut done = self.request_runs(key, taken, now);
        let mut is_charged = done != now;
        if self.profile.journal && (grown || !data_only && taken.bytes > 0) {
            done = self.commit(done);
            is_charged = true;
        }
        let flushed = self.flush(done);
        is_charged |= flushed != done;
        if is_charged {
            self.count(count::SYNCS, 1);
        }
        flushed
    }

    /// A directory is synced: when that is done.
    #[must_use]
    pub fn sync_directory(&self, now: u64) -> u64 {
        self.count(count::SYNCS, 1);
        let committed = if self.profile.journal {
            self.commit(now)
        } else {
            now
        };
        self.flush(committed)
    }

    /// A record of the file system's journal: a page, away from the data.
    fn commit(&self, now: u64) -> u64 {
        self.state.unflushed.store(1, Relaxed);
        self.count(count::WRITES, 1);
        self.count(count::WRITE_BYTES, PAGE_BYTES);
        let journal = mixed(u64::MAX);
        let queue = &self.state.queue;
        queue.reserve(
            self.profile.channels,
            &self.profile.write,
            journal,
            PAGE_BYTES,
            now,
        )
    }

    pub(super) fn flush(&self, now: u64) -> u64 {
        if self.state.unflushed.swap(0, Relaxed) == 0 || self.profile.flush_us == 0.0 {
            return now;
        }
        self.count(count::FLUSHES, 1);
        let queue = &self.state.queue;
        queue.reserve_for(self.profile.channels, ns(self.profile.flush_us), 0, now)
    }
}
