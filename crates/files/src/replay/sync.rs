//! Syncs of a recovery: of a file, with the directories that have its names, and of the names that
//! a file has lost.

use super::lane_contents::LoggedFile;
use crate::{directories::open_directory, identity, sys};
use rustix::io::Errno;
use std::{fs::File, path::Path};

/// A failure: of a sync, after which the files' content is not taken for durable because a later
/// one succeeds; of the pool, with the step; or of anything else.
pub(super) enum ReplayFailure {
    Sync(Errno),
    Lane(String),
    Other(Errno),
}

impl From<Errno> for ReplayFailure {
    fn from(errno: Errno) -> Self {
        Self::Other(errno)
    }
}

/// Syncs a file, and the directories that have its names.
pub(super) fn sync(file: &LoggedFile<'_>, open: &File) -> Result<(), ReplayFailure> {
    fsync(open)?;
    sync_parents(file)?;
    sys::confirm_sync(open).map_err(ReplayFailure::Sync)
}

/// Syncs a file, not the directories that have its names.
pub(super) fn confirmed(open: &File) -> Result<(), ReplayFailure> {
    fsync(open)?;
    sys::confirm_sync(open).map_err(ReplayFailure::Sync)
}

pub(super) fn fsync(open: &File) -> Result<(), ReplayFailure> {
    let done = sys::sync_fault().map_or_else(|| rustix::fs::fsync(open), Err);
    done.map_err(ReplayFailure::Sync)
}

fn sync_parents(file: &LoggedFile<'_>) -> Result<(), ReplayFailure> {
    for parent in file.parents() {
        // One that is gone since needs no sync; one that may not be read has to be synced by who
        // may.
        if let Ok(open) = open_directory(parent) {
            let synced = rustix::fs::fsync(&open).and_then(|()| sys::confirm_sync(&open));
            synced.map_err(ReplayFailure::Sync)?;
        }
    }
    Ok(())
}

/// Makes durable that a file is not there: it would be back without the records that the lane is
/// about to lose. Where a directory that had its name is not there either, all of the file system
/// is synced.
pub(super) fn sync_absence(file: &LoggedFile<'_>) -> Result<(), ReplayFailure> {
    sync_parents(file)?;
    let is_gone = |parent: &&Path| open_directory(parent).is_err();
    for parent in file.parents().into_iter().filter(is_gone) {
        if let Some(above) = identity::directories_from(parent).next() {
            sys::sync_file_system(above).map_err(ReplayFailure::Sync)?;
        }
    }
    Ok(())
}
