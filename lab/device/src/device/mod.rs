//! A device's treatment of reads, writes and syncs, and the times at which they are done.
//! docs/devices.md, "Model".
//!
//! All times are nanoseconds of the monotonic clock. Nothing here waits, allocates or locks: the
//! caller waits until the time that it is told.

use crate::{
    PAGE_BYTES, Profile,
    cache::Pages,
    shared::{DeviceState, FileState},
};
use std::sync::atomic::Ordering::Relaxed;

mod change;
mod file;
mod key;
mod reads;
mod requests;
mod syncs;
mod writes;

pub use key::FileKey;

use key::mixed;

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

    /// Nothing of the file waits to be written, and nothing of its size or of what was accessed
    /// last is known.
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

    /// So much less waits to be written.
    fn forgive(&self, bytes: u64) {
        let less = |dirty: u64| Some(dirty.saturating_sub(bytes));
        let _ = self.state.dirty.fetch_update(Relaxed, Relaxed, less);
    }

    fn count(&self, figure: usize, more: u64) {
        self.state.counts[figure].fetch_add(more, Relaxed);
    }

    fn page(&self, key: FileKey, file: &FileState, number: u64) -> u64 {
        mixed(mixed(key.to_word() ^ file.generation.load(Relaxed)) ^ number)
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
