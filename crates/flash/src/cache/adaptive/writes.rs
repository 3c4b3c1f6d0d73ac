//! Commits to flash beside commits around it, of the same load: while flash pays one goes around it
//! now and then, and while it does not one goes to flash.
//!
//! A page takes F of a commit to flash: of the writes of groups, their sync and record. When it
//! leaves, a part p goes home, each for D; the others were written again meanwhile. It takes H of a
//! commit around flash: of the copies, the writes and syncs of homes. So flash pays while F + p D
//! is less than H.

use super::{FlashVerdict, HysteresisBounds, TRIALS, nanos};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

const BOUNDS: HysteresisBounds = HysteresisBounds {
    stops: 90,
    begins: 70,
};
/// Pages in a period at least, on flash and around it.
const PAGES_MIN: u64 = 64;
/// Of so many pages a quarter goes home, as long as no others have left.
const EXPECTED: u64 = 64;
/// After each period what has left counts this part less.
const FORGOTTEN: u64 = 64;

/// The time that pages took.
#[derive(Default)]
pub(in crate::cache) struct PageCost {
    nanos: AtomicU64,
    pages: AtomicU64,
}

impl PageCost {
    /// Something took so long; with it so many `pages` are done.
    pub(in crate::cache) fn add(&self, took: Duration, pages: usize) {
        self.nanos.fetch_add(nanos(took), Relaxed);
        self.pages.fetch_add(pages as u64, Relaxed);
    }

    fn has_enough(&self) -> bool {
        self.pages.load(Relaxed) >= PAGES_MIN
    }

    /// Nanoseconds a page; a new period begins.
    fn take(&self) -> u64 {
        let nanos = self.nanos.swap(0, Relaxed);
        nanos / self.pages.swap(0, Relaxed).max(1)
    }
}

/// See the module.
pub(in crate::cache) struct WriteTrials {
    /// F, H and D.
    pub(in crate::cache) flash: PageCost,
    pub(in crate::cache) around: PageCost,
    leaving: PageCost,
    /// Dirty versions that left the queue: those that went home, and those that newer ones had
    /// taken the place of.
    went_home: AtomicU64,
    superseded: AtomicU64,
    /// From then on a commit may go the other way.
    trial_at: Mutex<Instant>,
    pub(super) verdict: FlashVerdict,
    /// D as it was last.
    left_took: Mutex<Option<u64>>,
}

impl WriteTrials {
    pub(super) fn new() -> Self {
        Self {
            flash: PageCost::default(),
            around: PageCost::default(),
            leaving: PageCost::default(),
            went_home: AtomicU64::new(0),
            superseded: AtomicU64::new(0),
            trial_at: Mutex::new(TRIALS.until(Duration::ZERO)),
            verdict: FlashVerdict::new(),
            left_took: Mutex::new(None),
        }
    }

    /// And for half a second no commit goes the other way.
    pub(super) fn assume(&self, pays: bool) {
        self.verdict.assume(pays);
        self.tried(Duration::ZERO);
    }

    pub(super) fn assume_a_trial_is_due(&self) {
        *self.trial_at.lock() = Instant::now();
    }

    /// True if a commit is to go the other way: for one of those that ask.
    pub(super) fn is_trial_due(&self) -> bool {
        let mut trial_at = self.trial_at.lock();
        let is_due = Instant::now() >= *trial_at;
        if is_due {
            *trial_at = TRIALS.until(Duration::ZERO);
        }
        is_due
    }

    /// A commit that was to go the other way took so long.
    pub(in crate::cache) fn tried(&self, took: Duration) {
        *self.trial_at.lock() = TRIALS.until(took);
    }

    /// A full queue has let dirty versions go, which took so long.
    pub(in crate::cache) fn left(&self, went_home: usize, superseded: u64, took: Duration) {
        self.leaving.add(took, went_home);
        self.went_home.fetch_add(went_home as u64, Relaxed);
        self.superseded.fetch_add(superseded, Relaxed);
    }

    /// Ends the period if it has enough.
    pub(super) fn judge(&self) {
        self.verdict.judge(&BOUNDS, || {
            let enough = self.flash.has_enough() && self.around.has_enough();
            enough.then(|| {
                let (flash, around) = (self.flash.take(), self.around.take());
                let mut left_took = self.left_took.lock();
                if self.leaving.has_enough() {
                    *left_took = Some(self.leaving.take());
                }
                let later = self.part_that_goes_home() * left_took.unwrap_or(around) as f64;
                [flash.saturating_add(later as u64), around]
            })
        });
    }

    /// Of the dirty versions that leave. What has left is forgotten little by little.
    fn part_that_goes_home(&self) -> f64 {
        let [went_home, superseded] = [&self.went_home, &self.superseded].map(|count| {
            let now = count.load(Relaxed);
            count.fetch_sub(now.div_ceil(FORGOTTEN), Relaxed);
            now
        });
        (went_home + EXPECTED / 4) as f64 / (went_home + superseded + EXPECTED) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{AGREE, CALM, PERIOD},
        *,
    };

    const PAGES: usize = PAGES_MIN as usize;

    fn took(micros: u64) -> Duration {
        Duration::from_micros(micros * PAGES_MIN)
    }

    /// A period in which a page took so long on flash and around it, microseconds.
    fn period(writes: &WriteTrials, flash: u64, around: u64) -> bool {
        writes.flash.add(took(flash), PAGES);
        writes.around.add(took(around), PAGES);
        writes.verdict.age(PERIOD);
        writes.judge();
        writes.verdict.pays()
    }

    #[test]
    fn flash_pays_for_writes_while_it_saves_more_than_it_takes() {
        let writes = WriteTrials::new();
        // Without pages that have left a quarter is expected to go home: 100 + 250, beside 1000.
        for _ in 0..3 * AGREE {
            assert!(period(&writes, 100, 1000));
        }
        // 100 + 25, beside 100.
        for _ in 1..AGREE {
            assert!(period(&writes, 100, 100));
        }
        assert!(!period(&writes, 100, 100));
        // 50 + 25 is not enough to begin again; 20 + 25 is.
        for _ in 0..3 * AGREE {
            assert!(!period(&writes, 50, 100));
        }
        for _ in 1..2 * AGREE {
            assert!(!period(&writes, 20, 100));
        }
        assert!(period(&writes, 20, 100));
    }

    #[test]
    fn frequent_changes_slow_the_next_until_a_calm_hour() {
        let writes = WriteTrials::new();
        let periods_until = |pays: bool| {
            let (flash, around) = if pays { (1, 100) } else { (100, 1) };
            let mut periods = 1;
            while period(&writes, flash, around) != pays {
                periods += 1;
            }
            periods
        };
        assert_eq!(periods_until(false), AGREE);
        assert_eq!(periods_until(true), 2 * AGREE);
        writes.verdict.age(CALM);
        period(&writes, 1, 100);
        assert_eq!(periods_until(false), 2 * AGREE);
    }

    #[test]
    fn flash_whose_pages_all_go_home_stops_paying_for_a_while() {
        let writes = WriteTrials::new();
        writes.left(1 << 16, 0, took(1000 * 1024));
        for _ in 1..AGREE {
            assert!(period(&writes, 100, 1000));
        }
        assert!(!period(&writes, 100, 1000));
        let mut periods = 0;
        while !period(&writes, 100, 1000) {
            periods += 1;
            assert!(periods < 2000, "it never begins again");
        }
        assert!(periods > 60, "half a minute at least");
    }

    #[test]
    fn leaving_in_large_batches_costs_less_than_commits_at_home() {
        let writes = WriteTrials::new();
        writes.left(PAGES, 0, took(1000));
        // 300 + 625 of 1000, beside 1000; then 300 + 125 of 200.
        assert!(period(&writes, 300, 1000));
        assert_eq!(writes.verdict.periods.lock().against, 1);
        writes.left(PAGES, 0, took(200));
        for _ in 0..2 * AGREE {
            assert!(period(&writes, 300, 1000));
        }
    }

    #[test]
    fn trial_commits_are_rare_and_at_most_a_minute_apart() {
        let writes = WriteTrials::new();
        let is_due_after = |rest: Duration| {
            let mut at = writes.trial_at.lock();
            *at = at.checked_sub(rest).unwrap();
            drop(at);
            writes.is_trial_due()
        };
        assert!(!writes.is_trial_due());
        assert!(is_due_after(TRIALS.least) && !writes.is_trial_due());
        writes.tried(Duration::from_millis(100));
        assert!(!is_due_after(Duration::from_secs(4)));
        assert!(is_due_after(Duration::from_secs(1)));
        writes.tried(Duration::from_secs(3600));
        assert!(is_due_after(Duration::from_secs(60)));
    }

    #[test]
    fn nothing_changes_before_both_ways_are_known() {
        let writes = WriteTrials::new();
        for _ in 0..3 * AGREE {
            writes.flash.add(Duration::from_secs(9), 1 << 20);
            writes.verdict.age(PERIOD);
            writes.judge();
        }
        assert!(writes.verdict.pays());
    }
}
