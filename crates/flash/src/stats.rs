//! Counts of the cache's work.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the cache was opened.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        /// Counts since the cache was opened, and its contents now.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CacheStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Slots that there are.
            pub slots: u64,
            /// Slots in use, by any version.
            pub slots_used: u64,
            /// Full groups in memory that are not durable yet.
            pub groups_unsynced: u64,
            /// Pages in the cache. `slots_used / pages` are the versions of a page.
            pub pages: u64,
            /// Pages that are newer than at home.
            pub dirty_pages: u64,
            /// Of these, those that were damaged on flash.
            pub lost_pages: u64,
        }

        impl Counters {
            /// The counts, without the cache's contents.
            pub(crate) fn read(&self) -> CacheStats {
                CacheStats {
                    $($name: self.$name.load(Relaxed),)*
                    ..CacheStats::default()
                }
            }
        }
    };
}

counters! {
    /// Reads that found their page.
    hits,
    /// Reads that did not.
    misses,
    /// Reads and writes that went past the cache because they were part of a row.
    bypassed,
    /// Pages that a scan was given from what was read ahead of it at home.
    read_ahead,
    /// Dirty pages that came in.
    enqueued,
    /// Clean pages that came in.
    admitted,
    /// Pages that were put at the rear again because they had been read.
    second_chances,
    /// Bytes of pages that came in, second chances left out.
    page_bytes,
    /// Bytes written to flash: pages and checkpoints. Divided by `page_bytes`: what a byte costs
    /// the flash.
    flash_bytes,
    /// Groups written to flash.
    groups,
    /// Times that flash was synced.
    flash_syncs,
    /// Checkpoints of the metadata.
    checkpoints,
    /// Pages written home.
    home_pages,
    /// Bytes written home.
    home_bytes,
    /// Sorted batches that were written home.
    home_batches,
    /// Times that a home file was synced for them.
    home_syncs,
    /// Pages that left the queue without being written home: superseded, clean, or dropped.
    dropped_versions,
    /// Pages that were written home from memory, around flash: it failed, or the policy said so.
    around_pages,
    /// Times that flash failed to write or sync.
    flash_errors,
    /// Pages whose checksum was wrong, or that flash could not read.
    damaged,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}
