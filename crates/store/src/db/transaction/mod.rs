//! [`Transaction`]: reads of a snapshot and writes that go into the log as one batch, if its reads
//! still hold. docs/store-format.md, "Transactions".
//!
//! Nothing is locked while it runs. Its commit (`commit`) looks again at each key and range that it
//! read. A transaction is serialisable: the outcome is that of all of them one after another, in
//! the order of their records in the log, and so is what one that writes nothing has seen. A write
//! without a transaction counts as one.
//!
//! What counts is what a key's value is: a copy of the collector is no change, and a value that was
//! changed and is as it was before is none either. Nor is it that a value has expired since the
//! transaction began, which sees those that had not, until the collector has deleted it.

mod commit;
mod detached;
mod scan;

pub(super) use commit::CommitCheck;
pub use detached::DetachedTransaction;
pub use scan::TransactionScan;

use super::{
    Keyspace, Snapshot, Store, Value,
    range::ScanRange,
    write::{Batch, bytes_in_log, check_value, range_bytes, stored_checked},
};
use crate::{
    error::StoreError,
    index::RecordAddress,
    keyspace::{KeyRoom, KeyspaceId},
    log::RoomClaim,
    range_tombstones::RangeTombstone,
};
use std::{cell::RefCell, collections::BTreeMap, ops::RangeBounds, time::Duration};

/// Times that [`Store::transaction`] runs.
const RUNS_MAX: u32 = 100;
/// After so many runs it is one of those that go one at a time.
const RUNS_TOGETHER: u32 = 4;
/// How long it waits for its turn then. A transaction within one that has its turn would wait for
/// ever.
const TURN: Duration = Duration::from_millis(100);

/// How often a commit compares its ranges while more is written to them meanwhile than is noted.
const COMPARISONS_MAX: u32 = 4;

/// What a transaction has read, and depends on.
#[derive(Default)]
struct ReadSet {
    /// Where the value of each key was, if it had one. Keys are as they are stored.
    keys: BTreeMap<Vec<u8>, Option<RecordAddress>>,
    /// What scans went through; `None` for one of which nothing was taken.
    ranges: Vec<Option<ScanRange>>,
}

/// Reads and writes that are done as one, as if nothing else happened meanwhile: serialisable.
///
/// It reads the store as of its beginning, and its own writes, which nobody else sees before its
/// [`commit`](Self::commit). That is refused if something that it read was changed meanwhile.
/// Dropped without a commit, it has done nothing. As any [`Snapshot`], it keeps space until it is
/// dropped.
///
/// [`Store::transaction`] begins one, commits it, and runs it again after a conflict.
///
/// ```
/// use forebay_store::StoreError;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
/// store.put("boat", "blue")?;
/// let mut tx = store.begin()?;
/// if tx.get("boat")?.as_deref() == Some(b"blue") {
///     tx.put("boat", "green")?;
/// }
/// store.put("boat", "red")?; // somebody else's
/// match tx.commit() {
///     Err(StoreError::Conflict { key }) => assert_eq!(key, b"boat"),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Transaction<'s> {
    store: &'s Store,
    snapshot: Snapshot,
    reads: RefCell<ReadSet>,
    /// Keys are as they are stored.
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Ranges that it deletes, before it does its writes.
    ranges: Vec<RangeTombstone>,
    /// What the writes take in the log.
    log_bytes: usize,
}

impl Store {
    /// Begins a transaction: as of now, and with nothing read and written.
    ///
    /// # Errors
    /// [`StoreError::TooManySnapshots`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let mut tx = store.begin()?;
    /// tx.put("boat", "blue")?;
    /// assert!(!store.contains_key("boat")?); // not yet
    /// tx.commit()?;
    /// assert!(store.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin(&self) -> Result<Transaction<'_>, StoreError> {
        Ok(Transaction {
            store: self,
            snapshot: self.snapshot()?,
            reads: RefCell::default(),
            writes: BTreeMap::new(),
            ranges: Vec::new(),
            log_bytes: 0,
        })
    }

    /// Runs `work` as a transaction, and commits it. After a conflict it is run again, as of then,
    /// 100 times at most: what it does beside the transaction it may do several times. So it is
    /// when a [resident](crate::StoreOptions::resident) log was full, once there is room. After an
    /// error of its own it has done nothing.
    ///
    /// # Errors
    /// That of `work`, or of [`Transaction::commit`]: [`StoreError::Conflict`] if all runs met one.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put("alice", &70u64.to_le_bytes())?;
    /// let paid = store.transaction(|tx| {
    ///     let balance = |value: Option<forebay_store::Value>| {
    ///         let bytes = value.and_then(|value| (*value).try_into().ok());
    ///         bytes.map_or(0, u64::from_le_bytes)
    ///     };
    ///     let (alice, bob) = (balance(tx.get("alice")?), balance(tx.get("bob")?));
    ///     if alice < 50 {
    ///         return Ok(false); // nothing was written
    ///     }
    ///     tx.put("alice", &(alice - 50).to_le_bytes())?;
    ///     tx.put("bob", &(bob + 50).to_le_bytes())?;
    ///     Ok(true)
    /// })?;
    /// assert!(paid);
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction<T>(
        &self,
        mut work: impl FnMut(&mut Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut turn = None;
        let mut run = 1;
        loop {
            let mut tx = self.begin()?;
            let done = work(&mut tx)?;
            match tx.commit() {
                Err(StoreError::Conflict { .. }) if run < RUNS_MAX => {}
                // What its own snapshot kept of a resident log is free now.
                Err(StoreError::Full { .. }) if run < RUNS_MAX => {
                    self.shared.wait_for_room(RoomClaim::Put)?;
                }
                committed => return committed.map(|()| done),
            }
            run += 1;
            if run > RUNS_TOGETHER && turn.is_none() {
                turn = self.shared.turn.try_lock_for(TURN);
            }
        }
    }
}

impl Transaction<'_> {
    /// The key's value: this transaction's, or that of its beginning.
    ///
    /// # Errors
    /// As [`Store::get`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let mut tx = store.begin()?;
    /// tx.put("boat", "blue")?;
    /// assert_eq!(tx.get("boat")?.as_deref(), Some(&b"blue"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<Option<Value>, StoreError> {
        let mut room = KeyRoom::new();
        self.get_stored(KeyspaceId::DEFAULT.stored(key.as_ref(), &mut room))
    }

    /// As [`get`](Self::get), of a key of a keyspace.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// store.transaction(|tx| {
    ///     if tx.get_in(&owners, "boat")?.is_none() {
    ///         tx.put_in(&owners, "boat", "alice")?;
    ///         tx.put("boat", "blue")?;
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_in(
        &self,
        keyspace: &Keyspace<'_>,
        key: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<Option<Value>, StoreError> {
        let (id, mut room) = (keyspace.id_in(self.store)?, KeyRoom::new());
        self.get_stored(id.stored(key.as_ref(), &mut room))
    }

    fn get_stored(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        if let Some(written) = self.writes.get(key) {
            return Ok(written.clone().map(Value::from_vec));
        }
        if self.deletes(key) {
            return Ok(None);
        }
        let address = self.address(key)?;
        let shared = self.snapshot.shared();
        let value = address.map(|at| shared.value_in(key, at)).transpose()?;
        Ok(value.filter(|value| self.snapshot.is_alive(value.expiry())))
    }

    /// True if the key has a value, which is not read.
    ///
    /// # Errors
    /// As [`Store::contains_key`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.transaction(|tx| match tx.contains_key("lock")? {
    ///     true => Ok(false),
    ///     false => tx.put("lock", "mine").map(|()| true),
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn contains_key(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool, StoreError> {
        let mut room = KeyRoom::new();
        self.contains_stored(KeyspaceId::DEFAULT.stored(key.as_ref(), &mut room))
    }

    /// As [`contains_key`](Self::contains_key), of a key of a keyspace.
    ///
    /// # Errors
    /// As [`Keyspace::contains_key`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// let mut tx = store.begin()?;
    /// tx.put_in(&owners, "boat", "alice")?;
    /// assert!(tx.contains_key_in(&owners, "boat")? && !tx.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn contains_key_in(
        &self,
        keyspace: &Keyspace<'_>,
        key: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<bool, StoreError> {
        let (id, mut room) = (keyspace.id_in(self.store)?, KeyRoom::new());
        self.contains_stored(id.stored(key.as_ref(), &mut room))
    }

    fn contains_stored(&self, key: &[u8]) -> Result<bool, StoreError> {
        if let Some(written) = self.writes.get(key) {
            return Ok(written.is_some());
        }
        if self.deletes(key) {
            return Ok(false);
        }
        match self.address(key)? {
            None => Ok(false),
            Some(address) => {
                let (shared, time) = (self.snapshot.shared(), self.snapshot.time());
                shared.is_alive_at(key, address, time)
            }
        }
    }

    /// True if the key is in a range that it deletes.
    fn deletes(&self, key: &[u8]) -> bool {
        self.ranges.iter().any(|range| range.contains(key))
    }

    /// Where the key's value was at the beginning. The transaction depends on that from now on.
    fn address(&self, key: &[u8]) -> Result<Option<RecordAddress>, StoreError> {
        if let Some(&address) = self.reads.borrow().keys.get(key) {
            return Ok(address);
        }
        let shared = self.snapshot.shared();
        let address = shared.address_in(self.snapshot.view(), key)?;
        self.reads.borrow_mut().keys.insert(key.to_vec(), address);
        Ok(address)
    }

    /// The keys of `range`, with this transaction's writes. It depends on the part of the range
    /// that the scan has gone through by the time it is dropped, also on what is not there.
    ///
    /// # Errors
    /// As [`Snapshot::scan`].
    ///
    /// ```
    /// use forebay_store::ScanRange;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put("doctor/alice", "on call")?;
    /// store.put("doctor/bob", "on call")?;
    /// store.transaction(|tx| {
    ///     // Two who leave at the same time: one of them is run again, and stays.
    ///     if tx.scan(ScanRange::prefix("doctor/"))?.count() > 1 {
    ///         tx.delete("doctor/alice")?;
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self, range: ScanRange) -> Result<TransactionScan<'_>, StoreError> {
        TransactionScan::new(self, self.snapshot.clone(), range)
    }

    /// As [`scan`](Self::scan), of the keys of a keyspace.
    ///
    /// # Errors
    /// As [`Keyspace::scan`].
    ///
    /// ```
    /// use forebay_store::{KeyspaceOptions, ScanRange};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// owners.put("boat", "alice")?;
    /// let mut tx = store.begin()?;
    /// tx.put_in(&owners, "canoe", "bob")?;
    /// assert_eq!(tx.scan_in(&owners, ScanRange::all())?.count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan_in(
        &self,
        keyspace: &Keyspace<'_>,
        range: ScanRange,
    ) -> Result<TransactionScan<'_>, StoreError> {
        keyspace.id_in(self.store)?;
        TransactionScan::new(self, keyspace.of(&self.snapshot), range)
    }

    /// As [`Store::range`].
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let count = store.transaction(|tx| Ok(tx.range("a".."c")?.count()))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<K: AsRef<[u8]>>(
        &self,
        keys: impl RangeBounds<K>,
    ) -> Result<TransactionScan<'_>, StoreError> {
        self.scan(ScanRange::new(keys))
    }

    /// As [`Store::prefix`].
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.transaction(|tx| {
    ///     let count = tx.prefix("boat/")?.count();
    ///     tx.put("boats", &count.to_string())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<TransactionScan<'_>, StoreError> {
        self.scan(ScanRange::prefix(prefix))
    }

    /// Sets the key's value, when it is committed.
    ///
    /// # Errors
    /// [`StoreError::BadKey`], [`StoreError::ValueTooLarge`], and [`StoreError::BatchTooLarge`] if
    /// the transaction would not fit into half a segment. Its other writes stay.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.transaction(|tx| tx.put("boat", "blue"))?;
    /// assert!(store.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(
        &mut self,
        key: &(impl AsRef<[u8]> + ?Sized),
        value: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<(), StoreError> {
        check_value(value.as_ref())?;
        self.add(KeyspaceId::DEFAULT, key.as_ref(), Some(value.as_ref()))
    }

    /// As [`put`](Self::put), of a key of a keyspace, which [`get_in`](Self::get_in) shows.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`StoreError::KeyspaceDropped`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// store.transaction(|tx| {
    ///     tx.put("boat", "blue")?;
    ///     tx.put_in(&owners, "boat", "alice")
    /// })?;
    /// assert!(store.contains_key("boat")? && owners.contains_key("boat")?);
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
        let id = keyspace.id_in(self.store)?;
        self.add(id, key.as_ref(), Some(value.as_ref()))
    }

    /// As [`delete`](Self::delete), of a key of a keyspace.
    ///
    /// # Errors
    /// As [`put_in`](Self::put_in).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// owners.put("boat", "alice")?;
    /// store.transaction(|tx| {
    ///     tx.put("boat", "for sale")?;
    ///     tx.delete_in(&owners, "boat")
    /// })?;
    /// assert!(!owners.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_in(
        &mut self,
        keyspace: &Keyspace<'_>,
        key: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<(), StoreError> {
        let id = keyspace.id_in(self.store)?;
        self.add(id, key.as_ref(), None)
    }

    /// Removes the key, when it is committed.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// store.transaction(|tx| tx.delete("boat"))?;
    /// assert!(!store.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), StoreError> {
        self.add(KeyspaceId::DEFAULT, key.as_ref(), None)
    }

    /// Removes all keys of a range, when it is committed: what is there then, and what this
    /// transaction has put there so far. It does not depend on what that is.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// ```
    /// use forebay_store::ScanRange;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put("boat/old", "blue")?;
    /// store.transaction(|tx| {
    ///     tx.delete_range(ScanRange::prefix("boat/"))?;
    ///     tx.put("boat/new", "red")?;
    ///     assert_eq!(tx.prefix("boat/")?.count(), 1);
    ///     Ok(())
    /// })?;
    /// assert!(!store.contains_key("boat/old")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range(&mut self, range: ScanRange) -> Result<(), StoreError> {
        self.add_range(KeyspaceId::DEFAULT, range)
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
    /// owners.put("boat/old", "alice")?;
    /// store.transaction(|tx| {
    ///     tx.delete_range_in(&owners, ScanRange::prefix("boat/"))?;
    ///     tx.put_in(&owners, "boat/new", "bob")
    /// })?;
    /// assert_eq!(owners.prefix("boat/")?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range_in(
        &mut self,
        keyspace: &Keyspace<'_>,
        range: ScanRange,
    ) -> Result<(), StoreError> {
        let id = keyspace.id_in(self.store)?;
        self.add_range(id, range)
    }

    fn add_range(&mut self, id: KeyspaceId, range: ScanRange) -> Result<(), StoreError> {
        let Some(range) = range.stored(id).tombstone() else {
            return Ok(());
        };
        let bytes_max = self.store.shared.tail.payload_max();
        let replaced = self.writes.iter().filter(|(key, _)| range.contains(key));
        let replaced: usize = replaced
            .map(|(key, value)| bytes_in_log(key, value.as_deref(), bytes_max))
            .sum();
        let bytes = self.log_bytes - replaced + range_bytes(&range);
        if bytes > bytes_max {
            return Err(StoreError::BatchTooLarge { bytes, bytes_max });
        }
        self.log_bytes = bytes;
        self.writes.retain(|key, _| !range.contains(key));
        self.ranges.push(range);
        Ok(())
    }

    fn add(&mut self, id: KeyspaceId, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
        let mut room = KeyRoom::new();
        let key = stored_checked(id, key, &mut room)?;
        let bytes_max = self.store.shared.tail.payload_max();
        let before = self.writes.get(key);
        let before = before.map_or(0, |value| bytes_in_log(key, value.as_deref(), bytes_max));
        let bytes = self.log_bytes - before + bytes_in_log(key, value, bytes_max);
        if bytes > bytes_max {
            return Err(StoreError::BatchTooLarge { bytes, bytes_max });
        }
        self.log_bytes = bytes;
        self.writes.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        Ok(())
    }

    /// Forgets what it was to write.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let mut tx = store.begin()?;
    /// tx.put("boat", "blue")?;
    /// tx.clear();
    /// tx.commit()?;
    /// assert!(!store.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn clear(&mut self) {
        self.writes.clear();
        self.ranges.clear();
        self.log_bytes = 0;
    }

    /// Does all that was written, as one: it is as durable then as a [`Store::write`], and visible.
    /// A transaction that has written nothing has nothing to do.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] with a key that was changed since the transaction read it, or came
    /// into a range that it read, or left one; [`StoreError::KeyspaceDropped`] if a keyspace was
    /// that it read or writes. A conflict also if other threads write to so many keys of its
    /// ranges that it cannot look at them all: more than 1,024 while a comparison goes on, four
    /// times. [`StoreError::TooManySnapshots`], and errors of reading what it has read: it is
    /// compared. [`StoreError::Full`] at once where all room of a
    /// [resident](crate::StoreOptions::resident) log is kept by snapshots, as its own: drop it, and
    /// run it again. As [`Store::write`].
    ///
    /// Nothing was done then, but as after a [`Store::put`] it may appear after a restart if the
    /// log could not be written or committed.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// use forebay_store::StoreError;
    /// store.put("boat", "blue")?;
    /// let mut tx = store.begin()?;
    /// let colour = tx.get("boat")?;
    /// store.put("boat", "red")?;
    /// tx.put("colour", &colour.unwrap_or_default())?;
    /// assert!(matches!(tx.commit(), Err(StoreError::Conflict { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit(self) -> Result<(), StoreError> {
        let shared = &self.store.shared;
        shared.check_process()?;
        if self.writes.is_empty() && self.ranges.is_empty() {
            return Ok(());
        }
        let batch = Batch::of(self.writes.into_iter().collect(), self.ranges);
        let reads = self.reads.into_inner();
        shared.wait_for_batch(&batch)?;
        let mut comparisons = 0;
        loop {
            comparisons += 1;
            let check = CommitCheck::begin(shared, &self.snapshot, &reads)?;
            match shared.write_batch(&batch, Some(&check)) {
                Err(StoreError::Conflict { .. })
                    if check.is_overrun() && comparisons < COMPARISONS_MAX => {}
                done => return done,
            }
        }
    }
}
