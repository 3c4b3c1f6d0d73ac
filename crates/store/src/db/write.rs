//! Writing: append to the log, then insert into the memtable, both under the key's lock and the
//! thread's stripe.
//!
//! 1. Slow down, if the memtable fills faster than it goes into the index (`brake`; one load tells
//!    that nothing waits).
//! 2. Compress the value, if the options say so (`compression`). Then, under both: append the
//!    record. It is durable when the append returns, but for a pool on a disk.
//! 3. Still under both: insert the key's address into the active chunk. The write is visible.
//! 4. If that filled the chunk: freeze it (`indexer`).
//! 5. With a pool on a disk: commit the log up to the record, unless the options say otherwise.
//!    Under neither: threads share a commit, and a freeze waits for none. So a write is seen before
//!    it is durable; whatever is written by one who has seen it is durable after it only.
//! 6. Keep the collector's and the drain's pace (`gc`, `brake`; one load each tells whether it
//!    concerns this write).
//!
//! What the two are for: [`locks`](super::locks).

use super::{Keyspace, OpeningNumber, Store, StoreCore, gc::KEPT_MAX, transaction::CommitCheck};
use crate::{
    KEY_BYTES_MAX, VALUE_BYTES_MAX,
    compression::Compressor,
    error::StoreError,
    index::{RecordAddress, ValueForm},
    keyspace::{KeyRoom, KeyspaceCatalogue, KeyspaceId, PutTerms},
    large_values::WrittenValue,
    log::RoomClaim,
    memtable::Chunk,
    op::{
        EXPIRES, KEY_LENGTH, KIND_BATCH, KIND_DELETE, KIND_DELETE_RANGE, LargeRef, expiring,
        expiry_room, op_bytes, push_op, put_kind, range_body,
    },
    range_tombstones::RangeTombstone,
};
use forebay_pool::{Lsn, format::record::HEADER};
use std::{
    io::IoSlice,
    sync::atomic::Ordering::{Acquire, Relaxed},
    time::Duration,
};

/// Operations that are written as one: all of them are durable and visible, or none.
///
/// [`Store::batch`] makes one that knows how much the store writes as one, and refuses what is
/// beyond that where it is added. One that was made by [`Batch::new`] is for any store, and is
/// refused by [`Store::write`].
///
/// ```
/// # fn main() -> Result<(), forebay_store::StoreError> {
/// let mut batch = forebay_store::Batch::new();
/// batch.put(b"key", b"value")?;
/// batch.delete(b"other")?;
/// assert_eq!((batch.len(), batch.bytes()), (2, 13));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Keys are as they are stored.
    ops: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Deleted ranges, each with the number of operations before it.
    pub(super) ranges: Vec<(usize, RangeTombstone)>,
    bytes: usize,
    /// What the operations take in the log, by `bytes_max`.
    log_bytes: usize,
    /// What the store takes as one record, if it is known.
    bytes_max: Option<usize>,
    /// The open store whose keyspaces it has keys of, if any, and the name of one.
    store: Option<(OpeningNumber, Box<str>)>,
}

impl Batch {
    /// No operations, for any store.
    ///
    /// ```
    /// use forebay_store::Batch;
    /// assert!(Batch::new().is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put. Of several operations on a key the last one counts.
    ///
    /// # Errors
    /// [`StoreError::BadKey`], [`StoreError::ValueTooLarge`], and in a batch of [`Store::batch`]
    /// [`StoreError::BatchTooLarge`]. It was not added then; the others are in the batch, which may
    /// be written.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let mut batch = store.batch();
    /// batch.put("boat", "blue")?;
    /// store.write(&batch)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(
        &mut self,
        key: &(impl AsRef<[u8]> + ?Sized),
        value: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<(), StoreError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        check_value(value)?;
        self.add(KeyspaceId::DEFAULT, key, Some(value))
    }

    /// Adds a delete.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let mut batch = store.batch();
    /// batch.put("ark", "brown")?;
    /// batch.delete("boat")?;
    /// store.write(&batch)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), StoreError> {
        self.add(KeyspaceId::DEFAULT, key.as_ref(), None)
    }

    /// Adds a put in a keyspace. The batch is written to its store alone.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`StoreError::BadKeyspace`] if the batch has keys of another store's
    /// keyspace.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// let mut batch = store.batch();
    /// batch.put("boat", "blue")?;
    /// batch.put_in(&owners, "boat", "alice")?;
    /// store.write(&batch)?; // both, also after a crash, or neither
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_in(
        &mut self,
        keyspace: &Keyspace<'_>,
        key: &(impl AsRef<[u8]> + ?Sized),
        value: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<(), StoreError> {
        check_value(value.as_ref())?;
        let id = self.join(keyspace)?;
        self.add(id, key.as_ref(), Some(value.as_ref()))
    }

    /// Adds a delete in a keyspace.
    ///
    /// # Errors
    /// As [`put_in`](Self::put_in).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// # let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// let mut batch = store.batch();
    /// batch.delete("boat")?;
    /// batch.delete_in(&owners, "boat")?;
    /// store.write(&batch)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_in(
        &mut self,
        keyspace: &Keyspace<'_>,
        key: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<(), StoreError> {
        let id = self.join(keyspace)?;
        self.add(id, key.as_ref(), None)
    }

    /// It is for the keyspace's store from now on.
    pub(super) fn join(&mut self, keyspace: &Keyspace<'_>) -> Result<KeyspaceId, StoreError> {
        let store = keyspace.opening();
        self.check_store(store)?;
        let id = keyspace.id()?;
        self.store
            .get_or_insert_with(|| (store, keyspace.name().into()));
        Ok(id)
    }

    /// True unless it only deletes.
    fn has_puts(&self) -> bool {
        self.ops.iter().any(|(_, value)| value.is_some())
    }

    /// Refuses it if a keyspace was dropped in which it writes.
    fn check_keyspaces(&self, keyspaces: &KeyspaceCatalogue) -> Result<(), StoreError> {
        let keys = self.ops.iter().map(|(key, _)| &key[..]);
        let ranges = self.ranges.iter().map(|(_, range)| &*range.start);
        keys.chain(ranges).try_for_each(|key| keyspaces.check(key))
    }

    /// Refuses to be another store's, if it has keys of keyspaces.
    fn check_store(&self, store: OpeningNumber) -> Result<(), StoreError> {
        match &self.store {
            Some((own, name)) if *own != store => Err(StoreError::BadKeyspace {
                name: name.to_string(),
                what: "the batch has keys of it in another store, or as that was opened before; \
                       make a batch for each store, and another one when it is opened again"
                    .to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Deletes of ranges and then these operations, for the store whose limits they keep to.
    pub(super) fn of(ops: Vec<(Vec<u8>, Option<Vec<u8>>)>, ranges: Vec<RangeTombstone>) -> Self {
        Self {
            ops,
            ranges: ranges.into_iter().map(|range| (0, range)).collect(),
            ..Self::default()
        }
    }

    /// Adds a delete of a range of stored keys, if it has any.
    pub(super) fn add_range(&mut self, range: Option<RangeTombstone>) -> Result<(), StoreError> {
        if let Some(range) = range.filter(|range| !range.is_empty()) {
            self.add_log_bytes(|_| range_bytes(&range))?;
            self.bytes += range.bytes();
            self.ranges.push((self.ops.len(), range));
        }
        Ok(())
    }

    /// Refuses what takes more in the log than the store takes as one record.
    fn add_log_bytes(&mut self, bytes_in: impl FnOnce(usize) -> usize) -> Result<(), StoreError> {
        if let Some(bytes_max) = self.bytes_max {
            let bytes = self.log_bytes + bytes_in(bytes_max);
            if bytes > bytes_max {
                return Err(StoreError::BatchTooLarge { bytes, bytes_max });
            }
            self.log_bytes = bytes;
        }
        Ok(())
    }

    fn add(&mut self, id: KeyspaceId, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
        let mut room = KeyRoom::new();
        let stored = stored_checked(id, key, &mut room)?;
        self.add_log_bytes(|bytes_max| bytes_in_log(stored, value, bytes_max))?;
        self.bytes += key.len() + value.map_or(0, <[u8]>::len);
        self.ops.push((stored.to_vec(), value.map(<[u8]>::to_vec)));
        Ok(())
    }

    /// Number of operations.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let mut batch = store.batch();
    /// batch.delete("boat")?;
    /// assert_eq!(batch.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len() + self.ranges.len()
    }

    /// True without operations.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// assert!(store.batch().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of keys and values.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let mut batch = store.batch();
    /// batch.put("boat", "blue")?;
    /// assert_eq!(batch.bytes(), 8);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes all operations; keeps the memory.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let mut batch = store.batch();
    /// for number in 0..1000u32 {
    ///     batch.put(&number.to_be_bytes(), "value")?;
    ///     if batch.len() == 100 {
    ///         store.write(&batch)?;
    ///         batch.clear();
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn clear(&mut self) {
        self.ops.clear();
        self.ranges.clear();
        (self.bytes, self.log_bytes, self.store) = (0, 0, None);
    }
}

/// True if a value gets a file of its own, where a record has `bytes_max` bytes at most.
fn is_large(key: &[u8], value: &[u8], bytes_max: usize) -> bool {
    op_bytes(key, value.len()) > bytes_max
}

/// Bytes that an operation takes in a batch's record, where that has `bytes_max` at most.
pub(super) fn bytes_in_log(key: &[u8], value: Option<&[u8]>, bytes_max: usize) -> usize {
    match value {
        Some(value) if is_large(key, value, bytes_max) => op_bytes(key, LargeRef::BYTES),
        value => op_bytes(key, value.map_or(0, <[u8]>::len)),
    }
}

/// Bytes that a delete of a range takes there.
pub(super) fn range_bytes(range: &RangeTombstone) -> usize {
    let end = range.end.as_ref().map_or(0, |end| end.len());
    op_bytes(&range.start, 1 + end)
}

fn check_key(key: &[u8]) -> Result<(), StoreError> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(StoreError::BadKey { bytes: key.len() });
    }
    Ok(())
}

/// The key as it is stored, if it is one that may be written.
#[inline]
pub(super) fn stored_checked<'k>(
    id: KeyspaceId,
    key: &'k [u8],
    room: &'k mut KeyRoom,
) -> Result<&'k [u8], StoreError> {
    check_key(key)?;
    Ok(id.stored(key, room))
}

pub(super) fn check_value(value: &[u8]) -> Result<(), StoreError> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(StoreError::ValueTooLarge { bytes: value.len() });
    }
    Ok(())
}

/// The kind and body of the record that leads to a large value.
pub(super) fn large_body(value: &LargeRef, expiry: Option<u64>) -> (u16, Vec<u8>) {
    match expiry {
        None => (value.kind(), value.encode().to_vec()),
        Some(expiry) => (value.kind() | EXPIRES, expiring(expiry, &value.encode())),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "STORED_KEY_BYTES_MAX fits")]
fn key_length(key: &[u8]) -> [u8; KEY_LENGTH] {
    (key.len() as u16).to_le_bytes()
}

/// The address of a record that holds one operation.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a record is smaller than a segment"
)]
fn record_at(lsn: Lsn, payload: usize, form: ValueForm) -> RecordAddress {
    RecordAddress {
        lsn,
        len: (HEADER + payload) as u32,
        form,
    }
}

impl Store {
    /// Sets the key's value. When this returns, the write is as durable as the options promise,
    /// and visible.
    ///
    /// # Errors
    /// [`StoreError::BadKey`], [`StoreError::ValueTooLarge`], [`StoreError::Stalled`],
    /// [`StoreError::IndexStalled`], I/O errors. The write was not done then (after an I/O error of
    /// `fsync` and `nosync`, and after [`StoreError::NotCommitted`], it may appear
    /// after a restart).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put(b"boat", b"blue")?; // durable, and visible to all threads
    /// assert_eq!(store.get(b"boat")?.as_deref(), Some(&b"blue"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
        value: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<(), StoreError> {
        let mut room = KeyRoom::new();
        let key = stored_checked(KeyspaceId::DEFAULT, key.as_ref(), &mut room)?;
        self.shared.put(key, value.as_ref())
    }

    /// Removes the key, whether it is there or not.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # store.put(b"boat", b"blue")?;
    /// store.delete(b"boat")?;
    /// assert!(store.get(b"boat")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), StoreError> {
        let mut room = KeyRoom::new();
        let key = stored_checked(KeyspaceId::DEFAULT, key.as_ref(), &mut room)?;
        self.shared.delete(key)
    }

    /// A batch without operations that knows how much this store writes as one: what would be
    /// beyond that is refused where it is added.
    ///
    /// ```
    /// use forebay_store::StoreError;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let options = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync);
    /// # let store = options.segment_size(64 << 10).open(dir.path(), None)?;
    /// let mut batch = store.batch();
    /// for number in 0..1000u32 {
    ///     let key = number.to_be_bytes();
    ///     if let Err(StoreError::BatchTooLarge { .. }) = batch.put(&key, &[7; 100]) {
    ///         store.write(&batch)?; // what is in it so far
    ///         batch.clear();
    ///         batch.put(&key, &[7; 100])?;
    ///     }
    /// }
    /// store.write(&batch)?;
    /// assert_eq!(store.scan(forebay_store::ScanRange::all())?.count(), 1000);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn batch(&self) -> Batch {
        Batch {
            bytes_max: Some(self.shared.tail.payload_max()),
            ..Batch::default()
        }
    }

    /// Writes all operations of `batch` as one.
    ///
    /// # Errors
    /// [`StoreError::BatchTooLarge`] if it does not fit into half a segment, values that alone do
    /// not fit there not counted; [`StoreError::KeyspaceDropped`]; [`StoreError::BadKeyspace`] if
    /// it has keys of another store's keyspaces; as [`put`](Self::put). Nothing of it was done
    /// then.
    ///
    /// ```
    /// use forebay_store::Batch;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let mut batch = Batch::new();
    /// batch.put(b"alice", b"70")?;
    /// batch.put(b"bob", b"130")?;
    /// store.write(&batch)?; // both, also after a crash, or neither
    /// # Ok(())
    /// # }
    /// ```
    pub fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        self.shared.check_process()?;
        if batch.is_empty() {
            return Ok(());
        }
        batch.check_store(self.shared.opening)?;
        self.shared.wait_for_batch(batch)?;
        self.shared.write_batch(batch, None)
    }
}

/// A batch's record.
struct EncodedBatch {
    kind: u16,
    payload: Vec<u8>,
    /// Where in the payload each operation on a key begins, and how long it is.
    places: Vec<(usize, usize)>,
    /// Where in the record each delete of a range begins.
    ranges: Vec<usize>,
}

/// How far the writing of a batch has come.
#[derive(Default)]
struct BatchAttempt<'s> {
    /// Its large values, which are kept from collection until it is in the memtable.
    large: Vec<WrittenValue<'s>>,
    /// Its record was appended, or that failed: what of it is in the log the error says.
    appended: bool,
}

/// Keys are as they are stored, from here on.
impl StoreCore {
    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.put_if(key, value, &|| true).map(drop)
    }

    /// Sets the key's value, if `still` says so under the key's lock; false otherwise.
    #[inline]
    pub(super) fn put_if(
        &self,
        key: &[u8],
        value: &[u8],
        still: &impl Fn() -> bool,
    ) -> Result<bool, StoreError> {
        check_value(value)?;
        self.check_process()?;
        self.check_room()?;
        self.wait_for_memtable()?;
        let terms = (self.keyspaces()).put_terms(key, || self.options.clock.now())?;
        if KEY_LENGTH + key.len() + expiry_room(key) + value.len() > self.tail.payload_max() {
            return self.put_large(key, value, &terms, still);
        }
        // Before any lock.
        self.compressor(&terms).packed(value, |compressed, stored| {
            let (kind, form) = (put_kind(compressed), ValueForm::Record);
            match terms.expiry {
                None => self.write_at_pace(kind, key, stored, form, still),
                Some(expiry) => {
                    let body = expiring(expiry, stored);
                    self.write_at_pace(kind | EXPIRES, key, &body, form, still)
                }
            }
        })
    }

    /// What a value is compressed by that is put on these terms.
    #[inline]
    fn compressor<'a>(&'a self, terms: &'a PutTerms) -> &'a Compressor {
        terms.compressor().unwrap_or(&self.compressor)
    }

    pub(super) fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        self.delete_if(key, &|| true).map(drop)
    }

    /// Removes the key, if `still` says so under the key's lock; false otherwise.
    #[inline]
    pub(super) fn delete_if(
        &self,
        key: &[u8],
        still: &impl Fn() -> bool,
    ) -> Result<bool, StoreError> {
        self.check_process()?;
        self.check_room_to_delete()?;
        self.wait_for_memtable()?;
        self.keyspaces().check(key)?;
        self.write_at_pace(KIND_DELETE, key, &[], ValueForm::Tombstone, still)
    }

    /// Steps 2 to 6 for one operation; false if it is not `still` to be done.
    #[inline]
    fn write_at_pace(
        &self,
        kind: u16,
        key: &[u8],
        body: &[u8],
        form: ValueForm,
        still: &impl Fn() -> bool,
    ) -> Result<bool, StoreError> {
        let claim = if kind == KIND_DELETE {
            RoomClaim::Delete
        } else {
            RoomClaim::Put
        };
        let write = || self.write_one(claim, kind, key, body, form, still);
        let written = match self.with_room(claim, KEPT_MAX, write) {
            Err(error) if kind == KIND_DELETE && error.wants_room() => self.delete_late(write)?,
            Err(error) => {
                self.note_no_room(&error, body.len());
                return Err(error);
            }
            Ok(written) => written,
        };
        let Some(lsn) = written else {
            return Ok(false);
        };
        self.commit_put(lsn)?;
        self.keep_pace(lsn, key.len() + body.len());
        Ok(true)
    }

    /// Step 5.
    #[inline]
    pub(super) fn commit_put(&self, lsn: Lsn) -> Result<(), StoreError> {
        match self.commits_puts {
            true => self.tail.commit(lsn),
            false => Ok(()),
        }
    }

    /// Does `write`, again and again as long as a resident log has no room for it and some is made.
    /// What something keeps is waited for as long as `kept_max`.
    #[inline]
    fn with_room<T>(
        &self,
        claim: RoomClaim,
        kept_max: Duration,
        mut write: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        loop {
            match write() {
                Err(StoreError::Full { .. }) => self.wait_for_room_kept(claim, kept_max)?,
                done => return done,
            }
        }
    }

    /// Steps 2 to 4: appends one operation and makes it visible, if `still` says so under the key's
    /// lock; its log address then. `form` is that of the new address. [`StoreError::Full`] if a
    /// resident log has no room for `claim` now.
    #[inline]
    pub(super) fn write_one(
        &self,
        claim: RoomClaim,
        kind: u16,
        key: &[u8],
        body: &[u8],
        form: ValueForm,
        mut still: impl FnMut() -> bool,
    ) -> Result<Option<Lsn>, StoreError> {
        let hash = self.hash(key);
        let length = key_length(key);
        let payload = KEY_LENGTH + key.len() + body.len();
        let (lsn, full) = {
            let _key = self.locks.key(hash).lock();
            let range_deletes = self.range_deletes.load(Acquire);
            if !still() {
                return Ok(None);
            }
            let mut writers = self.locks.stripe().lock();
            // The key's lock keeps no delete of a range out; the stripe does.
            if self.range_deletes.load(Relaxed) != range_deletes && !still() {
                return Ok(None);
            }
            // Once more: under the stripe a drop waits for who has passed. (The collector copies
            // for nobody who would be told.)
            if !claim.is_copy() {
                self.keyspaces().check(key)?;
            }
            let parts = [IoSlice::new(&length), IoSlice::new(key), IoSlice::new(body)];
            let lsn = self.tail.append(claim, kind, &parts)?;
            writers.writes += 1;
            let address = record_at(lsn, payload, form);
            let full = self.insert(claim, &writers.active, hash, key, address);
            (lsn, full)
        };
        if let Some(chunk) = full {
            self.freeze_full(chunk);
        }
        Ok(Some(lsn))
    }

    /// Step 3 of every write. If the chunk should be frozen, its start.
    #[inline]
    pub(super) fn insert(
        &self,
        claim: RoomClaim,
        active: &Chunk,
        hash: u64,
        key: &[u8],
        address: RecordAddress,
    ) -> Option<Lsn> {
        let keep_below = self.snapshots().keep_below();
        // A copy of the collector changes no value.
        if !claim.is_copy() && self.range_watches.is_any() {
            self.range_watches.note(key);
        }
        let full =
            active.insert(hash, key, address, keep_below) || self.has_full_log(active, address.lsn);
        full.then(|| active.start())
    }

    /// True if so much of the log is the chunk's, with what lies at `lsn`, that it is full.
    #[inline]
    pub(super) fn has_full_log(&self, active: &Chunk, lsn: Lsn) -> bool {
        lsn.saturating_sub(active.start()) >= self.options.chunk_log_bytes
    }

    fn put_large(
        &self,
        key: &[u8],
        value: &[u8],
        terms: &PutTerms,
        still: &impl Fn() -> bool,
    ) -> Result<bool, StoreError> {
        let (bytes, bytes_max) = (
            KEY_LENGTH + key.len() + expiry_room(key) + LargeRef::BYTES,
            self.tail.payload_max(),
        );
        if bytes > bytes_max {
            return Err(StoreError::BatchTooLarge { bytes, bytes_max });
        }
        let written = self.large.write(key, value, self.compressor(terms));
        let written = written.inspect_err(|e| self.note_lacked(e, value.len()))?;
        self.forget_lacked();
        let (kind, reference) = large_body(&written.value, terms.expiry);
        let done = self.write_at_pace(kind, key, &reference, ValueForm::Record, still);
        let in_vain = match &done {
            Ok(done) => !done,
            Err(error) => error.nothing_logged(),
        };
        if in_vain {
            written.discard();
        }
        done
    }

    /// Step 1 for a batch.
    pub(super) fn wait_for_batch(&self, batch: &Batch) -> Result<(), StoreError> {
        if batch.has_puts() {
            self.check_room()?;
        } else {
            self.check_room_to_delete()?;
        }
        self.wait_for_memtable()
    }

    /// Steps 2 to 6 for a batch, if it is a transaction's after its `check`.
    pub(super) fn write_batch(
        &self,
        batch: &Batch,
        check: Option<&CommitCheck<'_>>,
    ) -> Result<(), StoreError> {
        let mut attempt = BatchAttempt::default();
        let done = self.log_batch(batch, check, &mut attempt);
        let BatchAttempt { large, appended } = attempt;
        if (done.as_ref()).is_err_and(|error| !appended || error.nothing_logged()) {
            large.into_iter().for_each(WrittenValue::discard);
        }
        done
    }

    /// A batch's record, and where in it its operations are. Its large values, which are kept from
    /// collection as long as they are in `large`, go to files of their own.
    fn encode_batch<'s>(
        &'s self,
        batch: &Batch,
        large: &mut Vec<WrittenValue<'s>>,
    ) -> Result<EncodedBatch, StoreError> {
        // A value too large for the log goes to a file of its own first, so that only its reference
        // must fit.
        let bytes_max = self.tail.payload_max();
        let ops =
            (batch.ops.iter()).map(|(key, value)| bytes_in_log(key, value.as_deref(), bytes_max));
        let ranges = batch.ranges.iter().map(|(_, range)| range_bytes(range));
        let bytes = ops.chain(ranges).sum();
        if bytes > bytes_max {
            return Err(StoreError::BatchTooLarge { bytes, bytes_max });
        }
        let mut payload = Vec::with_capacity(bytes);
        if let ([], [(_, range)]) = (&batch.ops[..], &batch.ranges[..]) {
            let body = range_body(range.end.as_deref());
            let payload = [&key_length(&range.start)[..], &range.start, &body].concat();
            return Ok(EncodedBatch {
                kind: KIND_DELETE_RANGE,
                payload,
                places: Vec::new(),
                ranges: vec![0],
            });
        }
        let mut places = Vec::with_capacity(batch.len());
        let mut range_places = Vec::new();
        let mut push_range = |payload: &mut Vec<u8>, range: &RangeTombstone| {
            let body = range_body(range.end.as_deref());
            let (at, _) = push_op(payload, KIND_DELETE_RANGE, &range.start, &body);
            range_places.push(HEADER + at);
        };
        let mut ranges = batch.ranges.iter().peekable();
        for (number, (key, value)) in batch.ops.iter().enumerate() {
            while let Some((_, range)) = ranges.next_if(|(before, _)| *before <= number) {
                push_range(&mut payload, range);
            }
            let place = match value {
                None => {
                    self.keyspaces().check(key)?;
                    push_op(&mut payload, KIND_DELETE, key, &[])
                }
                Some(value) => self.push_put(&mut payload, key, value, large)?,
            };
            places.push(place);
        }
        for (_, range) in ranges {
            push_range(&mut payload, range);
        }
        Ok(EncodedBatch {
            kind: KIND_BATCH,
            payload,
            places,
            ranges: range_places,
        })
    }

    /// Appends a put to a batch's payload; where it is there. A value that is too large for the log
    /// goes to a file of its own, and to `large`.
    fn push_put<'s>(
        &'s self,
        payload: &mut Vec<u8>,
        key: &[u8],
        value: &[u8],
        large: &mut Vec<WrittenValue<'s>>,
    ) -> Result<(usize, usize), StoreError> {
        let terms = (self.keyspaces()).put_terms(key, || self.options.clock.now())?;
        if is_large(key, value, self.tail.payload_max()) {
            let written = self.large.write(key, value, self.compressor(&terms));
            let written = written.inspect_err(|e| self.note_lacked(e, value.len()))?;
            let (kind, reference) = large_body(&written.value, terms.expiry);
            large.push(written);
            return Ok(push_op(payload, kind, key, &reference));
        }
        Ok(self.compressor(&terms).packed(value, |compressed, stored| {
            let kind = put_kind(compressed);
            match terms.expiry {
                None => push_op(payload, kind, key, stored),
                Some(expiry) => push_op(payload, kind | EXPIRES, key, &expiring(expiry, stored)),
            }
        }))
    }

    /// Writes a batch, and notes in `attempt` how far that came.
    fn log_batch<'s>(
        &'s self,
        batch: &Batch,
        check: Option<&CommitCheck<'_>>,
        attempt: &mut BatchAttempt<'s>,
    ) -> Result<(), StoreError> {
        let encoded = self.encode_batch(batch, &mut attempt.large)?;
        let payload = &encoded.payload;
        // What is no put may use what is kept for deletes.
        let claim = match batch.ops.is_empty() {
            true => RoomClaim::Delete,
            false => RoomClaim::Put,
        };
        let hashes: Vec<u64> = batch.ops.iter().map(|(key, _)| self.hash(key)).collect();
        let mut append = || {
            attempt.appended = false;
            check.map_or(Ok(()), |check| check.catch_up(self))?;
            let changing = self.begin_range_deletes(&batch.ranges)?;
            let read = check.into_iter().flat_map(CommitCheck::hashes);
            let keys = self.locks.lock_keys(hashes.iter().copied().chain(read));
            let range_deletes = self.range_deletes.load(Acquire);
            check.map_or(Ok(()), |check| check.keys_are_as_read(self))?;
            let all = changing.is_some() || check.is_some_and(CommitCheck::has_ranges);
            let writers = self.locks.hold(all);
            batch.check_keyspaces(self.keyspaces())?;
            check.map_or(Ok(()), |check| check.keyspaces_are_there(self))?;
            if self.range_deletes.load(Relaxed) != range_deletes {
                check.map_or(Ok(()), |check| check.keys_are_as_read(self))?;
            }
            check.map_or(Ok(()), |check| check.ranges_are_as_read(self))?;
            let parts = [IoSlice::new(payload)];
            attempt.appended = true;
            let lsn = self.tail.append(claim, encoded.kind, &parts)?;
            Ok((lsn, writers, keys, changing))
        };
        // A transaction's own snapshot may keep all that could be given back.
        let kept_max = check.map_or(KEPT_MAX, |_| Duration::ZERO);
        let appended = match self.with_room(claim, kept_max, &mut append) {
            Err(error) if !batch.has_puts() && error.wants_room() => self.delete_late(append),
            appended => appended,
        };
        let appended = appended.inspect_err(|error| self.note_no_room(error, payload.len()));
        let (lsn, mut writers, keys, changing) = appended?;
        writers.writes += batch.len() as u64;
        let mut full = None;
        for (((key, value), hash), (at, bytes)) in batch.ops.iter().zip(hashes).zip(encoded.places)
        {
            let address = RecordAddress {
                lsn: lsn + (HEADER + at) as u64,
                len: u32::try_from(bytes).unwrap_or(u32::MAX),
                form: if value.is_some() {
                    ValueForm::InBatch
                } else {
                    ValueForm::Tombstone
                },
            };
            let inserted = self.insert(RoomClaim::Put, &writers.active, hash, key, address);
            full = inserted.or(full);
        }
        let (ranges, active) = (&encoded.ranges, &writers.active);
        full = (self.insert_range_deletes(&batch.ranges, ranges, lsn, active)).or(full);
        drop((writers, keys, changing));
        if let Some(chunk) = full {
            self.freeze_full(chunk);
        }
        self.commit_put(lsn)?;
        self.keep_pace(lsn, encoded.payload.len());
        Ok(())
    }
}
