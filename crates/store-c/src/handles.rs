//! Targets of a caller's handles; batches and iterators are in modules of their own.

use forebay_bindings::{BindingError, BindingOptions, BoundReader, BoundStore};
use forebay_store::{Snapshot, Stats, StoreError, Value};

/// Options to open a store.
pub struct forebay_options_t {
    pub(crate) options: BindingOptions,
}

/// Options of a read.
#[derive(Default)]
pub struct forebay_readoptions_t {
    pub(crate) snapshot: Option<Snapshot>,
}

/// Options of a write.
pub struct forebay_writeoptions_t {
    pub(crate) sync: bool,
}

/// An open store.
pub struct forebay_t {
    pub(crate) opened: StoreAccess,
}

/// What it was opened for.
pub(crate) enum StoreAccess {
    Owner(BoundStore),
    /// For reading alone.
    Reader(BoundReader),
}

impl forebay_t {
    /// The store, for what one that is only read cannot do.
    pub(crate) fn owner(&self) -> Result<&BoundStore, BindingError> {
        match &self.opened {
            StoreAccess::Owner(store) => Ok(store),
            StoreAccess::Reader(_) => Err(BindingError::Argument(
                "the store was opened for reading alone (forebay_open_for_read_only); open it with forebay_open for this"
                    .to_owned(),
            )),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        match &self.opened {
            StoreAccess::Owner(store) => store.get(key),
            StoreAccess::Reader(store) => store.get(key),
        }
    }

    pub(crate) fn snapshot(&self) -> Result<Snapshot, StoreError> {
        match &self.opened {
            StoreAccess::Owner(store) => store.snapshot(),
            StoreAccess::Reader(store) => store.snapshot(),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        match &self.opened {
            StoreAccess::Owner(store) => store.stats(),
            StoreAccess::Reader(store) => store.stats(),
        }
    }
}

/// A view of a store that later writes leave as it is.
pub struct forebay_snapshot_t {
    pub(crate) snapshot: Snapshot,
}
