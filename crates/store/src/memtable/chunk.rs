//! [`Chunk`]: a sharded hash table of keys and addresses.
//!
//! A key's shard is taken from its hash, so keys spread evenly, each shard has a 64th of the
//! chunk's memory, and a shard that has used its part up tells that the chunk is full. All memory is
//! allocated and touched when the chunk is made, off the writers' path; inserting allocates nothing until then.
//!
//! An address's place in the log is its version. A write that replaces what an open snapshot sees leaves the older version behind
//! ([`Version`]), so a snapshot is one number: the log address below which it sees everything ([`Chunk::get_below`]). Without a
//! snapshot nothing is kept.
//!
//! Scans find the keys in order ([`order`](super::order)) while the chunk is written to; an ingestion sorts a frozen one
//! ([`Chunk::read_sorted`]).
//!
//! Lock order: a chunk's order, then one shard. At most one shard's lock is held at a time, except by [`SortedChunk`], which
//! takes all in order for reading; a frozen chunk has no writers.

use super::order::{Ordered, sort_places};
use crate::index::{Address, Form};
use forebay_pool::Lsn;
use hashbrown::{HashTable, hash_table::Entry as Slot};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Shards of a chunk; a power of two.
pub(crate) const SHARDS: usize = 64;
/// Bytes of memory that an entry takes beside its key: itself, and its part of the hash table at 7/8 load.
const ENTRY_BYTES: usize = size_of::<Entry>() + 8;
/// Key bytes that are kept in the entry itself.
const PREFIX: usize = 8;

/// A key's entry.
#[derive(Clone, Copy)]
struct Entry {
    /// The key's first eight bytes, zero-padded; all of a short key.
    prefix: [u8; PREFIX],
    lsn: Lsn,
    /// Where the key's bytes are in the shard's arena; only those of keys longer than the prefix are.
    key_at: u32,
    len: u32,
    /// The version before, if an open snapshot may see it: its number in the shard, plus one.
    older: u32,
    key_len: u16,
    form: Form,
    /// The order for scans has it, or is to take it in.
    ordered: bool,
}

const _: () = assert!(size_of::<Entry>() == 32);

impl Entry {
    /// Deleted, and no snapshot sees an older version.
    fn is_dead(&self) -> bool {
        self.form == Form::Tombstone && self.older == 0
    }

    fn address(&self) -> Address {
        Address {
            lsn: self.lsn,
            len: self.len,
            form: self.form,
        }
    }
}

/// What a key's address was before, for the snapshots that see it.
#[derive(Clone, Copy)]
struct Version {
    address: Address,
    /// As [`Entry::older`].
    older: u32,
}

/// A 64th of a chunk.
#[derive(Default)]
struct Shard {
    table: HashTable<u32>,
    entries: Vec<Entry>,
    arena: Vec<u8>,
    versions: Vec<Version>,
    /// Entries that the order for scans had dropped and that were put again since, each time.
    revived: Vec<u32>,
}

impl Shard {
    /// The newest address of an entry below `limit`.
    #[inline]
    fn below(&self, entry: &Entry, limit: Lsn) -> Option<Address> {
        if entry.lsn < limit {
            return Some(entry.address());
        }
        let mut older = entry.older;
        while let Some(number) = older.checked_sub(1) {
            let version = &self.versions[number as usize];
            if version.address.lsn < limit {
                return Some(version.address);
            }
            older = version.older;
        }
        None
    }

    #[inline]
    fn key<'a>(&'a self, entry: &'a Entry) -> &'a [u8] {
        key_of(entry, &self.arena)
    }

    fn bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES
            + self.arena.len()
            + self.versions.len() * size_of::<Version>()
            + self.revived.len() * size_of::<u32>()
    }
}

#[inline]
fn key_of<'a>(entry: &'a Entry, arena: &'a [u8]) -> &'a [u8] {
    let len = usize::from(entry.key_len);
    if len <= PREFIX {
        &entry.prefix[..len]
    } else {
        &arena[entry.key_at as usize..][..len]
    }
}

/// A hash table from key to address, in shards.
pub(crate) struct Chunk {
    shards: Box<[RwLock<Shard>]>,
    /// Bytes that a shard may use.
    share: usize,
    /// Every record of this chunk has this log address or a higher one.
    start: Lsn,
    /// The keys in order, for scans.
    pub(super) ordered: Mutex<Ordered>,
    pub(super) order_bytes: AtomicUsize,
    /// Dead keys that scans have passed over since they were last dropped from the order.
    pub(super) passed: AtomicUsize,
}

/// The first eight bytes of a key, zero-padded.
#[inline]
fn prefix_of(key: &[u8]) -> [u8; PREFIX] {
    let mut bytes = [0; PREFIX];
    let len = key.len().min(PREFIX);
    bytes[..len].copy_from_slice(&key[..len]);
    bytes
}

/// The hash's part that chooses the shard. The table uses the lowest and the seven highest bits.
#[inline]
fn shard_of(hash: u64) -> usize {
    (hash >> 48) as usize % SHARDS
}

impl Chunk {
    /// An empty chunk for records from `start` on that is full at `bytes` bytes. With `ready`, its memory is
    /// allocated and touched now.
    pub(crate) fn new(bytes: usize, start: Lsn, ready: bool) -> Self {
        let share = bytes / SHARDS;
        let shard = || {
            let mut shard = Shard::default();
            if ready {
                // Some room above the share: the key that fills it must fit as well.
                let entries = share / ENTRY_BYTES + share / ENTRY_BYTES / 16 + 16;
                shard.table = HashTable::with_capacity(entries);
                shard.entries = touched(
                    entries,
                    Entry {
                        prefix: [0; PREFIX],
                        lsn: 0,
                        key_at: 0,
                        len: 0,
                        older: 0,
                        key_len: 0,
                        form: Form::Tombstone,
                        ordered: true,
                    },
                );
                shard.arena = touched(share / 4, 0);
            }
            RwLock::new(shard)
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            share,
            start,
            ordered: Mutex::default(),
            order_bytes: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
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

    /// Sets the key's address, in place of one that is older. If that lies below `keep_below`, an open snapshot may see it, and it
    /// is kept. True if the chunk is full then.
    ///
    /// `hash` must be the same function of the key for the whole life of the store.
    #[inline]
    pub(crate) fn insert(
        &self,
        hash: u64,
        key: &[u8],
        address: Address,
        keep_below: Lsn,
        rehash: impl Fn(&[u8]) -> u64,
    ) -> bool {
        let prefix = prefix_of(key);
        let same_key = |entry: &Entry, arena: &[u8]| {
            entry.prefix == prefix
                && usize::from(entry.key_len) == key.len()
                && (key.len() <= PREFIX || key_of(entry, arena) == key)
        };
        let mut guard = self.shards[shard_of(hash)].write();
        let shard = &mut *guard;
        let Shard {
            table,
            entries,
            arena,
            versions,
            revived,
        } = shard;
        let same = |&number: &u32| same_key(&entries[number as usize], arena);
        let hash_of = |&number: &u32| rehash(key_of(&entries[number as usize], arena));
        match table.entry(hash, same, hash_of) {
            Slot::Occupied(slot) => {
                let number = *slot.get();
                let entry = &mut entries[number as usize];
                if entry.lsn < keep_below {
                    versions.push(Version {
                        address: entry.address(),
                        older: entry.older,
                    });
                    entry.older = u32::try_from(versions.len()).unwrap_or(u32::MAX);
                }
                if !entry.ordered && address.form != Form::Tombstone {
                    entry.ordered = true;
                    revived.push(number);
                }
                entry.lsn = address.lsn;
                entry.len = address.len;
                entry.form = address.form;
            }
            Slot::Vacant(slot) => {
                slot.insert(u32::try_from(entries.len()).unwrap_or(u32::MAX));
                let key_at = u32::try_from(arena.len()).unwrap_or(u32::MAX);
                if key.len() > PREFIX {
                    arena.extend_from_slice(key);
                }
                entries.push(Entry {
                    prefix,
                    lsn: address.lsn,
                    key_at,
                    len: address.len,
                    older: 0,
                    key_len: u16::try_from(key.len()).unwrap_or(u16::MAX),
                    form: address.form,
                    ordered: true,
                });
            }
        }
        shard.bytes() >= self.share
    }

    /// How full the chunk is, judged by one shard: 1 is full.
    pub(crate) fn fullness(&self) -> f64 {
        self.shards[0].read().bytes() as f64 / self.share as f64
    }

    /// The key's address, a tombstone's included.
    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &[u8]) -> Option<Address> {
        let shard = self.shards[shard_of(hash)].read();
        let number = shard.table.find(hash, |&number| {
            shard.key(&shard.entries[number as usize]) == key
        })?;
        Some(shard.entries[*number as usize].address())
    }

    /// The key's newest address below `limit`, a tombstone's included: what a snapshot sees here.
    pub(crate) fn get_below(&self, hash: u64, key: &[u8], limit: Lsn) -> Option<Address> {
        let shard = self.shards[shard_of(hash)].read();
        let number = shard.table.find(hash, |&number| {
            shard.key(&shard.entries[number as usize]) == key
        })?;
        shard.below(&shard.entries[*number as usize], limit)
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.read().entries.len())
            .sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shards
            .iter()
            .all(|shard| shard.read().entries.is_empty())
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        let shards = self.shards.iter();
        self.order_bytes.load(Relaxed) + shards.map(|shard| shard.read().bytes()).sum::<usize>()
    }

    /// All of a frozen chunk, in key order.
    pub(crate) fn read_sorted(&self) -> SortedChunk<'_> {
        let shards: Vec<_> = self.shards.iter().map(RwLock::read).collect();
        let mut order: Vec<(u64, u32)> = shards
            .iter()
            .enumerate()
            .flat_map(|(s, shard)| (0..shard.entries.len()).map(move |n| (0, place(s, n))))
            .collect();
        sort_places(&mut order, |place, use_key| {
            let (shard, number) = unplace(place);
            let shard: &Shard = &shards[shard];
            use_key(shard.key(&shard.entries[number]));
        });
        SortedChunk { shards, order }
    }

    /// Has `each` look at what the order for scans has not taken in yet of each shard, at its place, its key, and whether it is dead
    /// (deleted, and no snapshot sees an older version): entries and revived ones behind those `seen`, which become all.
    pub(super) fn each_unordered(
        &self,
        seen: &mut [(u32, u32)],
        mut each: impl FnMut(u32, &[u8], bool),
    ) {
        for (s, (shard, (entries, revived))) in self.shards.iter().zip(seen).enumerate() {
            let shard = shard.read();
            let new = *entries as usize..shard.entries.len();
            let again = &shard.revived[*revived as usize..];
            for number in new.chain(again.iter().map(|&number| number as usize)) {
                let entry = &shard.entries[number];
                each(place(s, number), shard.key(entry), entry.is_dead());
            }
            *entries = u32::try_from(shard.entries.len()).unwrap_or(u32::MAX);
            *revived = u32::try_from(shard.revived.len()).unwrap_or(u32::MAX);
        }
    }

    /// Has `use_key` look at the key of the entry at `place`.
    pub(super) fn with_key<T>(&self, place: u32, use_key: impl FnOnce(&[u8]) -> T) -> T {
        let (shard, number) = unplace(place);
        let shard = self.shards[shard].read();
        use_key(shard.key(&shard.entries[number]))
    }

    /// The key at `place` with its newest address below `limit`, a tombstone's included; `None` if it has none.
    pub(super) fn found_at(&self, place: u32, limit: Lsn) -> Option<(Vec<u8>, Address)> {
        let (shard, number) = unplace(place);
        let shard = self.shards[shard].read();
        let entry = &shard.entries[number];
        let address = shard.below(entry, limit)?;
        Some((shard.key(entry).to_vec(), address))
    }

    /// Marks the entry at `place` as one that the order for scans has no longer, and has `use_key` look at its key, if it is dead
    /// and no snapshot sees an older version. False if it is to stay, also if an ingestion holds the shard.
    pub(super) fn drop_dead(&self, place: u32, use_key: impl FnOnce(&[u8])) -> bool {
        let (shard, number) = unplace(place);
        let Some(mut shard) = self.shards[shard].try_write() else {
            return false;
        };
        let entry = &mut shard.entries[number];
        let dead = entry.is_dead();
        if dead {
            entry.ordered = false;
            use_key(shard.key(&shard.entries[number]));
        }
        dead
    }
}

/// A shard and an entry's number in it, packed.
fn place(shard: usize, number: usize) -> u32 {
    u32::try_from(number * SHARDS + shard).unwrap_or(u32::MAX)
}

fn unplace(place: u32) -> (usize, usize) {
    (place as usize % SHARDS, place as usize / SHARDS)
}

/// A frozen chunk's entries in key order, its shards locked for reading.
pub(crate) struct SortedChunk<'a> {
    shards: Vec<RwLockReadGuard<'a, Shard>>,
    order: Vec<(u64, u32)>,
}

impl SortedChunk<'_> {
    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The keys that were written to between two log addresses, in order, each with its newest address below the later one,
    /// tombstones included.
    pub(crate) fn between(&self, versions: Range<Lsn>) -> impl Iterator<Item = (&[u8], Address)> {
        self.order.iter().filter_map(move |&(_, place)| {
            let (shard, number) = unplace(place);
            let shard: &Shard = &self.shards[shard];
            let entry = &shard.entries[number];
            let address = shard.below(entry, versions.end)?;
            (address.lsn >= versions.start).then(|| (shard.key(entry), address))
        })
    }
}

/// An empty vector whose memory is allocated and was written to once, so that no page fault is left.
fn touched<T: Clone>(capacity: usize, value: T) -> Vec<T> {
    let mut memory = vec![value; capacity];
    std::hint::black_box(memory.as_mut_ptr());
    memory.clear();
    memory
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn hash(key: &[u8]) -> u64 {
        key.iter().fold(0xCBF2_9CE4_8422_2325, |hash: u64, &b| {
            (hash ^ u64::from(b))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29)
        })
    }

    fn at(lsn: u64) -> Address {
        Address {
            lsn,
            len: 64,
            form: Form::Record,
        }
    }

    fn sorted(chunk: &Chunk) -> Vec<(Vec<u8>, Address)> {
        let sorted = chunk.read_sorted();
        let all = sorted.between(0..Lsn::MAX);
        all.map(|(key, address)| (key.to_vec(), address)).collect()
    }

    #[test]
    fn a_chunk_finds_the_newest_address_of_every_key_and_sorts_them() {
        for ready in [false, true] {
            let chunk = Chunk::new(1 << 20, 0, ready);
            let mut model = BTreeMap::new();
            for i in 0..5000u64 {
                let mut key = ((i * 7919) % 3000).to_be_bytes().to_vec();
                key.truncate(1 + (i % 8) as usize);
                key.resize(key.len() + (i % 23) as usize, b'x');
                chunk.insert(hash(&key), &key, at(i), 0, hash);
                model.insert(key, at(i));
            }
            assert_eq!(chunk.len(), model.len());
            for (key, address) in &model {
                assert_eq!(chunk.get(hash(key), key), Some(*address));
            }
            assert_eq!(chunk.get(hash(b"absent"), b"absent"), None);
            assert_eq!(sorted(&chunk), model.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn keys_that_differ_by_trailing_zeros_are_different_keys() {
        let chunk = Chunk::new(1 << 20, 0, true);
        for len in 0..20u64 {
            let key = vec![0; 1 + len as usize];
            chunk.insert(hash(&key), &key, at(len), 0, hash);
        }
        let expected: Vec<_> = (0..20)
            .map(|len| (vec![0; 1 + len], at(len as u64)))
            .collect();
        assert_eq!(sorted(&chunk), expected);
    }

    #[test]
    fn what_a_snapshot_sees_is_kept_and_nothing_else() {
        let chunk = Chunk::new(1 << 20, 0, true);
        let key = b"a key longer than eight bytes";
        let put = |lsn, keep_below| {
            chunk.insert(hash(key), key, at(lsn), keep_below, hash);
        };
        let below = |limit| chunk.get_below(hash(key), key, limit).map(|a| a.lsn);
        let bytes = || chunk.shards.iter().map(|s| s.read().bytes()).sum::<usize>();
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
        assert_eq!(bytes(), before + 2 * size_of::<Version>());
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

    #[test]
    fn a_chunk_is_full_when_its_memory_is_used() {
        let chunk = Chunk::new(1 << 20, 0, true);
        let put = |i: u64| chunk.insert(hash(&i.to_le_bytes()), &i.to_le_bytes(), at(i), 0, hash);
        let keys = (0..1_000_000u64).take_while(|&i| !put(i)).count();
        let used = chunk.bytes();
        assert!(
            (700_000..=1 << 20).contains(&used),
            "{used} bytes of {keys} keys"
        );
    }
}
