//! A recovery's options.

/// Options of a recovery.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoverOptions {
    /// Write also to files that were changed since, and pass over those that are missing.
    pub force: bool,
    /// Give up records that cannot be replayed.
    pub discard: bool,
}
