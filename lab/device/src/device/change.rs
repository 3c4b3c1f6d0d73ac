//! Changes of a file besides reads, writes and syncs.

use super::{Device, epoch, key::FileKey, pages};
use std::sync::atomic::Ordering::Relaxed;

impl Device<'_> {
    /// A file of `size` bytes was opened. One without any is new: nothing of an earlier one is in
    /// memory.
    pub fn opened(&self, key: FileKey, size: u64) {
        let file = self.file(key);
        file.device.store(self.number as u64 + 1, Relaxed);
        if size == 0 {
            self.emptied(key);
        } else if file.end.load(Relaxed) == 0 {
            file.end.store(size, Relaxed);
            file.data_end.store(size, Relaxed);
            file.synced_end.store(size, Relaxed);
        }
    }

    /// The file's contents are gone (truncated to nothing, or unlinked): what waited to be written
    /// need not be.
    pub fn emptied(&self, key: FileKey) {
        let file = self.file(key);
        file.generation.fetch_add(1, Relaxed);
        self.clear(file);
    }

    /// The file's size was set; what it grew by is room that nothing was written to.
    pub fn resized(&self, key: FileKey, size: u64) {
        if size == 0 {
            self.emptied(key);
        } else {
            let file = self.file(key);
            file.end.store(size, Relaxed);
            file.data_end.fetch_min(size, Relaxed);
        }
    }

    /// The file is mapped so that it can be stored to: what is stored is not seen, so each sync
    /// writes a page of it at least.
    pub fn mapped_to_store(&self, key: FileKey) {
        self.file(key).stored.store(1, Relaxed);
    }

    /// `bytes` from `offset` on need not be in memory any more (`POSIX_FADV_DONTNEED`). Pages that
    /// wait to be written stay.
    pub fn dropped(&self, key: FileKey, offset: u64, bytes: u64) {
        let file = self.file(key);
        for page in pages(offset, bytes.min(self.cached_bytes_max())) {
            let page = self.page(key, file, page);
            if self.pages.find(page) != Some(epoch(file)) {
                self.pages.remove(page);
            }
        }
    }
}
