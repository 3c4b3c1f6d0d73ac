//! The kinds of syncs, and their outcomes.

/// The durability that a sync is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// Bytes and all metadata: `fsync`.
    Full,
    /// Bytes, and the metadata needed to read them: `fdatasync`.
    Data,
    /// Bytes of blocks that the file has: `sync_file_range`. The kernel commits no journal.
    Range,
}

/// The way a sync was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// The writes are in the pool.
    InPool,
    /// By the kernel.
    Really,
}
