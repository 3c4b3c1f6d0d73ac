//! [`Chunk`]: a sharded hash table of keys and addresses.
//!
//! A key's shard is taken from its hash. So keys spread evenly, each shard has a 64th of the
//! chunk's memory, and a shard that has used its part up tells that the chunk is full. All memory
//! is allocated and touched when the chunk is made, off the writers' path; inserting allocates
//! nothing until then, but where a shard is locked.
//!
//! An address's place in the log is its version, so a snapshot is one number: the log address below
//! which it sees everything ([`Chunk::get_below`]).
//!
//! Scans find the keys in order ([`order`](super::order)) while the chunk is written to; an
//! ingestion sorts a frozen one ([`Chunk::read_sorted`]).
//!
//! Deletes of ranges that were done while it took writes it has beside, and an ingestion takes them
//! with its keys. What they hide the view knows ([`ReadView`](super::ReadView)).
//!
//! Writers do not wait for a shard ([`SharedShard`]). Lock order: a chunk's order, then one shard.
//! At most one shard's lock is held at a time, except by [`SortedChunk`], which takes all in order
//! for reading; a frozen chunk has no writers.

use super::{
    runs::KeyOrder,
    shard::{Insert, SHARDS, Shard, place, unplace},
    shared_shard::SharedShard,
    sorted::SortedChunk,
};
use crate::{index::RecordAddress, range_tombstones::RangeTombstone};
use foldhash::fast::RandomState;
use forebay_pool::Lsn;
use parking_lot::{Mutex, RwLockReadGuard};
use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// With so many deletes of ranges a chunk is full.
pub(crate) const RANGE_DELETES_MAX: usize = 10_000;

/// A hash table from key to address, in shards.
pub(crate) struct Chunk {
    shards: Box<[SharedShard]>,
    hasher: RandomState,
    /// Bytes that a shard may use.
    share: usize,
    /// Every record of this chunk has this log address or a higher one.
    start: Lsn,
    /// The keys in order, for scans.
    pub(super) ordered: Mutex<KeyOrder>,
    pub(super) order_bytes: AtomicUsize,
    /// Dead keys that scans have passed over since they were last dropped from the order.
    pub(super) passed: AtomicUsize,
    /// In the order of the log.
    range_deletes: Mutex<Vec<RangeTombstone>>,
}

/// The hash's part that chooses the shard. The table uses the lowest and the seven highest bits.
#[inline]
fn shard_of(hash: u64) -> usize {
    (hash >> 48) as usize % SHARDS
}

impl Chunk {
    /// An empty chunk for records from `start` on that is full at `bytes` bytes. With `ready`, its
    /// memory is allocated and touched now.
    ///
    /// `hasher` must be the same for the whole life of the store.
    pub(crate) fn new(bytes: usize, start: Lsn, ready: bool, hasher: RandomState) -> Self {
        let share = bytes / SHARDS;
        let shard = || {
            SharedShard::new(match ready {
                true => Shard::ready(share),
                false => Shard::default(),
            })
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            hasher,
            share,
            start,
            ordered: Mutex::default(),
            order_bytes: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
            range_deletes: Mutex::default(),
        }
    }

    /// The same, empty chunk for records from `start` on.
    pub(crate) fn starting_at(mut self, start: Lsn) -> Self {
        self.start = start;
        self
    }

    /// The log address below which it has no record.
    pub(crate) fn start(&self) -> Lsn {
        self.start
    }

    /// Sets the key's address, in place of one that is older. If that lies below `keep_below`, an
    /// open snapshot may see it, and it is kept. True if the chunk is known to be full then.
    #[inline]
    pub(crate) fn insert(
        &self,
        hash: u64,
        key: &[u8],
        address: RecordAddress,
        keep_below: Lsn,
    ) -> bool {
        let insert = Insert {
            hash,
            key,
            address,
            keep_below,
        };
        let load = self.shards[shard_of(hash)].insert(insert, &self.hasher);
        load.is_some_and(|load| load >= self.share)
    }

    #[inline]
    fn read(&self, shard: usize) -> RwLockReadGuard<'_, Shard> {
        self.shards[shard].read(&self.hasher)
    }

    fn read_each(&self) -> impl Iterator<Item = RwLockReadGuard<'_, Shard>> {
        (0..SHARDS).map(|shard| self.read(shard))
    }

    /// The fullness of the chunk, judged by one shard, and by its deletes of ranges: 1 is full.
    pub(crate) fn fullness(&self) -> f64 {
        let keys = self.read(0).load() as f64 / self.share as f64;
        keys.max(self.range_fullness())
    }

    /// The same, of deletes of ranges alone.
    pub(crate) fn range_fullness(&self) -> f64 {
        self.range_deletes.lock().len() as f64 / RANGE_DELETES_MAX as f64
    }

    /// The key's address, a tombstone's included.
    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &[u8]) -> Option<RecordAddress> {
        let shard = self.read(shard_of(hash));
        Some(shard.find(hash, key)?.address())
    }

    /// The key's newest address below `limit`, a tombstone's included: what a snapshot sees here.
    pub(crate) fn get_below(&self, hash: u64, key: &[u8], limit: Lsn) -> Option<RecordAddress> {
        let shard = self.read(shard_of(hash));
        shard.below(shard.find(hash, key)?, limit)
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.read_each().map(|shard| shard.len()).sum()
    }

    /// True if it has neither a key nor a deleted range.
    pub(crate) fn is_empty(&self) -> bool {
        self.range_deletes.lock().is_empty() && self.read_each().all(|shard| shard.len() == 0)
    }

    /// A range is deleted, with all stripes locked: the next one lies behind it in the log. True if
    /// the chunk is full then.
    pub(crate) fn add_range_delete(&self, deleted: RangeTombstone) -> bool {
        let mut all = self.range_deletes.lock();
        all.push(deleted);
        all.len() >= RANGE_DELETES_MAX
    }

    /// The deletes of ranges that lie between two log addresses.
    pub(crate) fn range_deletes(&self, versions: &Range<Lsn>) -> Vec<RangeTombstone> {
        let all = self.range_deletes.lock();
        let between = all.iter().filter(|deleted| versions.contains(&deleted.lsn));
        between.cloned().collect()
    }

    /// What counts for its being full: bytes of memory in use, or what its deletes weigh.
    pub(crate) fn load(&self) -> usize {
        let shards = self.read_each().map(|shard| shard.load());
        self.order_bytes.load(Relaxed) + shards.sum::<usize>()
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        let shards = self.read_each().map(|shard| shard.bytes());
        self.order_bytes.load(Relaxed) + shards.sum::<usize>()
    }

    /// All of a frozen chunk, in key order. As long as it lives, its thread must not read the chunk
    /// by another call: one that waits to write would be between the two.
    pub(crate) fn read_sorted(&self) -> SortedChunk<'_> {
        SortedChunk::of(self.read_each().collect())
    }

    /// Has `each` look at what the order for scans has not taken in yet of each shard: entries and
    /// revived ones behind those `seen`, which become all. It gets the entry's place, its key, and
    /// whether it is dead (deleted, and no snapshot sees an older version).
    pub(super) fn each_unordered(
        &self,
        seen: &mut [(u32, u32)],
        mut each: impl FnMut(u32, &[u8], bool),
    ) {
        for (s, (shard, (entries, revived))) in self.read_each().zip(seen).enumerate() {
            let new = *entries as usize..shard.len();
            let again = &shard.revived()[*revived as usize..];
            for number in new.chain(again.iter().map(|&number| number as usize)) {
                let entry = shard.entry(number);
                each(place(s, number), shard.key(entry), entry.is_dead());
            }
            *entries = u32::try_from(shard.len()).unwrap_or(u32::MAX);
            *revived = u32::try_from(shard.revived().len()).unwrap_or(u32::MAX);
        }
    }

    /// Has `use_key` look at the key of the entry at `place`.
    pub(super) fn with_key<T>(&self, place: u32, use_key: impl FnOnce(&[u8]) -> T) -> T {
        let (shard, number) = unplace(place);
        let shard = self.read(shard);
        use_key(shard.key(shard.entry(number)))
    }

    /// The key at `place` with its newest address below `limit`, a tombstone's included; `None` if
    /// it has none.
    pub(super) fn found_at(&self, place: u32, limit: Lsn) -> Option<(Vec<u8>, RecordAddress)> {
        let (shard, number) = unplace(place);
        let shard = self.read(shard);
        let entry = shard.entry(number);
        let address = shard.below(entry, limit)?;
        Some((shard.key(entry).to_vec(), address))
    }

    /// Marks the entry at `place` as one that the order for scans has no longer, and has `use_key`
    /// look at its key, if it is dead and no snapshot sees an older version. False if it is to
    /// stay, also if an ingestion holds the shard.
    pub(super) fn drop_dead(&self, place: u32, use_key: impl FnOnce(&[u8])) -> bool {
        let (shard, number) = unplace(place);
        let Some(mut shard) = self.shards[shard].try_write(&self.hasher) else {
            return false;
        };
        let dead = shard.drop_if_dead(number);
        if dead {
            use_key(shard.key(shard.entry(number)));
        }
        dead
    }
}

#[cfg(test)]
mod tests {
    use super::super::shard::VERSION_BYTES;
    use super::*;
    use crate::index::ValueForm;
    use crate::memtable::testing;
    use std::collections::BTreeMap;

    fn sorted(chunk: &Chunk) -> Vec<(Vec<u8>, RecordAddress)> {
        let sorted = chunk.read_sorted();
        let all = sorted.between(0..Lsn::MAX);
        all.map(|(key, address)| (key.to_vec(), address)).collect()
    }

    #[test]
    fn a_chunk_finds_the_newest_address_of_every_key_and_sorts_them() {
        for ready in [false, true] {
            let chunk = testing::chunk(ready);
            let mut model = BTreeMap::new();
            for i in 0..5000u64 {
                let mut key = ((i * 7919) % 3000).to_be_bytes().to_vec();
                key.truncate(1 + (i % 8) as usize);
                key.resize(key.len() + (i % 23) as usize, b'x');
                chunk.insert(testing::hash(&key), &key, RecordAddress::at(i), 0);
                model.insert(key, RecordAddress::at(i));
            }
            assert_eq!(chunk.len(), model.len());
            for (key, address) in &model {
                assert_eq!(chunk.get(testing::hash(key), key), Some(*address));
            }
            assert_eq!(chunk.get(testing::hash(b"absent"), b"absent"), None);
            assert_eq!(sorted(&chunk), model.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn keys_that_differ_by_trailing_zeros_are_different_keys() {
        let chunk = testing::chunk(true);
        for len in 0..20u64 {
            let key = vec![0; 1 + len as usize];
            chunk.insert(testing::hash(&key), &key, RecordAddress::at(len), 0);
        }
        let expected: Vec<_> = (0..20)
            .map(|len| (vec![0; 1 + len], RecordAddress::at(len as u64)))
            .collect();
        assert_eq!(sorted(&chunk), expected);
    }

    #[test]
    fn what_a_snapshot_sees_is_kept_and_nothing_else() {
        let chunk = testing::chunk(true);
        let key = b"a key longer than eight bytes";
        let put = |lsn, keep_below| {
            chunk.insert(testing::hash(key), key, RecordAddress::at(lsn), keep_below);
        };
        let below = |limit| {
            chunk
                .get_below(testing::hash(key), key, limit)
                .map(|a| a.lsn)
        };
        let bytes = || chunk.read_each().map(|shard| shard.bytes()).sum::<usize>();
        put(10, 0);
        let before = bytes();
        put(20, 0);
        assert_eq!((below(15), below(21), bytes()), (None, Some(20), before));
        // A snapshot at 30, then one at 50.
        for lsn in [30, 40, 50, 60, 70] {
            put(lsn, if lsn < 50 { 30 } else { 50 });
        }
        assert_eq!(
            (below(30), below(50), below(71)),
            (Some(20), Some(40), Some(70))
        );
        assert_eq!(bytes(), before + 2 * VERSION_BYTES);
        let sorted = chunk.read_sorted();
        let between = |versions| {
            sorted
                .between(versions)
                .map(|(_, a)| a.lsn)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (between(0..30), between(30..50), between(50..Lsn::MAX)),
            (vec![20], vec![40], vec![70])
        );
        assert_eq!(between(21..30), Vec::<Lsn>::new());
    }

    /// An ingestion holds all shards for long. Readers that have to take in what was left meanwhile
    /// wait to write, and behind them each further reader: the ingestion itself must be none.
    #[test]
    fn a_sorted_chunk_is_counted_beside_one_that_waits_to_write() {
        let chunk = testing::chunk(true);
        let put = |key: &[u8], address| chunk.insert(testing::hash(key), key, address, 0);
        let tombstone = RecordAddress {
            form: ValueForm::Tombstone,
            ..RecordAddress::at(2)
        };
        put(b"there", RecordAddress::at(1));
        put(b"gone", tombstone);
        let sorted = chunk.read_sorted();
        put(b"later", RecordAddress::at(3));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| chunk.get(testing::hash(b"later"), b"later"));
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(!waits.is_finished());
            assert_eq!((sorted.len(), sorted.deletes()), (2, 1));
            drop(sorted);
            assert_eq!(waits.join().unwrap(), Some(RecordAddress::at(3)));
        });
    }

    #[test]
    fn a_chunk_is_full_when_its_memory_is_used() {
        let chunk = testing::chunk(true);
        let put = |i: u64| {
            chunk.insert(
                testing::hash(&i.to_le_bytes()),
                &i.to_le_bytes(),
                RecordAddress::at(i),
                0,
            )
        };
        let keys = (0..1_000_000u64).take_while(|&i| !put(i)).count();
        let used = chunk.bytes();
        assert!(
            (700_000..=1 << 20).contains(&used),
            "{used} bytes of {keys} keys"
        );
    }
}
