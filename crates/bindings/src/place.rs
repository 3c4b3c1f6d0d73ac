//! [`StorePlace`]: the place of a store and its pool, by one name.
//!
//! A name is a directory:
//!
//! ```text
//! NAME/pool   the pool, unless the options name another one
//! NAME/data   the store
//! ```
//!
//! Both lie in one directory, so that a volume that is mounted there, a copy, or a backup of it has
//! both. If NAME itself holds a store (one that Rust or `forebay store` made, a checkpoint, or a
//! restored backup), that is the store, and its pool is still NAME/pool or what the options name.

use crate::error::BindingError;
use forebay_pool::Pool;
use forebay_store::StoreError;
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

const POOL: &str = "pool";
const DATA: &str = "data";
/// The file that tells a directory that holds a store.
pub(crate) const MANIFEST: &str = "MANIFEST";
/// The place of a store of some name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StorePlace {
    pub(crate) name: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) pool: PathBuf,
    /// The pool has its place by the name.
    pub(crate) pool_is_own: bool,
}

impl StorePlace {
    pub(crate) fn find(name: &Path, pool: Option<&Path>) -> Self {
        let dir = match name.join(MANIFEST).exists() {
            true => name.to_owned(),
            false => name.join(DATA),
        };
        Self {
            name: name.to_owned(),
            dir,
            pool: pool.map_or_else(|| name.join(POOL), Path::to_owned),
            pool_is_own: pool.is_none(),
        }
    }

    /// True if there is a store.
    pub(crate) fn holds_store(&self) -> bool {
        self.dir.join(MANIFEST).exists()
    }

    /// Refuses a name under which no store may be made: a directory that holds something else.
    pub(crate) fn check_empty(&self) -> Result<(), BindingError> {
        let entries = match fs::read_dir(&self.name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(BindingError::system("listing", &self.name))?,
        };
        let mut others = Vec::new();
        for entry in entries {
            let entry = entry.map_err(BindingError::system("listing", &self.name))?;
            let entry = entry.file_name();
            // The root of a disk has lost+found.
            if entry != POOL && entry != DATA && entry != "lost+found" {
                others.push(entry.to_string_lossy().into_owned());
            }
        }
        if others.is_empty() {
            return Ok(());
        }
        others.sort();
        Err(self.no_store(&format!("it has {}", others.join(", "))))
    }

    pub(crate) fn no_store(&self, found: &str) -> BindingError {
        BindingError::Store(StoreError::NotAStore {
            dir: self.name.clone(),
            found: found.to_owned(),
        })
    }

    /// Makes the directory of that name, durably.
    pub(crate) fn create(&self) -> Result<(), BindingError> {
        let missing: Vec<&Path> = self
            .name
            .ancestors()
            .take_while(|above| !above.as_os_str().is_empty() && !above.exists())
            .collect();
        fs::create_dir_all(&self.name).map_err(BindingError::system("creating", &self.name))?;
        for made in missing {
            let above = made.parent().filter(|above| !above.as_os_str().is_empty());
            let above = above.unwrap_or(Path::new("."));
            File::open(above)
                .and_then(|above| above.sync_all())
                .map_err(BindingError::system("syncing", above))?;
        }
        Ok(())
    }
}

/// Removes a pool's file if nobody has anything in it, and nobody can have from then on; how many
/// do.
pub(crate) fn remove_unused(pool: &Pool, path: &Path) -> Result<usize, BindingError> {
    let held = pool.lock()?;
    let lanes = held.lanes().len();
    if lanes == 0 {
        fs::remove_file(path).map_err(BindingError::system("removing", path))?;
    }
    Ok(lanes)
}
