//! [`Keys`]: the live keys of a range in order, merged from the snapshot's chunks and tables.
//!
//! Of equal keys the newest source's is given, and a deleted one hides those of older sources. A
//! chunk no longer lists some deleted keys; for keys within the stretch in which they lie, it is
//! asked itself ([`HidingChunk`]). Keys are taken in batches: [`Keys::pin`] holds the chunks for
//! one, and [`Keys::end_batch`] notes behind which key the next begins, so that it may begin in
//! other sources.
//!
//! What is hidden at the start of what is older than the active chunk is noted for later scans
//! ([`dead_starts`](crate::db::dead_starts)).

use super::source::{KeySource, SourceOrigin, SourcePin};
use crate::{
    db::{
        Snapshot, StoreCore,
        dead_starts::{FirstKey, HIDDEN_MIN},
        range::ScanRange,
    },
    error::StoreError,
    index::{IndexEntry, IndexError, IndexIter, ValueForm},
    keyspace::KeyspaceId,
    memtable::{Chunk, KeyStretch, ReadView},
    range_tombstones::RangeTombstones,
};
use forebay_pool::Lsn;
use std::{
    ops::Bound,
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
};

/// The start of a scan in what is older than the active chunk.
struct ScanStart {
    range: ScanRange,
    /// Where the active chunk starts.
    active: Lsn,
    /// Keys of older sources that newer ones hide.
    hidden: u64,
}

/// A chunk that no longer lists some deleted keys, which lie in a stretch.
struct HidingChunk {
    age: usize,
    chunk: Weak<Chunk>,
    left: Arc<KeyStretch>,
}

/// The keys of a range that are not deleted, as a snapshot sees them.
pub(super) struct Keys {
    snapshot: Snapshot,
    /// What is left of it, whenever the sources are made anew.
    range: ScanRange,
    /// Where it began, if that was elsewhere.
    begun_at: Option<Bound<Vec<u8>>>,
    /// The snapshot's view that the sources are of; dangling before there are any.
    view: Weak<ReadView>,
    /// Newest first.
    sources: Vec<KeySource>,
    hiding: Vec<HidingChunk>,
    /// What deleted ranges hide of what the snapshot sees.
    deleted: Option<Arc<RangeTombstones>>,
    /// How many of the view's chunks are active: one, or none in a snapshot's view.
    active: usize,
    /// As long as nothing older than the active chunk was given: what is known of its start.
    start: Option<ScanStart>,
    /// Keys that were passed over in this batch, and how many of them are the tables'.
    passed: u64,
    hidden: u64,
}

impl Keys {
    pub(super) fn new(snapshot: Snapshot, range: ScanRange) -> Self {
        Self {
            range,
            snapshot,
            begun_at: None,
            view: Weak::new(),
            sources: Vec::new(),
            hiding: Vec::new(),
            deleted: None,
            active: 0,
            start: None,
            passed: 0,
            hidden: 0,
        }
    }

    /// Those of another range, of the same snapshot.
    pub(super) fn of(&self, range: ScanRange) -> Self {
        Self::new(self.snapshot.clone(), range)
    }

    /// The rest of the range behind the last batch.
    pub(super) fn range(&self) -> &ScanRange {
        &self.range
    }

    /// The range that they were made for.
    pub(super) fn whole_range(&self) -> ScanRange {
        let mut range = self.range.clone();
        if let Some(begun_at) = &self.begun_at {
            range.begin_at(begun_at.clone());
        }
        range
    }

    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The number of the keyspace that the snapshot shows, also if that was dropped.
    pub(super) fn keyspace_number(&self) -> KeyspaceId {
        self.snapshot.keyspace_number()
    }

    pub(super) fn shared(&self) -> &StoreCore {
        self.snapshot.shared()
    }

    /// True if the keys' values are not to be read.
    pub(super) fn only(&self) -> bool {
        self.range.keys_only
    }

    /// The snapshot's view, which keeps its chunks as long as it is held, and the sources' runs.
    /// The sources are made anew if the view is another one, or a chunk's order.
    pub(super) fn pin(&mut self) -> Result<(Arc<ReadView>, Vec<SourcePin>), StoreError> {
        let view = self.snapshot.view().view();
        if std::ptr::eq(self.view.as_ptr(), Arc::as_ptr(&view)) {
            let pins: Option<Vec<SourcePin>> = self.sources.iter().map(KeySource::pin).collect();
            if let Some(pins) = pins {
                return Ok((view, pins));
            }
        }
        self.view = Arc::downgrade(&view);
        (self.sources, self.hiding) = (Vec::new(), Vec::new());
        let older = self.older_than_active(&view);
        let mut pins = Vec::new();
        let mut next_start = Lsn::MAX;
        for (age, chunk) in view.chunks().enumerate() {
            let end = std::mem::replace(&mut next_start, chunk.start());
            let order = chunk.ordered();
            self.hiding.extend(order.left.map(|left| HidingChunk {
                age,
                chunk: Arc::downgrade(chunk),
                left,
            }));
            let range = if age < self.active {
                Some(&self.range)
            } else {
                older.as_ref()
            };
            let Some(range) = range else {
                continue;
            };
            for run in order.runs {
                let (low, high) = range.positions(chunk, &run);
                if low == high {
                    continue;
                }
                let from = SourceOrigin::Chunk {
                    age,
                    end,
                    chunk: Arc::downgrade(chunk),
                    run: Arc::downgrade(&run),
                    low,
                    high,
                };
                self.sources.push(KeySource { from, next: None });
                pins.push(Some((Arc::clone(chunk), run)));
            }
        }
        let tables: IndexIter = match &older {
            None => Box::new(std::iter::empty()),
            Some(range) => view
                .tables
                .range_without(range.bounds(), view.deleted.clone()),
        };
        self.deleted.clone_from(&view.deleted);
        let from = SourceOrigin::Tables(tables);
        self.sources.push(KeySource { from, next: None });
        pins.push(None);
        let (limit, reversed) = (self.snapshot.view().limit(), self.range.reversed);
        for (source, pin) in self.sources.iter_mut().zip(&pins) {
            source.advance(pin, limit, reversed)?;
        }
        Ok((view, pins))
    }

    /// The part of the range in which what is older than the active chunk may have any key that is
    /// not hidden. `None` if there is none.
    fn older_than_active(&mut self, view: &ReadView) -> Option<ScanRange> {
        self.active = usize::from(view.active.is_some());
        self.start = None;
        let mut range = self.range.clone();
        // Without it what is older than which chunk is not known.
        let Some(active) = view.active.as_ref().map(|active| active.start()) else {
            return Some(range);
        };
        let dead = &self.snapshot.shared().background.dead_starts;
        match dead.find(&range, self.snapshot.view().limit(), active) {
            None => {}
            Some(FirstKey::None) => return None,
            Some(FirstKey::Key(key)) if range.reversed => range.to = Bound::Included(key),
            Some(FirstKey::Key(key)) => range.from = Bound::Included(key),
        }
        self.start = Some(ScanStart {
            range: self.range.clone(),
            active,
            hidden: 0,
        });
        Some(range)
    }

    /// What is older than the active chunk gives `first` of the range, and nothing before: what was
    /// hidden there need not be looked at again.
    fn note_start(&mut self, first: FirstKey) {
        if let Some(start) = self.start.take()
            && start.hidden >= HIDDEN_MIN
        {
            let shared = self.snapshot.shared();
            let (limit, dead) = (self.snapshot.view().limit(), &shared.background.dead_starts);
            dead.note(&start.range, limit, start.active, first);
        }
    }

    /// True for a source that is older than the active chunk.
    fn is_older(&self, source: usize) -> bool {
        self.sources[source].age() >= self.active
    }

    /// A key of that source is hidden by a newer one.
    fn note_hidden(&mut self, source: usize) {
        if self.is_older(source)
            && let Some(start) = &mut self.start
        {
            start.hidden += 1;
        }
        self.passed += 1;
        // Of the tables, which come last.
        if source + 1 == self.sources.len() {
            self.hidden += 1;
        }
    }

    /// The next key that is not deleted.
    pub(super) fn next(&mut self, pins: &[SourcePin]) -> Result<Option<IndexEntry>, IndexError> {
        let (limit, reversed) = (self.snapshot.view().limit(), self.range.reversed);
        loop {
            let mut first: Option<(usize, &[u8])> = None;
            for (number, source) in self.sources.iter().enumerate() {
                let Some((key, _)) = &source.next else {
                    continue;
                };
                // Of equal keys the first source, the newest, stays.
                if first.is_none_or(|(_, best)| {
                    if reversed {
                        **key > *best
                    } else {
                        **key < *best
                    }
                }) {
                    first = Some((number, key));
                }
            }
            let Some((number, _)) = first else {
                self.note_start(FirstKey::None);
                return Ok(None);
            };
            let Some(found) = self.sources[number].next.take() else {
                return Ok(None);
            };
            let deleted = self.deleted.as_deref();
            let range = deleted.and_then(|deleted| deleted.at(&found.0));
            // Older sources have no newer entry of the key.
            if let Some(range) = range.filter(|range| range.lsn > found.1.lsn) {
                self.sources[number].skip(&pins[number], range, reversed);
                self.sources[number].advance(&pins[number], limit, reversed)?;
                self.note_hidden(number);
                continue;
            }
            self.sources[number].advance(&pins[number], limit, reversed)?;
            let dead = found.1.form == ValueForm::Tombstone;
            for (at, pin) in pins.iter().enumerate().skip(number + 1) {
                let source = &mut self.sources[at];
                if source.next.as_ref().is_some_and(|(key, _)| *key == found.0) {
                    source.advance(pin, limit, reversed)?;
                    if dead {
                        self.note_hidden(at);
                    }
                }
            }
            if dead {
                self.passed += 1;
                if let Some((chunk, _)) = &pins[number] {
                    chunk.note_passed(1);
                }
            } else if !self.is_hidden(&found.0, self.sources[number].age()) {
                if self.start.is_some() && self.is_older(number) {
                    self.note_start(FirstKey::Key(found.0.clone()));
                }
                return Ok(Some(found));
            } else {
                self.note_hidden(number);
            }
        }
    }

    /// True if a key of a source of that age is deleted in a newer chunk that no longer lists it.
    fn is_hidden(&self, key: &[u8], age: usize) -> bool {
        self.hiding.iter().any(|hiding| {
            hiding.age < age
                && hiding.left.0[..] <= *key
                && *key <= hiding.left.1[..]
                && hiding.chunk.upgrade().is_some_and(|chunk| {
                    let hash = self.snapshot.shared().hash(key);
                    chunk.hides(hash, key, self.snapshot.view().limit())
                })
        })
    }

    /// A batch is over, whose last key was `last`.
    pub(super) fn end_batch(&mut self, last: Option<&[u8]>) {
        if self.start.is_some() {
            // Only what is before the older sources' next key was looked at.
            let older = self
                .sources
                .iter()
                .filter(|source| source.age() >= self.active);
            let keys = older.filter_map(|source| Some(&source.next.as_ref()?.0));
            let first = if self.range.reversed {
                keys.max()
            } else {
                keys.min()
            };
            let first = first.cloned().map_or(FirstKey::None, FirstKey::Key);
            self.note_start(first);
        }
        let shared = self.snapshot.shared();
        let passed = std::mem::take(&mut self.passed);
        shared.background.scan_passed.fetch_add(passed, Relaxed);
        shared.note_hidden(std::mem::take(&mut self.hidden));
        if let Some(last) = last {
            let before = self.range.begin_at(Bound::Excluded(last.to_vec()));
            self.begun_at.get_or_insert(before);
        }
    }
}
