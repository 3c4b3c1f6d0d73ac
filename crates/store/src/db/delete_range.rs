//! Deleting a range of keys by one record. docs/store-format.md, "Deleted ranges".
//!
//! The record's log address is a version: it hides every entry of the range with a lower one. It is
//! appended with all stripes locked, so that no write is between the log and the memtable, and:
//!
//! 1. With `view_change` locked: see to it that there are not too many, and freeze the active chunk
//!    if that has many keys: a scan goes behind the range at once in what is older than it.
//! 2. Lock the keys of the batch, then all stripes; append.
//! 3. Under all of these: note it in the active chunk, from which it comes into the index; tell
//!    transactions that read any of it; and replace the view by one that has it.
//!
//! A snapshot is taken with `view_change` locked as well. So its view has those that lie below its
//! moment, and no other: it need not compare addresses.
//!
//! Who looks whether a key is as it was, and then writes, holds the key's lock, which keeps no
//! delete of a range out. So he counts those before he looks ([`StoreCore::range_deletes`]), and
//! looks again with his stripe locked if there were more (`write`): a copy of the collector brings
//! nothing back, and a swap replaces nothing that is not there any more.

use super::{Batch, Keyspace, ScanRange, Store, StoreCore, indexer::FROZEN_MAX};
use crate::{
    error::StoreError,
    keyspace::KeyspaceId,
    memtable::Chunk,
    range_tombstones::{RANGE_BYTES_MAX, RANGES_MAX, RangeTombstone, RangeTombstones},
};
use forebay_pool::Lsn;
use parking_lot::MutexGuard;
use std::sync::{
    Arc,
    atomic::Ordering::{Relaxed, Release},
};

/// A chunk with fewer keys is passed over key by key.
const FREEZE_KEYS: usize = 10_000;

impl Store {
    /// Removes all keys of a range, whether there are any or not, by one record: its cost does not
    /// grow with what is deleted. It is done as a whole or not at all, and so is it after a crash.
    /// A write of another thread comes before it, or after it.
    ///
    /// Tables of the index that have nothing else are removed at once, without being read, and
    /// value-log files are as the collector gets to them. Scans do not look at what was deleted.
    ///
    /// # Errors
    /// [`StoreError::TooManyRanges`] if there were more than 10,000 ranges with it that do not
    /// touch and are not merged away yet, or more than 1 MiB of their keys.
    /// [`StoreError::BatchTooLarge`] if the two keys at its ends do not fit into half a segment; as
    /// [`put`](Self::put).
    ///
    /// ```
    /// use forebay_store::ScanRange;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// for day in ["2025-01-30", "2025-01-31", "2025-02-01"] {
    ///     store.put(&format!("log/{day}"), "sunny")?;
    /// }
    /// store.delete_range(ScanRange::new("log/".."log/2025-02"))?;
    /// assert_eq!(store.prefix("log/")?.count(), 1);
    /// store.delete_range(ScanRange::prefix("log/"))?;
    /// assert_eq!(store.prefix("log/")?.count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range(&self, range: ScanRange) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        batch.delete_range(range)?;
        self.write(&batch)
    }
}

impl Batch {
    /// Adds a delete of all keys of a range. It removes what the batch puts there before it, and
    /// not what it puts there after it.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// ```
    /// use forebay_store::ScanRange;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # store.put("boat/old", "blue")?;
    /// let mut batch = store.batch();
    /// batch.delete_range(ScanRange::prefix("boat/"))?;
    /// batch.put("boat/new", "red")?;
    /// store.write(&batch)?; // all boats are replaced by one
    /// assert_eq!(store.prefix("boat/")?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range(&mut self, range: ScanRange) -> Result<(), StoreError> {
        self.add_range(range.stored(KeyspaceId::DEFAULT).tombstone())
    }

    /// As [`delete_range`](Self::delete_range), of keys of a keyspace.
    ///
    /// # Errors
    /// As [`put_in`](Self::put_in).
    ///
    /// ```
    /// use forebay_store::{KeyspaceOptions, ScanRange};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// let mut batch = store.batch();
    /// batch.delete_range_in(&owners, ScanRange::all())?;
    /// batch.put_in(&owners, "boat", "alice")?;
    /// store.write(&batch)?; // she is the only one
    /// assert_eq!(owners.range("".."z")?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range_in(
        &mut self,
        keyspace: &Keyspace<'_>,
        range: ScanRange,
    ) -> Result<(), StoreError> {
        let id = self.join(keyspace)?;
        self.add_range(range.stored(id).tombstone())
    }
}

impl Keyspace<'_> {
    /// As [`Store::delete_range`], of the keyspace's keys.
    ///
    /// # Errors
    /// As [`Store::delete_range`]; [`StoreError::KeyspaceDropped`].
    ///
    /// ```
    /// use forebay_store::{KeyspaceOptions, ScanRange};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// owners.put("boat", "alice")?;
    /// store.put("boat", "blue")?;
    /// owners.delete_range(ScanRange::all())?;
    /// assert!(!owners.contains_key("boat")? && store.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range(&self, range: ScanRange) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        batch.delete_range_in(self, range)?;
        self.store().write(&batch)
    }
}

/// How many ranges there would be with these, if that is too many.
fn too_many(deleted: &RangeTombstones, ranges: &[(usize, RangeTombstone)]) -> Option<usize> {
    let are_many = |len: usize, bytes: usize| len > RANGES_MAX || bytes > RANGE_BYTES_MAX;
    let bytes = (ranges.iter()).map(|(_, range)| 2 * range.bytes());
    let bytes = deleted.bytes() + bytes.sum::<usize>();
    if !are_many(deleted.len() + 2 * ranges.len(), bytes) {
        return None;
    }
    // One that takes in others makes them fewer.
    let mut next = deleted.clone();
    for (number, (_, range)) in ranges.iter().enumerate() {
        next.add(RangeTombstone {
            lsn: Lsn::MAX - (ranges.len() - number) as u64,
            ..range.clone()
        });
        // A batch may have a million, and writers wait meanwhile.
        if next.len() > deleted.len() + RANGES_MAX {
            return Some(next.len());
        }
    }
    let fewer = next.len() < deleted.len() && next.bytes() < deleted.bytes();
    (!fewer && are_many(next.len(), next.bytes())).then_some(next.len())
}

impl StoreCore {
    /// Step 1, if there are ranges.
    pub(super) fn begin_range_deletes(
        &self,
        ranges: &[(usize, RangeTombstone)],
    ) -> Result<Option<MutexGuard<'_, ()>>, StoreError> {
        if ranges.is_empty() {
            return Ok(None);
        }
        let changing = self.view_change.lock();
        let view = self.view.load_full();
        let none = RangeTombstones::default();
        let deleted = view.deleted.as_deref().unwrap_or(&none);
        if let Some(ranges) = too_many(deleted, ranges) {
            self.request_ingestion();
            return Err(StoreError::TooManyRanges { ranges });
        }
        let many = |active: &Arc<Chunk>| active.len() >= FREEZE_KEYS;
        if view.frozen.len() < FROZEN_MAX && view.active.as_ref().is_some_and(many) {
            self.freeze_active(&view);
        }
        Ok(Some(changing))
    }

    /// Step 3, of the record at `lsn`, in which they are at these `places`. If the chunk should be
    /// frozen, its start.
    pub(super) fn insert_range_deletes(
        &self,
        ranges: &[(usize, RangeTombstone)],
        places: &[usize],
        lsn: Lsn,
        active: &Chunk,
    ) -> Option<Lsn> {
        if ranges.is_empty() {
            return None;
        }
        let at_places = ranges.iter().zip(places);
        let deleted: Vec<RangeTombstone> = at_places
            .map(|((_, range), place)| RangeTombstone {
                lsn: lsn + *place as u64,
                ..range.clone()
            })
            .collect();
        let mut full = self.has_full_log(active, lsn);
        for range in &deleted {
            if self.range_watches.is_any() {
                self.range_watches.note_range(range);
            }
            full |= active.add_range_delete(range.clone());
        }
        self.view
            .store(Arc::new(self.view.load().with_deleted(deleted)));
        self.range_deletes.fetch_add(ranges.len() as u64, Release);
        full.then(|| active.start())
    }

    /// Step 3 at an opening.
    pub(super) fn replay_range_delete(&self, range: RangeTombstone) -> Option<Lsn> {
        let mut full = None;
        self.change_view(|view| {
            if let Some(active) = &view.active {
                let has_full_log = self.has_full_log(active, range.lsn);
                let is_full = active.add_range_delete(range.clone()) || has_full_log;
                full = is_full.then(|| active.start());
            }
            view.with_deleted([range])
        });
        self.range_deletes.fetch_add(1, Relaxed);
        full
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Durability, ScanRange, Store, StoreOptions, db::read::live, index::ValueForm,
        log::RoomClaim, memtable::RANGE_DELETES_MAX, op::KIND_PUT,
    };
    use forebay_pool::Lsn;
    use std::thread;

    fn store(dir: &tempfile::TempDir) -> Store {
        let options = StoreOptions::new().durability(Durability::NoSync);
        options.open(dir.path().join("store"), None).unwrap()
    }

    fn is_there(store: &Store, key: &[u8]) -> bool {
        let shared = &store.shared;
        live(shared.view.load().find(shared.hash(key), key).unwrap()).is_some()
    }

    /// Promise (store): What is written if a key is as it was, as a copy of the collector, a swap
    /// or a transaction's batch, brings back nothing of a range that is deleted beside it.
    #[test]
    fn a_write_that_looked_before_a_range_was_deleted_looks_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        for claim in [RoomClaim::FileCopy, RoomClaim::Put] {
            store.put("key", "value").unwrap();
            let mut looks = 0;
            // Under the key's lock; the range is deleted when it has found the key.
            let still = || {
                looks += 1;
                let found = is_there(&store, b"key");
                if looks == 1 {
                    assert!(found);
                    let deleted = || store.delete_range(ScanRange::prefix("k")).unwrap();
                    thread::scope(|scope| scope.spawn(deleted).join().unwrap());
                }
                found
            };
            let (shared, form) = (&store.shared, ValueForm::Record);
            let copied = shared.write_one(claim, KIND_PUT, b"key", b"value", form, still);
            assert!(copied.unwrap().is_none());
            assert_eq!(looks, 2);
            assert!(!store.contains_key("key").unwrap());
        }
    }

    #[test]
    fn a_list_is_as_long_as_what_the_tables_have_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let ranges = || {
            let view = store.shared.view.load();
            view.deleted.as_ref().map_or(0, |deleted| deleted.len())
        };
        (0..100u8).for_each(|i| store.put(&[i], "value").unwrap());
        store.shared.ingest_everything().unwrap();
        for i in (0..100).step_by(2) {
            store.delete_range(ScanRange::new([i]..[i + 1])).unwrap();
        }
        // Nothing there: known to be so with the next ingestion.
        store.delete_range(ScanRange::new([200u8]..)).unwrap();
        assert_eq!(ranges(), 51);
        store.shared.ingest_everything().unwrap();
        store
            .compact(|_| std::ops::ControlFlow::Continue(()))
            .unwrap();
        assert_eq!(ranges(), 0);
        assert_eq!(store.scan(ScanRange::all()).unwrap().count(), 50);
        assert_eq!(store.stats().index.entries, 50);
    }

    /// Promise (store): A chunk takes no more deletes of ranges than is bounded, by their number
    /// and by the log that is replayed for them, however often the same one is deleted.
    #[test]
    fn deletes_of_ranges_alone_fill_chunks() {
        let many = RANGE_DELETES_MAX as u64;
        for (log_bytes, deletes, most) in [(64 << 20, 12_000, many), (128 << 10, 4000, 3000)] {
            let dir = tempfile::tempdir().unwrap();
            let options = StoreOptions::new().durability(Durability::NoSync).gc(false);
            let options = options.chunk_log_size(log_bytes);
            let store = options.open(dir.path().join("store"), None).unwrap();
            for _ in 0..deletes {
                store.delete_range(ScanRange::prefix("tmp/")).unwrap();
            }
            let view = store.shared.view.load_full();
            let active = view.active.as_ref().unwrap();
            let ranges = active.range_deletes(&(0..Lsn::MAX)).len() as u64;
            assert!(active.start() > 0 && ranges < most, "{ranges}");
        }
    }
}
