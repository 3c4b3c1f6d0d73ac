//! Errors of the cache, with the finding and the remedy.

use forebay_pool::{AppendError, PoolError};
use std::{fmt, io};
use uuid::Uuid;

/// A page, for people: the file by the name it was registered with, and the page's number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageName {
    /// The file's name when it was registered.
    pub file: String,
    /// The page's number in the file.
    pub page: u32,
}

impl fmt::Display for PageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of {}", self.page, self.file)
    }
}

impl FlashError {
    /// The fault, and its file or device: the same for each page, however often it is met.
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            Self::Flash {
                flash,
                doing,
                source,
            } => format!("flash {flash}: {doing}: {source}"),
            Self::Home {
                file,
                doing,
                source,
            } => format!("{file}: {doing}: {source}"),
            Self::DamagedPage { page } => format!("{}: damaged in the flash cache", page.file),
            Self::UnreadablePage { page, source, .. } => {
                format!("{}: reading it from flash: {source}", page.file)
            }
            Self::DamagedPages { first, .. } => format!("{}: damaged in flash", first.file),
            Self::StillNewer { file, .. } => format!("{file}: newer in the flash cache"),
            Self::StillWritten(_) => "pages came in while the cache was emptied".to_owned(),
            other => other.to_string(),
        }
    }
}

/// The reason that the cache refused or failed; the text names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlashError {
    /// The flash device failed.
    #[error("flash {flash}: {doing}: {source}. Pages synced before are kept; look at the device")]
    Flash {
        /// The device in words.
        flash: String,
        /// The step that failed.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A home file failed.
    #[error("{file}: {doing}: {source}. Its newer pages are kept, and are written again")]
    Home {
        /// The file's name.
        file: String,
        /// The step that failed.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A sync of a home file failed, and writes to it past the cache may be lost.
    #[error(
        "{file}: a sync of it failed, and pages written past the flash cache may be lost, even if later syncs succeed. Restart the program that wrote it: its log has the \
         unsynced writes"
    )]
    SyncFailed {
        /// The file's name.
        file: String,
    },
    /// A page whose only newest copy is unreadable.
    #[error(
        "{page} is damaged in the flash cache, and the file itself has an older one: it is not read. Restore the page from a backup, or drop the file; pages written from \
         now on are whole"
    )]
    DamagedPage {
        /// The page.
        page: PageName,
    },
    /// A page whose only newest copy the flash device could not read.
    #[error(
        "{page} could not be read from flash, and the file itself has an older one: it is not read: {source}. Repeat it; if the device is broken, restore the page from a backup, or drop the file"
    )]
    UnreadablePage {
        /// The page.
        page: PageName,
        /// The system's reason.
        source: io::Error,
        /// Flash gave nothing else either: it may come back, with all that is on it.
        is_gone: bool,
    },
    /// Pages whose only newest copy is unreadable.
    #[error(
        "{} pages are damaged in the flash cache, or cannot be read from it, and the files have older ones, beginning with {first}. Restore them from a backup, or give them up with a tombstone; nothing else is in the way",
        count
    )]
    DamagedPages {
        /// Number of files.
        count: usize,
        /// The first of them.
        first: PageName,
    },
    /// Neither header is one of a cache.
    #[error(
        "flash {flash} is not a flash cache: {found}. Nothing was changed; give the right file, or a blank one to make a cache in"
    )]
    NotACache {
        /// The device in words.
        flash: String,
        /// The finding.
        found: String,
    },
    /// Something is there already.
    #[error(
        "flash {flash} is not blank: {found}. Nothing was changed; if nothing in it is needed, make its first 8 KiB zero"
    )]
    NotBlank {
        /// The device in words.
        flash: String,
        /// The finding.
        found: String,
    },
    /// A format this program does not know.
    #[error(
        "flash {flash} is a cache of format version {found}; this program knows version {known}. Open it with the program that made it, or a newer one"
    )]
    Version {
        /// The device in words.
        flash: String,
        /// Version of the cache.
        found: u32,
        /// Version of this program.
        known: u32,
    },
    /// Sizes that make no cache.
    #[error("a flash cache cannot be made with these sizes: {reason}")]
    BadSize {
        /// The bound that is broken.
        reason: String,
    },
    /// The device is shorter than the cache on it.
    #[error(
        "flash {flash} is truncated: the cache has {stated} bytes, the file {found}. Restore the file; nothing was changed"
    )]
    Truncated {
        /// The device in words.
        flash: String,
        /// Bytes that the header states.
        stated: u64,
        /// Bytes of the device.
        found: u64,
    },
    /// The cache has pages of another size.
    #[error(
        "flash {flash} holds pages of {found} bytes, {wanted} were asked for. Open it with {found}, or flush it and make another"
    )]
    PageSize {
        /// The device in words.
        flash: String,
        /// Bytes of its pages.
        found: u32,
        /// Bytes asked for.
        wanted: u32,
    },
    /// The cache's metadata is in another pool.
    #[error(
        "flash {flash} belongs to pool {wanted}, this one is {found}. Give the pool that it was made with; nothing was changed"
    )]
    OtherPool {
        /// The device in words.
        flash: String,
        /// The pool in the header.
        wanted: Uuid,
        /// The pool given.
        found: Uuid,
    },
    /// The pool has no lane of this cache.
    #[error(
        "flash {flash} has its metadata in lane {owner} of pool {pool}, and there is no such lane. Without it, the newest pages are not known: restore the pool; nothing was changed"
    )]
    NoLane {
        /// The device in words.
        flash: String,
        /// The lane's owner.
        owner: Uuid,
        /// The pool.
        pool: Uuid,
    },
    /// The lane holds records already.
    #[error(
        "lane {owner} holds the metadata of another flash cache. Open that one, or give the new one an owner of its own"
    )]
    LaneInUse {
        /// The lane's owner.
        owner: Uuid,
    },
    /// Flash failed in the one moment of a resize that decides which size the cache has.
    #[error(
        "flash {flash} failed while its header was written for another size, and refused it as it was before: only the device knows which size it has. Nothing is recorded \
         any more, and no page that is written now is promised to be durable. Restart the server: synced pages are there, with the old size or the new one"
    )]
    HalfResized {
        /// The device in words.
        flash: String,
    },
    /// Metadata that contradicts itself.
    #[error(
        "the metadata of flash {flash} is damaged: {what}. Nothing was changed; restore flash and pool together from a copy"
    )]
    Damaged {
        /// The device in words.
        flash: String,
        /// The finding, and its place.
        what: String,
    },
    /// The pool refused.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The lane refused a record.
    #[error("the metadata of the flash cache could not be appended: {0}")]
    Append(#[from] AppendError),
    /// No room for another file.
    #[error(
        "the flash cache knows {0} files already, as many as it has room for. Drop files that are not needed, or make a cache for more"
    )]
    TooManyFiles(u32),
    /// A file that was dropped, or one of another cache.
    #[error(
        "file number {0} is not registered with the flash cache: it was dropped. Register it again"
    )]
    NoSuchFile(u32),
    /// A file of which the cache has newer pages was to be used without it.
    #[error(
        "{file}: {pages} pages in the flash cache are newer than in the file, so the cache keeps the file. Bring them home first"
    )]
    StillNewer {
        /// The file's name.
        file: String,
        /// Number of pages.
        pages: u64,
    },
    /// Bytes that are no page.
    #[error("{found} bytes are no page of {wanted}")]
    NotAPage {
        /// Bytes given.
        found: usize,
        /// Bytes of a page.
        wanted: usize,
    },
    /// Pages are in a cache that is to be removed.
    #[error("the flash cache has {0} slots in use; empty it before it is removed")]
    NotEmpty(u64),
    /// Pages came in while everything was being written home.
    #[error(
        "{0} pages came in while the flash cache was being emptied. Stop the writers, or switch the cache off, and repeat"
    )]
    StillWritten(u64),
}
