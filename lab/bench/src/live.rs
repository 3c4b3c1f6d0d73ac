//! A count that a workload keeps while it runs, for whoever watches.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Operations done so far.
#[derive(Debug, Default)]
pub struct Live(AtomicU64);

impl Live {
    /// So many.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// So many more.
    pub fn add(&self, ops: u64) {
        self.0.fetch_add(ops, Relaxed);
    }
}
