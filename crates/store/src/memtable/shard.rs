//! A 64th of a chunk: a hash table of keys and addresses, without a lock of its own.
//!
//! Entries are numbered as they come, and keep their number and their key. A key that fits stands
//! in its entry, others in the arena. A write that replaces what an open snapshot sees leaves the
//! older version behind ([`AddressVersion`]); without a snapshot nothing is kept.
//!
//! A *place* is a shard and an entry's number in it, packed: what the orders of a chunk are made
//! of.

use crate::index::{RecordAddress, ValueForm};
use foldhash::fast::RandomState;
use forebay_pool::Lsn;
use hashbrown::{HashTable, hash_table::Entry as Slot};
use std::hash::BuildHasher;

/// Shards of a chunk; a power of two.
pub(super) const SHARDS: usize = 64;
/// Bytes of memory that an entry takes beside its key: itself, and its part of the hash table at
/// 7/8 load.
const ENTRY_BYTES: usize = size_of::<KeyEntry>() + 8;
/// Bytes that a delete counts for, if that is more: a chunk of 64 MiB is full with 100,000. A scan
/// over what it hides in older ones passes over key by key, until it is ingested.
const DELETE_LOAD: usize = 671;
/// Bytes of memory that an older version takes.
pub(super) const VERSION_BYTES: usize = size_of::<AddressVersion>();
/// Key bytes that are kept in the entry itself.
const PREFIX: usize = 8;

/// A shard and an entry's number in it, packed.
pub(super) fn place(shard: usize, number: usize) -> u32 {
    u32::try_from(number * SHARDS + shard).unwrap_or(u32::MAX)
}

pub(super) fn unplace(place: u32) -> (usize, usize) {
    (place as usize % SHARDS, place as usize / SHARDS)
}

/// A key's entry.
#[derive(Clone, Copy)]
pub(super) struct KeyEntry {
    /// The key's first eight bytes, zero-padded; all of a short key.
    prefix: [u8; PREFIX],
    lsn: Lsn,
    /// Where the key's bytes are in the shard's arena; only those of keys longer than the prefix
    /// are.
    key_at: u32,
    len: u32,
    /// The version before, if an open snapshot may see it: its number in the shard, plus one.
    older: u32,
    key_len: u16,
    form: ValueForm,
    /// The order for scans has it, or is to take it in.
    ordered: bool,
}

const _: () = assert!(size_of::<KeyEntry>() == 32);

impl KeyEntry {
    /// Deleted, and no snapshot sees an older version.
    pub(super) fn is_dead(&self) -> bool {
        self.form == ValueForm::Tombstone && self.older == 0
    }

    pub(super) fn address(&self) -> RecordAddress {
        RecordAddress {
            lsn: self.lsn,
            len: self.len,
            form: self.form,
        }
    }
}

/// What a key's address was before, for the snapshots that see it.
#[derive(Clone, Copy)]
struct AddressVersion {
    address: RecordAddress,
    /// As [`KeyEntry::older`].
    older: u32,
}

/// A 64th of a chunk.
#[derive(Default)]
pub(super) struct Shard {
    table: HashTable<u32>,
    entries: Vec<KeyEntry>,
    arena: Vec<u8>,
    versions: Vec<AddressVersion>,
    /// Entries that are deleted.
    deletes: usize,
    /// Entries that the order for scans had dropped and that were put again since, each time.
    revived: Vec<u32>,
}

/// One key's new address.
#[derive(Clone, Copy)]
pub(super) struct Insert<'a> {
    pub(super) hash: u64,
    pub(super) key: &'a [u8],
    pub(super) address: RecordAddress,
    /// An older address stays, for snapshots, if it lies below this.
    pub(super) keep_below: Lsn,
}

impl Shard {
    /// An empty shard that is to use `share` bytes, its memory allocated and touched.
    pub(super) fn ready(share: usize) -> Self {
        // Some room above the share: the key that fills it must fit as well.
        let entries = share / ENTRY_BYTES + share / ENTRY_BYTES / 16 + 16;
        Self {
            table: HashTable::with_capacity(entries),
            entries: touched(
                entries,
                KeyEntry {
                    prefix: [0; PREFIX],
                    lsn: 0,
                    key_at: 0,
                    len: 0,
                    older: 0,
                    key_len: 0,
                    form: ValueForm::Tombstone,
                    ordered: true,
                },
            ),
            arena: touched(share / 4, 0),
            versions: Vec::new(),
            deletes: 0,
            revived: Vec::new(),
        }
    }

    /// Sets the key's address. What it was stays for snapshots if it lies below `keep_below`.
    #[inline]
    pub(super) fn insert(&mut self, insert: Insert<'_>, hasher: &RandomState) {
        let Insert {
            hash,
            key,
            address,
            keep_below,
        } = insert;
        let prefix = prefix_of(key);
        let same_key = |entry: &KeyEntry, arena: &[u8]| {
            entry.prefix == prefix
                && usize::from(entry.key_len) == key.len()
                && (key.len() <= PREFIX || key_of(entry, arena) == key)
        };
        let Self {
            table,
            entries,
            arena,
            versions,
            deletes,
            revived,
        } = self;
        *deletes += usize::from(address.form == ValueForm::Tombstone);
        let same = |&number: &u32| same_key(&entries[number as usize], arena);
        let hash_of = |&number: &u32| hasher.hash_one(key_of(&entries[number as usize], arena));
        match table.entry(hash, same, hash_of) {
            Slot::Occupied(slot) => {
                let number = *slot.get();
                let entry = &mut entries[number as usize];
                *deletes -= usize::from(entry.form == ValueForm::Tombstone);
                if entry.lsn < keep_below {
                    versions.push(AddressVersion {
                        address: entry.address(),
                        older: entry.older,
                    });
                    entry.older = u32::try_from(versions.len()).unwrap_or(u32::MAX);
                }
                if !entry.ordered && address.form != ValueForm::Tombstone {
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
                entries.push(KeyEntry {
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
    }

    /// The key's entry.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<&KeyEntry> {
        let is_key = |&number: &u32| self.key(&self.entries[number as usize]) == key;
        let number = self.table.find(hash, is_key)?;
        Some(&self.entries[*number as usize])
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entry(&self, number: usize) -> &KeyEntry {
        &self.entries[number]
    }

    /// Numbers of entries that the order for scans had dropped and that were put again since, each
    /// time.
    pub(super) fn revived(&self) -> &[u32] {
        &self.revived
    }

    /// Notes that the order for scans no longer has the entry, if that is dead; whether it is.
    pub(super) fn drop_if_dead(&mut self, number: usize) -> bool {
        let entry = &mut self.entries[number];
        if entry.is_dead() {
            entry.ordered = false;
        }
        entry.is_dead()
    }

    /// The newest address of an entry below `limit`.
    #[inline]
    pub(super) fn below(&self, entry: &KeyEntry, limit: Lsn) -> Option<RecordAddress> {
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
    pub(super) fn key<'a>(&'a self, entry: &'a KeyEntry) -> &'a [u8] {
        key_of(entry, &self.arena)
    }

    /// Number of keys that are deleted.
    pub(super) fn deletes(&self) -> usize {
        self.deletes
    }

    /// What counts for its being full: its bytes, or what its deletes weigh.
    pub(super) fn load(&self) -> usize {
        self.bytes().max(self.deletes * DELETE_LOAD)
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES
            + self.arena.len()
            + self.versions.len() * VERSION_BYTES
            + self.revived.len() * size_of::<u32>()
    }
}

#[inline]
fn key_of<'a>(entry: &'a KeyEntry, arena: &'a [u8]) -> &'a [u8] {
    let len = usize::from(entry.key_len);
    if len <= PREFIX {
        &entry.prefix[..len]
    } else {
        &arena[entry.key_at as usize..][..len]
    }
}

/// The first eight bytes of a key, zero-padded.
#[inline]
fn prefix_of(key: &[u8]) -> [u8; PREFIX] {
    let mut bytes = [0; PREFIX];
    let len = key.len().min(PREFIX);
    bytes[..len].copy_from_slice(&key[..len]);
    bytes
}

/// An empty vector whose memory is allocated and was written to once, so that no page fault is
/// left.
fn touched<T: Clone>(capacity: usize, value: T) -> Vec<T> {
    let mut memory = vec![value; capacity];
    std::hint::black_box(memory.as_mut_ptr());
    memory.clear();
    memory
}
