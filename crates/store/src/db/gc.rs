//! Garbage collection of the value log and of large values.
//!
//! How a file is collected: `collect`. Large values: `large`. A small store that closes:
//! `at_close`.
//!
//! Which file: the one with most garbage, by sampling (`estimate`, `sample`). If that is one that
//! the index does not cover yet, an ingestion is asked for.
//!
//! When: the options allow for an amount of garbage in proportion to the live data
//! ([`Estimate::allowance`]). At three quarters of it collection begins, and writers are bound to
//! its pace (`pace`). While a file is collected they may write half of what that gives back, as it
//! does. At its end they may write a quarter of the room that is left, which keeps them going until
//! the next file is begun. So the nearer the limit the slower they are, and they settle where as
//! much is given back as is written.

mod at_close;
mod collect;
mod estimate;
mod large;
mod pace;
mod resident;
mod set_aside;

use super::{Store, StoreCore, disk_full::FULL, sample::FileSample};
use crate::{
    error::StoreError,
    log::{LogTail, Resident, VlogFile},
    stats::{GcReport, SetAside, WaitStats},
};
use collect::WriteGrant;
pub(super) use estimate::Estimate;
use forebay_pool::Lsn;
use pace::Pace;
use parking_lot::{Mutex, MutexGuard};
pub(super) use resident::KEPT_MAX;
use resident::ResidentRoom;
use set_aside::AsideFiles;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// How often the collector looks whether a snapshot was dropped or large values came.
const IDLE: Duration = Duration::from_millis(100);
/// How long after a failure it tries again, whether anything is written or not.
const RETRY: Duration = Duration::from_secs(1);
/// How long it waits for an ingestion before it looks again.
const INGESTION: Duration = Duration::from_millis(20);
/// A file with less garbage is not worth collecting on its own account.
const GARBAGE_MIN: f64 = 0.05;
/// A file that the index does not cover yet is worth an ingestion if its garbage is larger by so
/// much.
const GARBAGE_MORE: f64 = 0.1;
/// Files are looked at for values that have expired so often in the least time to live, and at
/// least this often.
const EXPIRED_LOOKS: u64 = 8;
const EXPIRED_MAX: Duration = Duration::from_secs(60);
/// Such looks take no more than one part in so many of the time.
const LOOK_SHARE: u32 = 50;
/// On a full disk writers write so much, deletes mostly, between two looks of the collector: what
/// the reserve has for them must not be used up before it sees what they have made.
const LOOK_BYTES: u64 = 128 << 10;

/// The collector's state.
#[derive(Default)]
pub(super) struct Collector {
    /// Held while a file is collected: one at a time, by the thread or on request.
    collecting: Mutex<CollectionProgress>,
    /// None before the first look.
    estimate: Mutex<Option<Estimate>>,
    aside: AsideFiles,
    /// Why nothing can be collected at present, if so.
    trouble: Mutex<Option<String>>,
    /// Much may have become garbage at once: every sample is to be looked at again.
    looks_anew: AtomicBool,
    /// The store is being closed: nothing more is to be collected.
    ended: AtomicBool,
    pace: Pace,
    room: ResidentRoom,
    relocated_bytes: AtomicU64,
    files_removed: AtomicU64,
    /// Bytes of collected files that open snapshots keep.
    held_bytes: AtomicU64,
}

#[derive(Default)]
struct CollectionProgress {
    /// Samples of complete files, by their start.
    samples: HashMap<Lsn, FileSample>,
    /// Collected files, and the number of the first snapshot that cannot lead to them.
    retired: Vec<(Lsn, u64)>,
    /// A resident segment whose live records are copied, by its start, with such a number.
    copied: Option<(Lsn, u64)>,
    /// The same for large values.
    retired_large: Vec<(u64, u64)>,
    /// Bytes of large values, and what writers had written to the log, when they were last looked
    /// through.
    large_seen: u64,
    large_looked_at: u64,
    /// The log address up to which an ingestion was asked for.
    ingested_to: Lsn,
    /// While the disk is full: when all samples were looked at again, and what writers had written
    /// then. A delete writes little, and may have made much garbage.
    looked_again: Option<(Instant, u64)>,
    /// When it was looked last for what has expired, and how long that took.
    expired_looked_at: Option<Instant>,
    dead_look: Duration,
    /// When it last looked for what has died, if it could not look at all.
    looked_in_part: Option<Instant>,
    /// How many ranges were deleted when samples were last looked at on that account, and when.
    range_deletes: u64,
    ranges_looked_at: Option<Instant>,
}

impl Collector {
    pub(super) fn estimate(&self) -> Estimate {
        self.estimate.lock().unwrap_or_default()
    }

    /// Files that cannot be collected.
    pub(super) fn set_aside(&self) -> Vec<SetAside> {
        self.aside.said()
    }

    /// The reason that nothing can be collected, if so.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Bytes of collected files that open snapshots and scans keep.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    pub(super) fn relocated_bytes(&self) -> u64 {
        self.relocated_bytes.load(Relaxed)
    }

    pub(super) fn files_removed(&self) -> u64 {
        self.files_removed.load(Relaxed)
    }

    /// Waits of writers.
    pub(super) fn waits(&self) -> WaitStats {
        self.pace.waits()
    }

    /// Has the collector look again at all files and large values.
    pub(super) fn look_anew(&self) {
        self.looks_anew.store(true, Relaxed);
    }

    /// Lets writers go as fast as they can.
    pub(super) fn release_writers(&self) {
        self.pace.rest(Lsn::MAX, Lsn::MAX);
    }
}

impl Store {
    /// Collects garbage now, until no file is left with a worthwhile amount of it. A file that
    /// cannot be collected is passed over, and named in the report.
    ///
    /// # Errors
    /// What keeps the store from collecting anything; what was not collected stays as it was.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let report = store.gc()?;
    /// println!("{} files collected, {} bytes given back", report.files, report.reclaimed_bytes);
    /// # Ok(())
    /// # }
    /// ```
    pub fn gc(&self) -> Result<GcReport, StoreError> {
        let shared = &*self.shared;
        shared.check_process()?;
        // What takes no room to collect goes before anything is written.
        let mut report = GcReport::default();
        shared.collect_dead(&mut report);
        // Only what the index covers can be collected, and only what is in the files.
        shared.tail.flush()?;
        shared.ingest_everything()?;
        let mut progress = shared.collector.collecting.lock();
        shared.collector.release_writers();
        shared.collector.aside.try_all_again();
        let mut done = shared.collect_everything(&mut progress, &mut report);
        if let (Ok(()), LogTail::Resident(resident)) = (&done, &shared.tail) {
            done = shared.collect_every_segment(resident, &mut progress, &mut report);
        } else if shared.options.gc {
            shared.rest_for_a_file();
        }
        if shared.log.reserve().is_short() {
            // Deletes need not wait for more.
            shared.log.reserve().set_in_vain();
        }
        report.set_aside = shared.collector.set_aside();
        done.map(|()| report)
    }
}

impl StoreCore {
    /// Pays the debt of the writer of the record of `bytes` at `lsn` to the collector, and the
    /// drain.
    #[inline]
    pub(super) fn keep_pace(&self, lsn: Lsn, bytes: usize) {
        if self.collector.pace.concerns(lsn) {
            let pace = &self.collector.pace;
            pace.keep(lsn, bytes as u64, &self.background.stop);
        }
        if let Some((lane, crowded)) = self.tail.crowding(lsn, bytes as u64) {
            self.background.brake.slow_for_drain(lane, crowded);
        }
    }

    /// Ends collection for good; when this returns, it writes no more.
    pub(super) fn end_collection(&self) {
        self.collector.ended.store(true, Relaxed);
        drop(self.collector.collecting.lock());
    }

    pub(super) fn collection_ends(&self) -> bool {
        self.stopping() || self.collector.ended.load(Relaxed)
    }

    /// The collector thread.
    pub(super) fn run_collector(&self) {
        // Nothing is known yet.
        self.rest_for_a_file();
        let mut more = true;
        // When the last try failed, and why.
        let mut failed: Option<(Instant, String)> = None;
        while !self.stopping() {
            let called = more || self.collector.pace.wait_for_call(IDLE);
            let again = |(at, _): &(Instant, String)| at.elapsed() >= RETRY;
            let wants_room = self.log.reserve().wants_room();
            let mut due = called || wants_room || failed.as_ref().is_some_and(again);
            let mut progress = self.collector.collecting.lock();
            if self.collection_ends() {
                break;
            }
            due |= self.look_behind_ranges(&mut progress);
            // What goes wrong here is told, and tried again; nothing is lost by garbage that stays.
            let mut done = self.unlink_retired(&mut progress);
            if self.has_died(&mut progress) {
                done = done.and(self.look_at_dead(&mut progress));
                due = true;
            }
            done = done.and(self.collect_grown_large(&mut progress));
            if due {
                let kept = self.keep_to_limit(&mut progress);
                if kept.is_err() {
                    self.rest_for_a_file();
                }
                more = matches!(kept, Ok(true));
                failed = kept.err().map(|error| (Instant::now(), error.to_string()));
            } else {
                more = false;
            }
            if wants_room {
                self.log.reserve().try_again();
            }
            let trouble = done.err().map(|error| error.to_string());
            *self.collector.trouble.lock() = trouble.or_else(|| Some(failed.as_ref()?.1.clone()));
            // A thread that wants to collect on request, or to close, gets the lock between two
            // files.
            MutexGuard::unlock_fair(progress);
        }
        self.collector.release_writers();
    }

    /// True if a keyspace was dropped, or values may have expired, since this was asked last.
    fn has_died(&self, progress: &mut CollectionProgress) -> bool {
        let again = (progress.looked_in_part).is_some_and(|at| at.elapsed() >= RETRY);
        let dropped = self.collector.looks_anew.swap(false, Relaxed) || again;
        let Some(ttl) = self.keyspaces().ttl_least_ms() else {
            return dropped;
        };
        let pause = Duration::from_millis(ttl / EXPIRED_LOOKS).clamp(RETRY, EXPIRED_MAX);
        let pause = pause.max(progress.dead_look * LOOK_SHARE);
        let looked_at = progress.expired_looked_at;
        let expired = looked_at.is_none_or(|looked_at| looked_at.elapsed() >= pause);
        if expired {
            progress.expired_looked_at = Some(Instant::now());
        }
        dropped || expired
    }

    /// Looks again at all samples and large values, although little was written.
    fn look_at_dead(&self, progress: &mut CollectionProgress) -> Result<(), StoreError> {
        let begun = Instant::now();
        let samples = progress.samples.values_mut();
        samples.for_each(|sample| self.look_again(sample));
        // Values that are being written are passed over.
        let all_large = self.large.settled_below() >= self.large.next_id();
        let done = match self.large.size() {
            (_, 0) => Ok(()),
            _ => {
                let large = self.collect_large(progress, &mut GcReport::default());
                large.and_then(|()| self.remove_retired_large(progress))
            }
        };
        progress.dead_look = begun.elapsed();
        progress.looked_in_part = (done.is_err() || !all_large).then(Instant::now);
        done
    }

    /// The collector is to look again when so much was written as makes half a file; that look may
    /// take the writing of the other.
    fn rest_for_a_file(&self) {
        let (tail, bytes) = (self.tail.tail(), self.log.next_file_bytes());
        self.collector.pace.rest(tail + bytes / 2, tail + bytes);
    }

    /// If ranges were deleted, looks again at all that they may have made garbage, now and then:
    /// their few bytes in the log do not tell. True if it did.
    fn look_behind_ranges(&self, progress: &mut CollectionProgress) -> bool {
        let deletes = self.range_deletes.load(Relaxed);
        let looked_at = progress.ranges_looked_at;
        if deletes == progress.range_deletes || looked_at.is_some_and(|at| at.elapsed() < RETRY) {
            return false;
        }
        progress.range_deletes = deletes;
        progress.ranges_looked_at = Some(Instant::now());
        let samples = progress.samples.values_mut();
        samples.for_each(|sample| self.look_again(sample));
        // As if all large values had come since. Those that are being written are passed over.
        progress.large_seen = 0;
        if self.large.settled_below() < self.large.next_id() {
            progress.looked_in_part = Some(Instant::now());
        }
        true
    }

    /// Begins to collect all that is worth it, for a compaction; about so many bytes are garbage.
    pub(super) fn begin_collecting_all(&self, report: &mut GcReport) -> Result<u64, StoreError> {
        self.collect_dead(report);
        let mut progress = self.collector.collecting.lock();
        self.collector.release_writers();
        self.collector.aside.try_all_again();
        let samples = progress.samples.values_mut();
        samples.for_each(|sample| self.look_again(sample));
        self.collect_large(&mut progress, report)?;
        self.unlink_retired(&mut progress)?;
        let garbage_bytes = self.look(&mut progress).estimate.garbage_bytes;
        if self.options.gc && !matches!(self.tail, LogTail::Resident(_)) {
            self.rest_for_a_file();
        }
        Ok(garbage_bytes + report.reclaimed_bytes)
    }

    /// Collects the file with most garbage of those that end by `below`, or sets it aside; false if
    /// none is worth it.
    pub(super) fn collect_next(
        &self,
        below: Lsn,
        report: &mut GcReport,
    ) -> Result<bool, StoreError> {
        let mut progress = self.collector.collecting.lock();
        let files = report.files;
        let ripe = self.look_below(&mut progress, below).ripe;
        let Some((_, file)) = ripe.filter(|(share, _)| *share >= GARBAGE_MIN) else {
            return Ok(false);
        };
        self.collect(&mut progress, &file, None, report)?;
        let start = file.start;
        drop(file);
        self.unlink_retired(&mut progress)?;
        let is_aside = self.collector.aside.holds(start, self.written());
        Ok(report.files > files || is_aside)
    }

    /// Collects each segment of a resident log once.
    pub(super) fn collect_segments_of(
        &self,
        resident: &Resident,
        report: &mut GcReport,
    ) -> Result<(), StoreError> {
        let mut progress = self.collector.collecting.lock();
        self.collect_every_segment(resident, &mut progress, report)
    }

    /// Collects one file, if the log holds so much garbage that collection begins. True if there is
    /// more to do.
    fn keep_to_limit(&self, progress: &mut CollectionProgress) -> Result<bool, StoreError> {
        let wants_room = self.log.reserve().wants_room();
        if wants_room {
            self.look_for_room(progress)?;
        }
        let look = self.look(progress);
        // Writers do not wait for what cannot be collected.
        let garbage = look.estimate.garbage_bytes - look.estimate.stuck_bytes;
        let max = self.options.space_amplification_max;
        let allowance = look.estimate.allowance(max, self.log.next_file_bytes());
        let begin = allowance / 4 * 3;
        let tail = self.tail.tail();
        if garbage < begin && !wants_room {
            let (call_at, allowed) = (tail + (begin - garbage), tail + (allowance - garbage));
            self.collector.pace.rest(call_at, allowed);
            return Ok(false);
        }
        let most = look.ripe.as_ref().map_or(0.0, |(garbage, _)| *garbage);
        let ingest = look.waiting > most.max(GARBAGE_MIN) + GARBAGE_MORE;
        match look.ripe {
            Some((share, file)) if share >= GARBAGE_MIN => {
                if ingest && self.watermark() >= progress.ingested_to {
                    progress.ingested_to = tail;
                    self.request_ingestion();
                }
                let then = match wants_room {
                    true => LOOK_BYTES,
                    false => allowance.saturating_sub(garbage) / 4,
                };
                let grant = WriteGrant {
                    from: tail,
                    share: share / 2.0,
                    then,
                };
                let mut report = GcReport::default();
                self.collect(progress, &file, Some(grant), &mut report)?;
                self.unlink_retired(progress)?;
                let copied = report.relocated_bytes;
                (self.log.reserve()).made(report.reclaimed_bytes.saturating_sub(copied));
            }
            _ if ingest && self.request_ingestion() => self.wait_for_ingestion(INGESTION)?,
            // Nothing is worth it.
            _ => {
                if wants_room {
                    if self.log.reserve().is_short() {
                        self.log.reserve().set_in_vain();
                    }
                    self.log.reserve().forget_lacked();
                    (self.collector.pace).rest(tail + LOOK_BYTES / 2, tail + LOOK_BYTES);
                } else {
                    self.rest_for_a_file();
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// On a full disk: looks again at all that deletes may have made, now and then.
    fn look_for_room(&self, progress: &mut CollectionProgress) -> Result<(), StoreError> {
        let written = self.written();
        let is_recent = |(at, then): (Instant, u64)| {
            at.elapsed() < RETRY && written.saturating_sub(then) < LOOK_BYTES / 2
        };
        if !progress.looked_again.is_some_and(is_recent) {
            let samples = progress.samples.values_mut();
            samples.for_each(|sample| self.look_again(sample));
            progress.looked_again = Some((Instant::now(), written));
            self.collect_large(progress, &mut GcReport::default())?;
            self.remove_retired_large(progress)?;
        }
        Ok(())
    }

    /// Collects every file that is worth it, and large values.
    fn collect_everything(
        &self,
        progress: &mut CollectionProgress,
        report: &mut GcReport,
    ) -> Result<(), StoreError> {
        for sample in progress.samples.values_mut() {
            self.look_again(sample);
        }
        loop {
            let files = report.files;
            self.collect_while_short(progress, report)?;
            if self.collect_in_order(progress, report)? || report.files == files {
                break;
            }
        }
        self.collect_large(progress, report)?;
        self.unlink_retired(progress)?;
        self.look(progress);
        Ok(())
    }

    /// A store is opened on a full disk, and nothing drains yet: collects what takes no room, and
    /// what fits into the lane.
    pub(super) fn collect_at_opening(&self) {
        let LogTail::Pool(lane) = &self.tail else {
            return;
        };
        // Nothing waits for a drain.
        lane.set_stalled(FULL.to_owned());
        let mut report = GcReport::default();
        self.collect_dead(&mut report);
        let mut progress = self.collector.collecting.lock();
        loop {
            let usage = lane.usage();
            let free = (usage.segments - usage.segments_used) as u64 * lane.segment_bytes();
            let Some((garbage, file)) = self.look(&mut progress).ripe else {
                break;
            };
            let sample = progress.samples.get(&file.start);
            let written_again = sample.map_or(1.0, FileSample::written_again);
            let copied = (file.log_bytes() as f64 * written_again) as u64;
            // By samples it is known to no more than a part.
            if garbage < GARBAGE_MIN || copied * 2 > free {
                break;
            }
            let files = report.files;
            let done = self.collect(&mut progress, &file, None, &mut report);
            drop(file);
            let done = done.and_then(|()| self.unlink_retired(&mut progress));
            if done.is_err() || report.files == files {
                break;
            }
        }
        lane.drain_goes_on();
    }

    /// On a full disk: collects what there is room for, the file with most garbage first.
    fn collect_while_short(
        &self,
        progress: &mut CollectionProgress,
        report: &mut GcReport,
    ) -> Result<(), StoreError> {
        while self.log.reserve().is_short() {
            let ripe = self.look(progress).ripe;
            let Some((_, file)) = ripe.filter(|(garbage, _)| *garbage >= GARBAGE_MIN) else {
                break;
            };
            let files = report.files;
            self.collect(progress, &file, None, report)?;
            drop(file);
            self.unlink_retired(progress)?;
            self.log.reserve().try_again();
            if report.files == files {
                break;
            }
        }
        Ok(())
    }

    /// Collects the files that are worth it, in log order. False if the disk was full.
    fn collect_in_order(
        &self,
        progress: &mut CollectionProgress,
        report: &mut GcReport,
    ) -> Result<bool, StoreError> {
        self.look(progress);
        let whole = self.whole_below();
        let starts: Vec<Lsn> = (self.log.files().iter()).map(|file| file.start).collect();
        for start in starts {
            if self.log.reserve().is_short() {
                return Ok(false);
            }
            // Held no longer than it takes to collect it: as long as any file is open, the disk has
            // its room.
            let file = self.log.find(start);
            let garbage = progress
                .samples
                .get(&start)
                .map_or(0.0, FileSample::garbage);
            let is_ripe = |file: &VlogFile| file.end().is_some_and(|end| end <= whole);
            if garbage < GARBAGE_MIN {
                continue;
            }
            if let Some(file) = file.filter(|file| file.start == start && is_ripe(file)) {
                self.collect(progress, &file, None, report)?;
                drop(file);
                // The next one may need the room.
                self.unlink_retired(progress)?;
            }
        }
        Ok(true)
    }

    /// Collects what takes no room: large values, and the files of which nothing seems to be live,
    /// nor expired while the index still leads to it. What goes wrong is told by what follows.
    fn collect_dead(&self, report: &mut GcReport) {
        let mut progress = self.collector.collecting.lock();
        if self.log.reserve().is_short() {
            let large = self.collect_large(&mut progress, report);
            let _ = large.and_then(|()| self.remove_retired_large(&mut progress));
        }
        self.look(&mut progress);
        let whole = self.whole_below();
        for file in self.log.files().iter() {
            let sample = progress.samples.get(&file.start);
            let is_dead = sample.is_some_and(FileSample::takes_no_room);
            if is_dead && file.end().is_some_and(|end| end <= whole) {
                let _ = self.collect(&mut progress, file, None, report);
                // The next one may need the room.
                let _ = self.unlink_retired(&mut progress);
            }
        }
        let _ = self.unlink_retired(&mut progress);
        if self.log.reserve().is_short() {
            self.log.reserve().try_again();
        }
    }

    /// Log address below which the index has everything, and the files too: a complete file's last
    /// segments may be in the pool still.
    fn whole_below(&self) -> Lsn {
        self.watermark().min(self.tail.drained())
    }

    /// Bytes that writers, and not the collector, have appended to the log.
    pub(super) fn written(&self) -> u64 {
        let relocated = self.collector.relocated_bytes();
        self.tail.tail().saturating_sub(relocated)
    }
}
