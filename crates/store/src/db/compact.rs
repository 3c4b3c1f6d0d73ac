//! Compaction on request: dead entries are given back now, and not when there are enough of them.
//!
//! 1. Everything in memory goes into the index, and the log into the files.
//! 2. All runs of the index are merged into one, step by step: what is replaced, deleted, or hidden
//!    by a deleted range is left out. Ingestions and merges of newer runs go on beside.
//! 3. The collector takes one value-log file after the other, that with most garbage first, until
//!    none is worth it of those that there were at the beginning; then large values.
//!
//! Between two steps the caller is told how far it is, and may end it: what was done stays, and the
//! rest is as it was.

use super::{Store, StoreCore, indexer::MERGED};
use crate::{
    error::StoreError,
    index::MergeState,
    log::LogTail,
    memtable::ReadView,
    stats::{CompactionProgress, CompactionReport, CompactionStage, GcReport},
};
use std::ops::ControlFlow;

/// How often the merge is begun, if it is given up beside: as the disk becomes full for a moment.
const TRIES: u32 = 3;

impl Store {
    /// Gives back what is dead, all of it: merges the whole index, and collects every value-log
    /// file that is worth it, and large values. Reads and writes go on. A store does so by itself
    /// when there is enough to gain; this is for one that is to be small, or fast to scan, now.
    ///
    /// `progress` is told at the beginning and after each step how far it is, and ends it by
    /// `Break`: what was done stays. The merge writes the index anew beside what there is, and
    /// needs as much room; without that it is refused. A merge that is given up beside, as the disk
    /// becomes full, is begun again a few times.
    ///
    /// # Errors
    /// [`StoreError::Compacting`] while another thread does it; what keeps the index from being
    /// merged or files from being collected, as a full disk. What was not done is as it was. On a
    /// full disk [`gc`](Self::gc) makes room with less.
    ///
    /// ```
    /// use forebay_store::ScanRange;
    /// use std::ops::ControlFlow;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.delete_range(ScanRange::prefix("log/2024"))?;
    /// let report = store.compact(|so_far| {
    ///     println!("{} of {} bytes", so_far.done_bytes, so_far.total_bytes);
    ///     ControlFlow::Continue(())
    /// })?;
    /// println!("{} bytes given back", report.bytes_before.saturating_sub(report.bytes_after));
    /// # Ok(())
    /// # }
    /// ```
    pub fn compact(
        &self,
        mut progress: impl FnMut(&CompactionProgress) -> ControlFlow<()>,
    ) -> Result<CompactionReport, StoreError> {
        let shared = &*self.shared;
        shared.check_process()?;
        let one = shared.compacting.try_lock();
        let _one = one.ok_or(StoreError::Compacting)?;
        let mut report = CompactionReport {
            bytes_before: shared.disk_bytes(),
            ..CompactionReport::default()
        };
        let ended = shared.compact_index(&mut progress)?.is_break()
            || (shared.compact_log(&mut progress, &mut report.collected)?).is_break();
        report.interrupted = ended;
        report.collected.set_aside = shared.collector.set_aside();
        report.bytes_after = shared.disk_bytes();
        Ok(report)
    }
}

impl StoreCore {
    /// Bytes of the store's files: of the value log, large values, and the index's tables.
    fn disk_bytes(&self) -> u64 {
        self.log.disk_bytes() + self.large.size().0 + self.index.stats().disk_bytes
    }

    /// Steps 1 and 2.
    fn compact_index(
        &self,
        progress: &mut impl FnMut(&CompactionProgress) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        self.tail.flush()?;
        self.ingest_everything()?;
        for _ in 0..TRIES {
            if let Some(ended) = self.merge_index(progress)? {
                return Ok(ended);
            }
        }
        Err(self.index.given_up().into())
    }

    /// Step 2; nothing if the merge was given up by another thread.
    fn merge_index(
        &self,
        progress: &mut impl FnMut(&CompactionProgress) -> ControlFlow<()>,
    ) -> Result<Option<ControlFlow<()>>, StoreError> {
        let free = self.log.free_bytes();
        // As the thread that compacts leaves it.
        let room = match self.log.reserve().is_short() {
            true => free / MERGED,
            false => free,
        };
        let merge = self.index.begin_merge_of_all(room);
        self.take_tables();
        let merge = merge?;
        let mut state = MergeState::UnderWay(0);
        loop {
            let done_bytes = match state {
                MergeState::UnderWay(bytes) => bytes.min(merge.bytes),
                MergeState::Installed => merge.bytes,
                MergeState::GivenUp => return Ok(None),
            };
            let so_far = CompactionProgress {
                stage: CompactionStage::Index,
                done_bytes,
                total_bytes: merge.bytes,
            };
            if progress(&so_far).is_break() {
                self.index.give_up_merges();
                return Ok(Some(ControlFlow::Break(())));
            }
            if state == MergeState::Installed {
                return Ok(Some(ControlFlow::Continue(())));
            }
            self.check_open()?;
            let stepped = self.index.step_of_all(&merge);
            self.take_tables();
            state = stepped?;
        }
    }

    /// Has reads look at the index's present tables.
    fn take_tables(&self) {
        self.change_view(|view| {
            let (active, frozen) = (view.active.clone(), view.frozen.clone());
            ReadView::new(active, frozen, self.index.snapshot())
        });
    }

    /// Step 3.
    fn compact_log(
        &self,
        progress: &mut impl FnMut(&CompactionProgress) -> ControlFlow<()>,
        report: &mut GcReport,
    ) -> Result<ControlFlow<()>, StoreError> {
        // Of what writers add meanwhile there might be no end.
        let below = self.tail.tail();
        let total_bytes = self.begin_collecting_all(report)?;
        loop {
            self.check_open()?;
            let more = self.collect_next(below, report)?;
            let done = report
                .reclaimed_bytes
                .saturating_sub(report.relocated_bytes);
            let so_far = CompactionProgress {
                stage: CompactionStage::Log,
                done_bytes: if more {
                    done.min(total_bytes)
                } else {
                    total_bytes
                },
                total_bytes,
            };
            if progress(&so_far).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if !more {
                break;
            }
        }
        if let LogTail::Resident(resident) = &self.tail {
            self.collect_segments_of(resident, report)?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use crate::{CompactionStage, Durability, Store, StoreError, StoreOptions};
    use std::ops::ControlFlow;

    /// A store whose index has two runs that only the caller merges.
    fn two_runs(dir: &tempfile::TempDir) -> Store {
        let options = StoreOptions::new().durability(Durability::NoSync);
        let store = options.open(dir.path().join("store"), None).unwrap();
        for _ in 0..2 {
            (0..100u8).for_each(|i| store.put(&[i], "value").unwrap());
            store.shared.ingest_everything().unwrap();
        }
        assert_eq!(store.stats().index.runs, 2);
        store
    }

    /// Compacts it, while another gives up so many of the merges; how often one was begun, too.
    fn compacted(store: &Store, mut given_up: u32) -> (u32, Result<(), StoreError>) {
        let mut begun = 0;
        let done = store.compact(|so_far| {
            if so_far.stage == CompactionStage::Index && so_far.done_bytes == 0 {
                begun += 1;
                if given_up > 0 {
                    given_up -= 1;
                    store.shared.index.give_up_merges();
                }
            }
            ControlFlow::Continue(())
        });
        (begun, done.map(|report| assert!(!report.interrupted)))
    }

    /// Promise (store): A compaction that says it is done has merged the index: a merge that is
    /// given up beside it is begun again, and one that always is makes it fail.
    #[test]
    fn a_merge_that_is_given_up_is_begun_again_or_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let store = two_runs(&dir);
        let (begun, done) = compacted(&store, u32::MAX);
        let error = done.unwrap_err();
        assert!(error.to_string().contains("given up"), "{error}");
        assert_eq!((begun, store.stats().index.runs), (super::TRIES, 2));
        let (begun, done) = compacted(&store, 1);
        done.unwrap();
        assert_eq!((begun, store.stats().index.runs), (2, 1));
        // Nothing is left to do.
        let (_, done) = compacted(&store, u32::MAX);
        done.unwrap();
    }

    #[test]
    fn a_compaction_ended_at_once_says_so_and_merges_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = two_runs(&dir);
        let report = store.compact(|_| ControlFlow::Break(())).unwrap();
        assert!(report.interrupted && store.stats().index.runs == 2);
    }
}
