//! [`Scan`]: a range of keys, in order, with their values. docs/store-format.md, "Snapshots and scans".
//!
//! A merge over the snapshot's chunks and tables gives keys and addresses (`keys`, of the `source`s
//! that have any of the `range`). Between two batches a scan holds no chunk: if its snapshot has
//! left one for the tables meanwhile, it goes on behind its last key in those. Keys are collected
//! some ahead of the caller; a value is read when its turn comes, so that a scan which ends early
//! has read none in vain. The first value that is neither in the pool, nor in a cache, nor in the
//! page cache has the kernel asked for all such values of its batch. So these are read together, in
//! parallel. The batch grows as the scan goes on, so that a short scan does not pay for a long one.
//!
//! All that is a `walk`. A scan has one for its own direction, and makes another for the opposite
//! one, of the same snapshot, when it is first asked for a pair from there. What a walk has left
//! begins at its next key: one that comes to a key which the other one has left behind has met it,
//! and everything was given, or passed over by either as expired: both see the snapshot's time.
//!
//! Within, keys and ranges are stored ones (`keyspace::stored_key`): a scan encodes what its caller
//! seeks, and decodes what it gives.

mod keys;
mod source;
mod walk;

use super::{Snapshot, Store, Value, range::ScanRange};
use crate::{
    error::StoreError,
    index::IndexEntry,
    keyspace::{KeyRoom, user_key},
};
use keys::Keys;
use std::{iter::FusedIterator, ops::RangeBounds};
use walk::ScanWalk;

/// An iterator over keys and values, in key order, from both ends. After an error it ends, until it
/// [seeks](Self::seek).
///
/// What [`next`](Iterator::next) and [`next_back`](DoubleEndedIterator::next_back) give is of one
/// moment, and each pair once: they meet. Keys are collected, and values on a disk read, some ahead
/// in either direction.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
/// for day in ["mon", "tue", "wed"] {
///     store.put(day, "fair")?;
/// }
/// let mut scan = store.range("a"..)?;
/// let (first, last) = (scan.next().unwrap()?, scan.next_back().unwrap()?);
/// assert_eq!((&first.0[..], &last.0[..]), (&b"mon"[..], &b"wed"[..]));
/// assert_eq!(scan.rev().count(), 1);
/// # Ok(())
/// # }
/// ```
pub struct Scan {
    front: ScanWalk,
    /// Once anything was asked for from there.
    back: Option<Box<ScanWalk>>,
    /// The range that it was made for, once it has sought a key.
    range: Option<ScanRange>,
    ended: bool,
}

impl Store {
    /// The keys of `range` as of now.
    ///
    /// # Errors
    /// [`StoreError::TooManySnapshots`], I/O errors and damage.
    ///
    /// ```
    /// use forebay_store::ScanRange;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # store.put(b"boat/1", b"blue")?;
    /// let last = store.scan(ScanRange::all().reversed().keys_only())?.next();
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self, range: ScanRange) -> Result<Scan, StoreError> {
        Scan::new(Snapshot::new(&self.shared)?, range)
    }

    /// The keys between two bounds as of now, in order. All keys: [`ScanRange::all`].
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// for name in ["ark", "boat", "canoe"] {
    ///     store.put(name.as_bytes(), b"blue")?;
    /// }
    /// assert_eq!(store.range("ark".."canoe")?.count(), 2);
    /// assert_eq!(store.range("boat"..)?.count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<Scan, StoreError> {
        self.scan(ScanRange::new(keys))
    }

    /// The keys that start with `prefix` as of now, in order.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # store.put(b"boat/1", b"blue")?;
    /// for pair in store.prefix("boat/")? {
    ///     let (key, value) = pair?;
    ///     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Scan, StoreError> {
        self.scan(ScanRange::prefix(prefix))
    }
}

impl Snapshot {
    /// The keys of `range` as of the snapshot.
    ///
    /// # Errors
    /// I/O errors and damage.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let before = store.snapshot()?;
    /// store.put("boat", "red")?;
    /// use forebay_store::ScanRange;
    /// let pair = before.scan(ScanRange::all())?.next().transpose()?;
    /// assert!(pair.is_some_and(|(_, colour)| colour == b"blue"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self, range: ScanRange) -> Result<Scan, StoreError> {
        self.shared().check_process()?;
        Scan::new(self.clone(), range)
    }

    /// As [`Store::range`], as of the snapshot.
    ///
    /// # Errors
    /// I/O errors and damage.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let before = store.snapshot()?;
    /// store.put("boat", "red")?;
    /// assert_eq!(before.range("a".."c")?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<Scan, StoreError> {
        self.scan(ScanRange::new(keys))
    }

    /// As [`Store::prefix`], as of the snapshot.
    ///
    /// # Errors
    /// I/O errors and damage.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let before = store.snapshot()?;
    /// store.put("boat", "red")?;
    /// assert_eq!(before.prefix("bo")?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Scan, StoreError> {
        self.scan(ScanRange::prefix(prefix))
    }
}

impl Scan {
    /// The keys of this range of the snapshot's keyspace.
    pub(super) fn new(snapshot: Snapshot, range: ScanRange) -> Result<Self, StoreError> {
        let id = snapshot.keyspace_id()?;
        Ok(Self::stored(snapshot, range.stored(id)))
    }

    /// The stored keys of this range, of whichever keyspace.
    pub(super) fn stored(snapshot: Snapshot, range: ScanRange) -> Self {
        let expires = range.may_expire() && snapshot.shared().keyspaces().ttl_least_ms().is_some();
        Self {
            front: ScanWalk::new(Keys::new(snapshot, range), expires),
            back: None,
            range: None,
            ended: false,
        }
    }

    /// All stored keys, expired or not; their values are not read.
    pub(super) fn everything(snapshot: Snapshot) -> Self {
        Self::everything_in(snapshot, ScanRange::all())
    }

    /// The same in a range.
    pub(super) fn everything_in(snapshot: Snapshot, range: ScanRange) -> Self {
        let keys = Keys::new(snapshot, range.keys_only());
        Self {
            front: ScanWalk::new(keys, false),
            back: None,
            range: None,
            ended: false,
        }
    }

    /// Goes to `key`, wherever that lies in the range and whatever was given before: what is left
    /// is the part of the range from it on, in the scan's direction. So [`next`](Iterator::next)
    /// gives the first key that is not before it (of a [reversed](ScanRange::reversed) scan: the
    /// last one that is not behind it), and [`next_back`](DoubleEndedIterator::next_back) the
    /// range's last.
    ///
    /// Nothing is read before these are called. A key that was read ahead costs a comparison of
    /// keys, any other what a new scan of the snapshot does.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # for day in ["mon", "tue", "wed"] { store.put(day, "fair")?; }
    /// let mut scan = store.range("a"..)?;
    /// for wanted in ["sun", "mon", "x"] {
    ///     scan.seek(wanted);
    ///     match scan.next().transpose()? {
    ///         Some((day, _)) => println!("{} is the first from {wanted} on", day.escape_ascii()),
    ///         None => println!("there is none"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        let (id, mut room) = (self.front.keys().keyspace_number(), KeyRoom::new());
        let key = id.stored(key.as_ref(), &mut room);
        let range = self
            .range
            .get_or_insert_with(|| self.front.keys().whole_range());
        let goes_on = !self.ended && self.back.is_none();
        if goes_on && self.front.keys().range().far() == range.far() && self.front.skip_to(key) {
            return;
        }
        let left = range.part_from(key);
        self.begin(left);
    }

    /// The same from the other end: what is left is the part of the range up to `key`, in the
    /// scan's direction. So [`next_back`](DoubleEndedIterator::next_back) gives the last key that
    /// is not behind it, and [`next`](Iterator::next) the range's first.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # for day in ["mon", "tue", "wed"] { store.put(day, "fair")?; }
    /// let mut scan = store.range("a"..)?;
    /// scan.seek_back("tuesday");
    /// assert_eq!(scan.next_back().unwrap()?.0, b"tue");
    /// assert_eq!(scan.next_back().unwrap()?.0, b"mon");
    /// # Ok(())
    /// # }
    /// ```
    pub fn seek_back(&mut self, key: impl AsRef<[u8]>) {
        let (id, mut room) = (self.front.keys().keyspace_number(), KeyRoom::new());
        let key = id.stored(key.as_ref(), &mut room);
        let range = self
            .range
            .get_or_insert_with(|| self.front.keys().whole_range());
        let left = range.part_up_to(key);
        self.begin(left);
    }

    fn begin(&mut self, left: ScanRange) {
        (self.front, self.back, self.ended) = (self.front.through(left), None, false);
    }

    /// The next stored key and where its value is, which is not read.
    pub(super) fn next_address(&mut self) -> Result<Option<IndexEntry>, StoreError> {
        self.front.next_address()
    }

    /// The next stored key with its value.
    pub(super) fn next_stored(&mut self) -> Result<Option<(Vec<u8>, Value)>, StoreError> {
        self.front.next_pair(self.back.as_deref())
    }

    /// What is given of the next stored pair, or of none.
    fn given(
        &mut self,
        stored: Result<Option<(Vec<u8>, Value)>, StoreError>,
    ) -> Option<Result<(Vec<u8>, Value), StoreError>> {
        self.ended = !matches!(stored, Ok(Some(_)));
        let pair = stored.map(|pair| pair.map(|(key, value)| (user_key(key), value)));
        pair.transpose()
    }
}

impl Iterator for Scan {
    type Item = Result<(Vec<u8>, Value), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let own = self.front.keys().shared().check_process();
        let pair = own.and_then(|()| self.next_stored());
        self.given(pair)
    }
}

impl DoubleEndedIterator for Scan {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let front = &self.front;
        let own = front.keys().shared().check_process();
        let back = (self.back).get_or_insert_with(|| Box::new(front.opposite()));
        let pair = own.and_then(|()| back.next_pair(Some(front)));
        self.given(pair)
    }
}

impl FusedIterator for Scan {}
