//! Sorted runs of tables, and the view: the runs that make up the index at one moment.
//!
//! A [`Run`] is a list of tables in key order that do not overlap. A [`View`] is a list of runs, newest
//! first; the newest run that has a key has the key's present entry. Both are immutable and shared: a
//! snapshot is one reference to a view, and holds its tables open as long as it needs them.
use super::{
    Address, Form, IndexCause, IndexError, IndexSnapshot, Iter, KeyRange,
    scan::Scan,
    table::{self, Bounds, TableFile},
};
use lsm_tree::Slice;
use std::{
    ops::{Bound, Range},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Tables in key order, without overlap, at least one.
pub(super) struct Run {
    /// Smallest and largest key of each table, side by side so that the search for a key's table stays
    /// within few cache lines.
    fences: Box<[(Slice, Slice)]>,
    tables: Box<[Arc<TableFile>]>,
}

impl Run {
    /// Makes a run of tables; `None` of no tables.
    ///
    /// # Errors
    /// Damage, if the tables are not in order: only a manifest that was tampered with names such a run.
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
    fn table_for(&self, key: &[u8]) -> Option<&TableFile> {
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

    /// The tables that may hold keys within `bounds`.
    pub(super) fn tables_within(&self, bounds: &Bounds) -> Range<usize> {
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

/// The index at one moment.
pub(super) struct View {
    /// Newest first.
    pub(super) runs: Vec<Arc<Run>>,
    /// The log is covered below this address.
    pub(super) watermark: u64,
    /// Tombstones that scans have passed over since the last merge of all runs.
    pub(super) passed: Arc<AtomicU64>,
}

impl View {
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

    /// False if no table has the key, as far as the filters in memory tell.
    pub(super) fn may_hold(&self, key: &[u8]) -> bool {
        let hash = table::hash_of(key);
        let mut tables = self.runs.iter().filter_map(|run| run.table_for(key));
        tables.any(|table| table.may_hold(hash))
    }
}

impl IndexSnapshot for View {
    fn get(&self, key: &[u8]) -> Result<Option<Address>, IndexError> {
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

    fn watermark(&self) -> u64 {
        self.watermark
    }

    fn range(&self, range: KeyRange<'_>) -> Iter {
        let own = |bound: Bound<&[u8]>| bound.map(Slice::from);
        let scan = Scan::new(&self.runs, (own(range.0), own(range.1)));
        let passed = Arc::clone(&self.passed);
        Box::new(scan.filter(move |item| {
            let dead = item
                .as_ref()
                .is_ok_and(|(_, address)| address.form == Form::Tombstone);
            if dead {
                passed.fetch_add(1, Relaxed);
            }
            !dead
        }))
    }
}
