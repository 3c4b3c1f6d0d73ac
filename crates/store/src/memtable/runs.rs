//! The order of a chunk's keys: runs, each sorted once, and the keys that left them.
//! [`order`](super::order) keeps it.

use std::sync::Arc;

/// Entries in key order: eight bytes of the key behind what all keys of the order share, and the
/// entry's place.
pub(crate) struct SortedRun(pub(super) Box<[(u64, u32)]>);

impl SortedRun {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// First and last key, both included.
pub(crate) type KeyStretch = (Vec<u8>, Vec<u8>);

/// The order as a scan takes it.
pub(crate) struct ChunkOrder {
    /// No key is in two of them.
    pub(crate) runs: Vec<Arc<SortedRun>>,
    /// Between which keys deleted ones are in none of them.
    pub(crate) left: Option<Arc<KeyStretch>>,
}

/// A chunk's order.
#[derive(Default)]
pub(super) struct KeyOrder {
    /// The numbers of each shard's entries, and of those revived, when they were last taken in.
    pub(super) seen: Vec<(u32, u32)>,
    /// Leading bytes that all keys share.
    pub(super) shared: Option<Vec<u8>>,
    /// The largest first.
    pub(super) runs: Vec<Arc<SortedRun>>,
    pub(super) left: Option<Arc<KeyStretch>>,
}

impl KeyOrder {
    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(|run| run.len()).sum()
    }
}
