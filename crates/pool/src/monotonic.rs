//! Points of the kernel's monotonic clock, asked of the kernel itself: a library that shows a
//! program another time (a clock that stands still, or was shifted) hides the C library's.

use rustix::time::{ClockId, clock_gettime};
use std::{ops::Add, time::Duration};

/// As [`std::time::Instant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MonotonicTime(Duration);

impl MonotonicTime {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Self(Duration::new(
            seconds,
            u32::try_from(now.tv_nsec).unwrap_or(0),
        ))
    }

    /// The time since then.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Self::now().since(*self)
    }

    /// The time from `earlier` to this.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for MonotonicTime {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}
