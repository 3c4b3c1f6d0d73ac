//! From memtable to index: freezing chunks, sorting them, merging them into the tables.
//!
//! Freezing replaces the active chunk by an empty one, under all stripes, so that no write is
//! between log and memtable. The log below the new chunk's start is then covered by the frozen
//! chunks and the tables. A full chunk is frozen by the writer that filled it, any other only when
//! an ingestion is asked for, and then one at a time. So there never are more chunks than the
//! budget says. The oldest frozen chunk goes into the tables first, alone unless it and the next
//! ones are small, and its space is free:
//!
//! 1. Sort it.
//! 2. Make the log durable up to the next chunk's start, where it is not anyway.
//! 3. For each snapshot that was taken while the chunk was written to: ingest what that sees, with
//!    the snapshot's moment as the watermark; the snapshot reads from the tables from then on.
//! 4. Ingest what is left, with the next chunk's start as the watermark. Each ingestion is durable
//!    as one step.
//! 5. Replace the view: the chunk goes, the new tables come. The same for later snapshots.
//!
//! A crash before 4 is complete replays the log from the watermark that was reached. How writers
//! are kept from outrunning all this: `brake`.

use super::{
    StoreCore,
    snapshot::{Snapshots, is_among},
};
use crate::{
    error::StoreError,
    log::ReserveNeed,
    memtable::{Chunk, ReadView, SortedChunk, merged},
    options::StoreOptions,
};
use forebay_pool::Lsn;
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

/// Frozen chunks at most: what is left of [`StoreOptions::CHUNKS_MAX`] beside the active and the
/// spare one.
pub(super) const FROZEN_MAX: usize = StoreOptions::CHUNKS_MAX - 2;
/// How long the index is left alone after a failure.
const RETRY: Duration = Duration::from_millis(100);
/// How often an idle thread looks whether it should end.
const IDLE: Duration = Duration::from_millis(200);
/// Runs that a lookup may have to visit before the index thread waits for compaction.
const RUNS_MAX: u64 = 48;
/// Deleted keys that scans pass over, in memory or hidden by it, before an ingestion is asked for.
const PASSED_MAX: u64 = 100_000;
/// So many dead keys in a row are worth a deleted range of the store's own, at least: fewer are
/// passed over in less than a millisecond, and lie in a few blocks, by which it is estimated what
/// ranges hide.
const DEAD_MIN: u64 = 1000;
/// And as a part of the memtable's bytes: 10,000 of 64 MiB.
const DEAD_BYTES: u64 = 6700;
/// On a full disk no more is merged at a time than one part in so many of what is free.
pub(super) const MERGED: u64 = 2;
/// With more runs, a merge without room makes the store short. Fewer than [`RUNS_MAX`], at which
/// an ingestion waits for it.
const RUNS_SHORT: u64 = 32;
/// Keys between two notes of an ingestion's progress.
const PROGRESS_KEYS: usize = 1024;

impl StoreCore {
    /// Freezes the active chunk, which starts at `full` and is full, unless there are as many
    /// frozen ones as may be: then it grows, and the brake holds writers.
    #[cold]
    pub(super) fn freeze_full(&self, full: Lsn) {
        if self.view.load().frozen.len() >= FROZEN_MAX {
            return;
        }
        let _freezing = self.background.freezes.begin();
        let _changing = self.view_change.lock();
        let view = self.view.load_full();
        let is_active = |active: &Arc<Chunk>| active.start() == full;
        // Otherwise another writer was first: the present chunk is a new one.
        if view.active.as_ref().is_some_and(is_active) && view.frozen.len() < FROZEN_MAX {
            self.freeze_active(&view);
        }
    }

    /// With `view_change` held and `view` the present one: freezes its active chunk.
    pub(super) fn freeze_active(&self, view: &ReadView) {
        let fresh = self.fresh_chunk();
        let mut stripes: Vec<_> = self.locks.stripes().map(|stripe| stripe.lock()).collect();
        let fresh = Arc::new(fresh.starting_at(self.tail.tail()));
        for writers in &mut stripes {
            writers.active = Arc::clone(&fresh);
        }
        self.install(view, fresh);
        drop(stripes);
        self.background.brake.begin(self.frozen_load());
        self.background.state.lock().index_work = true;
        self.background.changed.notify_all();
    }

    /// During a replay, before there are writers: freezes the active chunk; the next one starts at
    /// `start`.
    pub(super) fn freeze_at(&self, start: Lsn) {
        let _changing = self.view_change.lock();
        let fresh = Arc::new(self.fresh_chunk().starting_at(start));
        for stripe in self.locks.stripes() {
            stripe.lock().active = Arc::clone(&fresh);
        }
        self.install(&self.view.load_full(), fresh);
        self.background.brake.begin(self.frozen_load());
        self.background.state.lock().index_work = true;
    }

    fn fresh_chunk(&self) -> Chunk {
        let spare = self.spare.lock().take();
        spare.unwrap_or_else(|| {
            Chunk::new(self.options.memtable_bytes, 0, false, self.hasher.clone())
        })
    }

    /// Replaces `view` by one with `fresh` as its active chunk, and the active one frozen.
    fn install(&self, view: &ReadView, fresh: Arc<Chunk>) {
        let mut frozen = Vec::with_capacity(view.frozen.len() + 1);
        frozen.extend(view.active.clone());
        frozen.extend_from_slice(&view.frozen);
        self.view.store(Arc::new(ReadView {
            active: Some(fresh),
            frozen,
            tables: Arc::clone(&view.tables),
            deleted: view.deleted.clone(),
        }));
    }

    /// The index thread.
    pub(super) fn run_indexer(&self) {
        while !self.stopping() {
            self.prepare_spare();
            {
                let mut state = self.background.state.lock();
                if !state.index_work {
                    self.background.changed.wait_for(&mut state, IDLE);
                }
                state.index_work = false;
            }
            match self.index_step() {
                Ok(()) => self.set_index_trouble(None),
                // Once more with the reserve.
                Err(error)
                    if error.is_full_disk() && self.log.reserve().release(ReserveNeed::Log) =>
                {
                    self.background.state.lock().index_work = true;
                }
                Err(error) => {
                    self.set_index_trouble(Some(error.to_string()));
                    thread::sleep(RETRY);
                    self.background.state.lock().index_work = true;
                }
            }
        }
    }

    pub(super) fn set_index_trouble(&self, trouble: Option<String>) {
        let mut state = self.background.state.lock();
        if state.index_trouble != trouble {
            state.index_trouble = trouble;
            self.background.changed.notify_all();
        }
    }

    /// Keeps an empty chunk ready whose memory is allocated and touched, so that a freeze costs
    /// writers nothing.
    fn prepare_spare(&self) {
        if self.spare.lock().is_none() {
            let chunk = Chunk::new(self.options.memtable_bytes, 0, true, self.hasher.clone());
            *self.spare.lock() = Some(chunk);
        }
    }

    /// Ingests the frozen chunks, and the active one as long as an ingestion of more is asked for.
    fn index_step(&self) -> Result<(), StoreError> {
        while !self.stopping() {
            let view = self.view.load_full();
            let (newer, due) = view.frozen.split_at(self.due(&view.frozen));
            if let (Some(next), false) = (newer.last().or(view.active.as_ref()), due.is_empty()) {
                self.ingest(due, next.start())?;
                self.prepare_spare();
                continue;
            }
            drop(view);
            let wanted = self.background.state.lock().ingest_to;
            if self.watermark() >= wanted {
                break;
            }
            self.freeze_for_ingestion();
        }
        Ok(())
    }

    /// How many of the frozen chunks are newer than those to be ingested next. These are the
    /// oldest, and more as long as they are small together, since an ingestion costs a few syncs
    /// however small it is. Every chunk of which an ingestion that failed has told the index a part
    /// is among them, whatever it has grown to since: the watermark lies in it, and does not go
    /// back.
    fn due(&self, frozen: &[Arc<Chunk>]) -> usize {
        let (mut bytes, watermark) = (0, self.watermark());
        let due = frozen.iter().rev().take_while(|chunk| {
            let first = bytes == 0;
            bytes += chunk.bytes().max(1);
            first || chunk.start() < watermark || bytes <= self.options.memtable_bytes / 2
        });
        frozen.len() - due.count()
    }

    /// Freezes the active chunk, also if it is empty: the index is then told that the log below its
    /// end has nothing more.
    fn freeze_for_ingestion(&self) {
        let _changing = self.view_change.lock();
        self.freeze_active(&self.view.load_full());
    }

    /// Steps 1 to 5 for the oldest chunks, given newest first, which end at `watermark`.
    fn ingest(&self, chunks: &[Arc<Chunk>], watermark: Lsn) -> Result<(), StoreError> {
        // A full disk has no room for a merge, and room comes of ingestions.
        let waits = || !self.stopping() && !self.log.reserve().is_short();
        while self.index.stats().runs > RUNS_MAX && waits() {
            self.request_compaction();
            thread::sleep(Duration::from_millis(5));
        }
        let sorted: Vec<_> = chunks.iter().map(|chunk| chunk.read_sorted()).collect();
        self.tail.make_durable()?;
        let mut from = 0;
        let moments = self.snapshots.moments().into_iter();
        for moment in moments.filter(|m| m.limit() < watermark && m.reads(chunks)) {
            let limit = moment.limit();
            if limit > self.watermark() {
                self.ingest_versions(chunks, &sorted, from..limit, limit)?;
                from = limit;
            }
            moment.leave(chunks, self.index.snapshot());
        }
        self.ingest_versions(chunks, &sorted, from..Lsn::MAX, watermark)?;
        forebay_pool::failpoint!("store:ingested");
        drop(sorted);
        self.change_view(|view| {
            let others = view.frozen.iter().filter(|c| !is_among(chunks, c));
            let others = others.cloned().collect();
            ReadView::new(view.active.clone(), others, self.index.snapshot())
        });
        for moment in self.snapshots.moments() {
            if moment.reads(chunks) {
                moment.leave(chunks, self.index.snapshot());
            }
        }
        self.background.brake.begin(self.frozen_load());
        self.background.changed.notify_all();
        self.request_compaction();
        Ok(())
    }

    /// Steps 3 and 4: ingests what the chunks have of these versions.
    fn ingest_versions(
        &self,
        chunks: &[Arc<Chunk>],
        sorted: &[SortedChunk<'_>],
        versions: Range<Lsn>,
        watermark: Lsn,
    ) -> Result<(), StoreError> {
        let keys = sorted.iter().map(SortedChunk::len).sum::<usize>().max(1);
        let last = versions.end == Lsn::MAX;
        let mut ranges = Vec::new();
        for chunk in chunks {
            ranges.append(&mut chunk.range_deletes(&versions));
        }
        let mut run = merged(sorted, versions).enumerate().map(|(number, found)| {
            if last && number % PROGRESS_KEYS == 0 {
                self.background.brake.ingested(number as f64 / keys as f64);
            }
            found
        });
        let deletes: usize = sorted.iter().map(SortedChunk::deletes).sum();
        let dead_min = (self.options.memtable_bytes as u64 / DEAD_BYTES).max(DEAD_MIN);
        let dead_min = if deletes as u64 >= dead_min / 4 {
            dead_min
        } else {
            u64::MAX
        };
        Ok(self
            .index
            .ingest_in_stretches(&mut run, ranges, watermark, dead_min)?)
    }

    pub(super) fn request_compaction(&self) {
        self.background.state.lock().compaction_work = true;
        self.background.changed.notify_all();
    }

    /// The compaction thread.
    pub(super) fn run_compaction(&self) {
        let mut was_short = false;
        while !self.stopping() {
            self.train_dictionaries();
            {
                let mut state = self.background.state.lock();
                if !state.compaction_work {
                    self.background.changed.wait_for(&mut state, IDLE);
                }
                if !std::mem::take(&mut state.compaction_work)
                    && !self.index.is_passed_over()
                    && !self.keyspaces().has_dropped()
                {
                    continue;
                }
            }
            loop {
                // What is given of the reserve is for what makes room.
                let is_short = self.log.reserve().is_short();
                if is_short && !was_short {
                    self.index.give_up_merges();
                }
                was_short = is_short;
                let free = self.log.free_bytes();
                let room = if is_short { free / MERGED } else { free };
                if !is_short && self.index.stats().runs > RUNS_SHORT && self.index.lacks(room) {
                    // As any other table that has no room: puts wait, and the collector begins.
                    self.log.reserve().release(ReserveNeed::Log);
                }
                let more = self.index.compact_within(room).map_err(StoreError::from);
                self.change_view(|view| {
                    let (active, frozen) = (view.active.clone(), view.frozen.clone());
                    ReadView::new(active, frozen, self.index.snapshot())
                });
                let runs = self.index.stats().runs;
                self.background
                    .brake
                    .set_runs(if is_short { 0 } else { runs });
                match more {
                    Ok(true) if !self.stopping() => {}
                    Ok(_) => {
                        // What stays is in nobody's way: it is tried again with the next look.
                        let _ = self.forget_cleared_keyspaces();
                        break;
                    }
                    Err(error) => {
                        // On a full disk a merge waits, and keeps none from what makes room.
                        match error.is_full_disk() {
                            true if is_short => {}
                            true => drop(self.log.reserve().release(ReserveNeed::Log)),
                            false => self.set_index_trouble(Some(error.to_string())),
                        }
                        thread::sleep(RETRY);
                        break;
                    }
                }
            }
        }
    }

    /// Merges everything in memory into the index and waits until that is done.
    pub(super) fn ingest_everything(&self) -> Result<(), StoreError> {
        let wanted = self.tail.tail();
        loop {
            let view = self.view.load_full();
            let empty = view.chunks().all(|chunk| chunk.is_empty());
            drop(view);
            if empty || self.watermark() >= wanted {
                return Ok(());
            }
            self.request_ingestion_to(wanted);
            self.wait_for_ingestion(Duration::from_millis(5))?;
        }
    }

    /// Asks for everything in memory to be merged into the index. False if there is nothing.
    pub(super) fn request_ingestion(&self) -> bool {
        if self.view.load().chunks().all(|chunk| chunk.is_empty()) {
            return false;
        }
        self.request_ingestion_to(self.tail.tail());
        true
    }

    /// Asks for the log below `wanted`, which it reaches, to be covered by the index.
    pub(super) fn request_ingestion_to(&self, wanted: Lsn) {
        let mut state = self.background.state.lock();
        state.ingest_to = state.ingest_to.max(wanted);
        state.index_work = true;
        self.background.changed.notify_all();
    }

    /// Waits until something came into the index, no longer than `timeout`.
    pub(super) fn wait_for_ingestion(&self, timeout: Duration) -> Result<(), StoreError> {
        let mut state = self.background.state.lock();
        if let Some(reason) = state.index_trouble.clone() {
            return Err(StoreError::IndexStalled { reason });
        }
        self.background.changed.wait_for(&mut state, timeout);
        Ok(())
    }

    /// A scan has passed over so many keys of the tables that are hidden by deletes in memory. When
    /// that adds up, the deletes go into the tables, where both are merged away.
    pub(super) fn note_hidden(&self, keys: u64) {
        if keys > 0 && self.background.passed.fetch_add(keys, Relaxed) + keys > PASSED_MAX {
            self.background.passed.store(0, Relaxed);
            self.request_ingestion();
        }
    }

    pub(super) fn snapshots(&self) -> &Arc<Snapshots> {
        &self.snapshots
    }
}

#[cfg(test)]
mod tests {
    use crate::{Durability, ScanRange, StoreOptions};
    use std::sync::atomic::Ordering::SeqCst;

    /// Promise (store): An ingestion that fails at any step goes on when it is tried again,
    /// whatever snapshots and scans there are.
    #[test]
    fn a_failed_ingestion_goes_on_though_its_snapshots_chunks_grew() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::new()
            .durability(Durability::NoSync)
            .memtable_size(64 << 10);
        let mut store = options.open(dir.path().join("store"), None).unwrap();
        // Its threads do nothing from now on but what is done here.
        store.stop();
        let shared = &*store.shared;
        shared.background.stop.store(false, SeqCst);
        let chunk_bytes = || {
            let chunks = shared.view.load_full();
            chunks.chunks().map(|chunk| chunk.bytes()).sum::<usize>()
        };
        let small = options.memtable_bytes / 2;
        let (mut keys, mut snapshot) = (0_u32, None);
        while chunk_bytes() + 256 < small {
            store.put(&keys.to_be_bytes(), b"value").unwrap();
            keys += 1;
            if snapshot.is_none() && chunk_bytes() > small / 2 {
                shared.freeze_for_ingestion();
                store.put(b"seen", b"by the snapshot").unwrap();
                snapshot = Some(store.snapshot().unwrap());
            }
        }
        shared.freeze_for_ingestion();
        let frozen = shared.view.load().frozen.clone();
        let moment = shared.snapshots.moments()[0].limit();
        assert!(frozen[0].start() < moment);
        assert_eq!(shared.due(&frozen), 0, "both go into the index at once");
        // The snapshot's part of them arrives, and nothing behind it.
        let sorted: Vec<_> = frozen.iter().map(|chunk| chunk.read_sorted()).collect();
        shared
            .ingest_versions(&frozen, &sorted, 0..moment, moment)
            .unwrap();
        drop(sorted);
        // A scan has them sorted, which takes memory.
        let found = store.scan(ScanRange::all()).unwrap();
        assert_eq!(found.count(), keys as usize + 1);
        assert!(chunk_bytes() > small);
        shared.index_step().unwrap();
        assert!(shared.view.load().frozen.is_empty());
        let found = snapshot.unwrap().scan(ScanRange::all()).unwrap();
        assert!((1..keys as usize).contains(&found.count()));
        let found = store.scan(ScanRange::all()).unwrap();
        assert_eq!(found.count(), keys as usize + 1);
    }
}
