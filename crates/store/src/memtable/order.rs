//! A chunk's keys in order, for scans, while the chunk is written to.
//!
//! An entry's key never changes, so what is sorted once stays sorted. A scan sorts what came since
//! the last one, as a *run* of its own ([`SortedRun`]), and merges it with earlier runs that are
//! not much larger. So each key is copied a logarithmic number of times, a scan costs what was
//! written since the last, and writers have nothing to do. A chunk that is never scanned has no
//! order.
//!
//! A key that was deleted before a scan met it never enters the order; others leave it once scans
//! have passed over as many as it has keys ([`Chunk::ordered`]). So a scan's cost is bounded by
//! what is live, however many keys were deleted in front of it. They still hide what older chunks
//! and the tables have; for keys between the first and the last that left ([`ChunkOrder::left`]) a
//! scan asks the chunk itself. A key that is put again comes back.
//!
//! While keys are sorted no shard is locked for longer than it takes to look at one.

use super::{
    Chunk,
    runs::{ChunkOrder, KeyOrder, KeyStretch, SortedRun},
    shard::SHARDS,
    sort::{eight, shared_len, sort_numbered},
};
use crate::index::{RecordAddress, ValueForm};
use forebay_pool::Lsn;
use std::{
    cmp::Ordering,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// A run takes in the one before it if that is at most so many times as large.
const MERGE: usize = 4;
/// Fewer dead keys than this are not worth dropping.
const PASSED_MIN: usize = 64;

impl Chunk {
    /// The order of all keys that the chunk has now, but for deleted ones that left it.
    pub(crate) fn ordered(&self) -> ChunkOrder {
        let ordered = &mut *self.ordered.lock();
        let places = self.sorted_new(ordered);
        if !places.is_empty() {
            self.add_run(ordered, places);
        }
        let passed = self.passed.load(Relaxed);
        if passed >= PASSED_MIN.max(ordered.len()) {
            self.passed.store(0, Relaxed);
            self.drop_dead_keys(ordered);
        }
        let bytes = ordered.len() * size_of::<(u64, u32)>();
        self.order_bytes.store(bytes, Relaxed);
        ChunkOrder {
            runs: ordered.runs.clone(),
            left: ordered.left.clone(),
        }
    }

    /// The places of keys that came since they were last taken in, sorted. Those that were deleted
    /// meanwhile leave at once.
    fn sorted_new(&self, ordered: &mut KeyOrder) -> Vec<(u64, u32)> {
        ordered.seen.resize(SHARDS, (0, 0));
        let before = ordered.shared.take();
        let (mut places, mut dead) = (Vec::new(), Vec::new());
        let mut shared = before.clone();
        // Numbered as they are met, by what the keys before them share; anew, if in the end they
        // share less.
        self.each_unordered(&mut ordered.seen, |place, key, is_dead| {
            if is_dead {
                dead.push(place);
                return;
            }
            let shared = shared.get_or_insert_with(|| key.to_vec());
            shared.truncate(shared_len(shared, key));
            places.push((eight(key, shared.len()), place));
        });
        let mut left = ordered.left.take();
        dead.retain(|&place| !self.leaves(place, &mut left));
        ordered.left = left;
        for place in dead {
            // It was put again, or its shard is being read by an ingestion.
            self.with_key(place, |key| {
                let shared = shared.get_or_insert_with(|| key.to_vec());
                shared.truncate(shared_len(shared, key));
                places.push((eight(key, shared.len()), place));
            });
        }
        let len = shared.as_ref().map_or(0, Vec::len);
        if before.as_ref().map(Vec::len) != Some(len) {
            let number = |&(_, place): &(u64, u32)| {
                let number = self.with_key(place, |key| eight(key, len));
                (number, place)
            };
            places = places.iter().map(number).collect();
            for run in &mut ordered.runs {
                *run = Arc::new(SortedRun(run.0.iter().map(number).collect()));
            }
        }
        ordered.shared = shared;
        let key_of = |place: u32, use_key: &mut dyn FnMut(&[u8])| self.with_key(place, use_key);
        sort_numbered(&mut places, len, 0, &key_of);
        places
    }

    /// Adds sorted places as a run, and merges runs of like sizes.
    fn add_run(&self, ordered: &mut KeyOrder, places: Vec<(u64, u32)>) {
        let mut newest = places;
        while let Some(last) = ordered.runs.pop_if(|run| run.len() <= newest.len() * MERGE) {
            newest = self.merge(&last.0, &newest);
        }
        ordered.runs.push(Arc::new(SortedRun(newest.into())));
    }

    fn merge(&self, a: &[(u64, u32)], b: &[(u64, u32)]) -> Vec<(u64, u32)> {
        let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
        let mut merged = Vec::with_capacity(a.len() + b.len());
        while let (Some(&&x), Some(&&y)) = (a.peek(), b.peek()) {
            let order = x.0.cmp(&y.0).then_with(|| {
                let key = self.with_key(x.1, <[u8]>::to_vec);
                self.with_key(y.1, |other| key[..].cmp(other))
            });
            match order {
                Ordering::Greater => merged.extend(b.next()),
                _ => merged.extend(a.next()),
            }
        }
        merged.extend(a);
        merged.extend(b);
        merged
    }

    /// Rewrites the runs without keys that are deleted and that no snapshot sees.
    fn drop_dead_keys(&self, ordered: &mut KeyOrder) {
        let mut left = ordered.left.take();
        let mut runs = Vec::with_capacity(ordered.runs.len());
        for run in &ordered.runs {
            let places = run.0.iter().copied();
            let kept: Box<[_]> = places
                .filter(|&(_, place)| !self.leaves(place, &mut left))
                .collect();
            if !kept.is_empty() {
                runs.push(Arc::new(SortedRun(kept)));
            }
        }
        ordered.runs = runs;
        ordered.left = left;
    }

    /// Has the entry at `place` leave the order, and notes its key, if it is dead.
    fn leaves(&self, place: u32, left: &mut Option<Arc<KeyStretch>>) -> bool {
        self.drop_dead(place, |key| match left.as_deref() {
            None => *left = Some(Arc::new((key.to_vec(), key.to_vec()))),
            Some((first, last)) if key < &first[..] => {
                *left = Some(Arc::new((key.to_vec(), last.clone())));
            }
            Some((first, last)) if key > &last[..] => {
                *left = Some(Arc::new((first.clone(), key.to_vec())));
            }
            Some(_) => {}
        })
    }

    /// Scans have passed over so many deleted keys in runs of this chunk.
    pub(crate) fn note_passed(&self, keys: usize) {
        if keys > 0 {
            self.passed.fetch_add(keys, Relaxed);
        }
    }

    /// The key at `position` of a run with its newest address below `limit`; `None` if it has none.
    pub(crate) fn nth(
        &self,
        run: &SortedRun,
        position: usize,
        limit: Lsn,
    ) -> Option<(Vec<u8>, RecordAddress)> {
        let &(_, place) = run.0.get(position)?;
        self.found_at(place, limit)
    }

    /// The number of keys of a run that are less than `bound`, or with `inclusive` no greater.
    pub(crate) fn keys_below(&self, run: &SortedRun, bound: &[u8], inclusive: bool) -> usize {
        run.0.partition_point(|&(_, place)| {
            self.with_key(place, |key| key < bound || (inclusive && key == bound))
        })
    }

    /// True if the key is deleted here, as seen below `limit`.
    pub(crate) fn hides(&self, hash: u64, key: &[u8], limit: Lsn) -> bool {
        self.get_below(hash, key, limit)
            .is_some_and(|address| address.form == ValueForm::Tombstone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::testing;
    use std::collections::BTreeMap;

    fn at(lsn: u64, form: ValueForm) -> RecordAddress {
        RecordAddress { lsn, len: 64, form }
    }

    fn key(i: u64) -> Vec<u8> {
        match i % 4 {
            0 => i.to_be_bytes().to_vec(),
            1 => format!("a common beginning {i:08}").into_bytes(),
            2 => vec![0; (i % 40) as usize + 1],
            _ => [&vec![b'k'; 300][..], &i.to_be_bytes()].concat(),
        }
    }

    /// All keys of the order with what is seen below `limit`, each run checked.
    fn all(chunk: &Chunk, limit: Lsn) -> BTreeMap<Vec<u8>, RecordAddress> {
        let order = chunk.ordered();
        let mut all = BTreeMap::new();
        for run in &order.runs {
            let found: Vec<_> = (0..run.len()).map(|n| chunk.nth(run, n, limit)).collect();
            let keys: Vec<_> = found.iter().flatten().map(|(key, _)| key).collect();
            assert!(keys.is_sorted_by(|a, b| a < b));
            for (key, address) in found.into_iter().flatten() {
                let at = chunk.keys_below(run, &key, false);
                assert_eq!(chunk.keys_below(run, &key, true), at + 1);
                assert!(all.insert(key, address).is_none(), "a key is in two runs");
            }
        }
        all
    }

    #[test]
    fn an_order_that_grows_between_scans_has_every_key_once() {
        let chunk = testing::chunk(true);
        let mut model = BTreeMap::new();
        for i in 0..3000u64 {
            let key = key(i * 7919 % 2000);
            chunk.insert(testing::hash(&key), &key, at(i, ValueForm::Record), 0);
            model.insert(key, at(i, ValueForm::Record));
            if i.is_power_of_two() || i % 97 == 0 {
                assert_eq!(all(&chunk, Lsn::MAX), model);
            }
        }
        assert_eq!(all(&chunk, Lsn::MAX), model);
        assert!(chunk.ordered().runs.len() <= 6);
    }

    #[test]
    fn deleted_keys_leave_the_order_hide_older_puts_and_come_back() {
        let chunk = testing::chunk(true);
        let put = |i: u64, lsn, form| {
            chunk.insert(testing::hash(&key(i)), &key(i), at(lsn, form), 0);
        };
        (0..1000).for_each(|i| put(i * 4, i, ValueForm::Record));
        assert_eq!(all(&chunk, Lsn::MAX).len(), 1000);
        (0..900).for_each(|i| put(i * 4, 1000 + i, ValueForm::Tombstone));
        // One that was deleted before a scan met it never enters.
        put(8000, 1900, ValueForm::Tombstone);
        assert_eq!(all(&chunk, Lsn::MAX).len(), 1000);
        chunk.note_passed(1000);
        assert_eq!(all(&chunk, Lsn::MAX).len(), 100);
        let left = chunk.ordered().left.unwrap();
        assert_eq!(*left, (key(0), key(8000)));
        assert!(chunk.hides(testing::hash(&key(4)), &key(4), Lsn::MAX));
        assert!(!chunk.hides(testing::hash(&key(4)), &key(4), 1001));
        put(4, 5000, ValueForm::Record);
        put(4, 5001, ValueForm::Record);
        let again = all(&chunk, Lsn::MAX);
        assert_eq!((again.len(), again[&key(4)].lsn), (101, 5001));
    }
}
