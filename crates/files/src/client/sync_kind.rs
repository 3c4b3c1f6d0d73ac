//! The kinds of syncs, and their outcomes.

/// What is to be durable when a sync returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// Bytes and all metadata: `fsync`.
    Full,
    /// Bytes, and what is needed to read them: `fdatasync`.
    Data,
    /// Bytes of blocks that the file has: `sync_file_range`. The kernel commits no journal.
    Range,
}

/// How a sync was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// What was written is in the pool.
    InPool,
    /// By the kernel.
    Really,
}
