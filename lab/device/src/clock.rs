//! The clock of the model, and waiting for a point in time to the microsecond.

use rustix::time::{ClockId, Timespec};
use std::hint;

const NS_PER_S: u64 = 1_000_000_000;

/// The kernel wakes a sleeper late: by its timer slack (50 µs) and the time to get a processor. The last part of a wait is spun.
const TAIL_NS: u64 = 120_000;

/// Nanoseconds of the monotonic clock, which all processes of the machine read alike.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * NS_PER_S + now.tv_nsec.unsigned_abs()
}

/// Waits until the monotonic clock shows `deadline`, whatever signals arrive. May be called in a signal handler.
pub fn wait_until(deadline: u64) {
    let asleep_until = deadline.saturating_sub(TAIL_NS);
    if now_ns() < asleep_until {
        let until = Timespec {
            tv_sec: (asleep_until / NS_PER_S).cast_signed(),
            tv_nsec: (asleep_until % NS_PER_S).cast_signed(),
        };
        while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &until)
            == Err(rustix::io::Errno::INTR)
        {}
    }
    while now_ns() < deadline {
        hint::spin_loop();
    }
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
}
