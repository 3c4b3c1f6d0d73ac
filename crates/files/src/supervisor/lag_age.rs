//! The age of the oldest record that is not on the disk yet. Records have no time that is
//! comparable, so the supervisor notes the lane's end and the time: at each look of the thread that
//! prepares segments, ten times a second.
//!
//! The age is never too small. It is too large by the time between two looks at most, and by a
//! five-hundredth of itself where a disk has been behind for so long that notes were given up.

use super::run::RunState;
use forebay_pool::{Lsn, PAGE};
use std::{collections::VecDeque, time::Duration};

/// Notes at most: of more, every second is given up.
const NOTES_MAX: usize = 1024;

/// The lane's ends and their times, by a clock of the caller's.
pub(super) struct LagAge {
    /// The oldest first: where it ended, and the last time at which it ended there.
    notes: VecDeque<(Lsn, Duration)>,
    /// Between two notes, but for the last, is so much time at least.
    interval: Duration,
}

impl LagAge {
    /// Of a lane that has nothing before `tail`, since then.
    pub(super) fn begun(tail: Lsn, now: Duration) -> Self {
        Self {
            notes: VecDeque::from([(tail, now)]),
            interval: Duration::ZERO,
        }
    }

    /// Notes that the lane ends at `tail` now, and is on the disk below `drained`.
    pub(super) fn note(&mut self, drained: Lsn, tail: Lsn, now: Duration) {
        let notes = &mut self.notes;
        let before = notes.len().checked_sub(2).map(|at| notes[at].1);
        match notes.back_mut() {
            Some(last) if last.0 == tail => last.1 = now,
            Some(last) if before.is_some_and(|at| last.1 - at < self.interval) => {
                *last = (tail, now);
            }
            _ => notes.push_back((tail, now)),
        }
        // Of those that are on the disk the last says since when it has been behind.
        while notes.get(1).is_some_and(|next| next.0 <= drained) {
            notes.pop_front();
        }
        match notes.len() {
            0 | 1 => self.interval = Duration::ZERO,
            2..=NOTES_MAX => {}
            _ => self.give_up_half(),
        }
    }

    /// Gives every second note up, and has as few from now on.
    fn give_up_half(&mut self) {
        let notes = &mut self.notes;
        if let (Some(first), Some(last)) = (notes.front(), notes.back()) {
            self.interval = (last.1 - first.1) * 2 / notes.len() as u32;
        }
        let last = notes.pop_back();
        let mut is_kept = false;
        notes.retain(|_| {
            is_kept = !is_kept;
            is_kept
        });
        notes.extend(last);
    }

    /// The age of the oldest record that is not on the disk, as of `now`.
    pub(super) fn of(&self, drained: Lsn, now: Duration) -> Duration {
        let is_behind = self.notes.back().is_some_and(|last| last.0 > drained);
        let since = self.notes.front().filter(|_| is_behind);
        since.map_or(Duration::ZERO, |(_, since)| now.saturating_sub(*since))
    }
}

/// The first record of a lane with nothing in use below `head`: an empty segment has its header.
pub(super) fn drained(head: Lsn) -> Lsn {
    head + PAGE
}

impl RunState {
    /// The disk's lag behind the lane at this time of the supervisor's, which is noted: bytes, and
    /// the age of the oldest of them.
    pub(super) fn lag(&self, now: Duration) -> (u64, Duration) {
        // First, so that two looks are noted in their order.
        let mut age = self.lag_age.lock();
        let usage = self.lane.usage();
        let drained = drained(usage.head);
        age.note(drained, usage.tail, now);
        (usage.tail.saturating_sub(drained), age.of(drained, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_at_the_first_look_is_as_old_as_the_lane() {
        let at = Duration::from_millis;
        let mut lag = LagAge::begun(100, at(1_000));
        lag.note(100, 300, at(3_000));
        assert_eq!(lag.of(100, at(3_000)), at(2_000));
        // Half of that is on the disk by then, as old.
        lag.note(200, 300, at(3_100));
        assert_eq!(lag.of(200, at(3_100)), at(2_100));
    }

    #[test]
    fn age_is_that_of_the_oldest_record_not_drained() {
        let at = Duration::from_millis;
        let mut lag = LagAge::begun(100, at(0));
        assert_eq!(lag.of(100, at(0)), Duration::ZERO);
        lag.note(100, 100, at(0));
        // Nothing was written for a while: that is no lag.
        lag.note(100, 100, at(5_000));
        assert_eq!(lag.of(100, at(5_100)), Duration::ZERO);
        lag.note(100, 200, at(5_100));
        lag.note(100, 300, at(5_200));
        assert_eq!(lag.of(100, at(6_000)), Duration::from_millis(1_000));
        // The first of the two is on the disk.
        lag.note(200, 300, at(6_100));
        assert_eq!(lag.of(200, at(6_100)), Duration::from_millis(1_000));
        assert_eq!(lag.of(300, at(6_100)), Duration::ZERO);
        lag.note(300, 300, at(6_200));
        assert_eq!(lag.notes.len(), 1);
    }

    #[test]
    fn notes_are_bounded_and_the_age_is_never_too_small() {
        let mut lag = LagAge::begun(0, Duration::ZERO);
        for step in 0..100_000_u64 {
            lag.note(0, step + 1, Duration::from_millis(step));
            assert!(lag.notes.len() <= NOTES_MAX);
        }
        let now = Duration::from_secs(100);
        assert_eq!(lag.of(0, now), Duration::from_secs(100));
        assert!(lag.of(50_000, now) >= Duration::from_millis(50_000));
        lag.note(50_000, 100_000, now);
        let age = lag.of(50_000, now);
        let most = Duration::from_millis(52_000);
        assert!(
            age >= Duration::from_millis(50_000) && age < most,
            "{age:?}"
        );
    }
}
