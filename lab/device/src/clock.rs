//! The clock of the model, and waiting for a point in time to some microseconds without keeping a
//! processor busy.
//!
//! A sleeper is woken late: by the kernel's timer slack, which is set to nothing here, and by what
//! the timer and a processor take to come back (tens of microseconds in a virtual machine). That
//! lateness is much the same from one sleep to the next, so it is tracked, and each sleep ends so
//! much earlier. What is left then, a few microseconds, is spun, and so are waits that are shorter
//! than the lateness.

use rustix::time::{ClockId, Timespec};
use std::{
    hint,
    num::NonZeroU64,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

const NS_PER_S: u64 = 1_000_000_000;

/// How late this process's sleepers are woken: the median, followed step by step, nanoseconds.
static LATENESS_NS: AtomicU64 = AtomicU64::new(25_000);

/// By how much one sleep moves it. Small against it, since single sleeps say little on a machine
/// that has other things to do.
const STEP_NS: u64 = 250;

/// No more than this is spun, however late sleepers are: on a machine that is so busy, a wait is as
/// late as everything else.
const LATENESS_MAX_NS: u64 = 50_000;

/// Nanoseconds of the monotonic clock, which all processes of the machine read alike.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * NS_PER_S + now.tv_nsec.unsigned_abs()
}

/// Waits until the monotonic clock shows `deadline`, whatever signals arrive. May be called in a
/// signal handler. The thread's timer slack is 1 ns afterwards.
pub fn wait_until(deadline: u64) {
    let asleep_until = deadline.saturating_sub(LATENESS_NS.load(Relaxed));
    if now_ns() < asleep_until {
        sleep_until(asleep_until);
    }
    while now_ns() < deadline {
        hint::spin_loop();
    }
}

fn sleep_until(asleep_until: u64) {
    // The thread is the program's, and may have been anything before: asked each time, which costs
    // less than remembering for each thread. If it is refused, sleepers are later, and that is
    // tracked.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let until = Timespec {
        tv_sec: (asleep_until / NS_PER_S).cast_signed(),
        tv_nsec: (asleep_until % NS_PER_S).cast_signed(),
    };
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &until)
        == Err(rustix::io::Errno::INTR)
    {}
    let late = now_ns().saturating_sub(asleep_until);
    let lateness = LATENESS_NS.load(Relaxed);
    let followed = match late > lateness {
        true => (lateness + STEP_NS).min(LATENESS_MAX_NS),
        false => lateness.saturating_sub(STEP_NS),
    };
    // Of two threads at once one is not counted.
    LATENESS_NS.store(followed, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_not_before_its_time() {
        for wait in [0, 20_000, 2_000_000] {
            let deadline = now_ns() + wait;
            wait_until(deadline);
            assert!(now_ns() >= deadline);
        }
    }

    #[test]
    fn a_wait_leaves_the_processor_to_others() {
        const WAITS: u64 = 100;
        // Of which no more than a twentieth may be spun, however late a busy machine wakes.
        const WAIT_NS: u64 = 20 * LATENESS_MAX_NS;
        let processor_ns = || {
            let used = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
            used.tv_sec.unsigned_abs() * NS_PER_S + used.tv_nsec.unsigned_abs()
        };
        let before = processor_ns();
        for _ in 0..WAITS {
            wait_until(now_ns() + WAIT_NS);
        }
        let share = (processor_ns() - before) as f64 / (WAITS * WAIT_NS) as f64;
        assert!(share < 0.4, "{:.0} % of the time was spun", share * 100.0);
    }

    #[test]
    fn a_wait_can_end_within_a_few_microseconds_of_its_time() {
        let mut late = (0..20_000).map(|_| {
            let deadline = now_ns() + 150_000;
            wait_until(deadline);
            now_ns() - deadline
        });
        // 10 % of the wait, as the profiles' bounds are. Most waits end so; on a machine that does
        // other things, some do. How many is for `forebay-lab device` to measure.
        assert!(late.any(|late| late < 15_000), "none of them did");
    }
}
