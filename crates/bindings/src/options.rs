//! [`BindingOptions`]: options to open a store by its name.

use forebay_pool::PoolOptions;
use forebay_store::{Durability, StoreOptions};
use std::path::{Path, PathBuf};

/// The kind of pool that is made, if one is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// A file on an ordinary disk: a synced write costs one write, and survives a power cut.
    #[default]
    Disk,
    /// Persistent memory: a write costs a memory copy, and survives a power cut.
    Memory,
    /// A file in ordinary memory: a write costs a memory copy, and survives the process only.
    Emulated,
}

/// Options to open a store by its name. Begins with the store's own defaults, and a pool on a disk.
#[derive(Clone, Debug)]
pub struct BindingOptions {
    pub(crate) store: StoreOptions,
    pub(crate) durability: Durability,
    pub(crate) create: bool,
    pub(crate) error_if_exists: bool,
    pub(crate) pool: Option<PathBuf>,
    pub(crate) pool_kind: PoolKind,
    pub(crate) pool_bytes: u64,
}

impl Default for BindingOptions {
    fn default() -> Self {
        Self {
            store: StoreOptions::new(),
            durability: Durability::DOUBLE,
            create: false,
            error_if_exists: false,
            pool: None,
            pool_kind: PoolKind::Disk,
            pool_bytes: 64 << 20,
        }
    }
}

impl BindingOptions {
    /// Make the store, and its pool, if there is none. Default: no.
    #[must_use]
    pub fn create_if_missing(self, create: bool) -> Self {
        Self { create, ..self }
    }

    /// Refuse a store that exists. Default: no.
    #[must_use]
    pub fn error_if_exists(self, error_if_exists: bool) -> Self {
        Self {
            error_if_exists,
            ..self
        }
    }

    /// Sets the moment at which a write is durable. Default: by a pool. [`Durability::Fsync`] and
    /// [`Durability::NoSync`] use a pool only to take over what an earlier session left in it.
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// Sets the pool's path. Default: NAME/pool.
    #[must_use]
    pub fn pool(self, path: Option<PathBuf>) -> Self {
        Self { pool: path, ..self }
    }

    /// Sets the kind of pool that is made. Default: on a disk.
    #[must_use]
    pub fn pool_kind(self, pool_kind: PoolKind) -> Self {
        Self { pool_kind, ..self }
    }

    /// Bytes of a pool that is made. Default: 64 MiB.
    #[must_use]
    pub fn pool_bytes(self, pool_bytes: u64) -> Self {
        Self { pool_bytes, ..self }
    }

    /// Changes the options of the store itself.
    #[must_use]
    pub fn with_store(self, change: impl FnOnce(StoreOptions) -> StoreOptions) -> Self {
        Self {
            store: change(self.store),
            ..self
        }
    }

    pub(crate) fn pool_path(&self) -> Option<&Path> {
        self.pool.as_deref()
    }

    /// Options to make a pool.
    pub(crate) fn pool_options(&self) -> PoolOptions {
        // A pool has some segments of at most 8 MiB; smaller ones in a small pool.
        let segment = (self.pool_bytes / 8).next_power_of_two() / 2;
        PoolOptions::new()
            .size(self.pool_bytes)
            .segment_size(segment.clamp(64 << 10, 8 << 20))
            .on_disk(self.pool_kind == PoolKind::Disk)
            .emulated(self.pool_kind == PoolKind::Emulated)
    }
}
