//! The view: the runs that make up the index at one moment. docs/store-format.md, "Index".
//!
//! A [`IndexView`] is a list of runs, newest first; the newest run that has a key has the key's
//! present entry. It is immutable and shared: a snapshot is one reference to a view, and holds its
//! tables open as long as it needs them.

use super::{
    IndexError, IndexIter, KeyRange, RecordAddress, ValueForm,
    run::TableRun,
    scan::RunScan,
    table::{self, TableFile},
};
use crate::range_tombstones::{RangeTombstone, RangeTombstones};
use lsm_tree::Slice;
use std::{
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The index at one moment.
pub struct IndexView {
    /// Newest first.
    pub(super) runs: Vec<Arc<TableRun>>,
    /// The log is covered below this address.
    pub(super) watermark: u64,
    /// Ranges of which the tables have keys that are deleted below the watermark.
    pub(super) deleted: Arc<RangeTombstones>,
    pub(super) passed: Arc<PassedTombstones>,
}

/// Tombstones that scans have passed over.
#[derive(Default)]
pub(super) struct PassedTombstones {
    since_merge: AtomicU64,
    all: AtomicU64,
}

impl PassedTombstones {
    fn note_one(&self) {
        self.since_merge.fetch_add(1, Relaxed);
        self.all.fetch_add(1, Relaxed);
    }

    /// Those since the last merge of all runs.
    pub(super) fn since_merge(&self) -> u64 {
        self.since_merge.load(Relaxed)
    }

    /// All runs are being merged.
    pub(super) fn begin_merge(&self) {
        self.since_merge.store(0, Relaxed);
    }

    /// Those since the index was opened.
    pub(super) fn all(&self) -> u64 {
        self.all.load(Relaxed)
    }
}

impl IndexView {
    /// The same keys, in these runs.
    pub(super) fn with_runs(&self, runs: Vec<Arc<TableRun>>) -> Self {
        Self {
            runs,
            watermark: self.watermark,
            deleted: Arc::clone(&self.deleted),
            passed: Arc::clone(&self.passed),
        }
    }

    /// All tables.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.runs.iter().flat_map(|run| run.tables())
    }

    /// Entries, and the tombstones among them.
    pub(super) fn entries(&self) -> (u64, u64) {
        self.tables().fold((0, 0), |(entries, tombstones), table| {
            (entries + table.entries(), tombstones + table.tombstones())
        })
    }

    /// The same without ranges that hide nothing any more.
    pub(super) fn settled(mut self) -> Self {
        if !self.deleted.is_empty() {
            let mut deleted = RangeTombstones::clone(&self.deleted);
            let runs = &self.runs;
            deleted.retain(|range| runs.iter().any(|run| run.is_hidden_in(range)));
            self.deleted = Arc::new(deleted);
        }
        self
    }

    /// Ranges that are deleted below the watermark, as far as tables have keys there.
    pub(crate) fn deleted(&self) -> &Arc<RangeTombstones> {
        &self.deleted
    }

    /// Those, and these.
    pub(super) fn with_deleted(&self, ranges: &[RangeTombstone]) -> Arc<RangeTombstones> {
        if ranges.is_empty() {
            return Arc::clone(&self.deleted);
        }
        let mut deleted = RangeTombstones::clone(&self.deleted);
        ranges.iter().cloned().for_each(|range| deleted.add(range));
        Arc::new(deleted)
    }

    /// Entries that a merge of all would leave out, about: tombstones, and what ranges hide.
    pub(super) fn dead_entries(&self) -> u64 {
        let hidden = |table: &Arc<TableFile>| match self.deleted.is_empty() {
            true => 0,
            false => table.hidden_entries(&self.deleted),
        };
        self.tables()
            .map(|table| table.tombstones() + hidden(table))
            .sum()
    }

    /// False if no table has the key, as far as the filters in memory tell.
    pub(super) fn may_hold(&self, key: &[u8]) -> bool {
        let hash = table::hash_of(key);
        let mut tables = self.runs.iter().filter_map(|run| run.table_for(key));
        tables.any(|table| table.may_hold(hash))
    }

    /// The address of `key`, a tombstone's included; `None` if no table has the key. A tombstone is
    /// found until a merge has dropped it together with all that it hides.
    ///
    /// # Errors
    /// I/O errors and damaged tables.
    pub fn get(&self, key: &[u8]) -> Result<Option<RecordAddress>, IndexError> {
        let hash = table::hash_of(key);
        for run in &self.runs {
            if let Some(table) = run.table_for(key) {
                let found = table.get(key, hash)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// The log address up to which the snapshot covers the log: what it holds follows from that.
    pub fn watermark(&self) -> u64 {
        self.watermark
    }

    /// All keys of `range` in order, tombstones left out. A range whose start lies behind its end
    /// is empty. After an error the iterator is at its end.
    pub fn range(&self, range: KeyRange<'_>) -> IndexIter {
        let deleted = (!self.deleted.is_empty()).then(|| Arc::clone(&self.deleted));
        self.range_without(range, deleted)
    }

    /// The same without what these ranges hide, which is not read.
    pub(crate) fn range_without(
        &self,
        range: KeyRange<'_>,
        deleted: Option<Arc<RangeTombstones>>,
    ) -> IndexIter {
        let own = |bound: Bound<&[u8]>| bound.map(Slice::from);
        let scan = RunScan::new(&self.runs, (own(range.0), own(range.1)), deleted);
        let passed = Arc::clone(&self.passed);
        Box::new(scan.filter(move |item| {
            let dead = item
                .as_ref()
                .is_ok_and(|(_, address)| address.form == ValueForm::Tombstone);
            if dead {
                passed.note_one();
            }
            !dead
        }))
    }
}
