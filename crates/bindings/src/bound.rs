//! [`BoundStore`]: an open store, and the pool that it needs to stay so.

use crate::{
    error::BindingError,
    options::{BindingOptions, PoolKind},
    place::{StorePlace, remove_unused},
};
use forebay_pool::{Pool, PoolOptions};
use forebay_store::{Batch, DetachedTransaction, Durability, Store};
use std::{ops::Deref, path::Path};

/// An open store of a name. Everything else is the [`Store`]'s own.
pub struct BoundStore {
    store: Store,
    /// What is written has to be committed: the pool is on a disk.
    needs_commit: bool,
    _pool: Option<Pool>,
}

impl Deref for BoundStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl BoundStore {
    /// Opens the store of that name (docs/store-c.md, "Where it is").
    ///
    /// # Errors
    /// What the store and its pool refuse; [`BindingError::StoreExists`],
    /// [`BindingError::PoolMissing`].
    pub fn open(options: &BindingOptions, name: impl AsRef<Path>) -> Result<Self, BindingError> {
        let place = StorePlace::find(name.as_ref(), options.pool_path());
        let exists = place.holds_store();
        if exists && options.error_if_exists {
            return Err(BindingError::StoreExists { name: place.name });
        }
        if !exists {
            if !options.create {
                return Err(place.no_store("and create_if_missing is not set"));
            }
            place.check_empty()?;
            place.create()?;
        }
        let (pool, is_new) = open_pool(options, &place)?;
        let needs_commit = pool.as_ref().is_some_and(Pool::needs_commit)
            && matches!(options.durability, Durability::Buffered(_));
        let store = (options.store.clone())
            .durability(options.durability)
            // Each write says whether it is committed.
            .commit_puts(false)
            .create_if_missing(options.create)
            .open(&place.dir, pool.as_ref());
        let store = store.inspect_err(|_| {
            // What the store misses is in another pool, which may be put back in its place. Another
            // process may use this one already.
            if let (true, Some(pool)) = (is_new, &pool) {
                let _ = remove_unused(pool, &place.pool);
            }
        })?;
        Ok(Self {
            store,
            needs_commit,
            _pool: pool,
        })
    }

    /// Puts a key. With `sync` it is as durable as the store makes it when this returns; without,
    /// on a pool on a disk, it may be lost in a crash until something later is synced.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_as(&self, key: &[u8], value: &[u8], sync: bool) -> Result<(), BindingError> {
        self.store.put(key, value)?;
        self.synced(sync)
    }

    /// Deletes a key, likewise. One that is not there is no error.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub fn delete_as(&self, key: &[u8], sync: bool) -> Result<(), BindingError> {
        self.store.delete(key)?;
        self.synced(sync)
    }

    /// Writes a batch, likewise.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn write_as(&self, batch: &Batch, sync: bool) -> Result<(), BindingError> {
        self.store.write(batch)?;
        self.synced(sync)
    }

    /// Commits a transaction, likewise.
    ///
    /// # Errors
    /// As [`Store::resume`] and [`Transaction::commit`](forebay_store::Transaction::commit).
    pub(crate) fn commit_as(
        &self,
        transaction: DetachedTransaction,
        sync: bool,
    ) -> Result<(), BindingError> {
        self.store.resume(transaction)?.commit()?;
        self.synced(sync)
    }

    fn synced(&self, sync: bool) -> Result<(), BindingError> {
        if sync && self.needs_commit {
            self.store.commit()?;
        }
        Ok(())
    }

    /// Closes the store ([`Store::close`]).
    ///
    /// # Errors
    /// What went wrong; the store is closed all the same, and nothing acknowledged is lost.
    pub fn close(self) -> Result<(), BindingError> {
        let Self { store, _pool, .. } = self;
        Ok(store.close()?)
    }
}

/// The pool of a store in `place`; whether it was made.
fn open_pool(
    options: &BindingOptions,
    place: &StorePlace,
) -> Result<(Option<Pool>, bool), BindingError> {
    let exists = place.pool.exists();
    if exists {
        let emulated = options.pool_kind == PoolKind::Emulated;
        let opened = PoolOptions::new().emulated(emulated).open(&place.pool)?;
        return Ok((Some(opened), false));
    }
    if !matches!(options.durability, Durability::Buffered(_)) {
        return Ok((None, false));
    }
    if !options.create {
        return Err(BindingError::PoolMissing {
            pool: place.pool.clone(),
        });
    }
    let made = options.pool_options().open_or_create(&place.pool)?;
    Ok((Some(made), true))
}
