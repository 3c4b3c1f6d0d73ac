//! Stretches of keys in which nothing lives, found while deletes are ingested.
//! docs/store-format.md, "Deleted stretches".
//!
//! A tombstone in a table hides one key below it, and a scan passes over both. Where many keys in a
//! row are deleted, a [`StretchFinder`] sees that no older table has a key between them that lives,
//! and the ingestion has one deleted range instead of the tombstones: scans go behind it at once,
//! and tables that have nothing else go unread. As of the ingestion's watermark there is nothing in
//! the range that it could hide but what is dead.
//!
//! To see that, it reads the older tables' entries along with the run, as a scan would. Where that
//! is in vain, since keys that live lie between, it tries more and more seldom. What it has read
//! and found dead is in the way of no scan, and of no later ingestion, any more.

use super::{
    IndexEntry, IndexError, RecordAddress, ValueForm, scan::RunScan, view::IndexView,
    writer::RunWriter,
};
use crate::{
    limits::STORED_KEY_BYTES_MAX,
    range_tombstones::{RANGE_BYTES_MAX, RangeTombstone, RangeTombstones},
};
use lsm_tree::Slice;
use std::{ops::Bound, sync::Arc};

/// Deleted ranges beside which none is made, and bytes of their keys: far fewer than a caller may
/// delete, and than have all runs merged.
const RANGES_MAX: usize = 500;
const BYTES_MAX: usize = RANGE_BYTES_MAX / 4;
/// Tombstones that are passed over at most before it is tried again.
const REST_MAX: u32 = 4096;
/// Entries of older tables that one ingestion reads at most.
const READ_MAX: u64 = 4_000_000;
/// Bytes of keys that are held back at most.
const HELD_BYTES_MAX: usize = 4 << 20;

const TOMBSTONE: RecordAddress = RecordAddress {
    lsn: 0,
    len: 0,
    form: ValueForm::Tombstone,
};

/// What the older tables have before a key.
enum BeforeKey {
    /// Nothing that lives.
    Dead,
    /// This one does.
    Lives(Vec<u8>),
    /// It could not be read, or would take too long.
    Unknown,
}

/// A stretch that goes on.
struct OpenStretch {
    start: Vec<u8>,
    /// The older tables' entries, from there on.
    older: RunScan,
    /// The next of them, if it was looked at; none in it: there are no more.
    next: Option<Option<IndexEntry>>,
    /// How many keys of theirs lie behind.
    dead: u64,
    /// The stretch's tombstones that are not dropped yet; the last one never is while it goes on.
    held: Vec<Vec<u8>>,
    held_bytes: usize,
}

impl OpenStretch {
    /// Reads the older tables up to `key`.
    fn read_up_to(&mut self, key: &[u8], budget: &mut u64) -> BeforeKey {
        loop {
            let next = match self.next.take() {
                Some(next) => next,
                None => match self.older.next().transpose() {
                    Ok(next) => next,
                    // A read or a merge that needs the table reports its damage.
                    Err(_) => return BeforeKey::Unknown,
                },
            };
            match next {
                Some((found, address)) if found[..] < *key => {
                    if address.form != ValueForm::Tombstone {
                        return BeforeKey::Lives(found);
                    }
                    let Some(left) = budget.checked_sub(1) else {
                        return BeforeKey::Unknown;
                    };
                    (*budget, self.dead) = (left, self.dead + 1);
                }
                next => {
                    self.next = Some(next);
                    return BeforeKey::Dead;
                }
            }
        }
    }

    /// Goes on with a tombstone of a key before which nothing lives.
    fn hold(&mut self, key: &[u8], budget: &mut u64, dead_min: u64) {
        if let Some(Some((next, _))) = &self.next
            && *next == *key
        {
            self.next = None;
            self.dead += 1;
            *budget = budget.saturating_sub(1);
        }
        if self.dead >= dead_min {
            self.held.clear();
            self.held_bytes = 0;
        }
        self.held.push(key.to_vec());
        self.held_bytes += key.len() + size_of::<Vec<u8>>();
    }
}

/// Finds stretches in a run that is being ingested, and writes what of it is in none.
pub(super) struct StretchFinder<'a> {
    older: &'a IndexView,
    /// What is hidden in the older tables, and in the run.
    deleted: &'a Arc<RangeTombstones>,
    /// What lies below is dead in a stretch.
    lsn: u64,
    /// Older keys that are worth a range.
    dead_min: u64,
    open: Option<OpenStretch>,
    /// The run's last key that lives.
    last_put: Option<Vec<u8>>,
    /// Tombstones to be passed over, and how many that were the last time.
    resting: u32,
    rest: u32,
    budget: u64,
    /// Bytes of the keys of all ranges.
    bytes: usize,
    found: Vec<RangeTombstone>,
}

impl<'a> StretchFinder<'a> {
    /// For a run behind which the log is covered below `watermark`. With `dead_min` of `u64::MAX`,
    /// it finds none.
    pub(super) fn new(
        older: &'a IndexView,
        deleted: &'a Arc<RangeTombstones>,
        watermark: u64,
        dead_min: u64,
    ) -> Self {
        // A table's entries lie below the watermark at which it was written, and ranges from that
        // on hide them: the older ones', not the new one's.
        let is_later = watermark > older.watermark();
        let seeks = is_later && dead_min < u64::MAX;
        Self {
            older,
            deleted,
            lsn: watermark.saturating_sub(1),
            dead_min,
            open: None,
            last_put: None,
            resting: 0,
            rest: 0,
            budget: if seeks { READ_MAX } else { 0 },
            bytes: deleted.bytes(),
            found: Vec::new(),
        }
    }

    /// The run's next key, which some older table has, as far as is known, if it is a tombstone.
    pub(super) fn add(
        &mut self,
        key: &[u8],
        address: RecordAddress,
        writer: &mut RunWriter,
    ) -> Result<(), IndexError> {
        let is_dead = address.form == ValueForm::Tombstone;
        if let Some(mut open) = self.open.take() {
            match open.read_up_to(key, &mut self.budget) {
                BeforeKey::Dead if is_dead && open.held_bytes < HELD_BYTES_MAX => {
                    open.hold(key, &mut self.budget, self.dead_min);
                    self.open = Some(open);
                    return Ok(());
                }
                BeforeKey::Dead => self.close(open, Some(Some(key)), writer)?,
                BeforeKey::Lives(other) => self.close(open, Some(Some(&other[..])), writer)?,
                BeforeKey::Unknown => self.close(open, None, writer)?,
            }
        }
        if !is_dead {
            if self.budget > 0 {
                self.last_put = Some(key.to_vec());
            }
            return writer.add(key, address);
        }
        if self.resting > 0 || self.budget == 0 || !self.has_room() {
            self.resting = self.resting.saturating_sub(1);
            return writer.add(key, TOMBSTONE);
        }
        self.open = self.begin(key);
        match self.open {
            Some(_) => Ok(()),
            None => writer.add(key, TOMBSTONE),
        }
    }

    /// The run is at its end; the ranges that stand for stretches of it.
    pub(super) fn finish(
        mut self,
        writer: &mut RunWriter,
    ) -> Result<Vec<RangeTombstone>, IndexError> {
        if let Some(mut open) = self.open.take() {
            // Up to the next key there is, whether that lives or not.
            let next = match open.next.take() {
                Some(next) => Ok(next),
                None => open.older.next().transpose(),
            };
            match next {
                Ok(next) => {
                    let end = next.as_ref().map(|(key, _)| &key[..]);
                    self.close(open, Some(end), writer)?;
                }
                Err(_) => self.close(open, None, writer)?,
            }
        }
        Ok(self.found)
    }

    /// True if there may be one range more, however long its keys are.
    fn has_room(&self) -> bool {
        self.deleted.len() + self.found.len() < RANGES_MAX
            && self.bytes + 2 * STORED_KEY_BYTES_MAX <= BYTES_MAX
    }

    fn scan(&self, from: &[u8], to: Bound<Slice>) -> RunScan {
        let bounds = (Bound::Included(Slice::from(from)), to);
        let deleted = (!self.deleted.is_empty()).then(|| Arc::clone(self.deleted));
        RunScan::new(&self.older.runs, bounds, deleted)
    }

    /// A stretch that begins with a tombstone of `key`, or with the deleted range that ends there;
    /// none if it is not known what lives.
    fn begin(&mut self, key: &[u8]) -> Option<OpenStretch> {
        let mut open = OpenStretch {
            start: self.start_before(key).unwrap_or_else(|| key.to_vec()),
            older: self.scan(key, Bound::Unbounded),
            next: None,
            dead: 0,
            held: Vec::new(),
            held_bytes: 0,
        };
        match open.read_up_to(key, &mut self.budget) {
            BeforeKey::Dead => open.hold(key, &mut self.budget, self.dead_min),
            BeforeKey::Lives(_) | BeforeKey::Unknown => return None,
        }
        Some(open)
    }

    /// The start of the deleted range that ends at `key`, if nothing lives in it: keys that are
    /// deleted in their order have one range that grows.
    fn start_before(&self, key: &[u8]) -> Option<Vec<u8>> {
        let range = self.deleted.ending_at(key)?;
        let is_clear = (self.last_put.as_ref()).is_none_or(|put| put[..] < *range.start);
        let last = Bound::Excluded(Slice::from(key));
        let is_empty = is_clear && self.scan(&range.start, last).next().is_none();
        is_empty.then(|| range.start.to_vec())
    }

    /// Ends a stretch where something lives (`end`, or nothing up to the last key of all), or where
    /// it is not known what does: before its last tombstone then.
    fn close(
        &mut self,
        mut open: OpenStretch,
        end: Option<Option<&[u8]>>,
        writer: &mut RunWriter,
    ) -> Result<(), IndexError> {
        let mut written = std::mem::take(&mut open.held);
        if open.dead < self.dead_min {
            self.rest = (self.rest * 2).clamp(1, REST_MAX);
            self.resting = self.rest;
        } else {
            self.rest = 0;
            let last = written.split_off(written.len().saturating_sub(1)).pop();
            let (end, last) = match (end, last) {
                (Some(end), _) => (end.map(<[u8]>::to_vec), None),
                (None, Some(last)) => (Some(last.clone()), Some(last)),
                (None, None) => return Ok(()),
            };
            let range = RangeTombstone::new(&open.start, end.as_deref(), self.lsn);
            self.bytes += range.bytes();
            self.found.push(range);
            written = last.into_iter().collect();
        }
        written
            .iter()
            .try_for_each(|key| writer.add(key, TOMBSTONE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Index, IndexOptions, RecordAddress};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn index(dir: &tempfile::TempDir, table_bytes: u64) -> Index {
        let options = IndexOptions {
            table_bytes,
            ..IndexOptions::default()
        };
        Index::open(dir.path(), options).unwrap()
    }

    /// Puts or deletes keys, the log from `lsn` on.
    fn ingest(index: &Index, keys: impl IntoIterator<Item = u32>, puts: bool, lsn: u64) {
        let mut keys: Vec<[u8; 4]> = keys.into_iter().map(u32::to_be_bytes).collect();
        keys.sort_unstable();
        let address = match puts {
            true => RecordAddress::at(lsn),
            false => RecordAddress { lsn, ..TOMBSTONE },
        };
        let mut run = keys.iter().map(|key| (&key[..], address));
        index
            .ingest_in_stretches(&mut run, Vec::new(), lsn + 10, 100)
            .unwrap();
    }

    fn numbers(index: &Index) -> Vec<u32> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let keys = index.snapshot().range(all).map(|entry| entry.unwrap().0);
        keys.map(|key| u32::from_be_bytes(key.try_into().unwrap()))
            .collect()
    }

    #[test]
    fn keys_deleted_in_a_row_have_one_range_that_grows() {
        for reversed in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let index = index(&dir, 4 << 10);
            ingest(&index, 0..10_000, true, 0);
            for part in 1..=9 {
                let part = if reversed { 10 - part } else { part };
                ingest(&index, part * 1000..(part + 1) * 1000, false, {
                    index.watermark()
                });
                let stats = index.stats();
                assert_eq!((stats.deleted_ranges, stats.tombstones), (1, 0));
            }
            assert_eq!(numbers(&index), (0..1000).collect::<Vec<_>>());
            // A key that is put into it lives, and is in no later one.
            ingest(&index, [5000], true, index.watermark());
            ingest(&index, 0..1000, false, index.watermark());
            assert_eq!(numbers(&index), [5000]);
            while index.compact().unwrap() {}
            assert_eq!(index.stats().entries, 1);
        }
    }

    #[test]
    fn where_keys_live_between_deletes_few_of_the_older_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let index = index(&dir, 32 << 20);
        ingest(&index, 0..400_000, true, 0);
        let (older, none) = (index.snapshot(), Arc::default());
        let mut finder = StretchFinder::new(&older, &none, 100, 100);
        let (mut stretches, mut writer) = (0, index.test_writer());
        for key in (0..400_000_u32).step_by(4) {
            let found = finder.open.is_some();
            finder
                .add(&key.to_be_bytes(), TOMBSTONE, &mut writer)
                .unwrap();
            stretches += u32::from(finder.open.is_some() && !found);
        }
        assert!(stretches < 50, "{stretches}");
        assert!(finder.found.is_empty() && READ_MAX - finder.budget < 100);
    }

    /// What is done to an index: puts and deletes between two keys, every so manieth; a range; a
    /// step of a merge, or all.
    #[derive(Clone, Debug)]
    enum Change {
        Run(Vec<(u8, u8, u8, bool)>),
        Range(u8, u8),
        Compact,
        MergeAll,
    }

    fn change() -> impl Strategy<Value = Change> {
        let part = (any::<u8>(), 0u8..80, 1u8..4, any::<bool>());
        prop_oneof![
            6 => proptest::collection::vec(part, 1..4).prop_map(Change::Run),
            1 => (any::<u8>(), any::<u8>()).prop_map(|(from, to)| Change::Range(from, to)),
            2 => Just(Change::Compact),
            1 => Just(Change::MergeAll),
        ]
    }

    /// Has a run ingested, and done to the map.
    fn take_run(index: &Index, model: &mut BTreeMap<u8, u64>, run: &BTreeMap<u8, bool>, lsn: u64) {
        let mut entries = run.iter().map(|(key, puts)| {
            let address = match puts {
                true => RecordAddress::at(lsn),
                false => RecordAddress { lsn, ..TOMBSTONE },
            };
            (std::slice::from_ref(key), address)
        });
        index
            .ingest_in_stretches(&mut entries, Vec::new(), lsn + 10, 8)
            .unwrap();
        for (&key, &puts) in run {
            match puts {
                true => model.insert(key, lsn),
                false => model.remove(&key),
            };
        }
    }

    fn check(view: &IndexView, model: &BTreeMap<u8, u64>) {
        for key in 0..=u8::MAX {
            let found = view.get(&[key]).unwrap();
            let found = found.filter(|found| found.form != ValueForm::Tombstone);
            let found = found.filter(|found| !view.deleted().hides(&[key], found.lsn));
            assert_eq!(found.map(|found| found.lsn), model.get(&key).copied());
        }
        let all = || view.range((Bound::Unbounded, Bound::Unbounded));
        let expected: Vec<u8> = model.keys().copied().collect();
        let keys: Vec<u8> = all().map(|entry| entry.unwrap().0[0]).collect();
        assert_eq!(keys, expected);
        let mut keys: Vec<u8> = all().rev().map(|entry| entry.unwrap().0[0]).collect();
        keys.reverse();
        assert_eq!(keys, expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
        /// Promise (store): A range that stands for deletes in a row hides no key that lives, in
        /// the index or in a view of it that is held.
        #[test]
        fn ranges_in_the_place_of_tombstones_hide_what_those_do(
            changes in proptest::collection::vec(change(), 1..25),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut index = index(&dir, 4 << 10);
            let mut model = BTreeMap::new();
            let mut held = None;
            for (number, change) in changes.iter().enumerate() {
                let lsn = index.watermark();
                match change {
                    Change::Run(parts) => {
                        let mut run = BTreeMap::new();
                        for &(from, len, step, puts) in parts {
                            let keys = from..=from.saturating_add(len);
                            run.extend(keys.step_by(step.into()).map(|key| (key, puts)));
                        }
                        take_run(&index, &mut model, &run, lsn);
                    }
                    Change::Range(from, to) => {
                        let range = RangeTombstone::new(&[*from], Some(&[*to]), lsn + 5);
                        let none = &mut std::iter::empty();
                        index.ingest_with(none, vec![range], lsn + 10).unwrap();
                        model.retain(|key, _| key < from || key >= to);
                    }
                    Change::Compact => drop(index.compact().unwrap()),
                    Change::MergeAll => index.merge_all().unwrap(),
                }
                check(&index.snapshot(), &model);
                if number == changes.len() / 2 {
                    held = Some((index.snapshot(), model.clone()));
                }
            }
            if let Some((view, model)) = held {
                check(&view, &model);
            }
            drop(index);
            index = super::tests::index(&dir, 4 << 10);
            check(&index.snapshot(), &model);
        }
    }
}
