//! The supervisor's marks in its lane's label, for a recovery: a sync failed, or is under way.
//!
//! The kernel tells once that it could not write something back. A supervisor that is killed in the
//! sync that is told takes that along. If all members die too, and the pages leave the page cache,
//! a recovery in the same boot finds zeros where records were, as if another program had written
//! them. It has to know that a sync was under way.
//!
//! A pool on a disk is not told that, since each word costs a write: there the file is right in any
//! case (`RunState::while_syncing`).

use crate::lane_label::{LabelMark, label};
use forebay_pool::{PoolError, SharedLane};
use parking_lot::Mutex;

/// The label of the run's lane.
pub(super) struct LaneMark {
    whose: String,
    said: Mutex<LaneFaults>,
}

/// The faults that it tells.
struct LaneFaults {
    mark: LabelMark,
    /// Syncs that are under way.
    syncs: u32,
}

impl LaneMark {
    /// Of a program's lane that says nothing yet.
    pub(super) fn new(whose: String) -> Self {
        let (mark, syncs) = (LabelMark::None, 0);
        Self {
            whose,
            said: Mutex::new(LaneFaults { mark, syncs }),
        }
    }

    /// Says it.
    ///
    /// # Errors
    /// The pool's disk failed.
    pub(super) fn set(&self, lane: &SharedLane, mark: LabelMark) -> Result<(), PoolError> {
        let mut said = self.said.lock();
        said.mark = mark;
        self.say(lane, &said)
    }

    /// Does `work`, which syncs files, and says meanwhile that it does, to a pool in memory.
    pub(super) fn syncing<T>(&self, lane: &SharedLane, work: impl FnOnce() -> T) -> T {
        let change = |change: &dyn Fn(&mut u32)| {
            let mut said = self.said.lock();
            change(&mut said.syncs);
            // Memory takes it.
            let _ = self.say(lane, &said);
        };
        change(&|syncs| *syncs += 1);
        let done = work();
        change(&|syncs| *syncs -= 1);
        done
    }

    fn say(&self, lane: &SharedLane, said: &LaneFaults) -> Result<(), PoolError> {
        let mark = match (said.mark, said.syncs) {
            (LabelMark::None, 1..) => LabelMark::Syncing,
            (mark, _) => mark,
        };
        lane.relabel(&label(mark, &self.whose))
    }
}
