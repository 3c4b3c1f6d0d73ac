//! The lane breathes: it takes further free segments of the pool, and gives them back.
//!
//! The segment map may name more segments than the lane's entry states, never fewer. So each order
//! of the two writes is one that a crash may cut, and a recovery takes what the map says.
//!
//! * *Grow*: the segment is made zero; the map names the lane; the entry counts it; members may be
//!   sent into it.
//! * *Shrink*: the segment is free; the entry counts it no more; the map forgets it; another lane
//!   may take it.

use super::owner::SharedLane;
use crate::{format::layout::SEGMENTS_MAX, format::table::LaneState};

/// A lane keeps these: the open segment and the next.
const SEGMENTS_MIN: usize = 2;

impl SharedLane {
    /// Takes a further free segment of the pool. False if there is none, or the lane has 64
    /// already.
    #[must_use]
    pub fn grow(&self) -> bool {
        let Ok(_pool) = self.pool.core.lock_pool() else {
            return false;
        };
        let incarnation = {
            let control = self.control.lock();
            let may = !control.given_back && control.segment_count() < usize::from(SEGMENTS_MAX);
            control
                .entry
                .state
                .filter(|_| may)
                .map(|state| state.incarnation)
        };
        // It takes as long as a copy of a segment; the lane's other work goes on meanwhile.
        let taken =
            incarnation.map(|incarnation| self.pool.take_segment(self.number(), incarnation));
        let Some(Ok(Some(segment))) = taken else {
            return false;
        };
        let mut control = self.control.lock();
        let Some(state) = control.entry.state.filter(|state| state.taken) else {
            let _ = self.pool.give_segment(segment);
            return false;
        };
        let segments = state.segments + 1;
        let tables = self.pool.core.tables();
        tables.write_lane(
            self.number(),
            &mut control.entry,
            LaneState { segments, ..state },
        );
        let offset = self.pool.geometry().segment(segment);
        let slot = match control.vacant.pop() {
            Some(slot) => {
                control.offsets[slot] = offset;
                slot
            }
            None => {
                control.offsets.push(offset);
                control.offsets.len() - 1
            }
        };
        control.free.push(slot);
        drop(control);
        self.prepare();
        true
    }

    /// Gives a segment that is not in use back to the pool. False if there is none, or the lane has
    /// no more than two.
    #[must_use]
    pub fn shrink(&self) -> bool {
        let Ok(_pool) = self.pool.core.lock_pool() else {
            return false;
        };
        let mut control = self.control.lock();
        if control.given_back || control.segment_count() <= SEGMENTS_MIN {
            return false;
        }
        let (Some(state), Some(slot)) = (control.entry.state, control.free.pop()) else {
            return false;
        };
        let segments = state.segments - 1;
        let tables = self.pool.core.tables();
        tables.write_lane(
            self.number(),
            &mut control.entry,
            LaneState { segments, ..state },
        );
        let geometry = self.pool.geometry();
        let segment = (control.offsets[slot] - geometry.data()) / geometry.segment_bytes;
        control.vacant.push(slot);
        // If the map cannot be read, the segment stays the lane's there until it ends.
        let _ = self.pool.give_segment(segment);
        true
    }
}
