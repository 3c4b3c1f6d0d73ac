//! Crowding: a lane of several segments tells its writers when the last free one is nearly full.
//!
//! A writer that finds no free segment waits until the drain has one synced, however long that takes. So that it need not come to that all
//! at once, an owner may slow its writers down before: [`Lane::crowding`] says how far a record lies in the last [`ZONE`]th of the only
//! segment that is not in the drain's hands, and [`Lane::wait_free`] waits for a moment, or until a segment is free.
//!
//! A lane of one segment is never crowded: its writers wait at every segment's end, whatever they do before.

use super::{Control, Lane, SlotState};
use crate::{
    format::record::Lsn,
    waits::{WaitMeter, Waits},
};
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// One in so many parts of a segment is its crowded end, but no more than [`ZONE_MAX`].
const ZONE: u64 = 8;
const ZONE_MAX: u64 = 1 << 20;

/// Where a lane is crowded, and how its writers have waited.
pub(super) struct Crowding {
    /// Records from this address on are; none while another segment is free.
    from: AtomicU64,
    /// Waits for a free segment with none left.
    pub(super) blocked: WaitMeter,
}

impl Default for Crowding {
    fn default() -> Self {
        Self {
            from: AtomicU64::new(Lsn::MAX),
            blocked: WaitMeter::default(),
        }
    }
}

impl Lane {
    /// How far the record at `lsn` lies in the crowded end of the last free segment: from 0 to 1. `None` if it does not, or another segment
    /// is free by now. One load, mostly.
    #[inline]
    pub fn crowding(&self, lsn: Lsn) -> Option<f64> {
        let from = self.crowding.from.load(Relaxed);
        (lsn >= from).then(|| ((lsn - from) as f64 / self.crowded_bytes() as f64).min(1.0))
    }

    /// Waits until a segment is free beside the open one, no longer than `most`, nor for a lane that has ended.
    pub fn wait_free(&self, most: Duration) {
        let until = Instant::now().checked_add(most);
        let mut control = self.control.lock();
        while !control.states.contains(&SlotState::Free) && !control.has_ended() {
            match until {
                Some(until) if self.freed.wait_until(&mut control, until).timed_out() => return,
                Some(_) => {}
                None => self.freed.wait(&mut control),
            }
        }
    }

    /// Waits for a free segment when there was none.
    #[must_use]
    pub fn blocked(&self) -> Waits {
        self.crowding.blocked.read()
    }

    fn crowded_bytes(&self) -> u64 {
        (self.segment_bytes / ZONE).clamp(1, ZONE_MAX)
    }

    /// A segment was opened, or one became free.
    pub(super) fn note_crowding(&self, control: &Control) {
        let crowded = self.slots.len() > 1 && !control.states.contains(&SlotState::Free);
        let start = control.open().and_then(|slot| self.slots[slot].start());
        let from = match start {
            Some(start) if crowded => start + self.segment_bytes - self.crowded_bytes(),
            _ => Lsn::MAX,
        };
        self.crowding.from.store(from, Relaxed);
    }
}
