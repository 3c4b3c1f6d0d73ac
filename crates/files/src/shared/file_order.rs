//! The changes that a file's syncs are ordered behind, for all processes of the run.
//! docs/files-write.md, "Order with the rest of the file system".

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The order that the syncs of a file keep with changes of metadata on its file system
/// ([`OrderPage`](crate::order::OrderPage)). Changed under the file's lock, but for `unsynced`.
#[repr(C)]
pub struct FileOrder {
    /// Changes before the last write that the kernel journals.
    pub written_after: AtomicU64,
    /// Below this offset its blocks were all written before it was registered: a rewrite there is
    /// in no journal.
    pub in_place_below: AtomicU64,
    /// 1 while records of it follow a change that is not ordered.
    pub held: AtomicU32,
    /// 1 if there was such a write since its last real sync.
    pub unsynced: AtomicU32,
    /// The error of a real sync that a write needed: the next sync returns it. 0 for none.
    pub failed: AtomicI32,
    unused: AtomicU32,
}

impl FileOrder {
    /// Supervisor: it is another file from now on.
    pub fn begin(&self, in_place_below: u64) {
        self.written_after.store(0, Relaxed);
        self.in_place_below.store(in_place_below, Relaxed);
        self.held.store(0, Relaxed);
        self.unsynced.store(0, Relaxed);
        self.failed.store(0, Relaxed);
    }
}
