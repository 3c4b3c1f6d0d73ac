//! From memtable to index: freezing chunks, sorting them, merging them into the tables.
//!
//! Freezing replaces the active chunk by an empty one, under all stripes, so that no write is between log and
//! memtable. The log below the new chunk's start is then covered by the frozen chunks and the tables, which makes
//! that address the watermark of the ingestion that takes the frozen chunks in:
//!
//! 1. Sort the frozen chunks (the newest address of a key counts).
//! 2. Make the log durable up to the watermark, where it is not anyway.
//! 3. Ingest: new tables and the watermark, durable as one step.
//! 4. Replace the view: the chunks go, the new tables come.
//!
//! A crash before 3 is complete replays the chunks from the log.

use super::{Shared, snapshot::Snapshots};
use crate::{
    error::StoreError,
    memtable::{Chunk, MergedChunks, View, merged},
    options::Options,
};
use forebay_pool::Lsn;
use std::{
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::Duration,
};

/// Frozen chunks at most: what is left of [`Options::CHUNKS_MAX`] beside the active and the spare one.
const FROZEN_MAX: usize = Options::CHUNKS_MAX - 2;
/// How long the index is left alone after a failure.
const RETRY: Duration = Duration::from_millis(100);
/// How often an idle thread looks whether it should end.
const IDLE: Duration = Duration::from_millis(200);
/// Runs that a lookup may have to visit before the index thread waits for compaction.
const RUNS_MAX: u64 = 48;

impl Shared {
    /// Freezes the active chunk, which starts at `full` and is full; if too much is frozen already, makes writers wait
    /// instead.
    #[cold]
    pub(super) fn freeze_full(&self, full: Lsn) {
        let _changing = self.view_change.lock();
        let view = self.view.load_full();
        if view
            .active
            .as_ref()
            .is_none_or(|active| active.start() != full)
        {
            // Another writer was first: the present chunk is a new one.
            return;
        }
        let waiting: usize = view.frozen.iter().map(|chunk| chunk.bytes()).sum();
        let long: usize = view.frozen.iter().filter(|c| self.is_large(c)).count();
        if waiting >= self.options.memtable_bytes * FROZEN_MAX || long >= FROZEN_MAX {
            self.background.full.store(true, SeqCst);
            return;
        }
        self.freeze_active(&view);
    }

    /// True if a frozen chunk is worth an ingestion of its own.
    fn is_large(&self, chunk: &Chunk) -> bool {
        chunk.bytes() >= self.options.memtable_bytes / 4
    }

    /// The view without an active chunk, of everything written before the call.
    pub(super) fn frozen_view(&self) -> Arc<View> {
        let _changing = self.view_change.lock();
        let mut view = self.view.load_full();
        if view
            .active
            .as_ref()
            .is_some_and(|active| !active.is_empty())
        {
            self.freeze_active(&view);
            view = self.view.load_full();
        }
        Arc::new(View {
            active: None,
            ..View::clone(&view)
        })
    }

    /// With `view_change` held and `view` the present one: freezes its active chunk.
    fn freeze_active(&self, view: &View) {
        let fresh = self.fresh_chunk();
        let mut stripes: Vec<_> = self.stripes.iter().map(|stripe| stripe.0.lock()).collect();
        let fresh = Arc::new(fresh.starting_at(self.head.tail()));
        for writers in &mut stripes {
            writers.active = Arc::clone(&fresh);
        }
        self.install(view, fresh);
        drop(stripes);
        self.background.state.lock().index_work = true;
        self.background.changed.notify_all();
    }

    /// During a replay, before there are writers: freezes the active chunk; the next one starts at `start`.
    pub(super) fn freeze_at(&self, start: Lsn) {
        let _changing = self.view_change.lock();
        let fresh = Arc::new(self.fresh_chunk().starting_at(start));
        for stripe in &self.stripes {
            stripe.0.lock().active = Arc::clone(&fresh);
        }
        self.install(&self.view.load_full(), fresh);
    }

    fn fresh_chunk(&self) -> Chunk {
        let spare = self.spare.lock().take();
        spare.unwrap_or_else(|| Chunk::new(self.options.memtable_bytes, 0, false))
    }

    /// Replaces `view` by one with `fresh` as its active chunk, and the active one frozen.
    fn install(&self, view: &View, fresh: Arc<Chunk>) {
        let mut frozen = Vec::with_capacity(view.frozen.len() + 1);
        frozen.extend(view.active.clone());
        frozen.extend_from_slice(&view.frozen);
        self.view.store(Arc::new(View {
            active: Some(fresh),
            frozen,
            tables: Arc::clone(&view.tables),
        }));
    }

    /// Waits until the index has taken chunks in.
    #[cold]
    pub(super) fn wait_for_index(&self) -> Result<(), StoreError> {
        self.background.index_waits.fetch_add(1, Relaxed);
        let mut state = self.background.state.lock();
        while self.background.full.load(SeqCst) && !self.stopping() {
            if let Some(reason) = &state.index_trouble {
                return Err(StoreError::IndexStalled {
                    reason: reason.clone(),
                });
            }
            self.background.changed.wait_for(&mut state, IDLE);
        }
        Ok(())
    }

    /// The index thread.
    pub(super) fn run_indexer(&self) {
        while !self.stopping() {
            self.prepare_spare();
            let ingest_all = {
                let mut state = self.background.state.lock();
                if !state.index_work {
                    self.background.changed.wait_for(&mut state, IDLE);
                }
                state.index_work = false;
                state.ingest_all || std::mem::take(&mut state.ingest_once)
            };
            match self.index_step(ingest_all) {
                Ok(()) => self.set_index_trouble(None),
                Err(error) => {
                    self.set_index_trouble(Some(error.to_string()));
                    thread::sleep(RETRY);
                    let mut state = self.background.state.lock();
                    state.index_work = true;
                    state.ingest_once |= ingest_all;
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

    /// Keeps an empty chunk ready whose memory is allocated and touched, so that a freeze costs writers nothing.
    fn prepare_spare(&self) {
        if self.spare.lock().is_none() {
            let chunk = Chunk::new(self.options.memtable_bytes, 0, true);
            *self.spare.lock() = Some(chunk);
        }
    }

    /// Ingests what is frozen if it is enough (or `all`); otherwise keeps the number of frozen chunks low.
    fn index_step(&self, all: bool) -> Result<(), StoreError> {
        let view = self.view.load_full();
        let (Some(active), Some(oldest)) = (&view.active, view.frozen.last()) else {
            return Ok(());
        };
        let bytes: usize = view.frozen.iter().map(|chunk| chunk.bytes()).sum();
        let span = active.start().saturating_sub(oldest.start());
        if all
            || bytes >= self.options.memtable_bytes / 2
            || span >= self.options.chunk_log_bytes / 2
            || self.background.full.load(SeqCst)
        {
            return self.ingest(&view, active);
        }
        let count = mergeable(&view.frozen);
        if count > 1 {
            let (newest, start) = (&view.frozen[..count], view.frozen[count - 1].start());
            let chunks = newest.iter().map(|chunk| &**chunk);
            let one = Arc::new(merged(chunks, start, |key| self.hash(key)));
            one.sort();
            self.replace_frozen(&view.frozen[..count], Some(one), None);
        }
        Ok(())
    }

    /// Steps 1 to 4: merges all frozen chunks of `view` into the index.
    fn ingest(&self, view: &View, active: &Chunk) -> Result<(), StoreError> {
        while self.index.stats().runs > RUNS_MAX && !self.stopping() {
            self.request_compaction();
            thread::sleep(Duration::from_millis(5));
        }
        let watermark = active.start();
        let chunks = MergedChunks::new(view.frozen.iter().map(|chunk| &**chunk));
        self.head.make_durable()?;
        self.index.ingest(&mut chunks.iter(), watermark)?;
        forebay_pool::failpoint!("store:ingested");
        drop(chunks);
        self.replace_frozen(&view.frozen, None, Some(()));
        self.background.full.store(false, SeqCst);
        self.background.changed.notify_all();
        self.request_compaction();
        Ok(())
    }

    /// Takes `gone` out of the view's frozen chunks and puts `instead` in their place; with `tables`, the tables are
    /// the present ones.
    fn replace_frozen(&self, gone: &[Arc<Chunk>], instead: Option<Arc<Chunk>>, tables: Option<()>) {
        self.change_view(|view| {
            let is_gone = |chunk: &Arc<Chunk>| gone.iter().any(|g| Arc::ptr_eq(g, chunk));
            let at = view.frozen.iter().position(is_gone).unwrap_or(0);
            let mut frozen: Vec<_> = view
                .frozen
                .iter()
                .filter(|c| !is_gone(c))
                .cloned()
                .collect();
            if let Some(chunk) = instead {
                frozen.insert(at, chunk);
            }
            View {
                active: view.active.clone(),
                frozen,
                tables: match tables {
                    Some(()) => self.index.snapshot(),
                    None => Arc::clone(&view.tables),
                },
            }
        });
    }

    pub(super) fn request_compaction(&self) {
        self.background.state.lock().compaction_work = true;
        self.background.changed.notify_all();
    }

    /// The compaction thread.
    pub(super) fn run_compaction(&self) {
        while !self.stopping() {
            {
                let mut state = self.background.state.lock();
                if !state.compaction_work {
                    self.background.changed.wait_for(&mut state, IDLE);
                }
                if !std::mem::take(&mut state.compaction_work) {
                    continue;
                }
            }
            loop {
                let more = self.index.compact();
                self.change_view(|view| View {
                    tables: self.index.snapshot(),
                    ..view.clone()
                });
                match more {
                    Ok(true) if !self.stopping() => {}
                    Ok(_) => break,
                    Err(error) => {
                        self.set_index_trouble(Some(error.to_string()));
                        thread::sleep(RETRY);
                        break;
                    }
                }
            }
        }
    }

    /// Merges everything in memory into the index and waits until that is done.
    pub(super) fn ingest_everything(&self) -> Result<(), StoreError> {
        let wanted = self.head.tail();
        drop(self.frozen_view());
        {
            let mut state = self.background.state.lock();
            state.ingest_all = true;
            state.index_work = true;
            self.background.changed.notify_all();
        }
        loop {
            if self.view.load().frozen.is_empty() || self.watermark() >= wanted {
                self.background.state.lock().ingest_all = false;
                return Ok(());
            }
            let mut state = self.background.state.lock();
            if let Some(reason) = state.index_trouble.clone() {
                state.ingest_all = false;
                return Err(StoreError::IndexStalled { reason });
            }
            self.background
                .changed
                .wait_for(&mut state, Duration::from_millis(5));
        }
    }

    /// Asks for everything in memory to be merged into the index. False if there is nothing.
    pub(super) fn request_ingestion(&self) -> bool {
        if self.frozen_view().frozen.is_empty() {
            return false;
        }
        let mut state = self.background.state.lock();
        state.ingest_once = true;
        state.index_work = true;
        self.background.changed.notify_all();
        true
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

    pub(super) fn snapshots(&self) -> &Arc<Snapshots> {
        &self.snapshots
    }
}

/// How many of the newest chunks are worth merging into one: sizes that grow geometrically stay, so that each key is
/// copied a logarithmic number of times.
fn mergeable(frozen: &[Arc<Chunk>]) -> usize {
    let mut keys = 0;
    frozen
        .iter()
        .take_while(|chunk| {
            let fits = keys == 0 || chunk.len() <= 2 * keys;
            keys += chunk.len();
            fits
        })
        .count()
}
