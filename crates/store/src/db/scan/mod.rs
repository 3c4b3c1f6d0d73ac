//! [`Scan`]: a range of keys, in order, with their values. docs/store-format.md, "Snapshots and scans".
//!
//! A merge over the snapshot's chunks and tables gives keys and addresses (`keys`, of the `source`s
//! that have any of the `range`). Between two batches a scan holds no chunk: if its snapshot has
//! left one for the tables meanwhile, it goes on behind its last key in those. Keys are collected
//! some ahead of the caller; a value is read when its turn comes, so that a scan which ends early
//! has read none in vain. The first value that is neither in the pool, nor in a cache, nor in the
//! page cache has the kernel asked for all such values of its batch. So these are read together, in
//! parallel. The batch grows as the scan goes on, so that a short scan does not pay for a long one.

mod keys;
mod source;

use super::{Snapshot, Store, Value, range::ScanRange};
use crate::{
    error::StoreError,
    index::{IndexEntry, RecordAddress},
    keyspace::user_key,
};
use keys::Keys;
use std::{collections::VecDeque, ops::RangeBounds};

/// Keys that are read ahead at first, and at most.
const AHEAD: (usize, usize) = (16, 128);
/// Bytes of values that are read ahead at most.
const AHEAD_BYTES: u64 = 4 << 20;

/// An iterator over keys and values, in key order. After an error it ends.
pub struct Scan {
    keys: Keys,
    /// Values may have expired when its snapshot was taken: they are passed over.
    expires: bool,
    /// Keys that are not given yet.
    ahead: VecDeque<(IndexEntry, ValuePrefetch)>,
    ahead_next: usize,
    failed: bool,
}

/// What is done about the value of a key that is not given yet.
enum ValuePrefetch {
    Nothing,
    /// The kernel was asked to read it.
    Asked,
    /// It was at hand when others were asked for.
    Read(Value),
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
    pub fn scan(&self, range: ScanRange) -> Result<Scan, StoreError> {
        self.shared().check_process()?;
        Scan::new(self.clone(), range)
    }

    /// As [`Store::range`], as of the snapshot.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<Scan, StoreError> {
        self.scan(ScanRange::new(keys))
    }

    /// As [`Store::prefix`], as of the snapshot.
    ///
    /// # Errors
    /// I/O errors and damage.
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
            keys: Keys::new(snapshot, range),
            expires,
            ahead: VecDeque::new(),
            ahead_next: AHEAD.0,
            failed: false,
        }
    }

    /// All stored keys, expired or not; their values are not read.
    pub(super) fn everything(snapshot: Snapshot) -> Self {
        Self {
            expires: false,
            ..Self::stored(snapshot, ScanRange::all().keys_only())
        }
    }

    /// Collects the next keys.
    fn read_ahead(&mut self) -> Result<(), StoreError> {
        let mut bytes = 0;
        let (_view, pins) = self.keys.pin()?;
        while self.ahead.len() < self.ahead_next && bytes < AHEAD_BYTES {
            let Some(found) = self.keys.next(&pins)? else {
                break;
            };
            bytes += u64::from(found.1.len);
            let ahead = match self.keys.only() {
                true => ValuePrefetch::Read(Value::default()),
                false => ValuePrefetch::Nothing,
            };
            self.ahead.push_back((found, ahead));
        }
        let last = self.ahead.back().map(|((key, _), _)| &key[..]);
        self.keys.end_batch(last);
        self.ahead_next = (self.ahead_next * 2).min(AHEAD.1);
        Ok(())
    }

    /// Has the value at `address`, which is not at hand, read together with those of the keys
    /// behind it that are not either.
    fn ask_with_rest(&mut self, address: RecordAddress) -> Result<(), StoreError> {
        let mut absent = vec![address];
        for (found, ahead) in &mut self.ahead {
            *ahead = match self.keys.shared().value_at_hand(&found.0, found.1)? {
                Some(value) => ValuePrefetch::Read(value),
                None => {
                    absent.push(found.1);
                    ValuePrefetch::Asked
                }
            };
        }
        if absent.len() > 1 {
            self.ask_for(absent);
        }
        Ok(())
    }

    /// Asks the kernel to read the values, neighbours in the log together.
    fn ask_for(&self, addresses: Vec<RecordAddress>) {
        let mut ranges: Vec<(u64, u64)> = addresses
            .iter()
            .map(|a| (a.lsn, a.lsn.saturating_add(u64::from(a.len))))
            .collect();
        ranges.sort_unstable();
        let log = &self.keys.shared().log;
        let mut ranges = ranges.into_iter().peekable();
        while let Some((start, mut end)) = ranges.next() {
            while let Some((_, next_end)) =
                ranges.next_if(|(next, _)| *next <= end.saturating_add(4096))
            {
                end = next_end.max(end);
            }
            if let Some(file) = log.find(start) {
                file.file.will_need(file.offset(start), end - start);
            }
        }
    }

    /// The next stored key and where its value is, which is not read.
    pub(super) fn next_address(&mut self) -> Result<Option<IndexEntry>, StoreError> {
        loop {
            if self.ahead.is_empty() {
                self.read_ahead()?;
            }
            match self.ahead.pop_front() {
                Some(((key, at), _)) if !self.is_there(&key, at)? => {}
                next => return Ok(next.map(|(found, _)| found)),
            }
        }
    }

    /// True if the value there has not expired.
    fn is_there(&self, key: &[u8], address: RecordAddress) -> Result<bool, StoreError> {
        match self.expires {
            false => Ok(true),
            true => {
                let snapshot = self.keys.snapshot();
                (snapshot.shared()).is_alive_at(key, address, snapshot.time())
            }
        }
    }

    /// The next stored key with its value.
    pub(super) fn next_stored(&mut self) -> Result<Option<(Vec<u8>, Value)>, StoreError> {
        if self.expires && self.keys.only() {
            let found = self.next_address()?;
            self.keys.snapshot().keyspace_id()?;
            return Ok(found.map(|(key, _)| (key, Value::default())));
        }
        loop {
            match self.next_pair()? {
                Some((_, value)) if !self.keys.snapshot().is_alive(value.expiry()) => {}
                None => {
                    // Of a keyspace that is being dropped some were missed.
                    self.keys.snapshot().keyspace_id()?;
                    return Ok(None);
                }
                next => return Ok(next),
            }
        }
    }

    fn next_pair(&mut self) -> Result<Option<(Vec<u8>, Value)>, StoreError> {
        if self.ahead.is_empty() {
            self.read_ahead()?;
        }
        let Some(((key, address), ahead)) = self.ahead.pop_front() else {
            return Ok(None);
        };
        let at_hand = match ahead {
            ValuePrefetch::Read(value) => Some(value),
            ValuePrefetch::Asked => None,
            ValuePrefetch::Nothing => {
                let at_hand = self.keys.shared().value_at_hand(&key, address)?;
                if at_hand.is_none() {
                    self.ask_with_rest(address)?;
                }
                at_hand
            }
        };
        let value = match at_hand {
            Some(value) => value,
            None => self.keys.shared().value_at(&key, address)?,
        };
        Ok(Some((key, value)))
    }
}

impl Iterator for Scan {
    type Item = Result<(Vec<u8>, Value), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let own = self.keys.shared().check_process();
        let pair = own.and_then(|()| self.next_stored());
        self.failed = pair.is_err();
        let pair = pair.map(|pair| pair.map(|(key, value)| (user_key(key), value)));
        pair.transpose()
    }
}
