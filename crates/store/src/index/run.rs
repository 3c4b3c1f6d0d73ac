//! Sorted runs of tables. docs/store-format.md, "Index".
//!
//! A [`TableRun`] is a list of tables in key order that do not overlap, so a key is in one of them
//! at most, which is found in memory. It is immutable and shared by the views of the index
//! ([`view`](super::view)) that have it.

use super::{
    IndexCause, IndexError,
    table::{KeyBounds, TableFile},
};
use crate::range_tombstones::RangeTombstone;
use lsm_tree::Slice;
use std::{
    ops::{Bound, Range},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Tables in key order, without overlap, at least one.
pub(super) struct TableRun {
    /// Smallest and largest key of each table, side by side so that the search for a key's table
    /// stays within few cache lines.
    fences: Box<[(Slice, Slice)]>,
    tables: Box<[Arc<TableFile>]>,
}

impl TableRun {
    /// Makes a run of tables; `None` of no tables.
    ///
    /// # Errors
    /// Damage, if the tables are not in order: only a manifest that was tampered with names such a
    /// run.
    pub(super) fn new(
        dir: &Path,
        tables: Vec<Arc<TableFile>>,
    ) -> Result<Option<Arc<Self>>, IndexError> {
        if tables.is_empty() {
            return Ok(None);
        }
        let fences: Box<[_]> = tables
            .iter()
            .map(|table| (table.key_range().0.clone(), table.key_range().1.clone()))
            .collect();
        let ordered = fences.iter().all(|(min, max)| min <= max)
            && fences.windows(2).all(|w| w[0].1 < w[1].0);
        if !ordered {
            return Err(IndexError {
                path: dir.to_owned(),
                doing: "making a run of tables",
                cause: IndexCause::Corrupt("tables of one run overlap".into()),
            });
        }
        Ok(Some(Arc::new(Self {
            fences,
            tables: tables.into(),
        })))
    }

    /// The run's tables in key order.
    pub(super) fn tables(&self) -> &[Arc<TableFile>] {
        &self.tables
    }

    /// Bytes of the run's files.
    pub(super) fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.facts().bytes).sum()
    }

    /// The one table that may hold `key`.
    pub(super) fn table_for(&self, key: &[u8]) -> Option<&TableFile> {
        let at = self.fences.partition_point(|(_, max)| &max[..] < key);
        let (min, _) = self.fences.get(at)?;
        if &min[..] <= key {
            Some(&self.tables[at])
        } else {
            None
        }
    }

    /// The file of the table that holds `key`, for messages.
    pub(super) fn path_for(&self, key: &[u8]) -> PathBuf {
        self.table_for(key)
            .map(|table| table.path().to_owned())
            .unwrap_or_default()
    }

    /// True if the range hides keys of this run's.
    pub(super) fn is_hidden_in(&self, range: &RangeTombstone) -> bool {
        let from = self.fences.partition_point(|(_, max)| **max < *range.start);
        let end = range.end.as_deref();
        let overlapping = self.fences[from..]
            .iter()
            .take_while(|(min, _)| end.is_none_or(|end| **min < *end))
            .count();
        let mut tables = self.tables[from..from + overlapping].iter();
        tables.any(|table| table.is_hidden_by(range))
    }

    /// The tables to read for keys within `bounds`.
    pub(super) fn tables_to_read(&self, bounds: &KeyBounds) -> Range<usize> {
        let within = self.tables_within(bounds);
        // A prefix that no key has lies within one table.
        match within.len() == 1 && self.tables[within.start].denies(bounds) {
            true => within.end..within.end,
            false => within,
        }
    }

    /// The tables that may hold keys within `bounds`.
    pub(super) fn tables_within(&self, bounds: &KeyBounds) -> Range<usize> {
        let first = match &bounds.0 {
            Bound::Included(key) => self.fences.partition_point(|(_, max)| max < key),
            Bound::Excluded(key) => self.fences.partition_point(|(_, max)| max <= key),
            Bound::Unbounded => 0,
        };
        let end = match &bounds.1 {
            Bound::Included(key) => self.fences.partition_point(|(min, _)| min <= key),
            Bound::Excluded(key) => self.fences.partition_point(|(min, _)| min < key),
            Bound::Unbounded => self.fences.len(),
        };
        first..end.max(first)
    }
}
