//! [`BoundReader`]: a store that is only read, by its name.

use crate::{
    error::BindingError,
    options::{BindingOptions, PoolKind},
    place::StorePlace,
};
use forebay_pool::PoolOptions;
use forebay_store::ReadOnlyStore;
use std::{ops::Deref, path::Path};

/// A store of a name that is only read, beside the process that has it open, or with none. All it
/// can do is the [`ReadOnlyStore`]'s own.
pub struct BoundReader {
    store: ReadOnlyStore,
}

impl Deref for BoundReader {
    type Target = ReadOnlyStore;

    fn deref(&self) -> &ReadOnlyStore {
        &self.store
    }
}

impl BoundReader {
    /// Opens the store of that name for reading alone. Of the options its pool counts, and those of
    /// the store's memory and open files; nothing is made.
    ///
    /// # Errors
    /// What there is not; what [`open_read_only`](forebay_store::StoreOptions::open_read_only)
    /// refuses.
    pub fn open(options: &BindingOptions, name: impl AsRef<Path>) -> Result<Self, BindingError> {
        let place = StorePlace::find(name.as_ref(), options.pool_path());
        if !place.holds_store() {
            return Err(place.no_store("and one that is only read is not made"));
        }
        // The manifest knows where the owner has the pool, which a mount may show elsewhere.
        let pool = place.pool.exists().then(|| {
            PoolOptions::new()
                .emulated(options.pool_kind == PoolKind::Emulated)
                .open_read_only(&place.pool)
        });
        let pool = pool.transpose()?;
        let store = options.store.open_read_only(&place.dir, pool.as_ref())?;
        Ok(Self { store })
    }
}
