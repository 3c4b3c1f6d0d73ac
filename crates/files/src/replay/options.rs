//! A recovery's options.

/// How to recover.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoverOptions {
    /// Write also to files that were changed since, and pass over those that are missing.
    pub force: bool,
    /// Give up what cannot be replayed.
    pub discard: bool,
}
