//! [`WriterLease`]: for how long a writer may count on being the pool's writer still. docs/legs.md,
//! "The writer's protocol".
//!
//! Who takes the pool over announces it on the legs and waits for [`TAKEOVER`]. A writer that has
//! looked at its legs, and found no announcement, since less than [`LEASE`] is none yet whose
//! successor reads: it may write and acknowledge. One that stood still for longer (it was stopped,
//! its machine was suspended, a thread came late) looks again first.

use crate::failpoint;
use rustix::time::{ClockId, clock_gettime};
use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire},
    },
    time::Duration,
};

/// Wait for a writer of another machine: it is told, and its lease ends.
pub(super) const TAKEOVER: Duration = Duration::from_secs(8);
/// Time that a look at the legs is good for, from when it was begun. What is left of [`TAKEOVER`]
/// is for what was allowed right before its end, and for clocks that run differently.
const LEASE: Duration = Duration::from_secs(6);

/// A moment by a clock that goes on while the machine is suspended, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseMoment(u64);

impl LeaseMoment {
    pub(super) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Self(seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0))
    }
}

/// See the module's head.
pub(super) struct WriterLease {
    /// Start of the last look that found this writer on all its legs.
    looked: AtomicU64,
    /// Nanoseconds that it is good for.
    good: u64,
}

impl WriterLease {
    /// One that begins now: a writer's first generation is about to be written.
    pub(super) fn begin() -> Self {
        let good = failpoint::limit("legs-lease", LEASE).as_nanos();
        Self {
            looked: AtomicU64::new(LeaseMoment::now().0),
            good: u64::try_from(good).unwrap_or(u64::MAX),
        }
    }

    /// True if the writer may send writes, and say that they count.
    pub(super) fn is_good(&self) -> bool {
        LeaseMoment::now()
            .0
            .saturating_sub(self.looked.load(Acquire))
            < self.good
    }

    /// A look that was begun then found this writer on all its legs.
    pub(super) fn renew(&self, begun: LeaseMoment) {
        self.looked.fetch_max(begun.0, AcqRel);
    }

    /// It ended long ago.
    #[cfg(test)]
    pub(super) fn end(&self) {
        self.looked.store(0, std::sync::atomic::Ordering::Release);
    }
}
