//! The turn to settle the lane when the supervisor is gone: one member takes it, once.
//! docs/files-membership.md, "When a process dies".

use super::SharedPageLayout;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The word for a settled lane, which no process writes over the page by accident.
const SETTLED: u32 = 0x5E77_1ED1;

/// The turn to settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettlingTurn {
    Ours,
    /// The process with this id has it, or had it when it died.
    Others(u32),
    /// No process's any more: the lane is settled.
    Done,
}

impl SharedPageLayout {
    /// Takes the turn for the process `who`, if no other has it.
    ///
    /// Looks whether the lane is settled when the turn is taken: who had the turn before may have
    /// settled the lane and died since any earlier look. Files are written to plainly by then, and
    /// settling the lane once more might write older bytes over that.
    pub fn turn_to_settle(&self, who: u32) -> SettlingTurn {
        let taken = self.settling.compare_exchange(0, who, AcqRel, Acquire);
        match taken {
            _ if self.is_settled() => SettlingTurn::Done,
            Ok(_) => SettlingTurn::Ours,
            Err(other) => SettlingTurn::Others(other),
        }
    }

    /// Takes the turn away from a process that is dead, or takes too long.
    pub fn give_turn_up(&self, of: u32) {
        // Another may have done that.
        let _ = self.settling.compare_exchange(of, 0, AcqRel, Relaxed);
    }

    /// True if a member has synced the lane's records, since the supervisor is gone.
    pub fn is_settled(&self) -> bool {
        self.settled.load(Acquire) == SETTLED
    }

    /// Notes that.
    pub fn set_settled(&self) {
        self.settled.store(SETTLED, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::{PART, SharedPage};

    #[test]
    fn one_process_at_a_time_settles_the_lane() {
        let (page, _) = SharedPage::new("forebay-test", PART).unwrap();
        assert_eq!(page.turn_to_settle(7), SettlingTurn::Ours);
        assert_eq!(page.turn_to_settle(8), SettlingTurn::Others(7));
        page.give_turn_up(6);
        assert_eq!(page.turn_to_settle(8), SettlingTurn::Others(7));
        page.give_turn_up(7);
        assert_eq!(page.turn_to_settle(8), SettlingTurn::Ours);
        page.set_settled();
        assert_eq!(page.turn_to_settle(8), SettlingTurn::Done);
    }

    /// Promise: as `a_process_that_dies_settling_leaves_the_lane_to_the_next`.
    #[test]
    fn a_lane_that_a_dead_process_settled_is_not_settled_again() {
        let (page, _) = SharedPage::new("forebay-test", PART).unwrap();
        assert_eq!(page.turn_to_settle(7), SettlingTurn::Ours);
        // Two that looked before this are late: one finds the turn a dead process's, the other
        // finds it free.
        page.set_settled();
        page.give_turn_up(7);
        assert_eq!(page.turn_to_settle(9), SettlingTurn::Done);
    }
}
