//! Ordered iteration over several runs, from either end.
//!
//! A [`RunScan`] holds one cursor for each run that has tables in the range. Each cursor opens its
//! tables one after another, from whichever end is asked for, and buffers one entry for each end.
//! A cursor that meets a deleted range goes on behind it: what it hides is not read.
//! Of the entries for one key the newest run's is given and the others are passed over. Nothing is
//! read before the first call of `next` or `next_back`.
use super::{
    IndexEntry, IndexError,
    run::TableRun,
    table::{self, Entries, KeyBounds},
};
use crate::range_tombstones::{RangeTombstone, RangeTombstones};
use lsm_tree::{InternalValue, Slice};
use std::{cmp::Ordering, ops::Bound, ops::Range, sync::Arc};

const DOING: &str = "scanning a range";

/// Which end of the range to read from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanEnd {
    Front,
    Back,
}

impl ScanEnd {
    /// Whether a key comes sooner (`Less`) or later than another seen from this end.
    fn order(self, a: &Slice, b: &Slice) -> Ordering {
        match self {
            ScanEnd::Front => a.cmp(b),
            ScanEnd::Back => b.cmp(a),
        }
    }
}

/// The entries of one run within the bounds.
struct Cursor {
    run: Arc<TableRun>,
    bounds: KeyBounds,
    /// What is deleted; none if nothing is.
    deleted: Option<Arc<RangeTombstones>>,
    /// Tables that neither end has opened.
    unopened: Range<usize>,
    front: Option<(usize, Entries)>,
    back: Option<(usize, Entries)>,
    /// Entries taken from the tables but not yet given out.
    front_head: Option<InternalValue>,
    back_head: Option<InternalValue>,
}

impl Cursor {
    /// Takes the next entry from the tables. An end that has run out of tables of its own takes
    /// from the table that the other end has open.
    fn advance(&mut self, end: ScanEnd) -> Result<Option<InternalValue>, IndexError> {
        loop {
            let (own, other) = match end {
                ScanEnd::Front => (&mut self.front, &mut self.back),
                ScanEnd::Back => (&mut self.back, &mut self.front),
            };
            if own.is_none() {
                let at = match end {
                    ScanEnd::Front => self.unopened.next(),
                    ScanEnd::Back => self.unopened.next_back(),
                };
                *own = at.map(|at| (at, self.run.tables()[at].range(&self.bounds)));
            }
            let last = own.is_none();
            let source = if last { other } else { own };
            let Some((at, entries)) = source else {
                return Ok(None);
            };
            let item = match end {
                ScanEnd::Front => entries.next(),
                ScanEnd::Back => entries.next_back(),
            };
            match item {
                Some(Ok(entry)) => {
                    let table = &self.run.tables()[*at];
                    let deleted = self.deleted.as_ref();
                    let range = deleted.and_then(|deleted| deleted.at(&entry.key.user_key));
                    let Some(range) = range.filter(|range| table.is_hidden_by(range)) else {
                        if last {
                            // The other end may open the table anew behind a deleted range.
                            bound(&mut self.bounds, &entry.key.user_key, end);
                        }
                        return Ok(Some(entry));
                    };
                    // What the other end has open it goes on with.
                    if !last {
                        let rest = rest_behind(&self.bounds, range, end);
                        *source = rest.map(|rest| (*at, table.range(&rest)));
                    }
                    continue;
                }
                Some(Err(e)) => return Err(table::error(self.run.tables()[*at].path(), DOING, e)),
                None => *source = None,
            }
            if last {
                return Ok(None);
            }
        }
    }

    /// Fills the buffer of one end, if entries are left.
    fn fill(&mut self, end: ScanEnd) -> Result<(), IndexError> {
        let empty = match end {
            ScanEnd::Front => self.front_head.is_none(),
            ScanEnd::Back => self.back_head.is_none(),
        };
        if empty {
            let entry = self.advance(end)?;
            match end {
                ScanEnd::Front => self.front_head = entry,
                ScanEnd::Back => self.back_head = entry,
            }
        }
        Ok(())
    }

    /// The buffer that holds the next entry at one end: its own or, when the tables are used up,
    /// the other end's.
    fn head(&mut self, end: ScanEnd) -> &mut Option<InternalValue> {
        match end {
            ScanEnd::Front if self.front_head.is_some() => &mut self.front_head,
            ScanEnd::Front => &mut self.back_head,
            ScanEnd::Back if self.back_head.is_some() => &mut self.back_head,
            ScanEnd::Back => &mut self.front_head,
        }
    }
}

/// Takes a key, and what lies behind it at this end, out of the bounds.
fn bound(bounds: &mut KeyBounds, key: &Slice, end: ScanEnd) {
    match end {
        ScanEnd::Front => bounds.0 = Bound::Excluded(key.clone()),
        ScanEnd::Back => bounds.1 = Bound::Excluded(key.clone()),
    }
}

/// What is left of the bounds behind a deleted range, seen from one end; `None` if nothing is.
fn rest_behind(bounds: &KeyBounds, range: &RangeTombstone, end: ScanEnd) -> Option<KeyBounds> {
    let rest = match end {
        ScanEnd::Front => {
            let first = range.end.as_deref()?;
            (Bound::Included(Slice::from(first)), bounds.1.clone())
        }
        ScanEnd::Back if range.start.is_empty() => return None,
        ScanEnd::Back => {
            let behind = Slice::from(&range.start[..]);
            (bounds.0.clone(), Bound::Excluded(behind))
        }
    };
    (!is_empty(&rest)).then_some(rest)
}

/// True if no key lies within the bounds.
fn is_empty(bounds: &KeyBounds) -> bool {
    match (&bounds.0, &bounds.1) {
        (Bound::Included(lo), Bound::Included(hi)) => lo > hi,
        (Bound::Included(lo) | Bound::Excluded(lo), Bound::Included(hi) | Bound::Excluded(hi)) => {
            lo >= hi
        }
        _ => false,
    }
}

/// The newest entries of a range of several runs, tombstones included.
pub(super) struct RunScan {
    /// Newest run first.
    cursors: Vec<Cursor>,
}

impl RunScan {
    /// Scans `runs`, newest first, within `bounds`, but for what is `deleted`.
    pub(super) fn new(
        runs: &[Arc<TableRun>],
        bounds: KeyBounds,
        deleted: Option<Arc<RangeTombstones>>,
    ) -> Self {
        let empty = is_empty(&bounds);
        let cursors = runs
            .iter()
            .take(if empty { 0 } else { usize::MAX })
            .map(|run| Cursor {
                run: Arc::clone(run),
                unopened: run.tables_to_read(&bounds),
                bounds: bounds.clone(),
                deleted: deleted.clone(),
                front: None,
                back: None,
                front_head: None,
                back_head: None,
            })
            .filter(|cursor| !cursor.unopened.is_empty())
            .collect();
        Self { cursors }
    }

    fn take(&mut self, end: ScanEnd) -> Option<Result<IndexEntry, IndexError>> {
        match self.try_take(end) {
            Ok(found) => found.map(Ok),
            Err(e) => {
                // A scan that has failed once is over: going on could pass over keys in silence.
                self.cursors.clear();
                Some(Err(e))
            }
        }
    }

    fn try_take(&mut self, end: ScanEnd) -> Result<Option<IndexEntry>, IndexError> {
        let mut best: Option<usize> = None;
        let mut twins = false;
        for at in 0..self.cursors.len() {
            let (newer, rest) = self.cursors.split_at_mut(at);
            rest[0].fill(end)?;
            let Some(entry) = rest[0].head(end) else {
                continue;
            };
            let order = best.and_then(|b| {
                let leader = newer[b].head(end).as_ref()?;
                Some(end.order(&entry.key.user_key, &leader.key.user_key))
            });
            match order {
                None | Some(Ordering::Less) => (best, twins) = (Some(at), false),
                Some(Ordering::Equal) => twins = true,
                Some(Ordering::Greater) => {}
            }
        }
        let Some(best) = best else { return Ok(None) };
        let Some(entry) = self.cursors[best].head(end).take() else {
            return Ok(None);
        };
        if twins {
            for older in &mut self.cursors[best + 1..] {
                older
                    .head(end)
                    .take_if(|other| other.key.user_key == entry.key.user_key);
            }
        }
        let run = &self.cursors[best].run;
        let address = table::address_of(&entry, || run.path_for(&entry.key.user_key), DOING)?;
        Ok(Some((entry.key.user_key.to_vec(), address)))
    }
}

impl Iterator for RunScan {
    type Item = Result<IndexEntry, IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(ScanEnd::Front)
    }
}

impl DoubleEndedIterator for RunScan {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(ScanEnd::Back)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Index, IndexOptions, RecordAddress};
    use crate::range_tombstones::RangeTombstone;
    use std::ops::Bound;

    #[test]
    fn both_ends_of_a_scan_meet_once_where_a_range_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let index = Index::open(dir.path(), IndexOptions::default()).unwrap();
        let keys: Vec<[u8; 1]> = (0..100).map(|key| [key]).collect();
        let address = RecordAddress::at(0);
        let mut entries = keys.iter().map(|key| (&key[..], address));
        index.ingest(&mut entries, 1).unwrap();
        let ranges = vec![
            RangeTombstone::new(&[20], Some(&[30]), 2),
            RangeTombstone::new(&[70], Some(&[80]), 2),
        ];
        let none = &mut std::iter::empty();
        index.ingest_with(none, ranges, 3).unwrap();
        let expected: Vec<u8> = (0..20).chain(30..70).chain(80..100).collect();
        for (forward, back) in [(1, 1), (1, 30), (30, 1), (1, 70), (70, 1)] {
            let view = index.snapshot();
            let mut scan = view.range((Bound::Unbounded, Bound::Unbounded));
            let mut found: Vec<u8> = Vec::new();
            found.extend(scan.by_ref().take(forward).map(|entry| entry.unwrap().0[0]));
            let last = scan.by_ref().rev().take(back);
            found.extend(last.map(|entry| entry.unwrap().0[0]));
            found.extend(scan.map(|entry| entry.unwrap().0[0]));
            found.sort_unstable();
            assert_eq!(
                found, expected,
                "{forward} from the front, {back} from the back"
            );
        }
    }
}
