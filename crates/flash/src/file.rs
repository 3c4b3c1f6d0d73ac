//! Files: their identities, and the cache's state of each while it is open.

use crate::sequential::Sequential;
use parking_lot::{Mutex, RwLock};
use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// A file's identity, for ever: an inode may be used again, with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The file system.
    pub device: u64,
    /// The file in it.
    pub inode: u64,
    /// The inode's generation, which tells it from other files that have had it, or the time of its
    /// birth.
    pub generation: u64,
}

/// A registered file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// The cache's number for it. No other file ever gets it, not even the same one after it was
    /// dropped.
    pub number: u32,
    /// Its identity.
    pub identity: Identity,
}

/// A registered file in use: reads and enqueues name it. Shared by reference.
#[derive(Debug)]
pub struct CachedFile {
    id: FileId,
    name: RwLock<Arc<str>>,
    /// Bytes of the file that are known to be durable at home.
    durable_bytes: AtomicU64,
    dropped: AtomicBool,
    past: Mutex<PastWrites>,
    /// Detects reads and writes in a row.
    pub(crate) reads: Mutex<Sequential>,
    pub(crate) writes: Mutex<Sequential>,
}

/// Writes to the file past the cache. Until it is durable, a page that is read there is none that
/// the cache may take for clean: a crash could take it from the file and leave it in the cache.
#[derive(Debug)]
struct PastWrites {
    /// Writes that go on now.
    open: u32,
    /// Writes that were begun, and one for what was there before.
    begun: u64,
    /// Of these, those that are durable.
    durable: u64,
    /// A sync failed before they were: what became of them is not known, and a later sync does not
    /// say it.
    failed: bool,
    /// A sync failed of which it is not known what it took of the file: nothing that is read there
    /// is taken for durable any more.
    doubtful: bool,
}

/// The durability of all that can be read in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileDurability {
    Yes,
    No,
    /// Nothing was written since the file was registered in this session.
    NotAskedYet,
}

impl CachedFile {
    pub(crate) fn new(id: FileId, name: &str) -> Self {
        Self {
            id,
            name: RwLock::new(name.into()),
            durable_bytes: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
            past: Mutex::new(PastWrites {
                open: 0,
                begun: 1,
                durable: 0,
                failed: false,
                doubtful: false,
            }),
            reads: Mutex::new(Sequential::shared()),
            writes: Mutex::new(Sequential::in_order()),
        }
    }

    /// Its number and identity.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.id
    }

    /// The name it was registered with, or got since, for people and for finding it again.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.name.read())
    }

    pub(crate) fn set_name(&self, name: &str) {
        *self.name.write() = name.into();
    }

    pub(crate) fn durable_bytes(&self) -> u64 {
        self.durable_bytes.load(Acquire)
    }

    pub(crate) fn set_durable_bytes(&self, bytes: u64) {
        self.durable_bytes.store(bytes, Release);
    }

    pub(crate) fn begin_past(&self) {
        let mut past = self.past.lock();
        past.open += 1;
        past.begun += 1;
    }

    pub(crate) fn end_past(&self) {
        let mut past = self.past.lock();
        past.open = past.open.saturating_sub(1);
        // A sync that ran meanwhile did not cover it.
        past.begun += 1;
    }

    pub(crate) fn settled(&self) -> FileDurability {
        let past = self.past.lock();
        if past.failed || past.doubtful {
            return FileDurability::No;
        }
        match (past.open, past.begun - past.durable) {
            (0, 0) => FileDurability::Yes,
            (0, 1) if past.begun == 1 => FileDurability::NotAskedYet,
            _ => FileDurability::No,
        }
    }

    /// True if something was written past the cache in this session, and is not known to be
    /// durable.
    pub(crate) fn has_past_writes(&self) -> bool {
        let past = self.past.lock();
        past.begun > past.durable.max(1)
    }

    /// Writes that were begun: if the file is synced after this, they are
    /// [durable](Self::set_settled).
    pub(crate) fn unsettled(&self) -> Option<u64> {
        let past = self.past.lock();
        (past.begun > past.durable).then_some(past.begun)
    }

    /// A sync of the file failed.
    pub(crate) fn sync_failed(&self) {
        self.home_failed();
        self.past.lock().doubtful = true;
    }

    /// A sync of any home failed: a device that did not flush took its writes of every file with
    /// it.
    pub(crate) fn home_failed(&self) {
        let mut past = self.past.lock();
        past.failed |= past.begun > past.durable.max(1);
        past.doubtful |= past.begun > past.durable;
    }

    /// True if a sync failed that writes past the cache depended on.
    pub(crate) fn has_failed(&self) -> bool {
        self.past.lock().failed
    }

    pub(crate) fn set_settled(&self, begun: u64) {
        let mut past = self.past.lock();
        past.durable = past.durable.max(begun);
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Relaxed)
    }

    pub(crate) fn set_dropped(&self) {
        self.dropped.store(true, Relaxed);
    }
}
