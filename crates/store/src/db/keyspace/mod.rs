//! [`Keyspace`]: a store's keys of one keyspace. Making and dropping one: `change`.

mod change;

use super::{OpeningNumber, Scan, ScanRange, Snapshot, Store, Value, write::stored_checked};
use crate::{
    compression::Compression,
    error::StoreError,
    keyspace::{KeyRoom, KeyspaceId, KeyspaceInfo, LiveKeyspace},
    stats::CompressionStats,
};
use std::{ops::RangeBounds, sync::Arc, time::Duration};

/// Keys of their own within a store: those of one keyspace are never seen in another, nor by the
/// [`Store`]'s own methods, which are of the default keyspace.
///
/// All keyspaces share the store's log, its files and its threads: one more costs nothing but its
/// name, and 6 bytes for each key. A [batch](crate::Batch::put_in) and a
/// [transaction](crate::Transaction::put_in) may have keys of several, and are written as one. What
/// is in one is given back at once when it is [dropped](Store::drop_keyspace).
///
/// ```
/// use forebay_store::KeyspaceOptions;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
/// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
/// store.put("boat", "blue")?;
/// owners.put("boat", "alice")?;
/// assert_eq!(store.get("boat")?.as_deref(), Some(&b"blue"[..]));
/// assert_eq!(owners.get("boat")?.as_deref(), Some(&b"alice"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Keyspace<'s> {
    store: &'s Store,
    live: Arc<LiveKeyspace>,
}

impl Keyspace<'_> {
    /// Its name.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// assert_eq!(store.keyspace("owners", KeyspaceOptions::new())?.name(), "owners");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.live.facts.name
    }

    /// Time from its put to a value's expiry, if it expires.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// use forebay_store::KeyspaceOptions;
    /// use std::time::Duration;
    /// let hour = Duration::from_secs(3600);
    /// let sessions = store.keyspace("sessions", KeyspaceOptions::new().ttl(hour))?;
    /// assert_eq!(sessions.ttl(), Some(hour));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        self.live.facts.ttl_ms.map(Duration::from_millis)
    }

    /// The compression of its values.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// use forebay_store::{Compression, KeyspaceOptions};
    /// let options = KeyspaceOptions::new().compression(Compression::Lz4);
    /// assert_eq!(store.keyspace("pages", options)?.compression(), Compression::Lz4);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.live.facts.compression
    }

    /// The gain of that since the store was opened, of the values that were put in it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// use forebay_store::{Compression, KeyspaceOptions};
    /// let options = KeyspaceOptions::new().compression(Compression::Lz4);
    /// let pages = store.keyspace("pages", options)?;
    /// pages.put("short", "as it is")?;
    /// let gained = pages.compression_stats();
    /// assert_eq!((gained.values, gained.kept_raw), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn compression_stats(&self) -> CompressionStats {
        self.live.compressor.stats()
    }

    /// As [`Store::put`].
    ///
    /// # Errors
    /// As [`Store::put`]; [`StoreError::KeyspaceDropped`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// owners.put("boat", "alice")?;
    /// assert!(!store.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
        value: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<(), StoreError> {
        let mut room = KeyRoom::new();
        let key = stored_checked(self.id()?, key.as_ref(), &mut room)?;
        self.store.shared.put(key, value.as_ref())
    }

    /// As [`Store::delete`].
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// owners.put("boat", "alice")?;
    /// owners.delete("boat")?;
    /// assert!(owners.get("boat")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), StoreError> {
        let mut room = KeyRoom::new();
        let key = stored_checked(self.id()?, key.as_ref(), &mut room)?;
        self.store.shared.delete(key)
    }

    /// As [`Store::get`]. A value that expires is not kept in the cache.
    ///
    /// # Errors
    /// As [`Store::get`]; [`StoreError::KeyspaceDropped`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// if let Some(owner) = owners.get("boat")? {
    ///     println!("the boat is {}'s", owner.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<Option<Value>, StoreError> {
        let (id, mut room) = (self.id()?, KeyRoom::new());
        self.store.shared.get(id.stored(key.as_ref(), &mut room))
    }

    /// As [`Store::get_into`].
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// let mut buffer = Vec::new();
    /// assert_eq!(owners.get_into("boat", &mut buffer)?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_into<'b>(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
        buffer: &'b mut Vec<u8>,
    ) -> Result<Option<&'b [u8]>, StoreError> {
        let (id, mut room) = (self.id()?, KeyRoom::new());
        let key = id.stored(key.as_ref(), &mut room);
        let range = self.store.shared.get_into(key, buffer)?;
        Ok(range.map(|range| &buffer[range]))
    }

    /// As [`Store::contains_key`]. Where values expire it reads the record, though not a value that
    /// lies in a file of its own.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// store.put("boat", "blue")?;
    /// assert!(!owners.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn contains_key(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool, StoreError> {
        let (id, mut room) = (self.id()?, KeyRoom::new());
        (self.store.shared).contains_key(id.stored(key.as_ref(), &mut room))
    }

    /// As [`Store::compare_and_swap`].
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`put`](Self::put).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// use forebay_store::KeyspaceOptions;
    /// use std::time::Duration;
    /// // A lock that nobody has for longer than a minute.
    /// let minute = KeyspaceOptions::new().ttl(Duration::from_secs(60));
    /// let locks = store.keyspace("locks", minute)?;
    /// assert!(locks.compare_and_swap("boat", None, Some(b"alice"))?);
    /// assert!(!locks.compare_and_swap("boat", None, Some(b"bob"))?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn compare_and_swap(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        let mut room = KeyRoom::new();
        let key = stored_checked(self.id()?, key.as_ref(), &mut room)?;
        self.store.shared.compare_and_swap(key, expected, new)
    }

    /// As [`Store::update`].
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`put`](Self::put).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// owners.update("boat", |owner| Some([owner.unwrap_or_default(), b"alice "].concat()))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn update(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
        merge: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let mut room = KeyRoom::new();
        let key = stored_checked(self.id()?, key.as_ref(), &mut room)?;
        self.store.shared.update(key, merge)
    }

    /// As [`Store::increment`].
    ///
    /// # Errors
    /// [`StoreError::NotACounter`]; as [`get`](Self::get) and [`put`](Self::put).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// let visits = store.keyspace("visits", KeyspaceOptions::new())?;
    /// assert_eq!(visits.increment("boat", 2)?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn increment(&self, key: &(impl AsRef<[u8]> + ?Sized), by: i64) -> Result<i64, StoreError> {
        let mut room = KeyRoom::new();
        let key = stored_checked(self.id()?, key.as_ref(), &mut room)?;
        self.store.shared.increment(key, by)
    }

    /// As [`Store::scan`]. After the keyspace was dropped it ends with an error.
    ///
    /// # Errors
    /// As [`Store::scan`]; [`StoreError::KeyspaceDropped`].
    ///
    /// ```
    /// use forebay_store::{KeyspaceOptions, ScanRange};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// owners.put("boat", "alice")?;
    /// store.put("canoe", "green")?;
    /// assert_eq!(owners.scan(ScanRange::all())?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self, range: ScanRange) -> Result<Scan, StoreError> {
        Scan::new(self.snapshot()?, range)
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
    /// # use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// owners.put("boat", "alice")?;
    /// assert_eq!(owners.range("a".."c")?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<Scan, StoreError> {
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
    /// # use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// owners.put("boat/1", "alice")?;
    /// assert_eq!(owners.prefix("boat/")?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Scan, StoreError> {
        self.scan(ScanRange::prefix(prefix))
    }

    /// As [`Store::snapshot`], of the keyspace's keys. Once the keyspace is dropped its reads fail.
    /// Several keyspaces as of one moment: [`Snapshot::keyspace`].
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// let before = owners.snapshot()?;
    /// owners.put("boat", "alice")?;
    /// assert!(!before.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.id()?;
        Ok(self.of(&self.store.snapshot()?))
    }

    /// The same moment of this keyspace.
    pub(super) fn of(&self, snapshot: &Snapshot) -> Snapshot {
        snapshot.of(Arc::clone(&self.live))
    }

    /// Its number; refused if it was dropped.
    #[inline]
    pub(super) fn id(&self) -> Result<KeyspaceId, StoreError> {
        self.live.check()?;
        Ok(self.live.id())
    }

    /// Its number, if it is one of `store`.
    pub(super) fn id_in(&self, store: &Store) -> Result<KeyspaceId, StoreError> {
        if !Arc::ptr_eq(&store.shared, &self.store.shared) {
            return Err(StoreError::BadKeyspace {
                name: self.name().to_owned(),
                what: "it is not of the store whose transaction this is; open it there".to_owned(),
            });
        }
        self.id()
    }

    /// The store that has it.
    pub(super) fn store(&self) -> &Store {
        self.store
    }

    /// The opening of this process's stores that it is of.
    pub(super) fn opening(&self) -> OpeningNumber {
        self.store.shared.opening
    }
}

impl Snapshot {
    /// The same moment of a keyspace's keys: `None` is the default one. What a snapshot has of a
    /// keyspace that was dropped since is gone, and one that was made since is empty.
    ///
    /// # Errors
    /// [`StoreError::NoKeyspace`].
    ///
    /// ```
    /// use forebay_store::KeyspaceOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// owners.put("boat", "alice")?;
    /// let now = store.snapshot()?;
    /// owners.delete("boat")?;
    /// assert!(!now.contains_key("boat")?);
    /// assert!(now.keyspace("owners")?.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keyspace<'n>(&self, name: impl Into<Option<&'n str>>) -> Result<Self, StoreError> {
        self.shared().check_process()?;
        match name.into() {
            None => Ok(self.of_default()),
            Some(name) => Ok(self.of(self.shared().find_keyspace(name)?)),
        }
    }

    /// The keyspaces of the store as of now, or of the look that a snapshot of a
    /// [`ReadOnlyStore`](crate::ReadOnlyStore) is of.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// store.keyspace("owners", KeyspaceOptions::new())?;
    /// assert_eq!(store.snapshot()?.keyspaces()[0].name, "owners");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn keyspaces(&self) -> Vec<KeyspaceInfo> {
        match self.shared().check_process() {
            Ok(()) => self.shared().keyspaces().list(),
            Err(_) => Vec::new(),
        }
    }
}
