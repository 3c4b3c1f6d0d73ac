//! Reads of flash beside reads of homes. Medians are compared: a few that a batch of writes held up
//! say nothing of how fast a device is.

use super::{FlashVerdict, HysteresisBounds};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// That a page is there has cost a write.
const BOUNDS: HysteresisBounds = HysteresisBounds {
    stops: 60,
    begins: 40,
};
/// Reads of each in a period at least.
const READS_MIN: u64 = 32;
/// Times of reads are told apart by so many steps a doubling, and as far as this.
const STEPS: usize = 8;
const DOUBLINGS: usize = 20;
/// Between reads of flash that are made to time them.
const PROBE_EVERY: Duration = Duration::from_millis(20);

/// Reads in this period, by their time: [`STEPS`] a doubling, from a microsecond to a second.
pub(in crate::cache) struct ReadHistogram([AtomicU32; STEPS * DOUBLINGS]);

impl Default for ReadHistogram {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; STEPS * DOUBLINGS])
    }
}

impl ReadHistogram {
    pub(in crate::cache) fn add(&self, took: Duration) {
        let micros = (took.as_nanos() as f64 / 1e3).max(1.0);
        let step = (micros.log2() * STEPS as f64) as usize;
        self.0[step.min(self.0.len() - 1)].fetch_add(1, Relaxed);
    }

    fn count(&self) -> u64 {
        self.0
            .iter()
            .map(|reads| u64::from(reads.load(Relaxed)))
            .sum()
    }

    /// The median, nanoseconds; a new period begins.
    fn take(&self) -> u64 {
        let reads: Vec<u64> = self
            .0
            .iter()
            .map(|reads| reads.swap(0, Relaxed).into())
            .collect();
        let half = reads.iter().sum::<u64>() / 2;
        let mut below = 0;
        let median = reads.iter().position(|reads| {
            below += reads;
            below > half
        });
        let step = median.unwrap_or(0) as f64 + 0.5;
        ((step / STEPS as f64).exp2() * 1e3) as u64
    }
}

/// See the module.
pub(in crate::cache) struct ReadTimes {
    pub(in crate::cache) flash: ReadHistogram,
    pub(in crate::cache) home: ReadHistogram,
    pub(super) verdict: FlashVerdict,
    probed: Mutex<Instant>,
}

impl ReadTimes {
    pub(super) fn new() -> Self {
        Self {
            flash: ReadHistogram::default(),
            home: ReadHistogram::default(),
            verdict: FlashVerdict::new(),
            probed: Mutex::new(Instant::now()),
        }
    }

    /// True if something shows it.
    pub(super) fn are_known_to_pay(&self) -> bool {
        self.verdict.pays() && self.verdict.is_known()
    }

    /// True if flash should be read to learn the time of that: homes are read, and reads of flash
    /// are wanting.
    pub(super) fn want_probe(&self) -> bool {
        if self.home.count() == 0 || self.flash.count() >= READS_MIN {
            return false;
        }
        let mut probed = self.probed.lock();
        let is_time = probed.elapsed() >= PROBE_EVERY;
        if is_time {
            *probed = Instant::now();
        }
        is_time
    }

    /// Ends the period if it has enough.
    pub(super) fn judge(&self) {
        self.verdict.judge(&BOUNDS, || {
            let enough = self.flash.count() >= READS_MIN && self.home.count() >= READS_MIN;
            enough.then(|| [self.flash.take(), self.home.take()])
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{AGREE, FORGOTTEN, PERIOD},
        *,
    };

    /// A period in which reads took so long, microseconds.
    fn period(reads: &ReadTimes, flash: u64, home: u64) -> bool {
        for _ in 0..READS_MIN {
            reads.flash.add(Duration::from_micros(flash));
            reads.home.add(Duration::from_micros(home));
        }
        reads.verdict.age(PERIOD);
        reads.judge();
        reads.verdict.pays()
    }

    #[test]
    fn flash_no_faster_stops_paying_after_periods_that_agree() {
        let reads = ReadTimes::new();
        for _ in 1..AGREE {
            assert!(period(&reads, 100, 100));
        }
        // One that says otherwise begins the row anew.
        assert!(period(&reads, 10, 100));
        for _ in 1..AGREE {
            assert!(period(&reads, 100, 100));
        }
        assert!(!period(&reads, 100, 100));
        // A little faster is not enough to begin again.
        for _ in 0..3 * AGREE {
            assert!(!period(&reads, 70, 100));
        }
        // Each time it takes twice as long.
        for _ in 1..2 * AGREE {
            assert!(!period(&reads, 20, 100));
        }
        assert!(period(&reads, 20, 100));
    }

    #[test]
    fn faster_flash_pays_whatever_a_single_slow_read_says() {
        let reads = ReadTimes::new();
        assert!(reads.verdict.pays() && !reads.are_known_to_pay());
        for _ in 0..3 * AGREE {
            reads.flash.add(Duration::from_secs(60));
            assert!(period(&reads, 120, 8000));
        }
        assert!(reads.are_known_to_pay());
        // Without reads of homes it is forgotten.
        reads.verdict.age(FORGOTTEN);
        reads.judge();
        assert!(reads.verdict.pays() && !reads.are_known_to_pay());
    }

    #[test]
    fn flash_is_not_judged_or_probed_without_reads_of_homes() {
        let reads = ReadTimes::new();
        for _ in 0..READS_MIN * 10 {
            reads.flash.add(Duration::from_secs(1));
        }
        assert!(!reads.want_probe());
        reads.judge();
        assert!(reads.verdict.pays());
    }
}
