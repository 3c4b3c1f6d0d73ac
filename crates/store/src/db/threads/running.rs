//! [`RunningThreads`]: the right of this process to start threads behind a store.
//!
//! Threads that sleep in a lock or a condition variable are listed by their memory (`parking_lot`,
//! one table for all of a process). A forked child has the list and not the threads, and the next
//! threads that it starts are given the same memory: the first of them to sleep goes into a list of
//! ruins. So a child that was forked while a store was open starts none.

use crate::error::StoreError;
use forebay_pool::media::ProcessMark;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The stores whose threads run: how many, in the low bits, and by its number in which process. No
/// lock, which a forked child might find held.
static STORES: AtomicU64 = AtomicU64::new(0);
const COUNT_BITS: u32 = 24;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// Counts a store whose threads run, until this is dropped.
pub(in crate::db) struct RunningThreads(ProcessMark);

impl RunningThreads {
    /// [`StoreError::Forked`] if threads ran in the parent when it forked.
    pub(in crate::db) fn begin() -> Result<Self, StoreError> {
        let here = ProcessMark::take();
        let ours = here.number() << COUNT_BITS;
        let counted = STORES.fetch_update(SeqCst, SeqCst, |stores| {
            let (process, count) = (stores & !COUNT, stores & COUNT);
            match count {
                0 => Some(ours + 1),
                _ if process == ours => Some(stores + 1),
                _ => None,
            }
        });
        match counted {
            Ok(_) => Ok(Self(here)),
            Err(_) => Err(StoreError::Forked),
        }
    }
}

impl Drop for RunningThreads {
    fn drop(&mut self) {
        // A forked child keeps the number that it inherited.
        if self.0.is_here() {
            STORES.fetch_sub(1, SeqCst);
        }
    }
}
