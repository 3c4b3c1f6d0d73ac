//! Closing the store. docs/store-format.md, "Closing".
//!
//! 1. End the collector, which writes as well.
//! 2. Drain and sync everything; ingest everything; end the other threads. A resident store's log stays in the pool, as it is: that is all then.
//! 3. Give the lane, which is empty then, back to the pool.
//! 4. Note it in the manifest. The directory's lock is held until then.
//!
//! A close that is cut, or that fails, is what dropping the store is: a crash, from which the next opening recovers.

use super::Store;
use crate::{error::StoreError, log::LogTail};
use std::sync::Arc;

impl Store {
    /// Drains and syncs everything, merges the memtable into the index, gives the pool's lane back, and closes: the next opening
    /// has nothing to replay and may use another pool or none.
    ///
    /// A snapshot that is still open reads on, from the files. A resident store's log stays in the pool, which the next opening needs.
    ///
    /// # Errors
    /// What went wrong; the store is closed all the same, and nothing is lost.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().variant(forebay_store::Variant::NoSync).open(dir.path(), None)?;
    /// store.put(b"boat", b"blue")?;
    /// store.close()?; // dropped instead, it would be recovered by the next opening
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(mut self) -> Result<(), StoreError> {
        // The collector writes as well, so it ends first; what it has begun is garbage at most.
        self.shared.end_collection();
        self.shared.tail.flush()?;
        self.shared.ingest_everything()?;
        self.stop();
        // Kept until the manifest is written: the next session goes by what it says.
        let _lock = self.lock.take();
        let shared = Arc::clone(&self.shared);
        drop(self);
        if let LogTail::Resident(_) = shared.tail {
            // The log stays where it is, and the manifest says so.
            return Ok(());
        }
        let (end, watermark) = (shared.tail.drained(), shared.watermark());
        // Snapshots that are still open read the files from now on.
        if let LogTail::Pool(lane) = &shared.tail
            && !lane.give_back()
        {
            if let Some(failed) = shared.tail.failed() {
                return Err(failed);
            }
            return Err(StoreError::Stalled {
                reason: "something was written to its lane of the pool while it was closed"
                    .to_owned(),
            });
        }
        let unlinked = shared.log.unlinked_for_good()?;
        shared.manifest.lock().update(&*shared.disk, |state| {
            state.pool = None;
            state.log_end = Some(end);
            state.indexed_to = state.indexed_to.max(watermark);
            state.no_longer_retired(&unlinked);
        })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}
