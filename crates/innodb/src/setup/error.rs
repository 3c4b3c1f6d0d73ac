//! Errors of making, opening and emptying a cache.

use crate::{
    control_files::directory_of, find::HomesError, guard::if_restored, lost_pages::by_file,
};
use forebay_flash::{FlashError, PageName};
use forebay_pool::PoolError;
use std::{
    io,
    path::{Path, PathBuf},
};

/// The reason that a cache cannot be made, opened, or emptied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The operating system's error of a file.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// Its object.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// There is a flash file without its metadata.
    #[error(
        "the flash cache {} has its metadata in {}, which is not there. Without it, the newest pages are not known: bring it back. If {} was not yet a cache, since its making was interrupted, remove it. Nothing was changed",
        flash.display(),
        pool.display(),
        flash.display()
    )]
    NoPool {
        /// The flash file.
        flash: PathBuf,
        /// The path that its pool should have.
        pool: PathBuf,
    },
    /// A device whose metadata would be lost with the next boot.
    #[error(
        "{} is a device, and the metadata of its cache is a file beside it, which would be in memory there. Make a link to the device in a directory on a disk, and \
         give that (ln -s {} /var/lib/forebay-cache; best to a name that stays, in /dev/disk/by-id)",
        flash.display(),
        flash.display()
    )]
    InDev {
        /// The device.
        flash: PathBuf,
    },
    /// Something of that name is left.
    #[error(
        "{} is there, and the flash file beside it is not: it may be the metadata of a cache that has newer pages than the files. Bring the flash file back; or remove it, if nothing is needed",
        pool.display()
    )]
    PoolLeft {
        /// The pool.
        pool: PathBuf,
    },
    /// The rest of a resize would be done by the next server.
    #[error(
        "{} is left of an earlier forebay flash resize: {source}. The next server would give the cache the size that it says. As its owner, or as root: \
         rm {}; then repeat. Nothing was changed",
        note.display(),
        note.display()
    )]
    ResizeLeft {
        /// The path of its note.
        note: PathBuf,
        /// The reason that it stays.
        #[source]
        source: Box<SetupError>,
    },
    /// Another process has it.
    #[error(
        "the flash cache {} is in use by another process (or mounted, if it is a device). One process has it at a time: end that one first",
        flash.display()
    )]
    InUse {
        /// The flash file.
        flash: PathBuf,
    },
    /// It is to be removed, and a data directory may need it still.
    #[error(
        "the flash cache {} is that of a data directory, and {dirty} pages in it are newer than in the files there: without it no server comes up. First: forebay flash flush --flash {}. {}. \
         Nothing was changed",
        flash.display(),
        flash.display(),
        if_restored(flash)
    )]
    NotFlushed {
        /// The flash file.
        flash: PathBuf,
        /// Pages that are newer than in the files.
        dirty: u64,
    },
    /// The data directory is not where it was.
    #[error(
        "{}, whose pages the flash cache has, is not there. If its directory was renamed or mounted elsewhere, name it with --data DIR; if it was deleted on purpose, remove the flash \
         file, and its .lane, too. Nothing was changed",
        .0.display()
    )]
    NoData(PathBuf),
    /// Another one is there instead.
    #[error(
        "{} is not the one whose pages the flash cache {} has, but a copy of it (by cp, rsync, or mv to another file system) or that of another server: bring the original back. {}. \
         Nothing was changed",
        system.display(),
        flash.display(),
        if_restored(flash)
    )]
    OtherData {
        /// The system tablespace that is there.
        system: PathBuf,
        /// The flash file.
        flash: PathBuf,
    },
    /// Pages that are only in the cache, and that it cannot give.
    #[error(
        "{} pages are damaged in the flash cache {}, or cannot be read from it, and the files have older ones. Everything else is in the files now. If the device is only \
         unwell, copy {} and {} to another with a program that goes on after errors (ddrescue), and flush the copy; or restore these from a backup, or drop their tables:\n  {}",
        pages.len(),
        flash.display(),
        flash.display(),
        pool.display(),
        by_file(pages).join("\n  ")
    )]
    Lost {
        /// The flash file.
        flash: PathBuf,
        /// The path of its metadata.
        pool: PathBuf,
        /// The pages.
        pages: Vec<PageName>,
    },
    /// Its making was cut.
    #[error(
        "the flash cache {} was not made to the end: its headers are blank. Nothing is in it, unless something has written zeros over it since. Remove it, and {}, and begin again. \
         Nothing was changed",
        flash.display(),
        pool.display()
    )]
    Unmade {
        /// The flash file.
        flash: PathBuf,
        /// The path that its metadata is to have.
        pool: PathBuf,
    },
    /// A user who could have written it may do less than the one who runs the command.
    #[error("{0}")]
    Distrusted(String),
    /// The error of the process that acted for the user whose cache it is.
    #[error("{0}")]
    Acting(String),
    /// The answer of the process that has the cache, or its silence.
    #[error("{0}")]
    Running(String),
    /// The settings made are not those kept by now.
    #[error("{0}")]
    SetByAnother(String),
    /// The process that had it listened to no command, and has let go of it.
    #[error(
        "the flash cache {} was in use by another process, and no process has it any more: repeat this",
        flash.display()
    )]
    Released {
        /// The flash file.
        flash: PathBuf,
    },
    /// A data directory's guard says that it is of another.
    #[error("{0}")]
    Guard(String),
    /// The cache's error.
    #[error(transparent)]
    Flash(#[from] FlashError),
    /// The pool's error.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The error of the search for the files.
    #[error(transparent)]
    Homes(#[from] HomesError),
}

impl SetupError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            doing,
            path,
            source,
        }
    }

    /// The same of one of a cache's files, which may be another user's than the server's.
    pub(crate) fn io_of_cache(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let fail = Self::io(doing, path);
        let dir = directory_of(path).to_owned();
        move |e| match e.kind() {
            io::ErrorKind::PermissionDenied => fail(io::Error::new(
                e.kind(),
                format!(
                    "{e}. The flash file, its .lane and their directory are to be the server's user's (chown USER; install -d -o USER -m 700 {}), and commands that use \
                     them are to run as that user, or as root",
                    dir.display()
                ),
            )),
            _ => fail(e),
        }
    }

    /// True if another process has the cache.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }
}
