//! Rung when something changed: for threads that look again. Waited for by the kernel's clock: a
//! condition variable's time is the C library's, which a library before it may have stopped.

use forebay_pool::media;
use std::{
    sync::atomic::{AtomicU32, Ordering::Acquire},
    time::Duration,
};

/// Counts how often it was rung.
#[derive(Default)]
pub(super) struct Bell(AtomicU32);

impl Bell {
    /// The number of rings: asked before the look that decides whether to wait.
    pub(super) fn rung(&self) -> u32 {
        self.0.load(Acquire)
    }

    /// Wakes all who wait.
    pub(super) fn ring(&self) {
        media::wake(&self.0);
    }

    /// Returns when it was rung again, or after so long.
    pub(super) fn wait(&self, rung: u32, limit: Duration) {
        media::wait(&self.0, rung, limit);
    }
}
