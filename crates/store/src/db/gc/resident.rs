//! Collecting a resident log: the oldest segment's live records are copied to the log's end, and it
//! is given back.
//!
//! In order, one segment at a time:
//! 1. The index covers it: an ingestion is asked for if it does not. So no restart replays from
//!    below, and its deletes are in the tables.
//! 2. Each live record in it is appended again, under its key's lock and if it is *still* live, as
//!    for a file (`collect`). A batch's live operations are copied as one batch, so that the copies
//!    never take more lines than the segment had.
//! 3. Wait until no snapshot is open that was taken before. With one, the segment stays; writers
//!    that need it wait half a second, and are told then.
//! 4. Make the copies durable, where an append is not so by itself.
//! 5. Release it: the lane's head moves, durably, and its memory may be used again. The index's
//!    tables may still lead to it, but the copies lie behind and are replayed, or came into the
//!    tables as well.
//!
//! When: with less than a quarter of the segments free, one for each segment that writers fill; and
//! whenever a writer finds no room, who waits. When as many segments as there are were collected
//! and there still is no room, everything is live. Then the writer is refused, and so is every
//! other until something was written (a delete, for which a segment is kept).

use super::CollectionProgress;
use crate::{
    db::{Store, StoreCore, sample::op_address},
    error::StoreError,
    index::{RecordAddress, ValueForm},
    log::{LogTail, Resident, RoomClaim},
    op::{KIND_BATCH, KIND_DELETE, KeyChange, ops, push_op},
    stats::GcReport,
};
use forebay_pool::{
    Record, Sealed,
    format::{
        record::HEADER,
        segment::{RecordWalk, SegmentHeader, WalkEnd},
    },
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    io::IoSlice,
    path::Path,
    sync::atomic::Ordering::Relaxed,
    thread,
    time::{Duration, Instant},
};

/// How often the collector looks whether it was called, and a writer that waits for it whether the
/// store is being closed.
const IDLE: Duration = Duration::from_millis(20);
/// How long the collector waits for an ingestion before it gives up for now.
const INGESTION_MAX: Duration = Duration::from_secs(10);
/// Time that a writer without room waits for a segment that something keeps, as the snapshot of a
/// transaction does for a moment, and the interval at which it asks again.
pub(in crate::db) const KEPT_MAX: Duration = Duration::from_millis(500);
const KEPT_LOOK: Duration = Duration::from_millis(1);

/// Messages between writers without room and the collector.
#[derive(Default)]
pub(super) struct ResidentRoom {
    state: Mutex<ResidentState>,
    called: Condvar,
    moved: Condvar,
}

#[derive(Default)]
struct ResidentState {
    called: bool,
    /// Segments collected in this session.
    collected: u64,
    /// What writers had appended when everything was found live.
    all_live: Option<u64>,
    /// Why the last segment could not be given back.
    trouble: Option<String>,
    /// It may be soon.
    is_kept: bool,
}

/// What became of a segment.
enum SegmentOutcome {
    Released,
    /// There is no sealed one.
    Nothing,
    /// It stays for now, and why.
    Kept(&'static str),
}

impl StoreCore {
    /// Waits until the resident log has room for `claim`. The caller holds no lock.
    ///
    /// [`StoreError::Full`] if none can be made.
    #[cold]
    pub(in crate::db) fn wait_for_room(&self, claim: RoomClaim) -> Result<(), StoreError> {
        self.wait_for_room_kept(claim, KEPT_MAX)
    }

    /// The same; for so long at most while all that could be given back is kept by a snapshot or
    /// reader. The caller may be the one that keeps it.
    #[cold]
    pub(in crate::db) fn wait_for_room_kept(
        &self,
        claim: RoomClaim,
        kept_max: Duration,
    ) -> Result<(), StoreError> {
        let LogTail::Resident(resident) = &self.tail else {
            return Ok(());
        };
        if !self.options.gc {
            return match resident.has_room(claim) {
                true => Ok(()),
                false => Err(resident.full("and garbage collection is off")),
            };
        }
        let room = &self.collector.room;
        let mut state = room.state.lock();
        let (from, segments) = (state.collected, resident.lane().segments() as u64);
        state.trouble = None;
        let begun = Instant::now();
        while !resident.has_room(claim) {
            if let Some(failed) = self.tail.failed() {
                return Err(failed);
            }
            if state.all_live == Some(resident.appended()) || state.collected - from > segments {
                state.all_live = Some(resident.appended());
                return Err(resident.full("everything in them is live"));
            }
            if let Some(trouble) = &state.trouble {
                if !state.is_kept || begun.elapsed() >= kept_max {
                    return Err(resident.full(trouble));
                }
                MutexGuard::unlocked(&mut state, || thread::sleep(KEPT_LOOK));
            }
            if self.stopping() {
                return Err(resident.full("the store is being closed"));
            }
            state.called = true;
            room.called.notify_one();
            room.moved.wait_for(&mut state, IDLE);
        }
        Ok(())
    }

    /// The collector thread of a resident store.
    pub(in crate::db) fn run_resident_collector(&self) {
        let LogTail::Resident(resident) = &self.tail else {
            return;
        };
        let room = &self.collector.room;
        let mut next = 0;
        while !self.stopping() {
            let mut called = {
                let mut state = room.state.lock();
                if !state.called {
                    room.called.wait_for(&mut state, IDLE);
                }
                std::mem::take(&mut state.called)
            };
            if resident.is_short() && self.written() >= next {
                // One for each that writers fill, whether that gives anything back or not.
                next = self.written() + resident.lane().segment_bytes();
                called = true;
            }
            let mut progress = self.collector.collecting.lock();
            if self.collection_ends() {
                break;
            }
            self.look_behind_ranges(&mut progress);
            // What goes wrong here is tried again; nothing is lost by garbage that stays.
            let _ = self.unlink_retired(&mut progress);
            let _ = self.collect_grown_large(&mut progress);
            if self.has_died(&mut progress) {
                let _ = self.look_at_dead(&mut progress);
            }
            if called {
                let done = self.collect_segment(resident, &mut progress, &mut GcReport::default());
                self.tell(done);
            }
            MutexGuard::unlock_fair(progress);
        }
        room.moved.notify_all();
    }

    /// Tells writers that wait for room how it went.
    fn tell(&self, done: Result<SegmentOutcome, StoreError>) {
        let mut state = self.collector.room.state.lock();
        state.is_kept = matches!(done, Ok(SegmentOutcome::Kept(_)));
        match done {
            Ok(SegmentOutcome::Released) => {
                state.collected += 1;
                state.trouble = None;
            }
            Ok(SegmentOutcome::Nothing) => {
                state.trouble = Some("none of them is complete".to_owned())
            }
            Ok(SegmentOutcome::Kept(why)) => state.trouble = Some(why.to_owned()),
            Err(error) => state.trouble = Some(error.to_string()),
        }
        self.collector.room.moved.notify_all();
    }

    /// Collects each segment that is complete now, on request.
    pub(super) fn collect_every_segment(
        &self,
        resident: &Resident,
        progress: &mut CollectionProgress,
        report: &mut GcReport,
    ) -> Result<(), StoreError> {
        for _ in 1..resident.lane().usage().segments_used {
            match self.collect_segment(resident, progress, report)? {
                SegmentOutcome::Released => {}
                SegmentOutcome::Nothing | SegmentOutcome::Kept(_) => break,
            }
        }
        Ok(())
    }

    /// Collects segments until a put has room. [`StoreError::Full`] if as many as there are leave
    /// none: then the caller, who collects a file, cannot copy to the pool what is live in it.
    pub(super) fn make_room(
        &self,
        resident: &Resident,
        progress: &mut CollectionProgress,
        report: &mut GcReport,
    ) -> Result<(), StoreError> {
        for _ in 0..resident.lane().segments() {
            let collected = self.collect_segment(resident, progress, report)?;
            if resident.has_room(RoomClaim::Put) {
                return Ok(());
            }
            if !matches!(collected, SegmentOutcome::Released) {
                break;
            }
        }
        Err(resident.full("what is live in older files does not fit beside what they hold"))
    }

    /// Steps 1 to 5 for the oldest segment.
    fn collect_segment(
        &self,
        resident: &Resident,
        progress: &mut CollectionProgress,
        report: &mut GcReport,
    ) -> Result<SegmentOutcome, StoreError> {
        let Some(sealed) = resident.lane().take_sealed(Duration::ZERO) else {
            return Ok(SegmentOutcome::Nothing);
        };
        if !self.index_covers(&sealed)? {
            return Ok(SegmentOutcome::Kept("the index is behind"));
        }
        let number = match progress.copied {
            Some((start, number)) if start == sealed.start() => number,
            _ => {
                if !self.copy_segment(&sealed, report)? {
                    return Ok(SegmentOutcome::Kept("the store is being closed"));
                }
                let number = self.snapshots().next_number();
                progress.copied = Some((sealed.start(), number));
                number
            }
        };
        if !self.snapshots().none_sees(number, sealed.start()) {
            return Ok(SegmentOutcome::Kept(
                "an open snapshot or scan needs what is in them",
            ));
        }
        self.tail.make_durable()?;
        report.reclaimed_bytes += sealed.end() - sealed.start();
        resident.release(|| sealed.release());
        Ok(SegmentOutcome::Released)
    }

    /// Step 1. False if the store is being closed, or it takes too long.
    fn index_covers(&self, sealed: &Sealed<'_>) -> Result<bool, StoreError> {
        let deadline = Instant::now() + INGESTION_MAX;
        while self.watermark() < sealed.end() {
            if self.collection_ends() || Instant::now() > deadline {
                return Ok(false);
            }
            // Also if nothing is in memory: the session may have begun with the log's end sealed,
            // and written nothing.
            self.request_ingestion_to(sealed.end());
            self.wait_for_ingestion(Duration::from_millis(5))?;
        }
        Ok(true)
    }

    /// Step 2. False if collection ended before the segment did.
    fn copy_segment(&self, sealed: &Sealed<'_>, report: &mut GcReport) -> Result<bool, StoreError> {
        let path = Path::new("the pool");
        let Some(header) = SegmentHeader::decode(sealed.bytes()) else {
            return Err(StoreError::lost(path, sealed.start(), "no segment header"));
        };
        let mut records = RecordWalk::new(sealed.bytes(), header, u32::MAX);
        for record in &mut records {
            if self.collection_ends() {
                return Ok(false);
            }
            report.records += 1;
            if record.header.kind == KIND_BATCH {
                self.copy_batch(record, path, report)?;
            } else {
                self.copy_record(record, RoomClaim::Copy, path, report)?;
            }
        }
        match records.end() {
            // Rather keep a segment than lose what stands behind damage in it.
            Some(WalkEnd::Open(lsn, found)) => Err(StoreError::lost(path, lsn, found)),
            _ => Ok(true),
        }
    }

    /// Step 2 for a batch: those of its operations that are live, as one batch; for values that
    /// have expired, deletes.
    fn copy_batch(
        &self,
        record: Record<'_>,
        path: &Path,
        report: &mut GcReport,
    ) -> Result<(), StoreError> {
        let lsn = record.header.lsn;
        self.wait_for_memtable()?;
        let before = self.view.load_full();
        let mut live = Vec::new();
        for op in ops(record) {
            let op = op.map_err(|what| StoreError::lost(path, lsn, what))?;
            let deletes = matches!(op.change, KeyChange::Delete | KeyChange::DeleteRange(_));
            if deletes || self.keyspaces().is_dead(op.key) {
                continue;
            }
            let (kind, body) = match self.is_alive(op.expiry) {
                true => (op.kind, op.body),
                false => (KIND_DELETE, &[][..]),
            };
            let (hash, from) = (self.hash(op.key), op_address(lsn, &op));
            if before.find(hash, op.key)? == Some(from) {
                live.push((hash, op.key, kind, body, from));
            }
        }
        let keys = self.locks.lock_keys(live.iter().map(|(hash, ..)| *hash));
        let mut payload = Vec::new();
        let mut placed = Vec::new();
        // With the stripe as well: it keeps deletes of ranges out.
        let writers = self.locks.stripe().lock();
        for (hash, key, kind, body, from) in &live {
            if self.still_at(&before, *hash, key, *from)? {
                let form = match *kind {
                    KIND_DELETE => ValueForm::Tombstone,
                    _ => ValueForm::InBatch,
                };
                placed.push((*hash, key, form, push_op(&mut payload, *kind, key, body)));
            }
        }
        if placed.is_empty() {
            return Ok(());
        }
        let parts = [IoSlice::new(&payload)];
        let lsn = self.tail.append(RoomClaim::Copy, KIND_BATCH, &parts)?;
        let mut full = None;
        for (hash, key, form, (at, bytes)) in &placed {
            let address = RecordAddress {
                lsn: lsn + (HEADER + at) as u64,
                len: u32::try_from(*bytes).unwrap_or(u32::MAX),
                form: *form,
            };
            let inserted = self.insert(RoomClaim::Copy, &writers.active, *hash, key, address);
            full = inserted.or(full);
        }
        drop((writers, keys));
        if let Some(chunk) = full {
            self.freeze_full(chunk);
        }
        report.relocated += placed.len() as u64;
        report.relocated_bytes += payload.len() as u64;
        let bytes = forebay_pool::record_bytes(payload.len());
        self.collector.relocated_bytes.fetch_add(bytes, Relaxed);
        Ok(())
    }
}

impl Store {
    /// True if the value log stays in the pool
    /// ([`StoreOptions::resident`](crate::StoreOptions::resident)).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// assert!(!store.is_resident()); // its log is in files
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_resident(&self) -> bool {
        matches!(self.shared.tail, LogTail::Resident(_))
    }
}
