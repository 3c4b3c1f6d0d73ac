//! Errors of a pool, with the finding and the remedy.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// An operation on a pool that failed. Its `{:?}`, which `unwrap` and a `main` that returns it
/// print, is its message as well.
pub struct PoolError {
    /// The pool's path (or a name for a medium without one).
    pub path: PathBuf,
    /// The finding.
    pub kind: PoolErrorKind,
}

/// The finding; its text names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolErrorKind {
    /// The operating system refused.
    #[error("{doing}: {source}")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// Neither a regular file nor a devdax device.
    #[error(
        "is neither a regular file nor a devdax device; give the path of a file on a DAX file system, or /dev/daxX.Y"
    )]
    NotAFile,
    /// A file of no bytes.
    #[error(
        "is an empty file, not a pool; remove it and create the pool (PoolOptions::create, `forebay pool create`)"
    )]
    Empty,
    /// `MAP_SYNC` was refused.
    #[error(
        "is not on persistent memory: it lies on {file_system}, which refuses MAP_SYNC. Use a file on a file system mounted with -o dax on /dev/pmemN, or a devdax device; without any, make it on a disk (PoolOptions::on_disk, --disk), or in memory (PoolOptions::emulated, --emulated; that survives a process crash, not a power cut)"
    )]
    NotPersistentMemory {
        /// Type and mount point.
        file_system: String,
    },
    /// A pool on a disk that would be on none.
    #[error(
        "lies in memory ({what}), not on a disk: commits there do not survive a power cut. Choose another place, or make it emulated (PoolOptions::emulated, --emulated; it \
         survives a process crash)"
    )]
    NotOnADisk {
        /// The file system's type, or the device.
        what: String,
    },
    /// Created on persistent memory, found elsewhere.
    #[error(
        "was made on persistent memory, but lies on {file_system} now, which refuses MAP_SYNC; put it back on persistent memory, or open it as emulated (PoolOptions::emulated, --emulated) and know that it survives process crashes only"
    )]
    MovedOffPersistentMemory {
        /// Type and mount point.
        file_system: String,
    },
    /// Something is there already.
    #[error(
        "exists already ({found}); nothing was changed. Choose another path, or remove it if nothing in it is needed"
    )]
    Exists {
        /// The file's kind.
        found: String,
    },
    /// A device that holds something.
    #[error(
        "holds {found}; nothing was changed. If nothing of that is needed, give it up (PoolOptions::force, --force); otherwise choose another device"
    )]
    Holds {
        /// The device's contents.
        found: String,
    },
    /// A device that the kernel uses.
    #[error(
        "is in use ({by}); nothing was changed, and force does not change that. Unmount it, take it out of its array or volume group, or choose another device"
    )]
    Busy {
        /// Its user.
        by: String,
    },
    /// A medium that the pool does not fit on.
    #[error(
        "has {found} bytes, and a pool of {wanted} was asked for; nothing was changed. Ask for no more than it has (PoolOptions::size, --size), or take a larger one"
    )]
    TooSmall {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes there are.
        found: u64,
    },
    /// A file system that the pool does not fit on.
    #[error(
        "does not fit: it takes {wanted} bytes, and the file system there has {free} left; nothing of it was left behind. Make room, or ask for less (PoolOptions::size, --size)"
    )]
    NoRoom {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes free before.
        free: u64,
    },
    /// A file that lacks blocks, on a file system that has none.
    #[error(
        "needs room that its file system does not have: its file has holes (or the file system writes everything anew, as Btrfs does). Nothing that was acknowledged is lost. Make room, and fill the holes while no program uses the pool: fallocate -l {bytes} on its file"
    )]
    NoBlocks {
        /// Bytes of the pool.
        bytes: u64,
    },
    /// A disk that cannot write a page alone.
    #[error(
        "lies on a disk with sectors of {found} bytes: a write that tears would take committed records beside it, since a pool writes pages of 4096. Choose a disk with \
         sectors of 4096 bytes or less"
    )]
    SectorTooLarge {
        /// Bytes of a sector.
        found: u64,
    },
    /// A pool on legs, or the file that names them, which is none.
    #[error("cannot lie on these legs: {what}")]
    BadLegs {
        /// The damage.
        what: String,
    },
    /// No pool.
    #[error(
        "is not a Forebay pool: both superblocks are unreadable ({found}). If it was a pool, restore it from a copy; nothing was changed"
    )]
    NotAPool {
        /// The first superblock's contents.
        found: String,
    },
    /// A format this program does not know.
    #[error(
        "is a pool of format version {found}; this program knows version {known}. Open it with the program that made it, or a newer one"
    )]
    Version {
        /// Version of the pool.
        found: u32,
        /// Version of this program.
        known: u32,
    },
    /// The file is shorter than the pool.
    #[error(
        "is truncated: the pool has {stated} bytes, the file {found}. Restore the file; nothing was changed"
    )]
    Truncated {
        /// Bytes the superblock states.
        stated: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// Parameters that make no pool.
    #[error("cannot be made with these sizes: {reason}")]
    BadSize {
        /// The bound that is broken.
        reason: String,
    },
    /// A log address at which no log can start.
    #[error("cannot start a log at address {start}: a multiple of 4096 up to 2^61 is needed")]
    BadStart {
        /// The address asked for.
        start: u64,
    },
    /// All segments or lanes are taken.
    #[error(
        "is full: {wanted} {unit} wanted, {free} free. Close or remove an owner (see `forebay pool status`), or make a larger pool"
    )]
    Full {
        /// The unit that is scarce.
        unit: &'static str,
        /// Number asked for.
        wanted: u64,
        /// Number free.
        free: u64,
    },
    /// A process has the lane, perhaps this one.
    #[error(
        "lane {lane} ({label}) is in use by another process (or by this one already); stop that process, or wait until it ends"
    )]
    InUse {
        /// The lane.
        lane: u32,
        /// Its owner's label.
        label: String,
    },
    /// It was opened by the process that this one was forked from.
    #[error(
        "was opened by the parent before this process was forked: open it again in this process, or fork first and open it then"
    )]
    Forked,
    /// A lock or a change is refused: the pool was opened for reading.
    #[error(
        "was opened for reading only (PoolOptions::open_read_only), and this would change it or lock a part of it; nothing was done. Open it with PoolOptions::open"
    )]
    OpenedToRead,
    /// A pool on a disk, for a log that commits nothing.
    #[error(
        "lies on a disk, where a write is durable only once it is committed, and a flash cache cannot do that yet. Give the cache a pool on persistent memory"
    )]
    NeedsCommit,
    /// A structure fails its checks.
    #[error(
        "is damaged: {what}. Nothing was changed; run `forebay pool check` for the whole picture and restore the pool from a copy if there is one"
    )]
    Damaged {
        /// The structure, its place, and the damage.
        what: String,
    },
    /// An acknowledged record is unreadable.
    #[error(
        "lane {lane} is damaged: the record at log address {lsn} is unreadable ({found}), but it had been acknowledged: a valid later record at {witness} says so. Nothing was changed; restore the pool from a copy, or accept the loss of everything from {lsn} on by opening with salvage"
    )]
    LostRecords {
        /// The lane.
        lane: u32,
        /// First unreadable log address.
        lsn: u64,
        /// The finding there.
        found: String,
        /// A valid record that was written after that one had been acknowledged.
        witness: u64,
    },
}

impl PoolError {
    pub(crate) fn new(path: &Path, kind: PoolErrorKind) -> Self {
        Self {
            path: path.to_owned(),
            kind,
        }
    }

    pub(crate) fn io(path: &Path, doing: &'static str, source: io::Error) -> Self {
        Self::new(path, PoolErrorKind::Io { doing, source })
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            kind @ PoolErrorKind::Io { .. } => write!(f, "pool {}: {kind}", self.path.display()),
            kind => write!(f, "pool {} {kind}", self.path.display()),
        }
    }
}

impl fmt::Debug for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            PoolErrorKind::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The reason that an append was refused. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Larger than half a segment.
    #[error("a record of {bytes} bytes is larger than the pool takes ({bytes_max})")]
    TooLarge {
        /// Payload bytes asked for.
        bytes: usize,
        /// Payload bytes at most.
        bytes_max: usize,
    },
    /// The lane is full and its drain reported that it cannot go on.
    #[error("the pool is full and cannot be drained: {0}")]
    Stalled(String),
    /// The lane was closed.
    #[error("the lane is closed")]
    Closed,
    /// The lane is that of the process that this one was forked from.
    #[error("{}", Self::FORKED)]
    Forked,
}

impl AppendError {
    /// The text of [`Forked`](Self::Forked).
    pub(crate) const FORKED: &str = "the lane was opened by the parent before this process was forked: open the pool again in this process, or fork first and open it then";
}
