//! Compaction on request: what is dead is given back now, and not when there is enough of it.
//!
//! 1. Everything in memory goes into the index, and the log into the files.
//! 2. All runs of the index are merged into one, step by step: what is replaced, deleted, or hidden
//!    by a deleted range is left out. Ingestions and merges of newer runs go on beside.
//! 3. The collector takes one value-log file after the other, that with most garbage first, until
//!    none is worth it; then large values.
//!
//! Between two steps the caller is told how far it is, and may end it: what was done stays, and the
//! rest is as it was.

use super::{Store, StoreCore};
use crate::{
    error::StoreError,
    log::LogTail,
    memtable::ReadView,
    stats::{CompactionProgress, CompactionReport, CompactionStage, GcReport},
};
use std::ops::ControlFlow;

impl Store {
    /// Gives back what is dead, all of it: merges the whole index, and collects every value-log
    /// file that is worth it, and large values. Reads and writes go on. A store does so by itself
    /// when there is enough to gain; this is for one that is to be small, or fast to scan, now.
    ///
    /// `progress` is told after each step how far it is, and ends it by `Break`: what was done
    /// stays. The merge writes the index anew beside what there is, and needs as much room.
    ///
    /// # Errors
    /// [`StoreError::Compacting`] while another thread does it; what keeps the index from being
    /// merged or files from being collected, as a full disk. What was not done is as it was.
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
        let total_bytes = self.index.begin_merge_of_all()?;
        loop {
            self.check_open()?;
            let merged = self.index.step_of_all();
            self.change_view(|view| {
                let (active, frozen) = (view.active.clone(), view.frozen.clone());
                ReadView::new(active, frozen, self.index.snapshot())
            });
            let done_bytes = merged?;
            let so_far = CompactionProgress {
                stage: CompactionStage::Index,
                done_bytes: done_bytes.unwrap_or(total_bytes).min(total_bytes),
                total_bytes,
            };
            if progress(&so_far).is_break() {
                self.index.give_up_merges();
                return Ok(ControlFlow::Break(()));
            }
            if done_bytes.is_none() {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// Step 3.
    fn compact_log(
        &self,
        progress: &mut impl FnMut(&CompactionProgress) -> ControlFlow<()>,
        report: &mut GcReport,
    ) -> Result<ControlFlow<()>, StoreError> {
        let total_bytes = self.begin_collecting_all(report)?;
        loop {
            self.check_open()?;
            let more = self.collect_next(report)?;
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
