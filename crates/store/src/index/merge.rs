//! One merge of adjacent runs into one, done in steps.
//!
//! Tables that overlap no other table of the merge are taken over as they are, so keys that arrive
//! in order are never rewritten. The others form groups; the entries of a group are merged, the
//! newest for each key kept, into new tables. A tombstone has done its work when nothing older is
//! left beneath it, that is in a merge that takes in the oldest run, and is dropped there. Entries
//! of dropped keyspaces are dropped in any.
//!
//! What a deleted range hides is left out, so that the merge's output has nothing that the ranges
//! known at its beginning hide. A table with any of that is not taken over.
//!
//! Nothing of a merge is visible before it is complete. Given up (error, close, crash), it has cost
//! time but changed nothing.
use super::{
    IndexError,
    run::TableRun,
    table::{self, TableFile},
    writer::{NewTables, RunWriter, TableMaker},
};
use crate::{keyspace::KeyspaceCatalogue, range_tombstones::RangeTombstones};
use lsm_tree::{InternalValue, table::Scanner};
use std::{
    cmp::Ordering,
    collections::VecDeque,
    sync::{Arc, atomic::AtomicBool},
};

const DOING: &str = "merging runs";

/// Most entries read in one step, or as many as a table may have at [`ENTRY_BYTES_MIN`]. A step
/// ends sooner when it has filled a table, as it commonly does.
const STEP_ENTRIES: usize = 4_000_000;
const ENTRY_BYTES_MIN: u64 = 16;

/// What becomes of some of the tables.
enum MergePart {
    /// Stays as it is.
    Adopt(Arc<TableFile>),
    /// Is merged: the tables of each run, newest run first.
    Merge(Vec<VecDeque<Arc<TableFile>>>),
}

/// A merge under way.
pub(super) struct Merge {
    /// The runs to be replaced, newest first, next to each other in age.
    pub(super) inputs: Vec<Arc<TableRun>>,
    drop_tombstones: bool,
    /// In key order.
    parts: VecDeque<MergePart>,
    /// The sources of the group that is being merged, newest first.
    sources: Vec<MergeSource>,
    /// The sources that are not used up, that with the first key last and of equal keys the newest.
    order: Vec<usize>,
    /// What has been merged or adopted so far.
    done: NewTables,
    maker: TableMaker,
    in_parts: bool,
    /// What is deleted, as of the merge's beginning.
    deleted: Arc<RangeTombstones>,
    /// Of a merge that was asked for: becomes true once its output is in the place of its inputs.
    pub(super) asked_for: Option<Arc<AtomicBool>>,
}

/// The entries of one run in order.
struct MergeSource {
    deleted: Arc<RangeTombstones>,
    tables: VecDeque<Arc<TableFile>>,
    open: Option<(Arc<TableFile>, Scanner)>,
    head: Option<InternalValue>,
    /// The head's first eight bytes: most comparisons are settled by them.
    prefix: u64,
}

impl MergeSource {
    fn new(
        tables: VecDeque<Arc<TableFile>>,
        deleted: &Arc<RangeTombstones>,
    ) -> Result<Self, IndexError> {
        let mut source = Self {
            deleted: Arc::clone(deleted),
            tables,
            open: None,
            head: None,
            prefix: 0,
        };
        source.advance()?;
        Ok(source)
    }

    fn advance(&mut self) -> Result<Option<InternalValue>, IndexError> {
        let next = loop {
            if let Some((file, scanner)) = &mut self.open {
                match scanner.next() {
                    Some(Ok(entry)) if is_hidden(&self.deleted, file, &entry) => continue,
                    Some(Ok(entry)) => break Some(entry),
                    Some(Err(e)) => return Err(table::error(file.path(), DOING, e)),
                    None => self.open = None,
                }
            }
            let Some(file) = self.tables.pop_front() else {
                break None;
            };
            let scanner = file.scan(DOING)?;
            self.open = Some((file, scanner));
        };
        if let Some(entry) = &next {
            let key = &entry.key.user_key;
            let mut first = [0; 8];
            let len = key.len().min(8);
            first[..len].copy_from_slice(&key[..len]);
            self.prefix = u64::from_be_bytes(first);
        }
        Ok(std::mem::replace(&mut self.head, next))
    }

    fn is_at(&self, entry: &InternalValue) -> bool {
        let key = &entry.key.user_key;
        self.head
            .as_ref()
            .is_some_and(|head| head.key.user_key == *key)
    }

    /// Orders two sources that both have a head.
    fn order(&self, other: &Self) -> Ordering {
        self.prefix
            .cmp(&other.prefix)
            .then_with(|| match (&self.head, &other.head) {
                (Some(a), Some(b)) => a.key.user_key.cmp(&b.key.user_key),
                _ => Ordering::Equal,
            })
    }
}

/// True if a deleted range hides the entry, which is of that table. The older ones of its key are
/// hidden then as well.
fn is_hidden(deleted: &RangeTombstones, file: &TableFile, entry: &InternalValue) -> bool {
    !deleted.is_empty()
        && (deleted.at(&entry.key.user_key)).is_some_and(|range| file.is_hidden_by(range))
}

impl Merge {
    /// Prepares to merge `inputs`, newest first. `oldest` says that no run of the index is older
    /// than they are; `in_parts` is for [`RunWriter`].
    pub(super) fn new(
        inputs: Vec<Arc<TableRun>>,
        oldest: bool,
        in_parts: bool,
        maker: TableMaker,
        deleted: Arc<RangeTombstones>,
    ) -> Self {
        let dead = (&*maker.keyspaces, &*deleted);
        let parts = plan(&inputs, oldest, maker.table_bytes / 2, dead);
        Self {
            inputs,
            drop_tombstones: oldest,
            parts,
            sources: Vec::new(),
            order: Vec::new(),
            done: NewTables::default(),
            maker,
            in_parts,
            deleted,
            asked_for: None,
        }
    }

    /// Bytes of the tables that are to be written anew, at most.
    pub(super) fn rest_bytes(&self) -> u64 {
        let merged = self.parts.iter().filter_map(|part| match part {
            MergePart::Adopt(_) => None,
            MergePart::Merge(of_runs) => Some(of_runs.iter().flatten()),
        });
        merged.flatten().map(|table| table.facts().bytes).sum()
    }

    /// True if a run is among those that this merge will replace.
    pub(super) fn takes(&self, run: &Arc<TableRun>) -> bool {
        self.inputs.iter().any(|input| Arc::ptr_eq(input, run))
    }

    /// Fills one table at most; true when nothing is left to do but [`finish`](Self::finish).
    ///
    /// # Errors
    /// I/O errors and damaged tables. The merge cannot be continued then.
    pub(super) fn step(&mut self) -> Result<bool, IndexError> {
        let entries = self.maker.table_bytes / ENTRY_BYTES_MIN;
        let mut budget = usize::try_from(entries)
            .unwrap_or(usize::MAX)
            .max(STEP_ENTRIES);
        let mut writer = self.writer();
        while budget > 0 && !writer.is_full() {
            if !self.sources.is_empty() {
                self.merge_entries(&mut writer, &mut budget)?;
                continue;
            }
            match self.parts.pop_front() {
                None => {
                    self.done.append(writer.finish()?);
                    return Ok(true);
                }
                Some(MergePart::Adopt(table)) => {
                    self.done.append(writer.finish()?);
                    self.done.tables.push(table);
                    writer = self.writer();
                }
                Some(MergePart::Merge(tables)) => {
                    for of_run in tables {
                        self.sources.push(MergeSource::new(of_run, &self.deleted)?);
                    }
                    (0..self.sources.len()).for_each(|at| self.enter(at));
                }
            }
        }
        self.done.append(writer.finish()?);
        Ok(false)
    }

    fn writer(&self) -> RunWriter {
        RunWriter::new(self.maker.clone(), self.in_parts, DOING)
    }

    /// Merges until the table is full or the budget or the sources are used up.
    fn merge_entries(
        &mut self,
        writer: &mut RunWriter,
        budget: &mut usize,
    ) -> Result<(), IndexError> {
        while *budget > 0 && !writer.is_full() {
            let Some(entry) = self.take_first()? else {
                self.sources.clear();
                return Ok(());
            };
            *budget -= 1;
            // The same key again is of an older run: runs have a key once, and the newest comes
            // first.
            while let Some(&next) = self.order.last()
                && self.sources[next].is_at(&entry)
            {
                self.take_first()?;
                *budget = budget.saturating_sub(1);
            }
            let is_dead = self.maker.keyspaces.is_dead(&entry.key.user_key);
            if !(is_dead || self.drop_tombstones && entry.is_tombstone()) {
                writer.add_entry(entry)?;
            }
        }
        Ok(())
    }

    /// Takes the first entry of all sources.
    fn take_first(&mut self) -> Result<Option<InternalValue>, IndexError> {
        let Some(at) = self.order.pop() else {
            return Ok(None);
        };
        let entry = self.sources[at].advance()?;
        self.enter(at);
        Ok(entry)
    }

    /// Puts a source in its place in `order`, unless it is used up.
    fn enter(&mut self, at: usize) {
        let source = &self.sources[at];
        if source.head.is_some() {
            let later = |&other: &usize| {
                let by_key = self.sources[other].order(source);
                by_key.then(other.cmp(&at)) == Ordering::Greater
            };
            let place = self.order.partition_point(later);
            self.order.insert(place, at);
        }
    }

    /// Bytes of the tables that are done.
    pub(super) fn done_bytes(&self) -> u64 {
        let tables = self.done.tables.iter();
        tables.map(|table| table.facts().bytes).sum()
    }

    /// The runs to be replaced, and what replaces them, provisional until the manifest names it.
    pub(super) fn finish(self) -> (Vec<Arc<TableRun>>, NewTables) {
        (self.inputs, self.done)
    }
}

/// Splits the tables of all runs into parts in key order.
fn plan(
    inputs: &[Arc<TableRun>],
    oldest: bool,
    adopt_bytes_min: u64,
    (keyspaces, deleted): (&KeyspaceCatalogue, &RangeTombstones),
) -> VecDeque<MergePart> {
    let mut tables: Vec<(usize, &Arc<TableFile>)> = inputs
        .iter()
        .enumerate()
        .flat_map(|(age, run)| run.tables().iter().map(move |table| (age, table)))
        // What only has entries of a dropped keyspace, or of deleted ranges, goes unread.
        .filter(|(_, table)| !keyspaces.is_all_dead(table.key_range().0, table.key_range().1))
        .filter(|(_, table)| !table.is_hidden(deleted))
        .collect();
    tables.sort_by(|(_, a), (_, b)| a.key_range().0.cmp(b.key_range().0));

    let mut parts: VecDeque<MergePart> = VecDeque::new();
    let mut rest = &tables[..];
    while let Some((&(_, first), _)) = rest.split_first() {
        // A cluster: tables whose key ranges hang together.
        let mut end = first.key_range().1;
        let mut len = 1;
        while let Some((_, table)) = rest
            .get(len)
            .filter(|(_, table)| table.key_range().0 <= end)
        {
            end = end.max(table.key_range().1);
            len += 1;
        }
        let (cluster, after) = rest.split_at(len);
        rest = after;
        // Small tables are not worth a file of their own, and tombstones want dropping.
        let adopt = len == 1
            && first.facts().bytes >= adopt_bytes_min
            && !(oldest && first.tombstones() > 0)
            && !keyspaces.may_be_dead(first.key_range().0, first.key_range().1)
            && first.hidden_by(deleted).next().is_none();
        if adopt {
            parts.push_back(MergePart::Adopt(Arc::clone(first)));
            continue;
        }
        if !matches!(parts.back(), Some(MergePart::Merge(_))) {
            parts.push_back(MergePart::Merge(vec![VecDeque::new(); inputs.len()]));
        }
        if let Some(MergePart::Merge(of_runs)) = parts.back_mut() {
            for &(age, table) in cluster {
                of_runs[age].push_back(Arc::clone(table));
            }
        }
    }
    parts
}
