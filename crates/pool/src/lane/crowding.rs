//! Crowding: a lane of several segments tells its writers how fast they may fill the last free one.
//!
//! A writer that finds no free segment waits until the drain has one synced, however long that
//! takes. So that writers need not come to that, nor all at once, an owner may slow them down
//! before. A lane is *crowded* from the first quarter of the only segment on that is not in the
//! drain's hands. What is left of that segment is shared out over the time that the drain will
//! still take, judged by how long it took of late. A record is charged its share by
//! [`Lane::crowding`], which says how far the records are ahead of the drain; [`Lane::wait_free`]
//! waits for as long, or until a segment is free. A drain that takes longer than of late is taken
//! to last half as long again as it has so far, at any time. So what is left gets smaller ever more
//! slowly, and seldom comes to an end before the drain does.
//!
//! A drain that finds writers held back when it is done is *behind*: it is the bound. Writers that
//! raced until they are held back again would only take the processors from each other and from the
//! drain. So after that the whole of the next segment is crowded, and of the open one what is left,
//! at the drain's usual pace; until the drain once finds none held back.
//!
//! A lane of one segment is never crowded: its writers wait at every segment's end, whatever they
//! do before.

use super::{Lane, LaneControl, SlotState};
use crate::{
    format::record::Lsn,
    wait_meter::{WaitCounts, WaitMeter},
};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// One in so many parts of the last free segment is filled as fast as writers can: a drain that
/// keeps up with them is done by then.
const FREE_PART: u64 = 4;
/// Writers that are behind it by less than one in so many parts of a usual drain are still taken to
/// be held back.
const BEHIND_PART: u64 = 8;
/// Taken for usual before the first.
const USUAL: Duration = Duration::from_millis(5);
/// One drain counts one in so many parts of how long a drain takes, and at most twice as much as
/// those before.
const MEMORY: u64 = 4;

/// The wait of a writer whose record lies in the crowded part of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded {
    /// By how much the records up to this one are ahead of the drain: for so long its writer should
    /// wait.
    pub ahead: Duration,
    /// Another segment has come free, so that only writers that would race for processors need to
    /// wait.
    pub another_is_free: bool,
}

/// The crowded part of a lane, and the waits of its writers. Times are nanoseconds since the lane
/// was opened.
pub(super) struct Crowding {
    /// Records from this address on are; none while another segment is free.
    from: AtomicU64,
    /// The end of that segment, and its length.
    end: AtomicU64,
    segment_bytes: AtomicU64,
    /// The last drain found writers held back when it was done.
    behind: AtomicBool,
    /// Another segment has come free since `since`.
    eased: AtomicBool,
    opened: Instant,
    /// Since when no other segment is free.
    since: AtomicU64,
    /// Recent time until one was free.
    usual: AtomicU64,
    /// The time at which the drain will be where the records charged so far may be.
    turn: AtomicU64,
    /// Waits for a free segment with none left.
    pub(super) blocked: WaitMeter,
}

impl Default for Crowding {
    fn default() -> Self {
        Self {
            from: AtomicU64::new(Lsn::MAX),
            end: AtomicU64::new(0),
            segment_bytes: AtomicU64::new(0),
            behind: AtomicBool::new(false),
            eased: AtomicBool::new(false),
            opened: Instant::now(),
            since: AtomicU64::new(0),
            usual: AtomicU64::new(USUAL.as_nanos() as u64),
            turn: AtomicU64::new(0),
            blocked: WaitMeter::default(),
        }
    }
}

impl Crowding {
    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Charges a record of `bytes` at `lsn`.
    fn charge(&self, lsn: Lsn, bytes: u64) -> Crowded {
        let now = self.now();
        let usual = self.usual.load(Relaxed);
        let another_is_free = self.eased.load(Relaxed);
        let price = if another_is_free {
            share(usual, bytes, self.segment_bytes.load(Relaxed))
        } else {
            let room = self.end.load(Relaxed).saturating_sub(lsn);
            let so_far = now.saturating_sub(self.since.load(Relaxed));
            price(usual, so_far, bytes, room)
        };
        let mut turn = self.turn.load(Relaxed);
        loop {
            let next = turn.max(now).saturating_add(price);
            match (self.turn).compare_exchange_weak(turn, next, Relaxed, Relaxed) {
                Ok(_) => {
                    return Crowded {
                        ahead: Duration::from_nanos(next - now),
                        another_is_free,
                    };
                }
                Err(other) => turn = other,
            }
        }
    }

    /// From now on records are crowded that lie in the segment that starts at `start`, behind its
    /// first part if the drain is not behind.
    fn begin(&self, start: Lsn, segment_bytes: u64) {
        self.end.store(start + segment_bytes, Relaxed);
        self.segment_bytes.store(segment_bytes, Relaxed);
        self.since.store(self.now(), Relaxed);
        self.turn.store(0, Relaxed);
        self.eased.store(false, Relaxed);
        let free = match self.behind.load(Relaxed) {
            true => 0,
            false => segment_bytes / FREE_PART,
        };
        self.from.store(start + free, Relaxed);
    }

    /// Another segment is free: none is crowded any more, unless writers are held back.
    fn end(&self) {
        if self.from.load(Relaxed) == Lsn::MAX {
            return;
        }
        if self.eased.swap(true, Relaxed) {
            return self.from.store(Lsn::MAX, Relaxed);
        }
        let now = self.now();
        let took = now.saturating_sub(self.since.load(Relaxed));
        let usual = self.usual.load(Relaxed);
        let behind = self.turn.load(Relaxed) + usual / BEHIND_PART >= now;
        self.behind.store(behind, Relaxed);
        if !behind {
            self.from.store(Lsn::MAX, Relaxed);
        }
        let took = took.clamp(usual / 2, 2 * usual).max(1000);
        self.usual
            .store(usual - usual / MEMORY + took / MEMORY, Relaxed);
    }
}

/// The price of a record of `bytes`, if `room` bytes are left, a drain takes `usual` and has taken
/// `so_far`: nanoseconds.
fn price(usual: u64, so_far: u64, bytes: u64, room: u64) -> u64 {
    share(usual.saturating_sub(so_far).max(so_far / 2), bytes, room)
}

/// The part of `time` that falls to `bytes` of `room`; all, if there is no more room.
fn share(time: u64, bytes: u64, room: u64) -> u64 {
    let room = room.max(bytes).max(1);
    (time as f64 * (bytes as f64 / room as f64)) as u64
}

impl Lane {
    /// Charges the record of `bytes` at `lsn`, if it lies in the crowded part of the last free
    /// segment. `None` if it does not, or if the drain keeps up by now. One load, mostly.
    #[inline]
    pub fn crowding(&self, lsn: Lsn, bytes: u64) -> Option<Crowded> {
        (lsn >= self.crowding.from.load(Relaxed)).then(|| self.crowding.charge(lsn, bytes))
    }

    /// Waits until a segment is free beside the open one, no longer than `most`, nor for a lane
    /// that has ended.
    pub fn wait_free(&self, most: Duration) {
        if self.core.check_own().is_err() {
            return;
        }
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
    pub fn blocked(&self) -> WaitCounts {
        self.crowding.blocked.read()
    }

    /// A segment was opened, or one became free.
    pub(super) fn note_crowding(&self, control: &LaneControl) {
        let last = self.slots.len() > 1 && !control.states.contains(&SlotState::Free);
        let start = control.open().and_then(|slot| self.slots[slot].start());
        match start.filter(|_| last) {
            Some(start) => self.crowding.begin(start, self.segment_bytes),
            None => self.crowding.end(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Promise: as `a_writer_losing_its_processor_in_a_shard_holds_up_no_other`.
    #[test]
    fn the_rest_of_a_segment_is_shared_out_and_outlasts_the_drain() {
        const RECORD: u64 = 4096;
        const MS: u64 = 1_000_000;
        // Writers that pay at once, against drains that take as long as of late, half, twice and
        // ten times as long.
        for (usual, takes) in [(8, 8), (8, 4), (8, 16), (8, 80)] {
            let (mut now, mut room, mut longest) = (0, 6 << 20, 0);
            while now < takes * MS {
                assert!(
                    room > RECORD,
                    "full {} ns before the drain is done",
                    takes * MS - now
                );
                let price = price(usual * MS, now, RECORD, room);
                longest = longest.max(price);
                // A record takes a microsecond to write, too.
                now += price + 1000;
                room -= RECORD;
            }
            assert!(longest < takes * MS / 4, "{longest} ns of {takes} ms");
            if takes == usual {
                assert!(room < 3 << 19, "{room} bytes were never used");
                assert!(longest < 100_000, "{longest} ns");
            }
        }
    }

    #[test]
    fn one_slow_drain_does_not_slow_writers_down_for_long() {
        let crowding = Crowding {
            opened: Instant::now() - Duration::from_secs(10),
            ..Crowding::default()
        };
        let drain = |took: u64| {
            crowding.begin(0, 8 << 20);
            let since = crowding.now().saturating_sub(took);
            crowding.since.store(since, Relaxed);
            crowding.end();
            crowding.usual.load(Relaxed)
        };
        crowding.usual.store(5_000_000, Relaxed);
        assert!(drain(1_000_000_000) < 6_500_000);
        for _ in 0..7 {
            drain(5_000_000);
        }
        assert!(drain(5_000_000) < 5_300_000);
        // Without a crowded segment nothing is learnt.
        crowding.end();
        assert!(crowding.usual.load(Relaxed) > 4_900_000);
    }

    #[test]
    fn writers_held_back_at_a_drains_end_begin_the_next_held_back() {
        const SEGMENT: u64 = 8 << 20;
        let crowding = Crowding::default();
        let crowded_from = || crowding.from.load(Relaxed);
        crowding.begin(0, SEGMENT);
        assert_eq!(crowded_from(), SEGMENT / FREE_PART);
        // All that is left of the segment, at once: far ahead of the drain.
        let first = crowding.charge(SEGMENT / 4, SEGMENT / 2);
        assert!(!first.another_is_free);
        crowding.end();
        assert_eq!(
            crowded_from(),
            SEGMENT / FREE_PART,
            "what is left is crowded"
        );
        let next = crowding.charge(SEGMENT * 3 / 4, 4096);
        assert!(next.another_is_free && next.ahead > first.ahead / 2);
        crowding.begin(SEGMENT, SEGMENT);
        assert_eq!(crowded_from(), SEGMENT);
        // Now none is held back when the drain is done.
        crowding.usual.store(1, Relaxed);
        thread::sleep(Duration::from_micros(10));
        crowding.end();
        assert_eq!(crowded_from(), Lsn::MAX);
        crowding.begin(2 * SEGMENT, SEGMENT);
        assert_eq!(crowded_from(), 2 * SEGMENT + SEGMENT / FREE_PART);
    }

    #[test]
    fn what_another_segment_comes_free_for_is_no_longer_crowded() {
        let crowding = Crowding::default();
        crowding.begin(0, 8 << 20);
        crowding.charge(6 << 20, 1 << 20);
        crowding.end();
        assert_ne!(crowding.from.load(Relaxed), Lsn::MAX);
        crowding.end();
        assert_eq!(crowding.from.load(Relaxed), Lsn::MAX);
    }
}
