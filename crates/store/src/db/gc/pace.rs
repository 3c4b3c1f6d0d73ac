//! The pace that the collector sets for writers.
//!
//! The log's own addresses measure it: writers may go on up to an address, which the collector
//! moves along as it gives space back. So the log grows no faster than garbage leaves it, however
//! fast either is, and each write waits only for the collection that it takes. One load tells a
//! writer that it need not look here.
//!
//! A wait is short: a collector that is held up, by a slow disk or for want of a processor, slows
//! writers to so many puts a second ([`PAUSE_MAX`]) and stops none.

use crate::stats::WaitStats;
use forebay_pool::{Lsn, WaitMeter};
use parking_lot::{Condvar, Mutex};
use std::{
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

/// How long one write of up to [`PAUSE_BYTES`] waits at most. A larger one takes as much more of
/// the space, and waits as much longer, but no longer than [`PAUSE_END`].
const PAUSE_MAX: Duration = Duration::from_millis(10);
const PAUSE_BYTES: u64 = 16 << 10;
const PAUSE_END: Duration = Duration::from_millis(250);

/// The address up to which writers may go. Without a collector: anywhere.
pub(super) struct Pace {
    /// Writes below this address have nothing to do here.
    mark: AtomicU64,
    state: Mutex<PaceState>,
    /// A writer called the collector.
    called: Condvar,
    /// Writers may go on.
    moved: Condvar,
    waits: WaitMeter,
}

struct PaceState {
    /// Writes at this address and above wait.
    allowed: Lsn,
    /// The collector was called, or is at work.
    called: bool,
    /// Writers that wait.
    waiting: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            mark: AtomicU64::new(Lsn::MAX),
            state: Mutex::new(PaceState {
                allowed: Lsn::MAX,
                called: false,
                waiting: 0,
            }),
            called: Condvar::new(),
            moved: Condvar::new(),
            waits: WaitMeter::default(),
        }
    }
}

impl Pace {
    /// Waits of writers.
    pub(super) fn waits(&self) -> WaitStats {
        self.waits.read().into()
    }

    /// True if the writer of the record at `lsn` has to [`keep`](Self::keep) the pace.
    #[inline]
    pub(super) fn concerns(&self, lsn: Lsn) -> bool {
        lsn >= self.mark.load(Relaxed)
    }

    /// Calls the collector, if no other writer did; waits until the record of `bytes` at `lsn` is
    /// allowed for, or long enough, or `stop`.
    #[cold]
    pub(super) fn keep(&self, lsn: Lsn, bytes: u64, stop: &AtomicBool) {
        let mut state = self.state.lock();
        if !state.called {
            state.called = true;
            self.mark.store(state.allowed, Relaxed);
            self.called.notify_one();
        }
        if lsn < state.allowed {
            return;
        }
        let waiting = self.waits.begin();
        let deadline = waiting.begun() + pause_max(bytes);
        state.waiting += 1;
        while lsn >= state.allowed && !stop.load(SeqCst) {
            if self.moved.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.waiting -= 1;
    }

    /// For the collector: waits to be called, no longer than `timeout`. True if it was.
    pub(super) fn wait_for_call(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.called {
            self.called.wait_for(&mut state, timeout);
        }
        state.called
    }

    /// The collector rests: the write that comes to `call_at` is to call it, and writers may go on
    /// to `allowed`.
    pub(super) fn rest(&self, call_at: Lsn, allowed: Lsn) {
        self.set(call_at.min(allowed), allowed, false);
    }

    /// The collector works: writers may go on to `allowed`.
    pub(super) fn allow(&self, allowed: Lsn) {
        self.set(allowed, allowed, true);
    }

    fn set(&self, mark: Lsn, allowed: Lsn, called: bool) {
        let mut state = self.state.lock();
        state.allowed = allowed;
        state.called = called;
        self.mark.store(mark, Relaxed);
        self.moved.notify_all();
    }
}

/// How long a write of so many bytes waits at most.
fn pause_max(bytes: u64) -> Duration {
    let parts = bytes.div_ceil(PAUSE_BYTES).max(1);
    PAUSE_MAX
        .saturating_mul(u32::try_from(parts).unwrap_or(u32::MAX))
        .min(PAUSE_END)
}

#[cfg(test)]
mod tests {
    use super::*;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    #[test]
    fn without_a_collector_no_write_is_concerned() {
        assert!(!Pace::default().concerns(Lsn::MAX - 1));
    }

    #[test]
    fn a_write_calls_the_collector_once_and_goes_on() {
        let pace = Pace::default();
        pace.rest(100, 200);
        assert!(!pace.concerns(99) && pace.concerns(100));
        pace.keep(100, 100, &GO_ON);
        assert!(!pace.concerns(199) && pace.concerns(200));
        assert_eq!(pace.waits().times, 0);
        assert!(pace.wait_for_call(Duration::ZERO));
        pace.rest(300, 400);
        assert!(!pace.wait_for_call(Duration::ZERO));
    }

    #[test]
    fn a_write_beyond_its_allowance_waits_for_the_collector() {
        let pace = &Pace::default();
        pace.allow(100);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| pace.keep(150, 1 << 20, &GO_ON));
            while pace.state.lock().waiting == 0 && !writer.is_finished() {
                std::thread::yield_now();
            }
            pace.allow(151);
            writer.join().unwrap();
        });
        assert!(!pace.concerns(150));
    }

    /// Promise (store): Garbage collection holds no put of up to 16 KiB for longer than 10 ms.
    #[test]
    fn a_write_waits_by_its_size_and_at_most_a_quarter_of_a_second() {
        assert_eq!(pause_max(0), PAUSE_MAX);
        assert_eq!(pause_max(PAUSE_BYTES), PAUSE_MAX);
        assert_eq!(pause_max(4 * PAUSE_BYTES), 4 * PAUSE_MAX);
        assert_eq!(pause_max(u64::MAX), PAUSE_END);
    }

    #[test]
    fn a_write_goes_on_in_the_end_even_if_the_collector_never_moves() {
        let pace = Pace::default();
        pace.allow(100);
        pace.keep(100, 100, &GO_ON);
        assert_eq!(pace.waits().times, 1);
    }
}
