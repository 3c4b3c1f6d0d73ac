//! Moments that processes of one boot tell one another, by a clock that is never set.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The longest silence of a process that gives its status every second.
const PATIENCE_SECONDS: u64 = 10;

/// Seconds of `CLOCK_MONOTONIC`, which counts from the boot while the machine does not sleep: where
/// the time of day jumps, it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootTime(u64);

impl BootTime {
    /// This one.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        Self(u64::try_from(now.tv_sec).unwrap_or(0))
    }

    /// True for ten seconds from it on; false of one that is still to come, as it may be of another
    /// boot.
    #[must_use]
    pub fn is_recent(self) -> bool {
        let age = Self::now().0.checked_sub(self.0);
        age.is_some_and(|age| age <= PATIENCE_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_recent_for_ten_seconds_and_never_before_it() {
        let BootTime(now) = BootTime::now();
        assert!(BootTime(now).is_recent());
        let long_ago = now.saturating_sub(2 * PATIENCE_SECONDS);
        assert!(now < 2 * PATIENCE_SECONDS || !BootTime(long_ago).is_recent());
        // An hour is longer than this test takes.
        assert!(!BootTime(now + 3600).is_recent());
    }
}
