//! Garbage collection of the value log and of large values.
//!
//! To collect a file, all of which lies below the index's watermark:
//! 1. Walk its records. One is live if the index leads from its key to it.
//! 2. For each live one: under the key's stripe, if it is *still* live, append it to the log again and give the key its new
//!    address. A newer write between the look and the lock wins; a deleted key never comes back.
//! 3. Make the copies durable (in a pool they are).
//! 4. Take the file out of the manifest, durably. The index's tables may still lead to it, but the log above the watermark
//!    has the copies, and is replayed at an opening.
//! 5. Unlink it, once no snapshot is open that was taken before step 4.
//!
//! Which file: the one with most garbage, by sampling (`sample`). When: the log is larger than the
//! live data by more than the options allow; and if writers outrun the collector, they wait.

use super::{
    Shared, Store,
    read::{LOOKUPS_MAX, Wait},
    sample::{Sample, op_address},
};
use crate::{
    error::StoreError,
    index::{Address, Form},
    log::{LogReader, Stop, VlogFile},
    op::{Change, KIND_LARGE, KIND_PUT},
    stats::GcReport,
};
use forebay_pool::Lsn;
use parking_lot::{Condvar, Mutex};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// How often the collector looks at the log.
const IDLE: Duration = Duration::from_millis(100);
/// A file with less garbage is not worth collecting on its own account.
const GARBAGE_MIN: f64 = 0.05;
/// Collection begins at this part of the space amplification that the options allow, above 1.
const BEGIN_AT: f64 = 0.7;
/// Bytes of live records that are copied before the collector looks whether it should stop.
const LARGE_PASS_EVERY: f64 = 0.25;

/// The collector's state.
#[derive(Default)]
pub(super) struct Collector {
    /// Held while a file is collected: one at a time, by the thread or on request.
    collecting: Mutex<Progress>,
    estimate: Mutex<Estimate>,
    /// The store is being closed: nothing more is to be collected.
    ended: AtomicBool,
    /// Writers must wait.
    behind: AtomicBool,
    caught_up: Condvar,
    gate: Mutex<()>,
    relocated_bytes: AtomicU64,
    files_removed: AtomicU64,
    waits: AtomicU64,
}

#[derive(Default)]
struct Progress {
    /// Samples by file start, and the log's tail when each was taken.
    samples: HashMap<Lsn, (Sample, Lsn)>,
    /// Collected files, and the number of the first snapshot that cannot lead to them.
    retired: Vec<(Lsn, u64)>,
    /// The same for large values.
    retired_large: Vec<(u64, u64)>,
    /// Bytes of large values when they were last looked through.
    large_seen: u64,
}

/// The last look at the whole log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    pub(super) log_bytes: u64,
    pub(super) garbage_bytes: u64,
}

impl Estimate {
    pub(super) fn space_amplification(&self) -> f64 {
        let live = self.log_bytes.saturating_sub(self.garbage_bytes);
        if self.log_bytes == 0 {
            return 1.0;
        }
        self.log_bytes as f64 / live.max(1) as f64
    }
}

impl Collector {
    pub(super) fn estimate(&self) -> Estimate {
        *self.estimate.lock()
    }

    pub(super) fn relocated_bytes(&self) -> u64 {
        self.relocated_bytes.load(Relaxed)
    }

    pub(super) fn files_removed(&self) -> u64 {
        self.files_removed.load(Relaxed)
    }

    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
    }

    /// True if writers must wait for the collector.
    #[inline]
    pub(super) fn behind(&self) -> bool {
        self.behind.load(Relaxed)
    }

    /// Waits until the collector has caught up, or the store stops.
    #[cold]
    pub(super) fn wait(&self, stop: &AtomicBool) {
        self.waits.fetch_add(1, Relaxed);
        let mut gate = self.gate.lock();
        while self.behind() && !stop.load(Relaxed) {
            self.caught_up.wait_for(&mut gate, IDLE);
        }
    }

    pub(super) fn set_behind(&self, behind: bool) {
        let _gate = self.gate.lock();
        self.behind.store(behind, Relaxed);
        self.caught_up.notify_all();
    }
}

impl Store {
    /// Collects garbage now, until no file is left with a worthwhile amount of it.
    ///
    /// # Errors
    /// I/O errors and damage; what was not collected stays as it was.
    pub fn gc(&self) -> Result<GcReport, StoreError> {
        let shared = &*self.shared;
        // Only what the index covers can be collected, and only what is in the files.
        shared.head.flush()?;
        shared.ingest_everything()?;
        let mut progress = shared.collector.collecting.lock();
        let mut report = GcReport::default();
        progress.samples.clear();
        let mut candidates = Vec::new();
        for file in shared.collectable(&progress) {
            let end = file.end().unwrap_or(file.start);
            let garbage = shared.sample(&file, end)?.garbage();
            candidates.push((garbage, file));
        }
        for (garbage, file) in candidates {
            if garbage >= GARBAGE_MIN {
                shared.collect(&mut progress, &file, &mut report)?;
            }
        }
        shared.collect_large(&mut progress, &mut report)?;
        shared.unlink_retired(&mut progress)?;
        shared.look(&mut progress)?;
        Ok(report)
    }
}

impl Shared {
    /// Ends collection for good; when this returns, it writes no more.
    pub(super) fn end_collection(&self) {
        self.collector.ended.store(true, Relaxed);
        drop(self.collector.collecting.lock());
    }

    fn collection_ends(&self) -> bool {
        self.stopping() || self.collector.ended.load(Relaxed)
    }

    /// The collector thread.
    pub(super) fn run_collector(&self) {
        let mut looked_at = 0;
        while !self.stopping() {
            std::thread::sleep(IDLE);
            let mut progress = self.collector.collecting.lock();
            if self.collection_ends() {
                break;
            }
            // What goes wrong here is tried again; nothing is lost by garbage that stays.
            let _ = self.unlink_retired(&mut progress);
            let tail = self.head.drained();
            if tail.saturating_sub(looked_at) < self.options.file_bytes / 4 {
                continue;
            }
            let _ = self.keep_to_limit(&mut progress);
            self.collector.set_behind(false);
            looked_at = tail;
        }
        self.collector.set_behind(false);
    }

    /// Collects until the log is no larger than the options allow.
    fn keep_to_limit(&self, progress: &mut Progress) -> Result<(), StoreError> {
        let max = self.options.space_amplification_max;
        let begin = 1.0 + (max - 1.0) * BEGIN_AT;
        let mut report = GcReport::default();
        let (large, _) = self.large.size();
        if large as f64 > progress.large_seen as f64 * (1.0 + LARGE_PASS_EVERY) {
            self.collect_large(progress, &mut report)?;
        }
        while !self.collection_ends() {
            let worst = self.look(progress)?;
            let amplification = self.collector.estimate().space_amplification();
            let Some((garbage, file)) = worst.filter(|_| amplification > begin) else {
                return Ok(());
            };
            if garbage < GARBAGE_MIN {
                return Ok(());
            }
            self.collector.set_behind(amplification > max);
            self.collect(progress, &file, &mut report)?;
            self.unlink_retired(progress)?;
        }
        Ok(())
    }

    /// Estimates the garbage of the whole log; the collectable file with the largest share of it.
    fn look(&self, progress: &mut Progress) -> Result<Option<(f64, Arc<VlogFile>)>, StoreError> {
        let drained = self.head.drained();
        let watermark = self.watermark();
        let mut estimate = Estimate::default();
        let mut worst: Option<(f64, Arc<VlogFile>)> = None;
        let files = self.log.files();
        let total: u64 = files.iter().map(|file| extent(file, drained)).sum();
        for file in files.iter() {
            if progress
                .retired
                .iter()
                .any(|(start, _)| *start == file.start)
            {
                continue;
            }
            let bytes = extent(file, drained);
            // A file's garbage only grows, with what is written; so a sample lasts until a tenth is.
            let stale = progress
                .samples
                .get(&file.start)
                .is_none_or(|(_, tail)| drained - tail.min(&drained) > total / 10);
            if stale {
                let sample = self.sample(file, file.start + bytes)?;
                progress.samples.insert(file.start, (sample, drained));
            }
            let garbage = progress
                .samples
                .get(&file.start)
                .map_or(0.0, |(s, _)| s.garbage());
            estimate.log_bytes += bytes;
            estimate.garbage_bytes += (bytes as f64 * garbage) as u64;
            let collectable = file.end().is_some_and(|end| end <= watermark);
            if collectable && worst.as_ref().is_none_or(|(most, _)| garbage > *most) {
                worst = Some((garbage, Arc::clone(file)));
            }
        }
        progress
            .samples
            .retain(|start, _| files.iter().any(|file| file.start == *start));
        *self.collector.estimate.lock() = estimate;
        Ok(worst)
    }

    /// The files that may be collected.
    fn collectable(&self, progress: &Progress) -> Vec<Arc<VlogFile>> {
        let watermark = self.watermark();
        let files = self.log.files();
        let retired = |start| {
            progress
                .retired
                .iter()
                .any(|(retired, _)| *retired == start)
        };
        files
            .iter()
            .filter(|file| file.end().is_some_and(|end| end <= watermark))
            .filter(|file| !retired(file.start))
            .cloned()
            .collect()
    }

    /// Steps 1 to 4 for one file.
    fn collect(
        &self,
        progress: &mut Progress,
        file: &VlogFile,
        report: &mut GcReport,
    ) -> Result<(), StoreError> {
        let Some(end) = file.end() else {
            return Ok(());
        };
        let mut reader = LogReader::new(&self.log, self.uuid, file.start, end);
        loop {
            let record = match reader.next()? {
                Ok(record) => record,
                Err(Stop::End) => break,
                Err(Stop::NoFile(lsn)) => return Err(StoreError::lost(&file.path, lsn, "no file")),
                // Rather keep a file than lose what stands behind damage in it.
                Err(Stop::Invalid(lsn, what)) => {
                    return Err(StoreError::lost(&file.path, lsn, what));
                }
            };
            if self.collection_ends() {
                return Ok(());
            }
            report.records += 1;
            let lsn = record.header.lsn;
            for op in crate::op::ops(record) {
                let op = op.map_err(|what| StoreError::lost(&file.path, lsn, what))?;
                let kind = match op.change {
                    Change::Put(_) => KIND_PUT,
                    Change::Large(_) => KIND_LARGE,
                    Change::Delete => continue,
                };
                let copied = match op.change {
                    Change::Put(value) => {
                        self.relocate(kind, op.key, value, op_address(lsn, &op))?
                    }
                    Change::Large(value) => {
                        self.relocate(kind, op.key, &value.encode(), op_address(lsn, &op))?
                    }
                    Change::Delete => false,
                };
                if copied {
                    report.relocated += 1;
                    report.relocated_bytes += op.bytes as u64;
                    self.collector
                        .relocated_bytes
                        .fetch_add(op.bytes as u64, Relaxed);
                }
            }
        }
        self.head.make_durable()?;
        self.log.retire(&[file.start])?;
        progress
            .retired
            .push((file.start, self.snapshots().next_number()));
        report.files += 1;
        report.reclaimed_bytes += end - file.start;
        Ok(())
    }

    /// Step 2: writes a record again if the key's address is still `from`. True if it was.
    fn relocate(
        &self,
        kind: u16,
        key: &[u8],
        body: &[u8],
        from: Address,
    ) -> Result<bool, StoreError> {
        let hash = self.hash(key);
        let before = self.view.load_full();
        if before.find(hash, key)? != Some(from) {
            return Ok(false);
        }
        // What is collected goes through the memtable as well, and keeps to its bounds.
        self.wait_for_memtable()?;
        let mut unknown = None;
        let still = || {
            let now = self.view.load();
            // What changed since is in memory, unless the tables changed as well.
            let in_memory = now
                .active
                .iter()
                .chain(&now.frozen)
                .find_map(|chunk| chunk.get(hash, key));
            match in_memory {
                Some(address) => address == from,
                None if Arc::ptr_eq(&now.tables, &before.tables) => true,
                None => match now.tables.get(key) {
                    Ok(found) => found == Some(from),
                    Err(error) => {
                        unknown = Some(error);
                        false
                    }
                },
            }
        };
        let written = self.write_one(kind, key, body, Form::Record, still)?;
        // A record of which nobody can say whether it is live must not go.
        unknown.map_or(Ok(written), |error| Err(error.into()))
    }

    /// Removes large values to which no record leads any more.
    fn collect_large(
        &self,
        progress: &mut Progress,
        report: &mut GcReport,
    ) -> Result<(), StoreError> {
        let below = self.large.settled_below();
        let mut buffer = Vec::new();
        for id in self.large.ids()? {
            let known = progress
                .retired_large
                .iter()
                .any(|(retired, _)| *retired == id);
            if id >= below || known || self.collection_ends() {
                continue;
            }
            let key = match self.large.key_of(id) {
                // Rather keep a file than remove one of which nobody can say whose it is.
                Err(StoreError::Damaged { .. }) => continue,
                key => key?,
            };
            if !self.leads_to(&key, id, &mut buffer)? {
                progress
                    .retired_large
                    .push((id, self.snapshots().next_number()));
                report.large_values += 1;
            }
        }
        progress.large_seen = self.large.size().0;
        Ok(())
    }

    /// True if the index leads from `key` to large value `id`.
    pub(super) fn leads_to(
        &self,
        key: &[u8],
        id: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, StoreError> {
        for _ in 0..LOOKUPS_MAX {
            let found = self.view.load().find(self.hash(key), key)?;
            let Some(address) = found.filter(|found| found.form != Form::Tombstone) else {
                return Ok(false);
            };
            // A record that moved while we looked has a new address.
            if self.read_log(address, buffer, Wait::Yes)? {
                let op = self.op_at(buffer, address)?;
                return Ok(matches!(op.change, Change::Large(value) if value.id == id));
            }
        }
        // The record is nowhere; rather keep what it may have led to.
        Ok(true)
    }

    /// Step 5, for all files that no snapshot needs.
    fn unlink_retired(&self, progress: &mut Progress) -> Result<(), StoreError> {
        let free = |number: u64| self.snapshots().none_before(number);
        let (gone, kept): (Vec<_>, Vec<_>) = progress
            .retired
            .iter()
            .partition(|(_, number)| free(*number));
        progress.retired = kept;
        if !gone.is_empty() {
            let starts: Vec<Lsn> = gone.iter().map(|(start, _)| *start).collect();
            self.collector
                .files_removed
                .fetch_add(starts.len() as u64, Relaxed);
            self.log.unlink(&starts)?;
        }
        let (gone, kept): (Vec<_>, Vec<_>) = progress
            .retired_large
            .iter()
            .partition(|(_, number)| free(*number));
        progress.retired_large = kept;
        if !gone.is_empty() {
            // What replaced them must not be lost without them.
            self.head.make_durable()?;
        }
        for (id, _) in gone {
            self.large.remove(id)?;
        }
        Ok(())
    }
}

/// Bytes of a file that hold log.
fn extent(file: &VlogFile, drained: Lsn) -> u64 {
    file.end().unwrap_or(drained.max(file.start)) - file.start
}
