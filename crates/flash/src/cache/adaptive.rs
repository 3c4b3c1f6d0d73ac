//! Measures if flash pays: the time of its reads and writes beside those of homes.
//! docs/flash-format.md, "Whether flash pays".
//!
//! * `reads`: a page that was read comes in if reading it again on flash is faster than at home;
//! * `writes`: a page that was written goes to flash if that is so, or if it takes less than to
//!   write it at home.
//!
//! Times are taken as they happen, with all that the devices have to do beside. Several periods in
//! a row have to agree before anything changes, and between where flash stops to pay and where it
//! begins again lies a gap: what does not change stays as it is.

mod reads;
mod writes;

use super::Cache;
use crate::{buffer::Buffer, options::WritePolicy};
use parking_lot::Mutex;
use reads::ReadTimes;
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};
use writes::WriteTrials;

/// A period, at least.
const PERIOD: Duration = Duration::from_millis(500);
/// Periods in a row that have to agree before anything changes for the first time, and each time
/// twice as many, up to the last.
const AGREE: u32 = 6;
const AGREE_MAX: u32 = 32 * AGREE;
/// After so long without a change half as many are enough again.
const CALM: Duration = Duration::from_secs(3600);
/// Times of reads are not known any more after so long without a period.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Groups that leave while flash does not pay.
const EMPTYING: RestPeriod = RestPeriod {
    least: Duration::from_millis(50),
    times: 19,
};
/// Trial commits on the route not in use.
const TRIALS: RestPeriod = RestPeriod {
    least: Duration::from_millis(500),
    times: 49,
};

/// The rest after work that takes the devices from the server: so many times as long as it took.
struct RestPeriod {
    least: Duration,
    times: u32,
}

impl RestPeriod {
    /// Until then, after something that took so long. A process that was stopped meanwhile has not
    /// worked so long.
    fn until(&self, took: Duration) -> Instant {
        const MOST: Duration = Duration::from_secs(60);
        let rest = took.saturating_mul(self.times).min(MOST).max(self.least);
        let now = Instant::now();
        now.checked_add(rest).unwrap_or(now)
    }
}

/// The cost on flash beside the cost at home, in percent, at which flash stops to pay, and at which
/// it begins again.
struct HysteresisBounds {
    stops: u64,
    begins: u64,
}

/// The verdict that flash pays, or not, by periods each of which gives a cost. Asked without a
/// lock.
struct FlashVerdict {
    pays: AtomicBool,
    /// True once a period has ended, and not too long ago.
    known: AtomicBool,
    periods: Mutex<TrialPeriods>,
}

struct TrialPeriods {
    begun: Instant,
    changed: Instant,
    /// In a row that say the opposite, and how many have to.
    against: u32,
    agree: u32,
}

impl FlashVerdict {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            pays: AtomicBool::new(true),
            known: AtomicBool::new(false),
            periods: Mutex::new(TrialPeriods {
                begun: now,
                changed: now,
                against: 0,
                agree: AGREE,
            }),
        }
    }

    /// True as long as nothing shows the opposite.
    fn pays(&self) -> bool {
        self.pays.load(Relaxed)
    }

    fn is_known(&self) -> bool {
        self.known.load(Relaxed)
    }

    fn assume(&self, pays: bool) {
        self.periods.lock().begun = Instant::now();
        self.pays.store(pays, Relaxed);
        self.known.store(true, Relaxed);
    }

    fn forget(&self) {
        self.known.store(false, Relaxed);
    }

    /// Ends the period, if it has lasted and there is enough of what something took on flash and at
    /// home, nanoseconds.
    fn judge(&self, bounds: &HysteresisBounds, took: impl FnOnce() -> Option<[u64; 2]>) {
        let mut periods = self.periods.lock();
        let lasted = periods.begun.elapsed();
        if lasted < PERIOD {
            return;
        }
        let Some([flash, home]) = took() else {
            if lasted >= FORGOTTEN {
                self.forget();
            }
            return;
        };
        let pays = self.pays();
        let part = flash.saturating_mul(100);
        let is_against = match pays {
            true => part > home.saturating_mul(bounds.stops),
            false => part <= home.saturating_mul(bounds.begins),
        };
        self.known.store(true, Relaxed);
        if periods.end(is_against) {
            self.pays.store(!pays, Relaxed);
        }
    }

    /// As if it began long ago.
    #[cfg(test)]
    fn age(&self, by: Duration) {
        let long_ago = |at: Instant| at.checked_sub(by).expect("a machine that is up so long");
        let mut periods = self.periods.lock();
        periods.begun = long_ago(periods.begun);
        periods.changed = long_ago(periods.changed);
    }
}

impl TrialPeriods {
    /// Another one begins. True if what is so changes.
    fn end(&mut self, is_against: bool) -> bool {
        self.begun = Instant::now();
        self.against = if is_against { self.against + 1 } else { 0 };
        if self.changed.elapsed() >= CALM {
            self.changed = self.begun;
            self.agree = (self.agree / 2).max(AGREE);
        }
        let changes = self.against >= self.agree;
        if changes {
            self.changed = self.begun;
            self.against = 0;
            self.agree = (2 * self.agree).min(AGREE_MAX);
        }
        changes
    }
}

/// See the module.
pub(super) struct AdaptivePolicy {
    pub(super) reads: ReadTimes,
    pub(super) writes: WriteTrials,
    /// The next group may leave from then on.
    empties_at: Mutex<Instant>,
}

impl AdaptivePolicy {
    pub(super) fn new() -> Self {
        Self {
            reads: ReadTimes::new(),
            writes: WriteTrials::new(),
            empties_at: Mutex::new(Instant::now()),
        }
    }

    /// True as long as nothing shows the opposite.
    fn pays(&self) -> bool {
        self.reads.are_known_to_pay() || self.writes.verdict.pays()
    }

    /// True now and then: a group may leave.
    pub(super) fn may_empty(&self) -> bool {
        Instant::now() >= *self.empties_at.lock()
    }

    /// A group has left, which took so long.
    pub(super) fn emptied(&self, took: Duration) {
        *self.empties_at.lock() = EMPTYING.until(took);
    }
}

/// As counts have it.
pub(super) fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

impl Cache {
    pub(super) fn is_adaptive(&self) -> bool {
        self.policy() == WritePolicy::Adaptive
    }

    /// True while written pages go to flash, as far as its speed is concerned. Never false but with
    /// [`WritePolicy::Adaptive`].
    #[must_use]
    pub fn flash_pays(&self) -> bool {
        !self.is_adaptive() || self.worth.pays()
    }

    /// The same of pages that are read.
    #[must_use]
    pub fn flash_pays_for_reads(&self) -> bool {
        !self.is_adaptive() || self.worth.reads.verdict.pays()
    }

    /// True if the time of commits matters, and is to be seen by this one.
    pub(super) fn is_trial_due(&self) -> bool {
        let matters = self.is_adaptive() && !self.worth.reads.are_known_to_pay();
        matters && self.worth.writes.is_trial_due()
    }

    /// Takes flash for faster than homes from now on, or for no faster, until times show the
    /// opposite. For tests, whose devices all are as fast.
    #[doc(hidden)]
    pub fn assume_flash_pays(&self, pays: bool) {
        self.worth.reads.verdict.assume(pays);
        self.worth.writes.assume(pays);
    }

    /// The next commit goes the other way, if the policy is adaptive. For tests, which do not take
    /// so long.
    #[doc(hidden)]
    pub fn assume_a_trial_is_due(&self) {
        self.worth.reads.verdict.forget();
        self.worth.writes.assume_a_trial_is_due();
    }

    /// A piece of the background work: times a read of flash if there are too few, and judges.
    pub(super) fn judge_worth(&self) {
        if !self.is_adaptive() {
            return;
        }
        if !self.flash_rests() && self.worth.reads.want_probe() {
            self.probe();
        }
        self.worth.reads.judge();
        self.worth.writes.judge();
    }

    /// Reads a page that flash has for the time it takes: any one, so that no device has it at
    /// hand.
    fn probe(&self) {
        let (front, recorded) = {
            let map = &self.state.lock().map;
            (map.front, map.recorded)
        };
        if recorded == front {
            return;
        }
        let mut page = Buffer::new(self.page_bytes());
        let seed = self.counters.misses.load(Relaxed);
        let position = front + seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (recorded - front);
        let begun = Instant::now();
        // What cannot be read says nothing here; who needs it will be told.
        if (self
            .flash
            .read_at(&mut page, self.geometry().slot(position)))
        .is_ok()
        {
            self.worth.reads.flash.add(begun.elapsed());
        }
    }
}
