//! Value-log files that the manifest does not name. docs/store-format.md, "Files that no manifest
//! names".
//!
//! An opening finds them, and unlinks those that are known to be dead: one that was begun and never
//! written to, and one that the manifest says was collected. Any other holds log of which the
//! manifest knows nothing, so the manifest is older than the file.

use super::file::{VlogFile, file_name};
use crate::{disk::Disk, error::StoreError, manifest::ManifestState};
use forebay_pool::Lsn;
use std::path::{Path, PathBuf};

/// A file of this store that the manifest does not name.
#[derive(Clone, Debug)]
pub(crate) struct UnlistedFiles {
    pub(crate) start: Lsn,
    pub(crate) path: PathBuf,
    /// Its length.
    pub(crate) bytes: u64,
    /// True if anything was ever written to it; or, in one that was collected, may have been.
    pub(crate) holds_log: bool,
}

impl UnlistedFiles {
    /// True if nothing in it is needed, whatever else there is.
    pub(crate) fn is_dead(&self, state: &ManifestState) -> bool {
        !self.holds_log || state.has_retired(self.start)
    }
}

/// The files in `dir` that are this store's and that `state` does not name.
pub(super) fn find(
    disk: &dyn Disk,
    dir: &Path,
    state: &ManifestState,
) -> Result<Vec<UnlistedFiles>, StoreError> {
    let mut found = Vec::new();
    for name in disk.list(dir).map_err(StoreError::io("listing", dir))? {
        let start = name
            .strip_suffix(".vlog")
            .and_then(|digits| Lsn::from_str_radix(digits, 16).ok())
            .filter(|start| file_name(*start) == name)
            .filter(|start| state.files.iter().all(|file| file.start != *start));
        let Some(start) = start else { continue };
        let path = dir.join(&name);
        // What is in it is not needed, so it may be unreadable.
        let retired = state.has_retired(start);
        let (bytes, holds_log) = match VlogFile::open(disk, dir, start, None, state.uuid) {
            Ok(file) => (file.file.len().unwrap_or(0), retired || file.holds_log()?),
            Err(StoreError::Io { .. }) if retired => (0, true),
            // It may hold log.
            Err(error @ StoreError::Io { .. }) => return Err(error),
            Err(_) if VlogFile::was_never_made(disk, &path).unwrap_or(false) => (0, false),
            // Another store's, or no value-log file: left alone.
            Err(_) => continue,
        };
        found.push(UnlistedFiles {
            start,
            path,
            bytes,
            holds_log,
        });
    }
    Ok(found)
}
