//! Bytes a second: a bucket that fills at the rate that is allowed, to a second's worth, and that
//! work may overdraw once. A thread that finds it empty does something else meanwhile: none waits
//! in here.
//!
//! Work that does not look whether it is open is counted, too, but never adds up to a debt that
//! would keep the rest waiting for hours.

use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

/// Bytes that go at a time: eight groups of 64 pages of 16 KiB.
const AT_ONCE: f64 = (8 << 20) as f64;

/// See the module.
pub(crate) struct RateLimit {
    /// 0 for none.
    bytes_per_second: AtomicU64,
    /// Time of the last look, and the bytes in it then. Taken for a moment.
    level: Mutex<(Instant, f64)>,
}

impl RateLimit {
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: AtomicU64::new(bytes_per_second),
            level: Mutex::new((Instant::now(), bytes_per_second as f64)),
        }
    }

    /// Another rate from now on.
    pub(crate) fn set(&self, bytes_per_second: u64) {
        let mut level = self.level.lock();
        self.bytes_per_second.store(bytes_per_second, Relaxed);
        *level = (Instant::now(), bytes_per_second as f64);
    }

    pub(crate) fn get(&self) -> u64 {
        self.bytes_per_second.load(Relaxed)
    }

    /// True if more may be done now.
    pub(crate) fn is_open(&self) -> bool {
        self.get() == 0 || self.at(Instant::now(), 0) > 0.0
    }

    /// So many bytes were moved.
    pub(crate) fn spend(&self, bytes: u64) {
        if self.get() > 0 {
            self.at(Instant::now(), bytes);
        }
    }

    fn at(&self, now: Instant, spent: u64) -> f64 {
        let rate = self.get() as f64;
        let mut level = self.level.lock();
        let (then, bytes) = *level;
        let filled = bytes + now.saturating_duration_since(then).as_secs_f64() * rate;
        let (filled, spent) = (filled.min(rate), spent as f64);
        let debt_max = rate.max(spent).max(AT_ONCE);
        *level = (now, (filled - spent).max(filled.min(-debt_max)));
        level.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn no_more_passes_than_the_rate_and_a_seconds_worth() {
        let limit = RateLimit::new(1000);
        let begun = Instant::now();
        let mut passed = 0;
        for tenth in 0..100 {
            while limit.at(begun + Duration::from_millis(tenth * 100), 0) > 0.0 {
                limit.at(begun + Duration::from_millis(tenth * 100), 64);
                passed += 64;
            }
        }
        assert!(
            (10_900..=11_100).contains(&passed),
            "{passed} in ten seconds"
        );
    }

    #[test]
    fn debt_is_at_most_a_seconds_worth_or_the_last_request() {
        let limit = RateLimit::new(16 << 20);
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        for second in 0..1000 {
            limit.at(at(second), 64 << 20);
        }
        assert!(limit.at(at(999), 0) <= 0.0);
        // The last one was larger than a second's worth, and counts as a whole.
        assert!(limit.at(at(1002), 0) <= 0.0);
        assert!(limit.at(at(1004), 0) > 0.0);
        for _ in 0..1000 {
            limit.at(at(1010), 1 << 20);
        }
        assert!(limit.at(at(1010), 0) <= 0.0);
        assert!(limit.at(at(1012), 0) > 0.0);
    }

    #[test]
    fn a_debt_is_made_no_smaller_by_what_is_spent_then() {
        let limit = RateLimit::new(1);
        let begun = Instant::now();
        let debt = limit.at(begun, 100 << 20);
        assert_eq!(limit.at(begun, 1), debt);
        assert!(limit.at(begun + Duration::from_secs(100 << 19), 0) < 0.0);
    }

    #[test]
    fn without_a_limit_it_is_open_and_a_limit_may_be_set_and_lifted() {
        let limit = RateLimit::new(0);
        limit.spend(u64::MAX);
        assert!(limit.is_open());
        limit.set(10);
        assert!(limit.is_open());
        limit.spend(1000);
        assert!(!limit.is_open());
        limit.set(0);
        assert!(limit.is_open());
    }
}
