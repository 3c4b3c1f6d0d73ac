//! State that the owner's threads share: the places of the lane's segments, and the dead members
//! that are still to be cleaned up.

use crate::format::{record::Lsn, table::LaneEntry};
use std::collections::VecDeque;

/// See the module's head.
pub(super) struct SharedControl {
    pub(super) entry: LaneEntry,
    /// Each slot's segment: its offset in the pool.
    pub(super) offsets: Vec<u64>,
    /// Slots that hold nothing.
    pub(super) free: Vec<usize>,
    /// Slots whose segment was given back to the pool.
    pub(super) vacant: Vec<usize>,
    /// Slots in use and their starts, in log order, the prepared one included. The one that the
    /// tail points into is always there.
    pub(super) order: VecDeque<(usize, Lsn)>,
    /// The prepared segment, as members read it.
    pub(super) next: u64,
    /// Members that are gone.
    pub(super) dead: Vec<u32>,
    /// Something that no living member has reserved is not void yet.
    pub(super) has_holes: bool,
    /// Nothing in it is needed.
    pub(super) settled: bool,
    pub(super) given_back: bool,
}

impl SharedControl {
    /// Number of segments of the lane.
    pub(super) fn segment_count(&self) -> usize {
        self.offsets.len() - self.vacant.len()
    }

    /// Offset in the pool and start of each segment in use, in log order.
    pub(super) fn segments(&self) -> Vec<(u64, Lsn)> {
        let place = |(slot, start): &(usize, Lsn)| (self.offsets[*slot], *start);
        self.order.iter().map(place).collect()
    }
}
