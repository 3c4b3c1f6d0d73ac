//! The arguments that all of `forebay store` share: the store, its pool, its variant.

use crate::failure::Failure;
use clap::Args;
use forebay_pool::{Pool, PoolOptions};
use forebay_store::{Compression, Durability, Store, StoreOptions};
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
    #[arg(long, value_name = "VARIANT")]
    variant: Option<Durability>,
    /// Keep the whole value log in the pool, in the N segments of --variant buffers=N; without
    /// this, a store that was kept so goes on in files
    #[arg(long, requires = "pool")]
    resident: bool,
    /// Compression of the values that this command writes: none, lz4, zstd, or zstd=LEVEL, from
    /// -7 to 22. Those that are there are read and kept as they are
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
        let variant = self.variant.unwrap_or(match self.pool {
            Some(_) => Durability::DOUBLE,
            None => Durability::Fsync,
        });
        let options = StoreOptions::new()
            .durability(variant)
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

/// The bytes that a key on the command line means.
pub fn key(encoding: crate::encoding::Encoding, text: &str) -> Result<Vec<u8>, Failure> {
    encoding
        .decode(text)
        .map_err(|what| Failure::Usage(format!("the key {text:?} {what}")))
}
