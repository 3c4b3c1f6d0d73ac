//! [`ReadOnlyStore`]: a store that another process has open, or none, read as it was at one moment.
//! docs/store-format.md, "Reading beside the owner".
//!
//! Nothing is locked, claimed or written; a pool is opened for reading alone. A *look*
//! ([`open::look`](super::open)) opens the parts and replays the log's end into a memtable of its
//! own. It is of one moment if the manifest is the same before and after; otherwise the owner was
//! at work, and it is done again. [`ReadOnlyStore::refresh`] looks once more.
//!
//! The owner knows nothing of its readers, and removes files as ever. A reader holds the index's
//! tables open, and the value-log files as far as its descriptors go: what is unlinked is read all
//! the same, and takes space until then. What it does not hold (large values; files beyond its
//! descriptors) may be gone when it comes to read it, which it says ([`StoreError::Outdated`]).

use super::{Scan, ScanRange, Snapshot, StoreCore, Value};
use crate::{
    error::StoreError,
    keyspace::{KeyRoom, KeyspaceId, KeyspaceInfo},
    options::StoreOptions,
    stats::Stats,
};
use arc_swap::ArcSwap;
use forebay_pool::Pool;
use parking_lot::Mutex;
use std::{
    ops::RangeBounds,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A store that is only read, by any number of processes, whether one has it open or none. Made by
/// [`StoreOptions::open_read_only`].
///
/// It is the store as of its last look. A [`snapshot`](Self::snapshot) or
/// scan stays at its look when the next one is taken.
pub struct ReadOnlyStore {
    dir: PathBuf,
    pub(super) options: StoreOptions,
    pool: Option<Pool>,
    pub(super) core: ArcSwap<StoreCore>,
    /// Held while one looks: an earlier look never comes in the place of a later one.
    looking: Mutex<()>,
}

impl StoreOptions {
    /// Opens the store in `dir` for reading alone: beside the process that has it open, or beside
    /// what a killed one left. Nothing is locked or changed, so the permission to read it is
    /// enough, and it may lie on a read-only file system.
    ///
    /// It has everything that was acknowledged before, and at most what was being written:
    ///
    /// * with a pool in memory: what was appended, which is durable;
    /// * with a pool on a disk: what was committed. Without [`commit_puts`](Self::commit_puts), not
    ///   the puts behind the last commit;
    /// * with [`Durability::Fsync`](crate::Durability) and
    ///   [`Durability::NoSync`](crate::Durability): what was written to the files, also before it
    ///   is synced. A power cut may take that back.
    ///
    /// A pool that holds the log's end is found by the manifest, or is the `pool` that is given,
    /// which may be one [opened for reading](forebay_pool::PoolOptions::open_read_only). What it
    /// has of the log is copied to memory, all of a [resident](Self::resident) one.
    ///
    /// # Errors
    /// [`StoreError::NotAStore`]; [`StoreError::DataInPool`] if the pool cannot be read; damage and
    /// [`StoreError::NotOneMoment`], as an opening. [`StoreError::Outdated`] if the owner's files
    /// change all the time.
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// use forebay_store::StoreOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let (pool_path, dir) = (dir.path().join("pool"), dir.path().join("data"));
    /// let pool = PoolOptions::new().emulated(true).create(&pool_path)?;
    /// let store = StoreOptions::new().open(&dir, &pool)?;
    /// store.put("boat", "blue")?;
    /// // In another process:
    /// let reader = StoreOptions::new().open_read_only(&dir, None)?;
    /// assert_eq!(reader.get("boat")?.as_deref(), Some(&b"blue"[..]));
    /// store.put("boat", "red")?;
    /// reader.refresh()?;
    /// assert_eq!(reader.get("boat")?.as_deref(), Some(&b"red"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_read_only<'a>(
        &self,
        dir: impl AsRef<Path>,
        pool: impl Into<Option<&'a Pool>>,
    ) -> Result<ReadOnlyStore, StoreError> {
        let (dir, pool) = (dir.as_ref().to_owned(), pool.into().cloned());
        let options = self.clone().salvage(false);
        let core = StoreCore::as_of_now(&options, &dir, pool.as_ref(), None)?;
        Ok(ReadOnlyStore {
            dir,
            options,
            pool,
            core: ArcSwap::from_pointee(core),
            looking: Mutex::default(),
        })
    }
}

impl ReadOnlyStore {
    /// Looks again: what is read from now on is as of now. If that fails it stays as of its last
    /// look.
    ///
    /// It costs what an opening does, which grows with what the index does not cover yet. Space of
    /// files that the owner removed is given back, unless a snapshot or scan of before is open.
    ///
    /// Of several threads that refresh, one looks after the other.
    ///
    /// # Errors
    /// As [`StoreOptions::open_read_only`]; [`StoreError::Replaced`] if another store is there now.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let reader = options.open_read_only(dir.path(), None)?;
    /// store.put("boat", "red")?;
    /// reader.refresh()?;
    /// assert_eq!(reader.get("boat")?.as_deref(), Some(&b"red"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn refresh(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.looking.lock();
        let one = Some(self.core.load().uuid);
        let core = StoreCore::as_of_now(&self.options, &self.dir, self.pool.as_ref(), one)?;
        self.core.store(Arc::new(core));
        Ok(())
    }

    /// As [`Store::get`](super::Store::get).
    ///
    /// # Errors
    /// As [`Store::get`](super::Store::get), and [`StoreError::Outdated`]: refresh then, and read
    /// again.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let reader = options.open_read_only(dir.path(), None)?;
    /// assert_eq!(reader.get("boat")?.as_deref(), Some(&b"blue"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<Option<Value>, StoreError> {
        let mut room = KeyRoom::new();
        (self.core.load()).get(KeyspaceId::DEFAULT.stored(key.as_ref(), &mut room))
    }

    /// As [`Store::contains_key`](super::Store::contains_key).
    ///
    /// # Errors
    /// As [`Store::contains_key`](super::Store::contains_key).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let reader = options.open_read_only(dir.path(), None)?;
    /// assert!(reader.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn contains_key(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool, StoreError> {
        let mut room = KeyRoom::new();
        (self.core.load()).contains_key(KeyspaceId::DEFAULT.stored(key.as_ref(), &mut room))
    }

    /// The keyspaces as of its look. One is read by a [snapshot](Self::snapshot) of
    /// [it](Snapshot::keyspace).
    ///
    /// ```
    /// use forebay_store::{Durability, KeyspaceOptions, StoreOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(dir.path(), None)?;
    /// store.keyspace("owners", KeyspaceOptions::new())?.put("boat", "alice")?;
    /// let reader = options.open_read_only(dir.path(), None)?;
    /// assert_eq!(reader.keyspaces()[0].name, "owners");
    /// assert!(reader.snapshot()?.keyspace("owners")?.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn keyspaces(&self) -> Vec<KeyspaceInfo> {
        self.core.load().keyspaces().list()
    }

    /// A snapshot, which a refresh leaves as it is.
    ///
    /// # Errors
    /// [`StoreError::TooManySnapshots`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let reader = options.open_read_only(dir.path(), None)?;
    /// let before = reader.snapshot()?;
    /// store.delete("boat")?;
    /// reader.refresh()?;
    /// assert!(before.contains_key("boat")? && !reader.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        Snapshot::new(&self.core.load_full())
    }

    /// As [`Store::scan`](super::Store::scan).
    ///
    /// # Errors
    /// As [`Store::scan`](super::Store::scan); the scan may end with [`StoreError::Outdated`].
    ///
    /// ```
    /// use forebay_store::{Durability, ScanRange, StoreOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let reader = options.open_read_only(dir.path(), None)?;
    /// assert_eq!(reader.scan(ScanRange::all().reversed())?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self, range: ScanRange) -> Result<Scan, StoreError> {
        self.snapshot()?.scan(range)
    }

    /// As [`Store::range`](super::Store::range).
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let reader = options.open_read_only(dir.path(), None)?;
    /// assert_eq!(reader.range("a".."c")?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Result<Scan, StoreError> {
        self.scan(ScanRange::new(keys))
    }

    /// As [`Store::prefix`](super::Store::prefix).
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let reader = options.open_read_only(dir.path(), None)?;
    /// assert_eq!(reader.prefix("bo")?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Scan, StoreError> {
        self.scan(ScanRange::prefix(prefix))
    }

    /// Sizes and counts as of its look. What only the owner's process knows is zero: its writes and
    /// their waits, and what its collector did.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let reader = options.open_read_only(dir.path(), None)?;
    /// println!("{} bytes of value log", reader.stats().value_log_bytes);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.load().stats()
    }
}
