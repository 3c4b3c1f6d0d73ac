//! [`Chunk`]: a sharded hash table of keys and addresses, sorted once it is frozen.
//!
//! A key's shard is taken from its hash, so keys spread evenly, each shard has a 64th of the
//! chunk's memory, and a shard that has used its part up tells that the chunk is full. All memory is
//! allocated and touched when the chunk is made, off the writers' path; inserting allocates nothing until then.
//!
//! Lock order: at most one shard's lock is held at a time, except by [`Chunk::read`], which
//! takes all in order for reading; a frozen chunk has no writers.

use crate::index::{Address, Form};
use forebay_pool::Lsn;
use hashbrown::{HashTable, hash_table::Entry as Slot};
use parking_lot::{RwLock, RwLockReadGuard};
use std::{cmp::Ordering, sync::OnceLock};

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
    key_len: u16,
    form: Form,
}

const _: () = assert!(size_of::<Entry>() == 32);

impl Entry {
    fn address(&self) -> Address {
        Address {
            lsn: self.lsn,
            len: self.len,
            form: self.form,
        }
    }
}

/// A 64th of a chunk.
#[derive(Default)]
struct Shard {
    table: HashTable<u32>,
    entries: Vec<Entry>,
    arena: Vec<u8>,
}

impl Shard {
    #[inline]
    fn key<'a>(&'a self, entry: &'a Entry) -> &'a [u8] {
        key_of(entry, &self.arena)
    }

    fn bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES + self.arena.len()
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

/// A sorted order of a frozen chunk: prefix, shard and number of each entry.
type Order = Box<[(u64, u32)]>;

/// A hash table from key to address, in shards.
pub(crate) struct Chunk {
    shards: Box<[RwLock<Shard>]>,
    /// Bytes that a shard may use.
    share: usize,
    /// Every record of this chunk has this log address or a higher one.
    start: Lsn,
    order: OnceLock<Order>,
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
                        key_len: 0,
                        form: Form::Tombstone,
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
            order: OnceLock::new(),
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

    /// Sets the key's address. True if the chunk is full then.
    ///
    /// `hash` must be the same function of the key for the whole life of the store.
    #[inline]
    pub(crate) fn insert(
        &self,
        hash: u64,
        key: &[u8],
        address: Address,
        rehash: impl Fn(&[u8]) -> u64,
    ) -> bool {
        debug_assert!(self.order.get().is_none(), "a frozen chunk is not written");
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
        } = shard;
        let same = |&number: &u32| same_key(&entries[number as usize], arena);
        let hash_of = |&number: &u32| rehash(key_of(&entries[number as usize], arena));
        match table.entry(hash, same, hash_of) {
            Slot::Occupied(slot) => {
                let entry = &mut entries[*slot.get() as usize];
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
                    key_len: u16::try_from(key.len()).unwrap_or(u16::MAX),
                    form: address.form,
                });
            }
        }
        shard.bytes() >= self.share
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
        let order = self.order.get().map_or(0, |order| size_of_val(&**order));
        order
            + self
                .shards
                .iter()
                .map(|shard| shard.read().bytes())
                .sum::<usize>()
    }

    /// Sorts a frozen chunk, once; costs nothing the next time.
    pub(crate) fn sort(&self) {
        self.order.get_or_init(|| self.read().sorted());
    }

    /// All of a frozen chunk, sorted, for many accesses.
    pub(crate) fn read(&self) -> ChunkRead<'_> {
        ChunkRead {
            chunk: self,
            shards: self.shards.iter().map(RwLock::read).collect(),
        }
    }

    /// As [`read`](Self::read), sorted first.
    pub(crate) fn read_sorted(&self) -> ChunkRead<'_> {
        self.sort();
        self.read()
    }

    /// The key and address that stand at `position` in key order of a sorted chunk.
    pub(crate) fn nth(&self, position: usize) -> Option<(Vec<u8>, Address)> {
        let &(_, place) = self.order.get()?.get(position)?;
        let (shard, number) = unplace(place);
        let shard = self.shards[shard].read();
        let entry = &shard.entries[number];
        Some((shard.key(entry).to_vec(), entry.address()))
    }

    /// The number of keys of a sorted chunk that are less than `bound`, or with `inclusive` no
    /// greater.
    pub(crate) fn keys_below(&self, bound: &[u8], inclusive: bool) -> usize {
        let Some(order) = self.order.get() else {
            return 0;
        };
        let prefix = u64::from_be_bytes(prefix_of(bound));
        // Only keys with the bound's own prefix need be looked at.
        let low = order.partition_point(|&(p, _)| p < prefix);
        let high = order.partition_point(|&(p, _)| p <= prefix);
        low + order[low..high].partition_point(|&(_, place)| {
            let (shard, number) = unplace(place);
            let shard = self.shards[shard].read();
            let key = shard.key(&shard.entries[number]);
            key < bound || (inclusive && key == bound)
        })
    }

    /// Number of entries in key order; 0 before the chunk is sorted.
    pub(crate) fn sorted_len(&self) -> usize {
        self.order.get().map_or(0, |order| order.len())
    }
}

/// A shard and an entry's number in it, packed.
fn place(shard: usize, number: usize) -> u32 {
    u32::try_from(number * SHARDS + shard).unwrap_or(u32::MAX)
}

fn unplace(place: u32) -> (usize, usize) {
    (place as usize % SHARDS, place as usize / SHARDS)
}

/// All shards of a frozen chunk, locked for reading.
pub(crate) struct ChunkRead<'a> {
    chunk: &'a Chunk,
    shards: Vec<RwLockReadGuard<'a, Shard>>,
}

impl ChunkRead<'_> {
    fn sorted(&self) -> Order {
        let mut order: Vec<(u64, u32)> = self
            .shards
            .iter()
            .enumerate()
            .flat_map(|(s, shard)| {
                shard
                    .entries
                    .iter()
                    .enumerate()
                    .map(move |(n, entry)| (u64::from_be_bytes(entry.prefix), place(s, n)))
            })
            .collect();
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| self.compare_long(a.1, b.1)));
        order.into()
    }

    /// Compares two keys whose prefixes are the same.
    fn compare_long(&self, a: u32, b: u32) -> Ordering {
        self.key_at(a).cmp(self.key_at(b))
    }

    /// Entries in key order.
    pub(crate) fn len(&self) -> usize {
        self.chunk.sorted_len()
    }

    fn key_at(&self, place: u32) -> &[u8] {
        let (shard, number) = unplace(place);
        let shard: &Shard = &self.shards[shard];
        shard.key(&shard.entries[number])
    }

    /// The key that stands at `position` in key order.
    pub(crate) fn key(&self, position: usize) -> &[u8] {
        self.key_at(self.at(position).1)
    }

    /// The prefix of the key that stands there.
    pub(crate) fn prefix(&self, position: usize) -> u64 {
        self.at(position).0
    }

    /// Its address.
    pub(crate) fn address(&self, position: usize) -> Address {
        let (shard, number) = unplace(self.at(position).1);
        self.shards[shard].entries[number].address()
    }

    fn at(&self, position: usize) -> (u64, u32) {
        self.chunk
            .order
            .get()
            .map_or((0, 0), |order| order[position])
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

    #[test]
    fn a_chunk_finds_the_newest_address_of_every_key_and_sorts_them() {
        for ready in [false, true] {
            let chunk = Chunk::new(1 << 20, 0, ready);
            let mut model = BTreeMap::new();
            for i in 0..5000u64 {
                let mut key = ((i * 7919) % 3000).to_be_bytes().to_vec();
                key.truncate(1 + (i % 8) as usize);
                key.resize(key.len() + (i % 23) as usize, b'x');
                chunk.insert(hash(&key), &key, at(i), hash);
                model.insert(key, at(i));
            }
            assert_eq!(chunk.len(), model.len());
            for (key, address) in &model {
                assert_eq!(chunk.get(hash(key), key), Some(*address));
            }
            assert_eq!(chunk.get(hash(b"absent"), b"absent"), None);
            chunk.sort();
            let sorted: Vec<_> = (0..model.len()).map(|i| chunk.nth(i).unwrap()).collect();
            assert_eq!(sorted, model.into_iter().collect::<Vec<_>>());
            assert_eq!(chunk.nth(sorted.len()), None);
        }
    }

    #[test]
    fn keys_that_differ_by_trailing_zeros_are_different_keys() {
        let chunk = Chunk::new(1 << 20, 0, true);
        for len in 0..20u64 {
            let key = vec![0; 1 + len as usize];
            chunk.insert(hash(&key), &key, at(len), hash);
        }
        chunk.sort();
        for len in 0..20usize {
            assert_eq!(chunk.nth(len).unwrap(), (vec![0; 1 + len], at(len as u64)));
        }
        assert_eq!(chunk.keys_below(&[0; 5], false), 4);
        assert_eq!(chunk.keys_below(&[0; 5], true), 5);
    }

    #[test]
    fn a_chunk_is_full_when_its_memory_is_used() {
        let chunk = Chunk::new(1 << 20, 0, true);
        let keys = (0..1_000_000u64)
            .take_while(|i| !chunk.insert(hash(&i.to_le_bytes()), &i.to_le_bytes(), at(*i), hash))
            .count();
        let used = chunk.bytes();
        assert!(
            (700_000..=1 << 20).contains(&used),
            "{used} bytes of {keys} keys"
        );
    }
}
