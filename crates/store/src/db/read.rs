//! Reading one key.
//!
//! 1. Look the key up in the view: active chunk, frozen chunks, tables.
//! 2. Take the value from the cache, if it is kept there. Otherwise read the bytes at its address:
//!    from the pool if they are still there, else from a value-log file.
//! 3. Check the checksum and the key.
//!
//! Between 1 and 2 garbage collection may have moved the record and unlinked its file; then the
//! key has a new address, and the lookup is done again.

use super::{Store, StoreCore, Value, snapshot::SnapshotMoment, value::ValuePlace};
use crate::{
    compression::{NotUnpacked, unpack_within},
    error::StoreError,
    index::{RecordAddress, ValueForm},
    keyspace::{KeyRoom, KeyspaceCatalogue, KeyspaceId},
    log::LogTail,
    op::{KeyChange, NotAnOp, Op, op_in_batch, read_record},
};
use forebay_pool::Lsn;
use std::{io, ops::Range};

/// Lookups that find their record gone before it is called damage. Each needs a whole
/// collection to have happened in between.
pub(super) const LOOKUPS_MAX: u32 = 100;

/// The right of a read to wait for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitPolicy {
    Yes,
    No,
}

impl Store {
    /// The key's value, if there is one.
    ///
    /// # Errors
    /// [`StoreError::BadKey`] never: a key out of bounds is simply not there. I/O errors and
    /// damage.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # store.put(b"boat", b"blue")?;
    /// match store.get(b"boat")? {
    ///     Some(colour) => println!("{}", colour.escape_ascii()),
    ///     None => println!("there is no boat"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<Option<Value>, StoreError> {
        let mut room = KeyRoom::new();
        (self.shared).get(KeyspaceId::DEFAULT.stored(key.as_ref(), &mut room))
    }

    /// True if the key has a value, which is not read: it costs the look-up alone.
    ///
    /// # Errors
    /// I/O errors and damage of the index.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// assert!(store.contains_key("boat")?);
    /// store.delete("boat")?;
    /// assert!(!store.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn contains_key(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool, StoreError> {
        let mut room = KeyRoom::new();
        (self.shared).contains_key(KeyspaceId::DEFAULT.stored(key.as_ref(), &mut room))
    }

    /// The key's value, read into `buffer`, whose memory is used again: allocates nothing once it
    /// is large enough.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # store.put(b"boat", b"blue")?;
    /// let mut buffer = Vec::new();
    /// for key in [b"boat", b"ship"] {
    ///     println!("{:?}", store.get_into(key, &mut buffer)?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_into<'b>(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
        buffer: &'b mut Vec<u8>,
    ) -> Result<Option<&'b [u8]>, StoreError> {
        let mut room = KeyRoom::new();
        let key = KeyspaceId::DEFAULT.stored(key.as_ref(), &mut room);
        let range = self.shared.get_into(key, buffer)?;
        Ok(range.map(|range| &buffer[range]))
    }
}

/// Keys are as they are stored, from here on.
impl StoreCore {
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        let found = self.find(key, |address| self.value_if_there(key, address))?;
        Ok(found.filter(|value| self.is_alive(value.expiry())))
    }

    /// True of what expires then, or never, as of now.
    #[inline]
    pub(super) fn is_alive(&self, expiry: Option<u64>) -> bool {
        expiry.is_none_or(|expiry| self.options.clock.now() < expiry)
    }

    /// As [`get`](Self::get), into `buffer`; where in it the value is.
    pub(super) fn get_into(
        &self,
        key: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Range<usize>>, StoreError> {
        let found = self.find(key, |address| match self.values.get(address.lsn) {
            None => self.read_into(key, address, buffer),
            Some(kept) => {
                buffer.clear();
                buffer.extend_from_slice(&kept);
                Ok(Some(ValuePlace {
                    range: 0..kept.len(),
                    expiry: None,
                }))
            }
        })?;
        let alive = found.filter(|at| self.is_alive(at.expiry));
        Ok(alive.map(|at| at.range))
    }

    pub(super) fn contains_key(&self, key: &[u8]) -> Result<bool, StoreError> {
        if self.keyspaces().expires(key) {
            let expiry = self.find(key, |address| self.expiry_at(address))?;
            return Ok(expiry.is_some_and(|expiry| self.is_alive(expiry)));
        }
        self.check_process()?;
        let found = live(self.view.load().find(self.hash(key), key)?);
        self.check_missed(key, found)?;
        Ok(found.is_some())
    }

    /// Time at which the value at an address expires, if it does; `None` if nothing is there (any
    /// more).
    pub(super) fn expiry_at(
        &self,
        address: RecordAddress,
    ) -> Result<Option<Option<u64>>, StoreError> {
        let mut record = Vec::new();
        match self.read_log(address, &mut record, WaitPolicy::Yes)? {
            true => Ok(Some(self.op_at(&record, address)?.expiry)),
            false => Ok(None),
        }
    }

    /// Looks the key up and has `read` read at its address, again if that gives nothing.
    #[inline]
    pub(super) fn find<T>(
        &self,
        key: &[u8],
        mut read: impl FnMut(RecordAddress) -> Result<Option<T>, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        self.check_process()?;
        let hash = self.hash(key);
        let mut nowhere = None;
        for _ in 0..LOOKUPS_MAX {
            let view = self.view.load();
            let Some(address) = live(view.find(hash, key)?) else {
                self.check_missed(key, None)?;
                return Ok(None);
            };
            if let Some(found) = read(address)? {
                return Ok(Some(found));
            }
            nowhere = Some(address);
        }
        self.keyspaces().check(key)?;
        Err(nowhere.map_or_else(
            || StoreError::damaged(&self.dir, "a key is nowhere"),
            |address| self.missing(address),
        ))
    }

    /// The error for an address at which no value is found.
    pub(super) fn missing(&self, address: RecordAddress) -> StoreError {
        if let LogTail::ReadOnly(_) = self.tail {
            return self.outdated(address.lsn, "is gone, or its large value is");
        }
        let mut record = Vec::new();
        if let Ok(true) = self.read_log(address, &mut record, WaitPolicy::Yes)
            && let Ok(op) = self.op_at(&record, address)
            && let KeyChange::Large(value) = op.change
        {
            return StoreError::damaged(&self.large.path(value.id), "the file is missing");
        }
        StoreError::damaged(
            &self.dir,
            format!("log address {} is in no value-log file", address.lsn),
        )
    }

    /// The key's value as of a snapshot, whose files are all there, whether it has expired or not.
    pub(super) fn get_in(
        &self,
        moment: &SnapshotMoment,
        key: &[u8],
    ) -> Result<Option<Value>, StoreError> {
        let address = self.address_in(moment, key)?;
        address.map(|at| self.value_in(key, at)).transpose()
    }

    /// The store's keyspaces.
    #[inline]
    pub(super) fn keyspaces(&self) -> &KeyspaceCatalogue {
        self.index.keyspaces()
    }

    /// The address of the key's value as of a snapshot.
    pub(super) fn address_in(
        &self,
        moment: &SnapshotMoment,
        key: &[u8],
    ) -> Result<Option<RecordAddress>, StoreError> {
        self.check_process()?;
        let found = live(moment.find(self.hash(key), key)?);
        self.check_missed(key, found)?;
        Ok(found)
    }

    /// Refuses to say of a key that it is not there if its keyspace was dropped since the caller
    /// looked: it may have been missed.
    #[inline]
    fn check_missed(&self, key: &[u8], found: Option<RecordAddress>) -> Result<(), StoreError> {
        match found {
            None => self.keyspaces().check(key),
            Some(_) => Ok(()),
        }
    }

    /// The value at such an address, from the cache if it is there.
    pub(super) fn value_in(&self, key: &[u8], address: RecordAddress) -> Result<Value, StoreError> {
        match self.kept(address) {
            None => self.value_at(key, address),
            Some(kept) => Ok(kept),
        }
    }

    /// True if the key has a value as of a snapshot that was taken at `time`.
    pub(super) fn contains_in(
        &self,
        moment: &SnapshotMoment,
        key: &[u8],
        time: u64,
    ) -> Result<bool, StoreError> {
        match self.address_in(moment, key)? {
            None => Ok(false),
            Some(address) => self.is_alive_at(key, address, time),
        }
    }

    /// True if the value at an address that a snapshot keeps readable has not expired by `time`.
    pub(super) fn is_alive_at(
        &self,
        key: &[u8],
        address: RecordAddress,
        time: u64,
    ) -> Result<bool, StoreError> {
        if !self.keyspaces().expires(key) {
            return Ok(true);
        }
        let expiry = self.expiry_at(address)?;
        let expiry = expiry.ok_or_else(|| self.missing_of(key, address))?;
        Ok(expiry.is_none_or(|expiry| time < expiry))
    }

    /// As [`missing`](Self::missing); or that the key's keyspace was dropped.
    fn missing_of(&self, key: &[u8], address: RecordAddress) -> StoreError {
        match self.keyspaces().check(key) {
            Err(dropped) => dropped,
            Ok(()) => self.missing(address),
        }
    }

    /// The same as [`get_in`](Self::get_in), from where it lies.
    pub(super) fn read_in(
        &self,
        moment: &SnapshotMoment,
        key: &[u8],
    ) -> Result<Option<Value>, StoreError> {
        let address = live(moment.find(self.hash(key), key)?);
        address
            .map(|address| self.value_at(key, address))
            .transpose()
    }

    /// Reads the value of `key` at an address that a snapshot keeps readable.
    pub(super) fn value_at(&self, key: &[u8], address: RecordAddress) -> Result<Value, StoreError> {
        self.read(key, address)?
            .ok_or_else(|| self.missing_of(key, address))
    }

    /// The value at an address, from the cache if it is there. `None` if it is nowhere (any more).
    #[inline]
    pub(super) fn value_if_there(
        &self,
        key: &[u8],
        address: RecordAddress,
    ) -> Result<Option<Value>, StoreError> {
        match self.kept(address) {
            None => self.read(key, address),
            kept => Ok(kept),
        }
    }

    /// The value at an address, if it is in the cache.
    #[inline]
    fn kept(&self, address: RecordAddress) -> Option<Value> {
        let kept = self.values.get(address.lsn)?;
        Some(Value::kept(kept))
    }

    /// The value at an address that a snapshot keeps readable, if that takes no waiting for the
    /// device and it is no large one.
    pub(super) fn value_at_hand(
        &self,
        key: &[u8],
        address: RecordAddress,
    ) -> Result<Option<Value>, StoreError> {
        if let Some(kept) = self.kept(address) {
            return Ok(Some(kept));
        }
        let mut bytes = Vec::new();
        if !self.read_log(address, &mut bytes, WaitPolicy::No)? {
            return Ok(None);
        }
        let at = self.take_value(key, address, &mut bytes, WaitPolicy::No)?;
        Ok(at.map(|at| Value::read(bytes, at)))
    }

    /// Reads the value at `address`. `None` if no file holds the address (any more).
    fn read(&self, key: &[u8], address: RecordAddress) -> Result<Option<Value>, StoreError> {
        let mut bytes = Vec::new();
        let at = self.read_into(key, address, &mut bytes)?;
        Ok(at.map(|at| Value::read(bytes, at)))
    }

    /// The same, into `buffer`; where in it the value is.
    fn read_into(
        &self,
        key: &[u8],
        address: RecordAddress,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<ValuePlace>, StoreError> {
        if !self.read_log(address, buffer, WaitPolicy::Yes)? {
            return Ok(None);
        }
        self.take_value(key, address, buffer, WaitPolicy::Yes)
    }

    /// Checks the bytes in `buffer`, which were read at `address`; where in them the value is. A
    /// large value is read in their place. `None` if its file is gone, or must not be waited for.
    fn take_value(
        &self,
        key: &[u8],
        address: RecordAddress,
        buffer: &mut Vec<u8>,
        wait: WaitPolicy,
    ) -> Result<Option<ValuePlace>, StoreError> {
        let op = self.op_at(buffer, address)?;
        if op.key != key {
            return Err(self.unreadable(address, "an operation on another key"));
        }
        let expiry = op.expiry;
        let at = |range| Ok(Some(ValuePlace { range, expiry }));
        match op.change {
            KeyChange::Put(value) => {
                // The cache knows of no time.
                if expiry.is_none() {
                    self.values.offer(address.lsn, value);
                }
                let end = address.len as usize;
                at(end - value.len()..end)
            }
            KeyChange::Compressed(stored) => {
                let end = address.len as usize;
                let stored = end - stored.len()..end;
                unpack_within(buffer, stored, &self.dictionaries)
                    .map_err(|why| self.not_unpacked(key, address, &why))?;
                if expiry.is_none() {
                    self.values.offer(address.lsn, buffer);
                }
                at(0..buffer.len())
            }
            KeyChange::Large(_) if wait == WaitPolicy::No => Ok(None),
            KeyChange::Large(value) => {
                buffer.clear();
                match self.large.read(key, &value, buffer, &self.dictionaries) {
                    Ok(()) => at(0..buffer.len()),
                    // Collected since the lookup, as a value-log file may be.
                    Err(StoreError::Io { source, .. })
                        if source.kind() == io::ErrorKind::NotFound =>
                    {
                        Ok(None)
                    }
                    Err(e) => Err(e),
                }
            }
            KeyChange::Delete | KeyChange::DeleteRange(_) => {
                Err(self.unreadable(address, "a delete"))
            }
        }
    }

    /// Copies the bytes at `address` to `buffer`; false if they are nowhere (any more), or if they
    /// would have to be waited for and must not.
    pub(super) fn read_log(
        &self,
        address: RecordAddress,
        buffer: &mut Vec<u8>,
        wait: WaitPolicy,
    ) -> Result<bool, StoreError> {
        let bytes = address.len as usize;
        if let Some(lane) = self.tail.lane()
            && let Some(pinned) = lane.read(address.lsn, bytes)
        {
            buffer.clear();
            buffer.extend_from_slice(&pinned);
            return Ok(true);
        }
        if let LogTail::ReadOnly(tail) = &self.tail
            && let Some(copied) = tail.read(address.lsn, bytes)
        {
            buffer.clear();
            buffer.extend_from_slice(copied);
            return Ok(true);
        }
        let Some(file) = self.log.find(address.lsn) else {
            return Ok(false);
        };
        buffer.resize(bytes, 0);
        let read = match wait {
            WaitPolicy::Yes => file.read(address.lsn, buffer).map(|()| true),
            WaitPolicy::No => file.read_cached(address.lsn, buffer),
        };
        match read {
            // A later session may have cut the file.
            Err(StoreError::Damaged { .. }) if self.is_outdated() => {
                Err(self.outdated(address.lsn, "was cut off"))
            }
            // Unlinked since it was looked up, and not open.
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(false)
            }
            read => read,
        }
    }

    /// Checks and takes apart the bytes that were read at `address`.
    pub(super) fn op_at<'b>(
        &self,
        bytes: &'b [u8],
        address: RecordAddress,
    ) -> Result<Op<'b>, StoreError> {
        let op = match address.form {
            ValueForm::Record => read_record(bytes, address.lsn, self.uuid),
            ValueForm::InBatch => op_in_batch(bytes),
            ValueForm::Tombstone => Err(NotAnOp::Shape),
        };
        let op = op.map_err(|what| self.unreadable(address, what))?;
        // Where in the bytes its value is follows from their length.
        if op.bytes != address.len as usize {
            return Err(self.unreadable(address, "an operation of another length"));
        }
        Ok(op)
    }

    /// True of a reader's look, if there is a later manifest.
    pub(super) fn is_outdated(&self) -> bool {
        matches!(self.tail, LogTail::ReadOnly(_)) && !self.log.is_current()
    }

    /// To a reader: what is at `lsn` is not what it was when it looked.
    fn outdated(&self, lsn: Lsn, what: &str) -> StoreError {
        StoreError::Outdated {
            dir: self.dir.clone(),
            what: format!("the record at log address {lsn} {what}"),
        }
    }

    fn not_unpacked(&self, key: &[u8], address: RecordAddress, why: &NotUnpacked) -> StoreError {
        match why {
            NotUnpacked::Dictionary(number) => self.no_dictionary(key, address, *number),
            NotUnpacked::NotBuiltIn(algorithm) => StoreError::not_built_in(&self.dir, algorithm),
            why => self.unreadable(address, why),
        }
    }

    /// Why a value cannot be read that was compressed with that dictionary.
    fn no_dictionary(&self, key: &[u8], address: RecordAddress, number: u32) -> StoreError {
        // It goes with its keyspace.
        if let Err(dropped) = self.keyspaces().check(key) {
            return dropped;
        }
        if self.is_outdated() {
            return self.outdated(address.lsn, "needs a dictionary that is gone");
        }
        match self.dictionaries.prepare(number) {
            Err(error) => self.dictionary_error(KeyspaceId::of(key), error),
            Ok(_) => self.unreadable(address, NotUnpacked::Dictionary(number)),
        }
    }

    /// The same error, which says of which keyspace a damaged dictionary is.
    pub(super) fn dictionary_error(&self, id: KeyspaceId, error: StoreError) -> StoreError {
        match error {
            StoreError::Damaged { path, what } => {
                let of_it = self.keyspaces().name_of(id);
                StoreError::damaged(&path, format!("a dictionary of {of_it}: {what}"))
            }
            error => error,
        }
    }

    fn unreadable(&self, address: RecordAddress, found: impl std::fmt::Display) -> StoreError {
        // A later session may have cut off what was not in the pool any more.
        if self.is_outdated() {
            return self.outdated(address.lsn, "was cut off");
        }
        let file = self.log.find(address.lsn);
        let path = file.as_ref().map_or(&*self.dir, |file| &*file.path);
        StoreError::lost(path, address.lsn, found)
    }
}

/// The address, unless it is a tombstone's.
pub(super) fn live(address: Option<RecordAddress>) -> Option<RecordAddress> {
    address.filter(|address| address.form != ValueForm::Tombstone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Durability, StoreOptions,
        log::RoomClaim,
        op::{COMPRESSED, KIND_PUT},
    };

    /// Promise (store): A compressed value that cannot be decompressed is reported with its log
    /// address, by every read that meets it, and costs no other value.
    #[test]
    fn a_corrupt_frame_is_reported_with_its_log_address() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().durability(Durability::NoSync);
        let store = options.open(dir.path().join("store"), None).unwrap();
        store.put("a whole one", "value").unwrap();
        // Each with the checksum that its record has to have.
        let bodies: [&[u8]; 7] = [
            b"",
            &[9, 0, 0, 0],
            &[9, 0, 0, 0, 1, 0xFF, 1, 2],
            &[9, 0, 0, 0, 2, 0xFF, 1, 2],
            &[9, 0, 0, 0, 77, 1, 2, 3],
            &[0, 0, 0, 0x40, 1, 1, 2, 3],
            &[0xFF, 0xFF, 0xFF, 0xFF, 2, 1, 2, 3],
        ];
        let kind = KIND_PUT | COMPRESSED;
        for (i, body) in bodies.iter().enumerate() {
            let key = [b'k', i as u8];
            let shared = &store.shared;
            let form = ValueForm::Record;
            let written = shared.write_one(RoomClaim::Put, kind, &key, body, form, || true);
            let said = store.get(&key).err().unwrap().to_string();
            let place = format!("log address {}", written.unwrap().unwrap());
            assert!(said.contains(&place) && said.contains("damaged"), "{said}");
            assert!(store.get_into(&key, &mut Vec::new()).is_err());
            assert!(store.update(&key, |_| None).is_err());
            assert!(store.prefix(key).unwrap().next().unwrap().is_err());
        }
        assert_eq!(store.verify().unwrap().problems.len(), bodies.len());
        // They are copied as they are, and go when they are overwritten.
        store.gc().unwrap();
        assert_eq!(*store.get("a whole one").unwrap().unwrap(), *b"value");
        store.put(b"k\0", "new").unwrap();
        assert_eq!(*store.get(b"k\0").unwrap().unwrap(), *b"new");
    }

    #[test]
    fn an_address_of_another_length_than_its_record_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().durability(Durability::NoSync);
        let store = options.open(dir.path().join("store"), None).unwrap();
        store.put(b"key", &[7; 100]).unwrap();
        store.put(b"next", &[8; 100]).unwrap();
        let shared = &*store.shared;
        let view = shared.view.load();
        let address = view.find(shared.hash(b"key"), b"key").unwrap().unwrap();
        assert_eq!(*shared.value_at(b"key", address).unwrap(), [7; 100]);
        for len in [address.len - 1, address.len + 1, address.len + 50] {
            let found = shared.value_at(b"key", RecordAddress { len, ..address });
            assert!(matches!(found, Err(StoreError::Damaged { .. })), "{len}");
        }
        // Nor is one that no log reaches anywhere.
        let lsn = u64::MAX - 10;
        assert!(
            shared
                .value_at(b"key", RecordAddress { lsn, ..address })
                .is_err()
        );
    }
}
