//! [`destroy`]: a store and its pool, removed.

use crate::{
    bound::BoundStore,
    error::BindingError,
    options::BindingOptions,
    place::{MANIFEST, StorePlace, remove_unused},
};
use forebay_pool::PoolOptions;
use forebay_store::StoreError;
use std::{
    fs::{self, File, TryLockError},
    io,
    path::Path,
};

/// A store that is being removed.
const REMOVED: &str = "data.removed";
/// What a store's directory has (docs/store-format.md), the manifest first: once it is gone, the
/// directory is no store.
const OF_A_STORE: [&str; 9] = [
    MANIFEST,
    "MANIFEST.tmp",
    "RESERVE",
    "vlog",
    "large",
    "dict",
    "index",
    "given-up",
    "LOCK",
];

/// Removes the store of that name with everything in it, and its pool, if that has its place by the
/// name and nobody else's data. No store is no error.
///
/// The store is opened and closed first: so it is in use by nobody, and a pool that it shares with
/// others has nothing of it left.
///
/// # Errors
/// What an opening refuses; I/O errors.
pub fn destroy(options: &BindingOptions, name: impl AsRef<Path>) -> Result<(), BindingError> {
    let place = StorePlace::find(name.as_ref(), options.pool_path());
    remove_all(&place.name.join(REMOVED))?;
    if place.holds_store() {
        let options = options.clone().create_if_missing(true);
        BoundStore::open(&options.error_if_exists(false), &place.name)?.close()?;
        let lock = lock(&place.dir)?;
        remove_store(&place)?;
        drop(lock);
    }
    if place.pool_is_own && place.pool.is_file() {
        let pool = PoolOptions::new().open(&place.pool)?;
        let lanes = remove_unused(&pool, &place.pool)?;
        if lanes > 0 {
            return Err(BindingError::Argument(format!(
                "the store was removed, but not its pool {}: it has data of {lanes} others; `forebay pool status` says whose",
                place.pool.display()
            )));
        }
    }
    // It stays if it has something else.
    let _ = fs::remove_dir(&place.name);
    Ok(())
}

/// Locks the directory of a store, as opening one does.
fn lock(dir: &Path) -> Result<File, BindingError> {
    let opened = File::open(dir).map_err(BindingError::system("opening", dir))?;
    match opened.try_lock() {
        Err(TryLockError::WouldBlock) => Err(BindingError::Store(StoreError::InUse {
            dir: dir.to_owned(),
            here: false,
        })),
        // A file system that locks no directory keeps nobody out.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(opened),
    }
}

fn remove_store(place: &StorePlace) -> Result<(), BindingError> {
    if place.dir == place.name {
        return OF_A_STORE
            .iter()
            .try_for_each(|entry| remove_all(&place.dir.join(entry)));
    }
    // At once, so that a removal that is cut leaves no part of a store.
    let removed = place.name.join(REMOVED);
    fs::rename(&place.dir, &removed).map_err(BindingError::system("renaming", &place.dir))?;
    remove_all(&removed)
}

/// Removes a file, or a directory with everything in it, if it is there.
fn remove_all(path: &Path) -> Result<(), BindingError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(BindingError::system("removing", path)(e))
        }
        _ => Ok(()),
    }
}
