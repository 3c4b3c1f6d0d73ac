//! Whether flash pays: reads of it and of homes are timed as they happen, so with all that the devices have to do beside. A page that is on flash costs
//! its writes there; if reading it is no faster than reading its home, they buy nothing. Medians are compared: a few that a batch of
//! writes held up say nothing of how fast a device is. docs/flash-format.md, "Whether flash pays".
//!
//! A period ends when there are enough reads of both. Several in a row have to agree before anything changes, and between the ratio at which flash stops
//! to pay and the one at which it begins again lies a gap: what does not change stays as it is.

use super::Cache;
use crate::{buffer::Buffer, options::WritePolicy};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Flash pays no more from when its reads take this part of those of homes, in percent.
const STOPS: u64 = 80;
/// And again when they take no more than this.
const BEGINS: u64 = 50;
/// Reads of each in a period at least.
const READS_MIN: u64 = 32;
/// A period, at least.
const PERIOD: Duration = Duration::from_millis(500);
/// Periods in a row that agree before anything changes.
const AGREE: u32 = 6;
/// What reads take is told apart by so many steps a doubling, and as far as this.
const STEPS: usize = 8;
const DOUBLINGS: usize = 20;
/// Between reads of flash that are made to time them.
const PROBE_EVERY: Duration = Duration::from_millis(20);
/// Between groups that leave while flash does not pay, at least.
const EMPTY_EVERY: Duration = Duration::from_millis(50);
/// And so many times as long as the last one took: the devices are the server's.
const EMPTY_REST: u32 = 19;

/// Reads in this period, by what they took: [`STEPS`] a doubling, from a microsecond to a second.
pub(super) struct Reads([AtomicU32; STEPS * DOUBLINGS]);

impl Default for Reads {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; STEPS * DOUBLINGS])
    }
}

impl Reads {
    pub(super) fn add(&self, took: Duration) {
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
pub(super) struct Worth {
    pub(super) flash: Reads,
    pub(super) home: Reads,
    pays: AtomicBool,
    periods: Mutex<Periods>,
}

struct Periods {
    begun: Instant,
    /// That say the opposite of what is so.
    against: u32,
    probed: Instant,
    /// The next group may leave from then on.
    empties_at: Instant,
}

impl Worth {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            flash: Reads::default(),
            home: Reads::default(),
            pays: AtomicBool::new(true),
            periods: Mutex::new(Periods {
                begun: now,
                against: 0,
                probed: now,
                empties_at: now,
            }),
        }
    }

    /// True as long as nothing shows the opposite.
    pub(super) fn pays(&self) -> bool {
        self.pays.load(Relaxed)
    }

    /// True now and then: a group may leave.
    pub(super) fn may_empty(&self) -> bool {
        Instant::now() >= self.periods.lock().empties_at
    }

    /// A group has left, which took so long.
    pub(super) fn emptied(&self, took: Duration) {
        let rest = EMPTY_EVERY.max(took.saturating_mul(EMPTY_REST));
        let now = Instant::now();
        self.periods.lock().empties_at = now.checked_add(rest).unwrap_or(now);
    }

    /// True if flash should be read to see what that takes: homes are read, and reads of flash are wanting.
    fn wants_probe(&self) -> bool {
        if self.home.count() == 0 || self.flash.count() >= READS_MIN {
            return false;
        }
        let mut periods = self.periods.lock();
        let is_time = periods.probed.elapsed() >= PROBE_EVERY;
        if is_time {
            periods.probed = Instant::now();
        }
        is_time
    }

    /// Ends the period if it has enough: true if flash pays from now on and did not, or the other way round.
    fn judge(&self) -> bool {
        let mut periods = self.periods.lock();
        let enough = self.flash.count() >= READS_MIN && self.home.count() >= READS_MIN;
        if !enough || periods.begun.elapsed() < PERIOD {
            return false;
        }
        periods.begun = Instant::now();
        let (flash, home) = (self.flash.take(), self.home.take());
        let pays = self.pays();
        if !is_against(pays, flash, home) {
            periods.against = 0;
            return false;
        }
        periods.against += 1;
        if periods.against < AGREE {
            return false;
        }
        periods.against = 0;
        self.pays.store(!pays, Relaxed);
        true
    }
}

/// True if reads that take so long say the opposite of `pays`.
fn is_against(pays: bool, flash: u64, home: u64) -> bool {
    let part = flash.saturating_mul(100);
    match pays {
        true => part > home.saturating_mul(STOPS),
        false => part <= home.saturating_mul(BEGINS),
    }
}

impl Cache {
    /// True while what is written goes to flash, as far as its speed is concerned. Never false but with [`WritePolicy::Adaptive`].
    #[must_use]
    pub fn flash_pays(&self) -> bool {
        self.policy() != WritePolicy::Adaptive || self.worth.pays()
    }

    /// Takes flash for faster than homes from now on, or for no faster, until reads show the opposite. For tests, whose devices all are as fast.
    #[doc(hidden)]
    pub fn assume_flash_pays(&self, pays: bool) {
        self.worth.pays.store(pays, Relaxed);
    }

    /// A piece of the background work: times a read of flash if there are too few, and judges.
    pub(super) fn judge_worth(&self) {
        if self.policy() != WritePolicy::Adaptive {
            return;
        }
        if !self.flash_rests() && self.worth.wants_probe() {
            self.probe();
        }
        self.worth.judge();
    }

    /// Reads a page of flash for the time it takes: any one, so that no device has it at hand.
    fn probe(&self) {
        let mut page = Buffer::new(self.page_bytes());
        let seed = self.counters.misses.load(Relaxed);
        let slot = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) % self.slots();
        let begun = Instant::now();
        // What cannot be read says nothing here; who needs it will be told.
        if (self.flash.read_at(&mut page, self.geometry().slot(slot))).is_ok() {
            self.worth.flash.add(begun.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A period in which reads took so long, microseconds.
    fn period(worth: &Worth, flash: u64, home: u64) -> bool {
        for _ in 0..READS_MIN {
            worth.flash.add(Duration::from_micros(flash));
            worth.home.add(Duration::from_micros(home));
        }
        let long_ago = Instant::now().checked_sub(PERIOD);
        worth.periods.lock().begun = long_ago.expect("a machine that is up for a second");
        worth.judge();
        worth.pays()
    }

    #[test]
    fn flash_that_is_no_faster_stops_to_pay_after_periods_that_agree() {
        let worth = Worth::new();
        for _ in 1..AGREE {
            assert!(period(&worth, 100, 100));
        }
        // One that says otherwise begins the row anew.
        assert!(period(&worth, 10, 100));
        for _ in 1..AGREE {
            assert!(period(&worth, 100, 100));
        }
        assert!(!period(&worth, 100, 100));
        // A little faster is not enough to begin again.
        for _ in 0..3 * AGREE {
            assert!(!period(&worth, 70, 100));
        }
        for _ in 1..AGREE {
            assert!(!period(&worth, 20, 100));
        }
        assert!(period(&worth, 20, 100));
    }

    #[test]
    fn flash_that_is_much_faster_pays_and_one_read_that_was_held_up_says_nothing() {
        let worth = Worth::new();
        for _ in 0..3 * AGREE {
            worth.flash.add(Duration::from_secs(60));
            assert!(period(&worth, 120, 8000));
        }
    }

    #[test]
    fn without_reads_of_homes_nothing_changes_and_flash_is_not_read_for_it() {
        let worth = Worth::new();
        for _ in 0..READS_MIN * 10 {
            worth.flash.add(Duration::from_secs(1));
        }
        assert!(!worth.wants_probe());
        assert!(!worth.judge());
        assert!(worth.pays());
    }
}
