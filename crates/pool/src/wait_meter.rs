//! [`WaitMeter`]: the number and time of threads' waits for something. Of no account where nothing
//! waits.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Waits for one thing.
#[derive(Debug, Default)]
pub struct WaitMeter {
    times: AtomicU64,
    nanos: AtomicU64,
    longest_nanos: AtomicU64,
}

/// Number and time of threads' waits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WaitCounts {
    /// Waits that are over.
    pub times: u64,
    /// All of them together, seconds.
    pub seconds: f64,
    /// The longest, seconds.
    pub longest_seconds: f64,
}

/// A wait that goes on until this is dropped.
#[derive(Debug)]
pub struct WaitTimer<'a> {
    meter: &'a WaitMeter,
    begun: Instant,
}

impl WaitMeter {
    /// A wait begins.
    #[must_use]
    pub fn begin(&self) -> WaitTimer<'_> {
        WaitTimer {
            meter: self,
            begun: Instant::now(),
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn read(&self) -> WaitCounts {
        let seconds = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Relaxed)).as_secs_f64();
        WaitCounts {
            times: self.times.load(Relaxed),
            seconds: seconds(&self.nanos),
            longest_seconds: seconds(&self.longest_nanos),
        }
    }
}

impl WaitTimer<'_> {
    /// The time at which it began.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.begun
    }
}

impl Drop for WaitTimer<'_> {
    fn drop(&mut self) {
        let nanos = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.meter.nanos.fetch_add(nanos, Relaxed);
        self.meter.longest_nanos.fetch_max(nanos, Relaxed);
        self.meter.times.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn waits_are_counted_when_they_are_over_with_the_longest() {
        let meter = WaitMeter::default();
        let waiting = meter.begin();
        assert_eq!(meter.read(), WaitCounts::default());
        thread::sleep(Duration::from_millis(2));
        drop(waiting);
        drop(meter.begin());
        let waits = meter.read();
        assert_eq!(waits.times, 2);
        assert!(waits.longest_seconds >= 0.002 && waits.seconds >= waits.longest_seconds);
    }
}
