//! Durations counted by powers of two from 1 µs: a histogram of atomics, which any process that
//! maps it adds to.
//!
//! An addition is two relaxed increments, and belongs where a system call, a wait or a commit is
//! paid for anyway. A copy into a pool in memory costs less than the two looks at the clock, so a
//! member measures one write in [`SAMPLED_ONE_IN`], by a count that the write itself keeps.
//! docs/monitoring.md, "Histograms".

use super::{SharedFile, SharedPageLayout};
use forebay_pool::MonotonicTime;
use serde::{Deserialize, Serialize};
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Bounds of a histogram: 1 µs, 2 µs, 4 µs, … 8.4 s.
pub const DURATION_BOUNDS: usize = 24;
/// Of so many writes to a pool in memory one is measured.
pub const SAMPLED_ONE_IN: u64 = 64;

/// Counts of durations. The last is of those above all bounds.
#[repr(C, align(64))]
#[derive(Default)]
pub struct DurationCounts {
    counts: [AtomicU64; DURATION_BOUNDS + 1],
    sum_ns: AtomicU64,
}

impl DurationCounts {
    /// Adds one.
    pub fn add(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let at = (0..DURATION_BOUNDS).position(|bound| ns <= 1_000 << bound);
        self.counts[at.unwrap_or(DURATION_BOUNDS)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
    }

    /// The durations added so far. Any process that maps it may have written anything there: the
    /// counts are kept small enough for a sum of them.
    pub fn read(&self) -> DurationHistogram {
        const MOST: u64 = u64::MAX / (DURATION_BOUNDS as u64 + 1);
        DurationHistogram {
            sum_seconds: self.sum_ns.load(Relaxed) as f64 / 1e9,
            counts: (self.counts.iter())
                .map(|count| count.load(Relaxed).min(MOST))
                .collect(),
        }
    }
}

/// A write to a pool in memory that is measured.
pub struct SampledWrite {
    begun: MonotonicTime,
    /// Waits of the run until then.
    waits: u64,
}

impl SampledWrite {
    /// Begins with one that is due: under the file's lock, before the write is counted. Costs a
    /// load of that count, and a branch.
    #[inline]
    pub fn begin(page: &SharedPageLayout, file: &SharedFile) -> Option<Self> {
        // Not the first write, which names the file.
        let is_due = file.writes.load(Relaxed) % SAMPLED_ONE_IN == SAMPLED_ONE_IN - 1;
        is_due.then(|| Self {
            waits: page.waits.load(Relaxed),
            begun: MonotonicTime::now(),
        })
    }

    /// It is logged. One in which a process waited for the drain is not counted here: such a wait
    /// has a figure of its own.
    pub fn end(self, page: &SharedPageLayout) {
        if page.waits.load(Relaxed) == self.waits {
            page.commits.add(self.begun.elapsed());
        }
    }
}

/// Durations of one kind of event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DurationHistogram {
    /// Seconds, of all together.
    pub sum_seconds: f64,
    /// Durations of 1 µs at most, of the rest of 2 µs at most, 4 µs and so on to 8.4 s; last, the
    /// longer ones.
    pub counts: Vec<u64>,
}

impl DurationHistogram {
    /// The upper bound of the count at this place, seconds; none of the last.
    #[must_use]
    pub fn bound_seconds(at: usize) -> f64 {
        match at < DURATION_BOUNDS {
            true => 1e-6 * (1_u64 << at) as f64,
            false => f64::INFINITY,
        }
    }

    /// The number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        (self.counts.iter()).fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// The time that this share of them took at most, seconds: the upper bound of its count. None
    /// if there were none.
    #[must_use]
    pub fn quantile_seconds(&self, share: f64) -> Option<f64> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut below = 0_u64;
        let reaches = |count: &u64| {
            below = below.saturating_add(*count);
            below >= wanted
        };
        let at = self.counts.iter().position(reaches)?;
        Some(Self::bound_seconds(at))
    }

    /// The durations added after `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let before_at = |at: usize| before.counts.get(at).copied().unwrap_or(0);
        let counts = self.counts.iter().enumerate();
        Self {
            sum_seconds: (self.sum_seconds - before.sum_seconds).max(0.0),
            counts: counts
                .map(|(at, count)| count.saturating_sub(before_at(at)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_counted_below_its_power_of_two() {
        let counts = DurationCounts::default();
        for ns in [0, 999, 1_000, 1_001, 2_000, 5_000_000_000, 9_000_000_000] {
            counts.add(Duration::from_nanos(ns));
        }
        let read = counts.read();
        assert_eq!((read.counts[0], read.counts[1]), (3, 2));
        assert_eq!(read.counts[DURATION_BOUNDS - 1], 1);
        assert_eq!(read.counts[DURATION_BOUNDS], 1);
        assert_eq!(read.count(), 7);
        assert!((read.sum_seconds - 14.000_005).abs() < 1e-6);
    }

    #[test]
    fn quantile_is_the_bound_that_so_many_stay_below() {
        let counts = DurationCounts::default();
        assert_eq!(counts.read().quantile_seconds(0.5), None);
        for _ in 0..98 {
            counts.add(Duration::from_micros(3));
        }
        let before = counts.read();
        counts.add(Duration::from_micros(100));
        counts.add(Duration::from_secs(60));
        let read = counts.read();
        assert_eq!(read.quantile_seconds(0.5), Some(4e-6));
        assert_eq!(read.quantile_seconds(0.99), Some(128e-6));
        assert_eq!(read.quantile_seconds(1.0), Some(f64::INFINITY));
        assert_eq!(read.since(&before).count(), 2);
        assert_eq!(read.since(&before).quantile_seconds(0.5), Some(128e-6));
    }
}
