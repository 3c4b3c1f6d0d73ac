//! The threads behind the store: started at the end of an opening, ended by [`Store::close`] or
//! when the store is dropped.
//!
//! | thread | runs |
//! |---|---|
//! | `forebay-drain` | `log::drain`, if the log grows in a pool and is drained |
//! | `forebay-index`, `forebay-compact` | `indexer` |
//! | `forebay-gc` | `gc`, unless the options say that nothing is collected |
//!
//! They work in short slices (`slice`): what they do is seldom urgent to the microsecond, and
//! writers' waits are counted in those.
//!
//! A thread that panics is started again, and no thread waits for it in vain: writers get the
//! error, or are released.

mod running;
mod slice;

pub(super) use running::RunningThreads;

use super::{Store, StoreCore};
use crate::{
    error::StoreError,
    log::{LogTail, drain},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

/// Drain threads of a lane with several buffers: one segment's sync overlaps the next one's write.
const DRAINS: usize = 2;
/// How long after a panic a thread is started again.
const RESTART: Duration = Duration::from_millis(100);

impl Store {
    /// Starts the threads behind the store.
    pub(super) fn start_threads(&mut self) -> Result<(), StoreError> {
        self.start_thread("forebay-index", StoreCore::run_indexer)?;
        self.start_thread("forebay-compact", StoreCore::run_compaction)?;
        if self.shared.log.reserve().is_short() {
            // Before a drain takes what room there is.
            self.shared.collect_at_opening();
        }
        let drains = match &self.shared.tail {
            LogTail::Pool(lane) => DRAINS.min(lane.segments()),
            LogTail::File(_) | LogTail::Resident(_) | LogTail::ReadOnly(_) => 0,
        };
        for _ in 0..drains {
            self.start_thread("forebay-drain", StoreCore::run_drain)?;
        }
        match self.shared.tail {
            _ if !self.shared.options.gc => {}
            LogTail::Resident(_) => {
                self.start_thread("forebay-gc", StoreCore::run_resident_collector)?
            }
            _ => self.start_thread("forebay-gc", StoreCore::run_collector)?,
        }
        Ok(())
    }

    /// Starts a thread. One that panics is started again after a pause; writers that wait for it
    /// are told.
    fn start_thread(&mut self, name: &'static str, run: fn(&StoreCore)) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let guarded = move || {
            // Without them writers wait longer now and then, no more.
            let _ = slice::shorten();
            while catch_unwind(AssertUnwindSafe(|| run(&shared))).is_err() && !shared.stopping() {
                shared.report_panic(name);
                thread::sleep(RESTART);
            }
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(guarded)
            .map_err(StoreError::io("starting a thread for", &self.shared.dir))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ends the threads, and what they had not finished: a snapshot may outlive the store's lock,
    /// and the index with it.
    pub(super) fn stop(&mut self) {
        // Without them nothing is drained or indexed any more.
        self.closes = false;
        self.shared.background.stop.store(true, SeqCst);
        self.shared.background.changed.notify_all();
        if let Some(lane) = self.shared.tail.lane() {
            lane.close();
        }
        for thread in self.threads.drain(..) {
            // They catch what panics in them.
            let _ = thread.join();
        }
        self.shared.index.give_up_merges();
    }
}

impl StoreCore {
    fn run_drain(&self) {
        if let LogTail::Pool(lane) = &self.tail {
            drain(lane, &self.log, &self.drain_order, &self.background.stop);
        }
    }

    /// Tells those who wait for a thread that it panicked.
    fn report_panic(&self, name: &str) {
        let reason = format!("the thread {name} panicked; the standard error output has more");
        match (&self.tail, name) {
            (_, "forebay-gc") => self.collector.release_writers(),
            (LogTail::Pool(lane), "forebay-drain") => lane.set_stalled(reason),
            _ => self.set_index_trouble(Some(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Durability, StoreOptions, index::RecordAddress};
    use std::fs;

    /// Promise (store): A snapshot that is kept beyond its store unlinks nothing of a later
    /// session.
    #[test]
    fn a_merge_cut_by_the_stores_end_leaves_no_work_to_a_snapshot() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let options = StoreOptions::new().durability(Durability::NoSync);
        let mut store = options.open(&path, None).unwrap();
        // The merge is the test's.
        store.stop();
        let index = &store.shared.index;
        // Four runs of like size that overlap, and together make more than one table.
        for run in 0..4_u32 {
            let keys: Vec<_> = (0..150_u32)
                .map(|n| [&(n * 4 + run).to_be_bytes()[..], &[0; 60_000]].concat())
                .collect();
            let address = RecordAddress::at(0);
            let mut entries = keys.iter().map(|key| (&key[..], address));
            index.ingest(&mut entries, index.watermark()).unwrap();
        }
        assert!(index.compact().unwrap(), "the merge is done in one step");
        let tables = || {
            let names = fs::read_dir(path.join("index")).unwrap();
            let names = names.map(|entry| entry.unwrap().path());
            names
                .filter(|path| path.extension().is_some_and(|e| e == "table"))
                .count()
        };
        assert_eq!(tables(), 5);
        let snapshot = store.snapshot().unwrap();
        drop(store);
        // The lock is free, and the next session may make a table of any number.
        assert_eq!(tables(), 4);
        drop(snapshot);
        options.open(&path, None).unwrap();
    }
}
