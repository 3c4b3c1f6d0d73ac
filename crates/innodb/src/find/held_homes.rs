//! Looking for a file by its path, and the errors if its place cannot be told.

use crate::identity::{self, KnownFile};
use forebay_flash::FlashError;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
    io::Errno,
};
use std::path::{Path, PathBuf};

/// Errors of the search for the homes of a cache's files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomesError {
    /// A file is not where it can be looked for.
    #[error(
        "{0}, which has pages in the flash cache, is not there, and its directory is empty, or not there either: a file system may not be mounted. Mount it, and repeat; nothing was changed"
    )]
    Missing(String),
    /// A file of which the cache has newer pages is gone, and no server took it away.
    #[error(
        "the flash cache has {pages} pages of {name} that are newer than the file, and it {}: nothing under Forebay has removed it. Put it back as it was \
         (a copy is another file: flush before a table is moved to another disk). If these pages are not needed, since the table was restored from a backup or is to be dropped, \
         give them up: forebay flash flush --flash CACHE --give-up {name}. Nothing was changed",
        if *replaced { "is another file now" } else { "is not there" }
    )]
    Gone {
        /// Its name.
        name: String,
        /// Number of pages.
        pages: u64,
        /// There is a file of that name, another one.
        replaced: bool,
    },
    /// A file outside a data directory that is a snapshot.
    #[error(
        "the flash cache has {pages} pages of {name} that are newer than the file, and it is outside of {}, which is a snapshot. Its original is there as well, in {}, and \
         the file may be the original's. Say where the snapshot's is: forebay flash flush --flash CACHE --data DIR. Nothing was changed",
        is.display(),
        was.display()
    )]
    Outside {
        /// Its name.
        name: String,
        /// Number of pages.
        pages: u64,
        /// The snapshot.
        is: PathBuf,
        /// The original.
        was: PathBuf,
    },
    /// The file to be given up is there, or not known.
    #[error("no file with pages in the flash cache is missing at {}: there is nothing to give up. Nothing was changed", .0.display())]
    NotMissing(PathBuf),
    /// It is there and cannot be opened.
    #[error("opening {0}, which has pages in the flash cache: {1}{hint}. Nothing was changed", hint = hint(*.1))]
    Unopened(String, Errno),
    /// Its presence cannot be told.
    #[error(
        "looking for the files that have pages in the flash cache: {}: {source}. Nothing was changed",
        path.display()
    )]
    Unseen {
        /// The path at which it was looked for.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: Errno,
    },
    /// The cache's error.
    #[error(transparent)]
    Flash(#[from] FlashError),
}

/// The remedy.
fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::MFILE => " (each file in the cache is open once more: raise the limit, ulimit -n)",
        Errno::ACCESS | Errno::PERM => {
            " (it is written to with the rights of the cache's user, and that user may not)"
        }
        _ => "",
    }
}

impl HomesError {
    pub(super) fn unseen(path: &Path, source: Errno) -> Self {
        Self::Unseen {
            path: path.to_owned(),
            source,
        }
    }
}

/// The file of this path, open, only to be held. None if there is none, or no regular one.
///
/// # Errors
/// Whether it is one that is looked for cannot be told: nothing may be taken for deleted.
pub(super) fn hold(path: &Path) -> Result<Option<(OwnedFd, KnownFile)>, HomesError> {
    let unseen = |source| HomesError::unseen(path, source);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let held = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(held) => held,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(unseen(errno)),
    };
    let known = identity::of(&held).map_err(unseen)?;
    Ok(known.map(|known| (held, known)))
}
