//! The waits of an explored lane's threads, read from the state that they share.

use super::super::{super::state::SeenCell, SharedLane, known::DRAINED};
use crate::{
    format::record::Lsn,
    lane::{PublishMark, split},
    media::SimMedia,
};
use std::sync::{Arc, atomic::Ordering::SeqCst};

/// In a note: from here on the schedule is another one than the last.
pub(super) const DIFFERS: u64 = u64::MAX ^ DRAINED;

pub(super) struct Watch {
    pub(super) lane: Arc<SharedLane>,
    pub(super) sim: Arc<SimMedia>,
    pub(super) has_differed: bool,
}

/// The sight of an owner that waits.
#[derive(Debug)]
pub(super) struct Idle {
    turned: u32,
    /// If it could not bury: what kept it from that.
    stuck: Option<(Lsn, Vec<(usize, SeenCell)>)>,
}

impl Idle {
    pub(super) fn new(turned: u32, stuck: Option<&SharedLane>) -> Self {
        Self {
            turned,
            stuck: stuck.map(obstacles),
        }
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.is_some()
    }
}

/// The mark, and writers that announce something.
fn obstacles(lane: &SharedLane) -> (Lsn, Vec<(usize, SeenCell)>) {
    let writers = lane.state().writers().iter().map(|writer| writer.seen());
    let announced = writers.enumerate().filter(|(_, seen)| seen.is_announced());
    (lane.member().published(), announced.collect())
}

impl Watch {
    pub(super) fn mark(&self) -> Lsn {
        self.lane.state().at()
    }

    /// True if one that looks at the mark now and then finds anything: that it is there, or that it
    /// can be moved on, unless that was tried `in_vain`.
    pub(super) fn is_worth_a_look(&self, lsn: Lsn, in_vain: Option<Lsn>) -> bool {
        let state = self.lane.state();
        let mark = state.at();
        mark >= lsn
            || state.is_closed()
            || in_vain != Some(mark) && state.finished.end(mark).is_some()
    }

    pub(super) fn has_work(&self, idle: &Idle) -> bool {
        self.lane.state().turned.load(SeqCst) != idle.turned
            || (idle.stuck.as_ref()).is_some_and(|seen| *seen != obstacles(&self.lane))
    }

    /// At any moment: nothing is published that is not reserved, and at most two segments are not
    /// published. A recovery relies on both.
    pub(super) fn is_sound(&self) -> bool {
        let state = self.lane.state();
        let bytes = self.lane.member().segment_bytes;
        let (mark, (_, tail)) = (state.at(), split(state.tail.0.load(SeqCst)));
        mark <= tail && (tail - 1) / bytes - mark.min(tail - 1) / bytes <= 1
    }

    /// From here on the schedule is another one than the last.
    pub(super) fn differs(&mut self) {
        if !self.has_differed {
            self.has_differed = true;
            self.sim.note(DIFFERS);
        }
    }
}
