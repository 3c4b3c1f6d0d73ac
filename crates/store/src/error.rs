//! Errors of a store, with the finding and the remedy.

use crate::{
    index_error::{IndexCause, IndexError},
    limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX},
};
use forebay_pool::{AppendError, Lsn, PoolError};
use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// An operation on a store that failed. Its `{:?}`, which `unwrap` and a `main` that returns it
/// print, is its message as well.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The operating system refused.
    #[error("{doing} {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// The step that failed, as a verb.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The pool refused.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The index refused.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// An option out of bounds.
    #[error("invalid option: {what}")]
    BadOption {
        /// The option, and its bound.
        what: String,
    },
    /// Another process has the store open, or this one has.
    #[error("store {} {}", dir.display(), who_has_it(*here))]
    InUse {
        /// The store.
        dir: PathBuf,
        /// This process has it open already.
        here: bool,
    },
    /// There is no store.
    #[error("{} holds no store ({found}); give the directory of a store, or let one be created", dir.display())]
    NotAStore {
        /// The directory.
        dir: PathBuf,
        /// The finding.
        found: String,
    },
    /// A directory that a checkpoint or backup cannot be made in.
    #[error("{} is not empty ({found}); nothing was changed. Give a directory that is empty or not there; for backups, one that has only this store's", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
        /// Its contents.
        found: String,
    },
    /// A directory in which backups are made or removed.
    #[error("another backup or prune is at work in {}; nothing was changed. Try again when it has ended", dir.display())]
    BackupsInUse {
        /// The directory.
        dir: PathBuf,
    },
    /// A format this program does not know.
    #[error("store {} has format version {found}; this program knows {known}. Use the program that made it, or a newer one", dir.display())]
    Version {
        /// The store.
        dir: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// A store that is to keep acknowledged writes needs a pool.
    #[error(
        "with the durability {durability}, acknowledged writes are kept in a pool, and none was given; open the store with one (PoolOptions::on_disk makes it on an ordinary disk), or with Durability::Fsync"
    )]
    PoolNeeded {
        /// The durability asked for.
        durability: String,
    },
    /// The disk has no room for what an opening has to write.
    #[error("store {} was not opened: its disk is full ({reason}). Nothing is lost. Make {bytes} bytes of room on that file system and open it again, with the same pool if it has one", dir.display())]
    NoRoomToOpen {
        /// The store.
        dir: PathBuf,
        /// Room that is needed.
        bytes: u64,
        /// The data that could not be written.
        reason: String,
    },
    /// Acknowledged data is in a pool that was not given.
    #[error("store {} was not closed, and acknowledged writes may still be in its pool {pool_path} (uuid {pool_uuid}); {found}. Open it with that pool: nothing is lost as long as the pool is kept. If it is gone for good, open with salvage and give up what was in it", dir.display())]
    DataInPool {
        /// The store.
        dir: PathBuf,
        /// The pool's earlier path.
        pool_path: String,
        /// The pool's identity.
        pool_uuid: uuid::Uuid,
        /// The pool that was given instead.
        found: String,
    },
    /// A structure fails its checks.
    #[error("{} is damaged: {what}. Nothing was changed; restore it from a copy; a verification of the store finds what else is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The place in it, and the finding.
        what: String,
    },
    /// A value has no form in JSON.
    #[error(
        "the value has no form in JSON ({source}); nothing was written. A map's keys must be strings or numbers there; or put bytes that another codec makes"
    )]
    ToJson {
        /// The parser's error.
        source: serde_json::Error,
    },
    /// A value is no JSON, or that of another type.
    #[error(
        "the value is no JSON of the type that was asked for ({source}); get gives its bytes as they are. A field that came later needs a default"
    )]
    FromJson {
        /// The finding, and its place.
        source: serde_json::Error,
    },
    /// A value was compressed by what this program has not got.
    #[error("{} has a value that was compressed with {algorithm}, which this program was built without: nothing is damaged. Build it with the cargo feature {algorithm} of forebay-store", path.display())]
    NotBuiltIn {
        /// The file, or the store.
        path: PathBuf,
        /// The algorithm, which is also the feature's name.
        algorithm: &'static str,
    },
    /// A value-log file is not there, too short, or not ours.
    #[error("value-log file {} {what}. The store was not opened and nothing was changed; put the file back", path.display())]
    ValueLog {
        /// The file.
        path: PathBuf,
        /// The mistake.
        what: String,
    },
    /// The directory, or its pool, was copied or restored in parts that are not of one moment.
    #[error("the parts of store {} are not of one moment: {found}. Nothing was changed. Restore all of it as of one moment, from a copy that was taken while the store was closed (with its pool, if it was not closed), or put the missing parts back. Opening with salvage would give up: {gives_up}", dir.display())]
    NotOneMoment {
        /// The store.
        dir: PathBuf,
        /// The parts that contradict each other, and the evidence.
        found: String,
        /// The loss that `salvage` would accept.
        gives_up: String,
    },
    /// The pool has the lane of a checkpoint or backup of the store.
    #[error("the pool {} has what a checkpoint or backup of store {} left there ({found}). Nothing was changed. Open that copy with this pool, and close it; or give this store another pool", pool_path.display(), dir.display())]
    PoolOfCopy {
        /// The store.
        dir: PathBuf,
        /// The pool.
        pool_path: PathBuf,
        /// The two sessions.
        found: String,
    },
    /// The manifest is not the one that this session wrote last.
    #[error("the manifest {} was replaced or removed while the store was open ({found}). It was left as it is, and nothing more can be written here; put this store's directory back, from a backup if it is gone, and open the store again", path.display())]
    Replaced {
        /// The manifest.
        path: PathBuf,
        /// Its state now.
        found: String,
    },
    /// This process was forked while its parent had a store open.
    #[error(
        "this process was forked from one that had a store open. The store is the parent's, and its threads were not forked with this process, which therefore can open no store. Fork first, and open stores then; or execute a program"
    )]
    Forked,
    /// A key out of bounds.
    #[error("a key of {bytes} bytes; 1 to {} are possible", KEY_BYTES_MAX)]
    BadKey {
        /// Its length.
        bytes: usize,
    },
    /// A value out of bounds.
    #[error(
        "a value of {bytes} bytes; at most {} (1 GiB) are possible",
        VALUE_BYTES_MAX
    )]
    ValueTooLarge {
        /// Its length.
        bytes: usize,
    },
    /// A batch that does not fit into one record.
    #[error(
        "the write needs a record of {bytes} bytes; at most half a segment ({bytes_max} bytes) is written as one. Write a batch as several, shorten the key, or use larger segments"
    )]
    BatchTooLarge {
        /// Its length in the log.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// One of several keys cannot be read.
    #[error("the key \"{}\" cannot be read: {source}", shown(key))]
    OfKey {
        /// The key.
        key: Vec<u8>,
        /// The error of reading it alone.
        source: Box<StoreError>,
    },
    /// The store has no keyspace of that name.
    #[error(
        "the store has no keyspace \"{}\"; Store::keyspaces lists those that it has, and Store::keyspace makes one",
        name.escape_debug()
    )]
    NoKeyspace {
        /// The name.
        name: String,
    },
    /// The keyspace was dropped.
    #[error(
        "nothing was done: keyspace \"{}\" was dropped, and what was in it is gone; make one of that name with Store::keyspace, it is another one",
        name.escape_debug()
    )]
    KeyspaceDropped {
        /// Its name, or its number where that is not known any more.
        name: String,
    },
    /// A keyspace was asked for something that cannot be.
    #[error("keyspace \"{}\": {what}", name.escape_debug())]
    BadKeyspace {
        /// Its name.
        name: String,
        /// The mistake, and the remedy.
        what: String,
    },
    /// The store's owner has removed a file that a reader looks for.
    #[error("store {} was changed by the process that has it open while it was read ({what}). Refresh the reader and read again", dir.display())]
    Outdated {
        /// The store.
        dir: PathBuf,
        /// The finding.
        what: String,
    },
    /// A key or range that a transaction has read was changed before it was committed.
    #[error(
        "the transaction was not committed, and nothing of it was done: what it read of the key \"{}\" was changed by another writer meanwhile. Run it again",
        shown(key)
    )]
    Conflict {
        /// The key: one that it read, or that came into a range that it read, or left it.
        key: Vec<u8>,
    },
    /// A transaction that another store began, or this one before it was opened again.
    #[error("the transaction was not begun by this opening of store {}, and nothing of it was done. Begin another one", dir.display())]
    ForeignTransaction {
        /// The store that was to go on with it.
        dir: PathBuf,
    },
    /// The value of a key that was to be incremented is no number, or too large a one.
    #[error(
        "the counter \"{}\" is as it was: it has {found}, and a counter is a number of 64 bits, 8 bytes with the lowest first. Delete the key or put such a number there",
        shown(key)
    )]
    NotACounter {
        /// The key.
        key: Vec<u8>,
        /// Its contents.
        found: String,
    },
    /// The disk cannot take what the pool holds.
    #[error(
        "the write was not done: the value log cannot be written ({reason}). What was acknowledged before is safe in the pool; {}",
        way_on(reason)
    )]
    Stalled {
        /// The reason that the drain cannot go on.
        reason: String,
    },
    /// A resident store's part of the pool is full.
    #[error(
        "the write was not done: the log of this resident store may have {segments} segments of {segment_bytes} bytes in its pool, and they are full ({reason}). Delete keys, drop snapshots, or open the store without resident: then its log goes on in files in its directory"
    )]
    Full {
        /// Segments that the store has.
        segments: usize,
        /// Bytes of one.
        segment_bytes: u64,
        /// The reason that no room can be made.
        reason: String,
    },
    /// So many snapshots and scans of different moments are open that another one would cost too
    /// much.
    #[error(
        "{open} snapshots and scans of different moments are open, which is as many as a store keeps; drop some, or share them: a snapshot may be cloned, and scanned any number of times"
    )]
    TooManySnapshots {
        /// The number that is open.
        open: usize,
    },
    /// Another thread compacts the store.
    #[error(
        "the store is being compacted by another thread: wait for that, and compact it again if that is needed then"
    )]
    Compacting,
    /// So many ranges would be deleted of which the index still has entries that they would cost
    /// too much.
    #[error(
        "the range was not deleted: with it, {ranges} deleted ranges that do not touch or more would not be merged away in the index yet, and a store keeps 10000, with 1 MiB of keys. Try again when it has merged them, which `compact` does at once and which takes room on the disk; or delete larger ranges, or fewer in one write"
    )]
    TooManyRanges {
        /// The number that there would be, or a part of them.
        ranges: usize,
    },
    /// The index cannot be written and the memtable is full.
    #[error(
        "the write was not done: the index cannot be written ({reason}). {}",
        way_on_in_log(reason)
    )]
    IndexStalled {
        /// The reason.
        reason: String,
    },
    /// The pool's disk failed before it had the write.
    #[error(
        "the write may be lost: it is in the memory of this process, and could not be committed to the pool ({reason}). The store takes no more writes; what was acknowledged before is safe. Repair the pool's disk and open the store again"
    )]
    NotCommitted {
        /// The disk's failure.
        reason: String,
    },
    /// An earlier write to the log failed, so its end is not known.
    #[error("the store takes no more writes: {reason}. Reopen it; what was acknowledged is safe")]
    ReadOnly {
        /// The failure.
        reason: String,
    },
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key in a message: its beginning, if it is long.
fn shown(key: &[u8]) -> String {
    const SHOWN: usize = 100;
    match key.split_at_checked(SHOWN) {
        None => key.escape_ascii().to_string(),
        Some((start, _)) => format!("{}… ({} bytes)", start.escape_ascii(), key.len()),
    }
}

/// Who has a store open, and what to do.
const fn who_has_it(here: bool) -> &'static str {
    match here {
        true => {
            "is open in this process already; share that Store by reference (or in an Arc) between threads, or close it first"
        }
        false => {
            "is in use by another process: its directory, vlog or the file LOCK in it is locked; stop that process first"
        }
    }
}

/// True if the reason is that a file or directory is not there, or another one is.
fn is_gone(reason: &str) -> bool {
    let signs = [
        "(os error 2)",
        "(os error 21)",
        "nothing more can be written",
    ];
    signs.iter().any(|sign| reason.contains(sign))
}

/// What to do about a value log or index that cannot be written.
fn way_on(reason: &str) -> &'static str {
    match is_gone(reason) {
        true => "put the store's files back, from a backup if they are gone, and open it again",
        false => "make room or repair the disk, and writes go on by themselves",
    }
}

/// The same, if the index cannot be.
fn way_on_in_log(reason: &str) -> String {
    let safe = match is_gone(reason) {
        true => "",
        false => "What was acknowledged before is safe in the log; ",
    };
    format!("{safe}{}", way_on(reason))
}

/// What to do about an error of the operating system, where that is not plain.
fn remedy(error: &io::Error) -> &'static str {
    use io::ErrorKind::{
        IsADirectory, NotADirectory, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem,
        StorageFull,
    };
    match error.kind() {
        StorageFull | QuotaExceeded => "; make room and try again",
        PermissionDenied | ReadOnlyFilesystem => {
            "; opening a store writes to it: make the directory writable for this user, or open the store for reading alone (StoreOptions::open_read_only), for which its files and its pool must be readable (chmod -R g+r)"
        }
        NotFound => "; the store's directory or a file in it was removed: restore it from a backup",
        IsADirectory => "; a directory stands where a file is needed: move it away",
        NotADirectory => "; a file stands where a directory is needed",
        _ => "",
    }
}

/// True if the error says that there is no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

impl StoreError {
    /// The error of one of several keys. One that a refresh of the reader mends is about all.
    pub(crate) fn of_key(self, key: Vec<u8>) -> Self {
        match self {
            Self::Outdated { .. } => self,
            other => Self::OfKey {
                key,
                source: Box::new(other),
            },
        }
    }

    /// For `map_err`: an I/O error while `doing` something to `path`.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            doing,
            path,
            source,
        }
    }

    /// True if a refused write cannot have reached the log: nothing in it points to what was
    /// written beside it.
    pub(crate) fn nothing_logged(&self) -> bool {
        matches!(
            self,
            Self::Stalled { .. }
                | Self::Full { .. }
                | Self::BatchTooLarge { .. }
                | Self::Conflict { .. }
                | Self::KeyspaceDropped { .. }
                | Self::ReadOnly { .. }
        )
    }

    /// True if it says that the disk, or the user's part of it, is full.
    pub(crate) fn is_full_disk(&self) -> bool {
        let error = match self {
            Self::Io { source, .. } => source,
            Self::Index(IndexError {
                cause: IndexCause::Io(source),
                ..
            }) => source,
            _ => return false,
        };
        is_full(error)
    }

    /// True of a write that may be done once there is room.
    pub(crate) fn wants_room(&self) -> bool {
        matches!(self, Self::Stalled { .. }) || self.is_full_disk()
    }

    pub(crate) fn not_built_in(path: &Path, algorithm: &'static str) -> Self {
        Self::NotBuiltIn {
            path: path.to_owned(),
            algorithm,
        }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    /// A record that should be at `lsn` and is not.
    pub(crate) fn lost(path: &Path, lsn: Lsn, found: impl std::fmt::Display) -> Self {
        Self::damaged(path, format!("at log address {lsn}: {found}"))
    }
}

impl From<AppendError> for StoreError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::TooLarge { bytes, bytes_max } => Self::BatchTooLarge { bytes, bytes_max },
            AppendError::Stalled(reason) => Self::Stalled { reason },
            AppendError::Closed => Self::ReadOnly {
                reason: "the store is closed".to_owned(),
            },
            AppendError::Forked => Self::Forked,
        }
    }
}
