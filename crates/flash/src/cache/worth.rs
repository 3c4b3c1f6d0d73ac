//! Whether flash pays, by what its reads and writes take, and those of homes. docs/flash-format.md, "Whether flash pays".
//!
//! * `reads`: a page that was read comes in if reading it again on flash is faster than at home;
//! * `writes`: a page that was written goes to flash if that is so, or if it takes less than to write it at home.
//!
//! Times are taken as they happen, with all that the devices have to do beside. Several periods in a row have to agree before anything changes, and
//! between where flash stops to pay and where it begins again lies a gap: what does not change stays as it is.

mod reads;
mod writes;

use super::Cache;
use crate::{buffer::Buffer, options::WritePolicy};
use parking_lot::Mutex;
use reads::Reads;
use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};
use writes::Writes;

/// A period, at least.
const PERIOD: Duration = Duration::from_millis(500);
/// Periods in a row that have to agree before anything changes for the first time, and each time twice as many, up to the last.
const AGREE: u32 = 6;
const AGREE_MAX: u32 = 32 * AGREE;
/// Between groups that leave while flash does not pay, at least.
const EMPTY_EVERY: Duration = Duration::from_millis(50);
/// And so many times as long as the last one took: the devices are the server's.
const EMPTY_REST: u32 = 19;

/// What something takes on flash beside what it takes at home, in percent, at which flash stops to pay, and at which it begins again.
struct Bounds {
    stops: u64,
    begins: u64,
}

/// Whether flash pays, by periods each of which says what something takes.
struct Verdict {
    pays: bool,
    /// True once a period has ended.
    known: bool,
    begun: Instant,
    /// Periods in a row that say the opposite, and how many have to.
    against: u32,
    agree: u32,
}

impl Verdict {
    fn new() -> Self {
        Self {
            pays: true,
            known: false,
            begun: Instant::now(),
            against: 0,
            agree: AGREE,
        }
    }

    fn may_end(&self) -> bool {
        self.begun.elapsed() >= PERIOD
    }

    /// The period ends with what something took on flash and at home, nanoseconds.
    fn end(&mut self, flash: u64, home: u64, bounds: &Bounds) {
        let part = flash.saturating_mul(100);
        let is_against = match self.pays {
            true => part > home.saturating_mul(bounds.stops),
            false => part <= home.saturating_mul(bounds.begins),
        };
        self.begun = Instant::now();
        self.known = true;
        self.against = if is_against { self.against + 1 } else { 0 };
        if self.against >= self.agree {
            self.pays = !self.pays;
            self.against = 0;
            self.agree = (2 * self.agree).min(AGREE_MAX);
        }
    }

    /// As if it began long ago.
    #[cfg(test)]
    fn age(&mut self) {
        let long_ago = Instant::now().checked_sub(PERIOD);
        self.begun = long_ago.expect("a machine that is up for a second");
    }
}

/// See the module.
pub(super) struct Worth {
    pub(super) reads: Reads,
    pub(super) writes: Writes,
    /// The next group may leave from then on.
    empties_at: Mutex<Instant>,
}

impl Worth {
    pub(super) fn new() -> Self {
        Self {
            reads: Reads::new(),
            writes: Writes::new(),
            empties_at: Mutex::new(Instant::now()),
        }
    }

    /// True as long as nothing shows the opposite.
    fn pays(&self) -> bool {
        self.reads.are_known_to_pay() || self.writes.pay()
    }

    /// True now and then: a group may leave.
    pub(super) fn may_empty(&self) -> bool {
        Instant::now() >= *self.empties_at.lock()
    }

    /// A group has left, which took so long.
    pub(super) fn emptied(&self, took: Duration) {
        let rest = EMPTY_EVERY.max(took.saturating_mul(EMPTY_REST));
        *self.empties_at.lock() = after(rest);
    }
}

/// When so much time will have passed.
fn after(rest: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(rest).unwrap_or(now)
}

impl Cache {
    fn is_adaptive(&self) -> bool {
        self.policy() == WritePolicy::Adaptive
    }

    /// True while what is written goes to flash, as far as its speed is concerned. Never false but with [`WritePolicy::Adaptive`].
    #[must_use]
    pub fn flash_pays(&self) -> bool {
        !self.is_adaptive() || self.worth.pays()
    }

    /// The same of what is read.
    #[must_use]
    pub fn flash_pays_for_reads(&self) -> bool {
        !self.is_adaptive() || self.worth.reads.pay()
    }

    /// True if the next commit goes around flash that pays, or to flash that does not, to show what that takes.
    pub(super) fn goes_other_way(&self) -> bool {
        self.is_adaptive() && self.worth.writes.goes_other_way()
    }

    /// So many pages became durable `around` flash, or on it, and that took so long. With *adaptive* a commit now and then goes the other way.
    pub(super) fn committed(&self, around: bool, took: Duration, pages: usize) {
        let other_way = around == self.worth.pays();
        self.worth.writes.committed(around, took, pages);
        let matters = self.is_adaptive() && !self.worth.reads.are_known_to_pay();
        self.worth.writes.take_turns(matters, other_way, took);
    }

    /// Takes flash for faster than homes from now on, or for no faster, until times show the opposite. For tests, whose devices all are as fast.
    #[doc(hidden)]
    pub fn assume_flash_pays(&self, pays: bool) {
        self.worth.reads.assume(pays);
        self.worth.writes.assume(pays);
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

    /// Reads a page of flash for the time it takes: any one, so that no device has it at hand.
    fn probe(&self) {
        let mut page = Buffer::new(self.page_bytes());
        let seed = self.counters.misses.load(Relaxed);
        let slot = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) % self.slots();
        let begun = Instant::now();
        // What cannot be read says nothing here; who needs it will be told.
        if (self.flash.read_at(&mut page, self.geometry().slot(slot))).is_ok() {
            self.worth.reads.flash.add(begun.elapsed());
        }
    }
}
