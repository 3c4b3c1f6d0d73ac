//! The arguments that all of `forebay store` share: the store, its pool, its durability.

use crate::failure::Failure;
use clap::Args;
use forebay_pool::{Pool, PoolError, PoolErrorKind, PoolOptions};
use forebay_store::{
    BackupReport, Compression, CopyReport, Durability, KeyspaceInfo, ReadOnlyStore, Scan,
    ScanRange, Snapshot, Stats, Store, StoreError, StoreOptions, Value, ValueSample,
};
use std::path::{Path, PathBuf};

/// The store.
#[derive(Args)]
pub struct StoreArguments {
    /// The store's directory
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The pool that the store keeps its newest writes in
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,
    /// The durability of a write: fsync, nosync (unsafe), single, double, or buffers=N [default:
    /// double with a pool, otherwise fsync]
    #[arg(long, value_name = "HOW")]
    durability: Option<Durability>,
    /// Keep the whole value log in the pool, in the N segments of --durability buffers=N; without
    /// this, a store that was kept so goes on in files
    #[arg(long, requires = "pool")]
    resident: bool,
    /// Compression of the values that this command writes: none, lz4, zstd or zstd-dict (with a
    /// dictionary for small values), or zstd=LEVEL or zstd-dict=LEVEL, from -7 to 22. Those that
    /// are there are read and kept as they are
    #[arg(long, value_name = "HOW", default_value_t)]
    compression: Compression,
    /// Open a pool that was made on persistent memory and lies elsewhere now
    #[arg(long, requires = "pool")]
    emulated: bool,
    /// Open although parts contradict each other or acknowledged records are unreadable, give those
    /// up, and name them. Without this, the refusal names them
    #[arg(long)]
    salvage: bool,
}

/// The meaning of an absent store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AbsentStore {
    /// It is made.
    Create,
    /// There is nothing to read: an error.
    Refuse,
}

/// Bytes of a log segment where no pool fixes it.
const SEGMENT_BYTES: u64 = 8 << 20;

/// An open store, and the pool that it needs to stay so.
pub struct OpenedStore {
    /// The store.
    pub store: Store,
    /// Bytes that one batch may have, well below half a segment.
    pub batch_bytes_max: usize,
    _pool: Option<Pool>,
}

impl StoreArguments {
    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.dir
    }

    /// Opens it.
    pub fn open(&self, absent: AbsentStore) -> Result<OpenedStore, Failure> {
        Ok(self.try_open(absent)?)
    }

    fn try_open(&self, absent: AbsentStore) -> Result<OpenedStore, OpeningError> {
        let durability = self.durability.unwrap_or(match self.pool {
            Some(_) => Durability::DOUBLE,
            None => Durability::Fsync,
        });
        let options = StoreOptions::new()
            .durability(durability)
            .resident(self.resident)
            .compression(self.compression)
            .create_if_missing(absent == AbsentStore::Create)
            .segment_size(SEGMENT_BYTES)
            .salvage(self.salvage);
        let pool = self
            .pool
            .as_ref()
            .map(|path| PoolOptions::new().emulated(self.emulated).open(path))
            .transpose()?;
        let segment_bytes = pool
            .as_ref()
            .map_or(SEGMENT_BYTES, |p| p.geometry().segment_bytes);
        let store = options.open(&self.dir, pool.as_ref())?;
        for what in store.given_up() {
            eprintln!("given up: {what}");
        }
        Ok(OpenedStore {
            store,
            batch_bytes_max: usize::try_from(segment_bytes / 8)
                .unwrap_or(usize::MAX)
                .min(1 << 20),
            _pool: pool,
        })
    }
}

/// Why it was not opened.
enum OpeningError {
    Store(StoreError),
    Pool(PoolError),
}

impl OpeningError {
    /// A process has it open.
    fn is_in_use(&self) -> bool {
        match self {
            Self::Store(StoreError::InUse { .. }) => true,
            Self::Store(StoreError::Pool(error)) | Self::Pool(error) => {
                matches!(error.kind, PoolErrorKind::InUse { .. })
            }
            Self::Store(_) => false,
        }
    }
}

impl From<StoreError> for OpeningError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<PoolError> for OpeningError {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

impl From<OpeningError> for Failure {
    fn from(error: OpeningError) -> Self {
        match error {
            OpeningError::Store(error) => error.into(),
            OpeningError::Pool(error) => error.into(),
        }
    }
}

/// A store that is only read.
#[derive(Args)]
pub struct ReadArguments {
    #[command(flatten)]
    opening: StoreArguments,
    /// Read the store beside the process that has it open, or with none, as of now: nothing is
    /// locked or changed, and the permission to read it is enough. The pool is found by the store,
    /// unless it lies elsewhere by now
    #[arg(long, conflicts_with_all = ["durability", "resident", "salvage"])]
    read_only: bool,
}

/// Whether a process that has the store open is in the way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum InUse {
    /// The error names the option.
    Refuse,
    /// The store is read beside it.
    ReadBeside,
}

/// A store to be read.
pub enum ReadStore {
    /// This command has it open.
    Owner(OpenedStore),
    /// It is read beside the process that has it open, if any.
    Reader(ReadOnlyStore),
}

impl ReadArguments {
    /// Where it is.
    pub fn directory(&self) -> &Path {
        self.opening.directory()
    }

    /// Opens it.
    pub fn open(&self, in_use: InUse) -> Result<ReadStore, Failure> {
        if self.read_only {
            return self.open_read_only();
        }
        match self.opening.try_open(AbsentStore::Refuse) {
            Ok(opened) => Ok(ReadStore::Owner(opened)),
            Err(error) if error.is_in_use() && in_use == InUse::ReadBeside => self.open_read_only(),
            Err(error) if error.is_in_use() => match Failure::from(error) {
                Failure::Failed(said) => Err(Failure::Failed(format!(
                    "{said}, or read the store beside it (--read-only)"
                ))),
                failure => Err(failure),
            },
            Err(error) => Err(error.into()),
        }
    }

    fn open_read_only(&self) -> Result<ReadStore, Failure> {
        let pool = (self.opening.pool.as_ref())
            .map(|path| {
                let options = PoolOptions::new().emulated(self.opening.emulated);
                options.open_read_only(path)
            })
            .transpose()?;
        let reader = StoreOptions::new().open_read_only(&self.opening.dir, pool.as_ref())?;
        Ok(ReadStore::Reader(reader))
    }
}

impl ReadStore {
    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        match self {
            Self::Owner(opened) => opened.store.get(key),
            Self::Reader(reader) => reader.get(key),
        }
    }

    /// The keys of a range.
    pub fn scan(&self, range: ScanRange) -> Result<Scan, StoreError> {
        self.snapshot()?.scan(range)
    }

    /// All of it as of now.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        match self {
            Self::Owner(opened) => opened.store.snapshot(),
            Self::Reader(reader) => reader.snapshot(),
        }
    }

    /// Its keyspaces.
    pub fn keyspaces(&self) -> Vec<KeyspaceInfo> {
        match self {
            Self::Owner(opened) => opened.store.keyspaces(),
            Self::Reader(reader) => reader.keyspaces(),
        }
    }

    /// Sizes and counts.
    pub fn stats(&self) -> Stats {
        match self {
            Self::Owner(opened) => opened.store.stats(),
            Self::Reader(reader) => reader.stats(),
        }
    }

    /// What compression gained, which a reader does not look at.
    pub fn sample_values(&self) -> Result<Option<ValueSample>, StoreError> {
        match self {
            Self::Owner(opened) => opened.store.sample_values().map(Some),
            Self::Reader(_) => Ok(None),
        }
    }

    /// Makes a backup.
    pub fn backup(
        &self,
        backups: &Path,
        progress: impl FnMut(&CopyReport),
    ) -> Result<BackupReport, StoreError> {
        match self {
            Self::Owner(opened) => opened.store.backup(backups, progress),
            Self::Reader(reader) => reader.backup(backups, progress),
        }
    }

    /// Removes all backups but the latest.
    pub fn prune_backups(&self, backups: &Path, keep: usize) -> Result<Vec<PathBuf>, StoreError> {
        match self {
            Self::Owner(opened) => opened.store.prune_backups(backups, keep),
            Self::Reader(reader) => reader.prune_backups(backups, keep),
        }
    }

    /// Closes it.
    pub fn close(self) -> Result<(), StoreError> {
        match self {
            Self::Owner(opened) => opened.store.close(),
            Self::Reader(_) => Ok(()),
        }
    }
}

/// The bytes that a key on the command line means.
pub fn key(encoding: crate::encoding::Encoding, text: &str) -> Result<Vec<u8>, Failure> {
    encoding
        .decode(text)
        .map_err(|what| Failure::Usage(format!("the key {text:?} {what}")))
}
