//! What a device does with reads, writes and syncs, and when it is done. docs/devices.md, "Model".
//!
//! All times are nanoseconds of the monotonic clock. Nothing here waits, allocates or locks: the caller waits until the time that it is told.

use crate::{
    PAGE_BYTES, Profile,
    cache::Pages,
    shared::{DeviceState, FileState},
};
use std::sync::atomic::Ordering::Relaxed;

mod file;
mod reads;
mod requests;
mod syncs;
mod writes;

pub use file::FileKey;

/// How a descriptor was opened, as far as the device is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// `O_DIRECT`: past the cache.
    pub direct: bool,
    /// `O_DSYNC`: each write is synced.
    pub synced: bool,
}

/// A device, and the state of one run.
pub struct Device<'a> {
    pub(crate) number: usize,
    pub(crate) profile: &'a Profile,
    pub(crate) state: &'a DeviceState,
    pub(crate) files: &'a [FileState],
    pub(crate) pages: Pages<'a>,
}

impl Device<'_> {
    /// Its profile.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        self.profile
    }

    /// A file of `size` bytes was opened. One without any is new: nothing of an earlier one is in memory.
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

    /// The file's contents are gone (truncated to nothing, or unlinked): what waited to be written need not be.
    pub fn emptied(&self, key: FileKey) {
        let file = self.file(key);
        file.generation.fetch_add(1, Relaxed);
        self.clear(file);
    }

    /// Nothing of the file waits to be written, and nothing of its size or of what was accessed last is known.
    fn clear(&self, file: &FileState) {
        self.forgive(file.dirty.swap(0, Relaxed));
        for word in [
            &file.runs,
            &file.end,
            &file.data_end,
            &file.synced_end,
            &file.read_end,
            &file.write_end,
            &file.stored,
        ] {
            word.store(0, Relaxed);
        }
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

    /// The file is mapped so that it can be stored to: what is stored is not seen, so each sync writes a page of it at least.
    pub fn mapped_to_store(&self, key: FileKey) {
        self.file(key).stored.store(1, Relaxed);
    }

    /// `bytes` from `offset` on need not be in memory any more (`POSIX_FADV_DONTNEED`). Pages that wait to be written stay.
    pub fn dropped(&self, key: FileKey, offset: u64, bytes: u64) {
        let file = self.file(key);
        for page in pages(offset, bytes.min(self.cached_bytes_max())) {
            let page = self.page(key, file, page);
            if self.pages.find(page) != Some(epoch(file)) {
                self.pages.remove(page);
            }
        }
    }

    /// So much less waits to be written.
    fn forgive(&self, bytes: u64) {
        let less = |dirty: u64| Some(dirty.saturating_sub(bytes));
        let _ = self.state.dirty.fetch_update(Relaxed, Relaxed, less);
    }

    fn count(&self, figure: usize, more: u64) {
        self.state.counts[figure].fetch_add(more, Relaxed);
    }

    fn page(&self, key: FileKey, file: &FileState, number: u64) -> u64 {
        mixed(mixed(key.0 ^ file.generation.load(Relaxed)) ^ number)
    }

    fn cached_bytes_max(&self) -> u64 {
        self.profile.cache.mib << 20
    }
}

/// The number that a page has which waits to be written: not [`CLEAN`].
fn epoch(file: &FileState) -> u16 {
    (file.epoch.load(Relaxed) % u64::from(u16::MAX)) as u16 + 1
}

/// The numbers of the pages that hold `bytes` at `offset`.
fn pages(offset: u64, bytes: u64) -> std::ops::Range<u64> {
    offset / PAGE_BYTES..offset.saturating_add(bytes).div_ceil(PAGE_BYTES)
}

/// SplitMix64's finaliser.
const fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
