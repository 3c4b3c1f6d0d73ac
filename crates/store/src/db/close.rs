//! Closing the store. docs/store-format.md, "Closing".
//!
//! 1. Collect a small log that is mostly garbage (`gc::at_close`). End the collector, which writes
//!    as well.
//! 2. Drain and sync everything; ingest everything; end the other threads. A resident store's log
//!    stays in the pool, as it is: that is all then.
//! 3. Note in the manifest where the log ends: the files have everything.
//! 4. Give the lane, which is empty then, back to the pool.
//! 5. Note that in the manifest. The directory's lock is held until then. Give back the room that
//!    was allocated for more.
//!
//! Without 3, a pool that has no lane could not be told from one that is older than the store, and
//! has nothing of it yet.
//!
//! A close that is cut, or that fails, is a crash, from which the next opening recovers. A store
//! that is dropped is closed in the same way, unless the options say otherwise, or its thread
//! panics: what a panic left half done is a recovery's.

use super::{Store, StoreCore};
use crate::{error::StoreError, log::LogTail};
use forebay_pool::Lane;
use std::{sync::Arc, thread};

impl Store {
    /// Drains and syncs everything, merges the memtable into the index, gives the pool's lane back,
    /// and closes: the next opening has nothing to replay and may use another pool or none.
    ///
    /// A snapshot that is still open reads on, from the files. A resident store's log stays in the
    /// pool, which the next opening needs.
    ///
    /// # Errors
    /// What went wrong; the store is closed all the same, and nothing is lost.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put(b"boat", b"blue")?;
    /// store.close()?; // dropped instead, it is closed too, but no error would be told
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(mut self) -> Result<(), StoreError> {
        self.shared.check_process()?;
        self.close_now()
    }

    fn close_now(&mut self) -> Result<(), StoreError> {
        // Once only: a close that failed is not tried again when the store is dropped.
        self.closes = false;
        let shared = Arc::clone(&self.shared);
        shared.tail.flush()?;
        shared.ingest_everything()?;
        // Space only: what goes wrong here, and matters, goes wrong again below.
        let _ = shared.collect_before_close();
        // The collector writes as well; what it has begun is garbage at most.
        shared.end_collection();
        shared.tail.flush()?;
        shared.ingest_everything()?;
        self.stop();
        // The directory stays locked until the manifest is written: the next session goes by what
        // it says.
        if let LogTail::Resident(_) = shared.tail {
            // The log stays where it is, and the manifest says so.
            return Ok(());
        }
        let (end, watermark) = (shared.tail.drained(), shared.watermark());
        if let LogTail::Pool(lane) = &shared.tail {
            shared.log.note(|state| {
                state.log_end = Some(end);
                state.indexed_to = state.indexed_to.max(watermark);
            })?;
            shared.give_back(lane)?;
        }
        let unlinked = shared.log.unlinked_for_good()?;
        shared.log.note(|state| {
            state.pool = None;
            state.log_end = Some(end);
            state.indexed_to = state.indexed_to.max(watermark);
            state.no_longer_retired(&unlinked);
        })?;
        shared.log.give_back_room(end);
        Ok(())
    }
}

impl StoreCore {
    /// Gives the lane back to the pool. Snapshots that are still open read the files from then on.
    fn give_back(&self, lane: &Lane) -> Result<(), StoreError> {
        if lane.give_back() {
            return Ok(());
        }
        Err(self.tail.failed().unwrap_or_else(|| StoreError::Stalled {
            reason: "something was written to its lane of the pool while it was closed".to_owned(),
        }))
    }
}

impl Store {
    /// In a forked child: closes its copies of what holds the parent's locks. There are no threads
    /// to be joined, and the parent's are not ended; what they share is not freed, since they had a
    /// part in it.
    fn leave_to_parent(&mut self) {
        self.threads.drain(..).for_each(std::mem::forget);
        self.lock = None;
        if let Some(lane) = self.shared.tail.lane() {
            lane.abandon();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.shared.check_process().is_err() {
            return self.leave_to_parent();
        }
        if self.closes && !thread::panicking() {
            // What fails here is recovered by the next opening.
            let _ = self.close_now();
        }
        self.stop();
    }
}
