//! Parts that an opening with `salvage` gives up: named, and kept if they can be.
//!
//! A file that has no place in the store any more is not unlinked but moved to `given-up/` in the
//! store's directory, which no part of the store reads. docs/store-format.md, "Salvage".

use crate::{disk::Disk, error::StoreError};
use parking_lot::Mutex;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Name of the directory of files given up.
const DIR: &str = "given-up";

/// The parts given up so far, in words, and the directory for their files.
#[derive(Clone, Debug)]
pub(crate) struct GivenUp {
    dir: PathBuf,
    allowed: bool,
    said: Arc<Mutex<Vec<String>>>,
}

impl GivenUp {
    /// For the store in this directory; `allowed` if it is opened with `salvage`.
    pub(crate) fn new(store: &Path, allowed: bool) -> Self {
        Self {
            dir: store.join(DIR),
            allowed,
            said: Arc::default(),
        }
    }

    /// True if anything may be given up.
    pub(crate) fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Notes what is given up.
    pub(crate) fn say(&self, what: String) {
        self.said.lock().push(what);
    }

    /// Everything that was given up.
    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().clone()
    }

    /// Moves a file out of the store, durably, and says so.
    pub(crate) fn set_aside(&self, disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
        let moved = || {
            disk.create_dir(&self.dir)?;
            if let Some(store) = self.dir.parent() {
                disk.sync_dir(store)?;
            }
            let there = disk.list(&self.dir)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let names =
                std::iter::once(name.to_string()).chain((1u32..).map(|n| format!("{name}.{n}")));
            let mut free = names.filter(|name| !there.contains(name));
            let to = self.dir.join(free.next().unwrap_or_default());
            disk.rename(path, &to)?;
            disk.sync_dir(&self.dir)?;
            disk.sync_dir(path.parent().unwrap_or(Path::new(".")))?;
            Ok(to)
        };
        let to = moved().map_err(StoreError::io("setting aside", path))?;
        self.say(format!("{} was moved to {}", path.display(), to.display()));
        Ok(())
    }
}
