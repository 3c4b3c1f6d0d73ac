//! A data directory and a cache that do not go together: the reason, and the remedy.

use crate::file_kinds::{COPIES_FILE, GUARD_FILE};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// The way to begin anew with a cache on this flash file that has pages of an earlier state of the
/// files.
pub(crate) fn if_restored(flash: &Path) -> String {
    format!(
        "If the data directory was restored from a backup, and nothing in the cache is needed, remove {0} and {0}.lane (if {0} is a link to a device, leave it, and blank the device's first MiB), and {GUARD_FILE} and {COPIES_FILE} in the data directory",
        flash.display()
    )
}

/// The reason that a tablespace and a guard file do not go with a cache.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// Page 0 is text, and there is no guard file.
    NoGuardFile,
    /// Page 0 is text, and the guard file is another tablespace's.
    Copy,
    /// The guard is of another cache.
    OtherCache(PathBuf, Uuid),
    /// It was laid, and something has written over it.
    WrittenSince,
    /// The guard and the cache, which was last used at this place, are not of the same time.
    OtherTime(PathBuf),
}

impl Mismatch {
    /// The message on this tablespace, and on a cache with so many newer pages.
    pub(crate) fn told(&self, path: &Path, at: &Path, newer: u64) -> String {
        let (path, flash) = (path.display(), at.display());
        match self {
            Self::NoGuardFile => format!(
                "{path} is guarded, and {GUARD_FILE} is not beside it, which alone has its first pages: put that back. If this is a copy that was made while newer pages were in a \
                 flash cache, copy the data directory after forebay flash flush; nothing was changed"
            ),
            Self::Copy => format!(
                "{path} is guarded, and not the one that the flash cache {flash} has pages of: it is a copy that was made while newer pages were in a flash cache. Copy the \
                 data directory after forebay flash flush; nothing was changed"
            ),
            Self::OtherCache(other, uuid) if other.as_os_str() == at.as_os_str() => format!(
                "newer pages of {path} are in a flash cache that was at {flash} ({uuid}), and another one is there now: its file system may not be mounted, or it was made anew. \
                 Put that one back; nothing was changed"
            ),
            Self::OtherCache(other, uuid) => format!(
                "newer pages of {path} are in another flash cache, {} ({uuid}), not in {flash}. Give that one with --flash; nothing was changed",
                other.display()
            ),
            Self::WrittenSince => format!(
                "{path} was written to without the flash cache {flash}, which has {newer} newer pages: put the data directory back as it was. {}; nothing was changed",
                if_restored(at)
            ),
            Self::OtherTime(last) => format!(
                "{path} and the flash cache {flash} are not of the same time: one of them is an older copy, and a server has used the other since, or the cache has been another \
                 data directory's. That server had its cache at {}. Give the cache, with its .lane, and the data directory as they were left together; nothing was changed",
                last.display()
            ),
        }
    }
}
