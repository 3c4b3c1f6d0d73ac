//! Commits to flash beside commits around it, of the same load: while flash pays one goes around it now and then, and while it does not one goes to flash.
//!
//! A page takes F of a commit to flash: of the writes of groups, their sync and record. When it leaves, a part p goes home, each for D; the others were
//! written again meanwhile. It takes H of a commit around flash: of the copies, the writes and syncs of homes. So flash pays while F + p D is less than H.

use super::{Bounds, Verdict, after};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

const BOUNDS: Bounds = Bounds {
    stops: 90,
    begins: 70,
};
/// Pages in a period at least, on flash and around it.
const PAGES_MIN: u64 = 64;
/// A commit that goes the other way is followed by so many times as long in which none does, and by this at least.
const TRIAL_REST: u32 = 49;
const TRIAL_EVERY: Duration = Duration::from_millis(500);
/// Of so many pages half go home, as long as no others have left.
const EXPECTED: u64 = 64;
/// After each period what has left counts this part less.
const FORGOTTEN: u64 = 64;

/// What pages took.
#[derive(Default)]
pub(in crate::cache) struct Cost {
    nanos: AtomicU64,
    pages: AtomicU64,
}

impl Cost {
    /// Something took so long; with it so many `pages` are done.
    pub(in crate::cache) fn add(&self, took: Duration, pages: usize) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Relaxed);
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
pub(in crate::cache) struct Writes {
    /// F, H and D.
    pub(in crate::cache) flash: Cost,
    around: Cost,
    pub(in crate::cache) leaving: Cost,
    /// Dirty versions that left the queue: those that went home, and those that newer ones had taken the place of.
    went_home: AtomicU64,
    superseded: AtomicU64,
    /// The next commit goes the other way.
    other_way: AtomicBool,
    /// Until then none does.
    trial_at: Mutex<Instant>,
    judged: Mutex<Judged>,
    pays: AtomicBool,
}

struct Judged {
    verdict: Verdict,
    /// D as it was last.
    leaving: Option<u64>,
}

impl Writes {
    pub(super) fn new() -> Self {
        Self {
            flash: Cost::default(),
            around: Cost::default(),
            leaving: Cost::default(),
            went_home: AtomicU64::new(0),
            superseded: AtomicU64::new(0),
            other_way: AtomicBool::new(false),
            trial_at: Mutex::new(Instant::now()),
            judged: Mutex::new(Judged {
                verdict: Verdict::new(),
                leaving: None,
            }),
            pays: AtomicBool::new(true),
        }
    }

    /// True as long as nothing shows the opposite.
    pub(super) fn pay(&self) -> bool {
        self.pays.load(Relaxed)
    }

    /// And no commit goes the other way for a second.
    pub(super) fn assume(&self, pays: bool) {
        self.judged.lock().verdict.pays = pays;
        self.pays.store(pays, Relaxed);
        *self.trial_at.lock() = after(Duration::from_secs(1));
        self.other_way.store(false, Relaxed);
    }

    /// True if the next commit is to go around flash that pays, or to flash that does not.
    pub(super) fn goes_other_way(&self) -> bool {
        self.other_way.load(Relaxed)
    }

    /// A commit has made so many pages durable.
    pub(super) fn committed(&self, around: bool, took: Duration, pages: usize) {
        let cost = if around { &self.around } else { &self.flash };
        cost.add(took, pages);
    }

    /// After a commit that went the `other_way`, or did not: whether the next one does. None, unless it `matters` what either takes.
    pub(super) fn take_turns(&self, matters: bool, other_way: bool, took: Duration) {
        let mut trial_at = self.trial_at.lock();
        if other_way {
            *trial_at = after(TRIAL_EVERY.max(took.saturating_mul(TRIAL_REST)));
        }
        let is_time = matters && Instant::now() >= *trial_at;
        self.other_way.store(is_time, Relaxed);
    }

    /// A full queue has let dirty versions go.
    pub(in crate::cache) fn left(&self, went_home: usize, superseded: u64) {
        self.went_home.fetch_add(went_home as u64, Relaxed);
        self.superseded.fetch_add(superseded, Relaxed);
    }

    /// Ends the period if it has enough.
    pub(super) fn judge(&self) {
        let mut judged = self.judged.lock();
        let enough = self.flash.has_enough() && self.around.has_enough();
        if !enough || !judged.verdict.may_end() {
            return;
        }
        if self.leaving.has_enough() {
            judged.leaving = Some(self.leaving.take());
        }
        let (flash, around) = (self.flash.take(), self.around.take());
        let later = self.part_that_goes_home() * judged.leaving.unwrap_or(around) as f64;
        let flash = flash.saturating_add(later as u64);
        judged.verdict.end(flash, around, &BOUNDS);
        self.pays.store(judged.verdict.pays, Relaxed);
    }

    /// Of the dirty versions that leave. What has left is forgotten little by little.
    fn part_that_goes_home(&self) -> f64 {
        let [went_home, superseded] = [&self.went_home, &self.superseded].map(|count| {
            let now = count.load(Relaxed);
            count.fetch_sub(now.div_ceil(FORGOTTEN), Relaxed);
            now
        });
        (went_home + EXPECTED / 2) as f64 / (went_home + superseded + EXPECTED) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::{super::AGREE, *};

    /// A period in which a page took so long on flash and around it, microseconds.
    fn period(writes: &Writes, flash: u64, around: u64) -> bool {
        let took = |micros| Duration::from_micros(micros * PAGES_MIN);
        writes.committed(false, took(flash), PAGES_MIN as usize);
        writes.committed(true, took(around), PAGES_MIN as usize);
        writes.judged.lock().verdict.age();
        writes.judge();
        writes.pay()
    }

    #[test]
    fn flash_pays_for_writes_while_it_saves_more_than_it_takes() {
        let writes = Writes::new();
        // Three of four versions are superseded: 100 + 250, beside 1000.
        writes.left(1 << 20, 3 << 20);
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
    fn pages_that_all_go_home_in_the_end_cost_flash_for_nothing_and_that_is_forgotten() {
        let writes = Writes::new();
        writes.left(1 << 16, 0);
        for _ in 1..AGREE {
            assert!(period(&writes, 100, 1000));
        }
        assert!(!period(&writes, 100, 1000));
        // Nothing leaves around flash, and then half of the pages are expected to go home: 100 + 500.
        let mut periods = 0;
        while !period(&writes, 100, 1000) {
            periods += 1;
            assert!(periods < 2000, "it never begins again");
        }
        assert!(periods > 60, "half a minute at least");
    }

    #[test]
    fn leaving_in_large_batches_costs_less_than_commits_at_home() {
        let writes = Writes::new();
        writes.left(1 << 20, 0);
        // 300 + 1000 each, beside 1000; then 300 + 200.
        assert!(period(&writes, 300, 1000));
        assert_eq!(writes.judged.lock().verdict.against, 1);
        writes
            .leaving
            .add(Duration::from_micros(200 * PAGES_MIN), PAGES_MIN as usize);
        for _ in 0..2 * AGREE {
            assert!(period(&writes, 300, 1000));
        }
    }

    #[test]
    fn few_commits_go_the_other_way_and_none_where_it_does_not_matter() {
        let writes = Writes::new();
        writes.take_turns(false, false, Duration::ZERO);
        assert!(!writes.goes_other_way());
        writes.take_turns(true, false, Duration::ZERO);
        assert!(writes.goes_other_way());
        // It has gone there, for a second: the next minute's do not.
        writes.take_turns(true, true, Duration::from_secs(1));
        assert!(!writes.goes_other_way());
        writes.take_turns(true, false, Duration::ZERO);
        assert!(!writes.goes_other_way());
    }

    #[test]
    fn nothing_changes_before_both_ways_are_known() {
        let writes = Writes::new();
        for _ in 0..3 * AGREE {
            writes.committed(false, Duration::from_secs(9), 1 << 20);
            writes.judged.lock().verdict.age();
            writes.judge();
        }
        assert!(writes.pay());
    }
}
