//! The members' part when the owner is gone: they append nothing any more, and make the lane's
//! records durable elsewhere themselves.

use super::member::Member;
use crate::{
    error::{PoolError, PoolErrorKind},
    format::{
        layout::SEGMENTS_MAX,
        record::{Lsn, Record},
        segment::{RecordWalk, SegmentHeader},
        table::{LaneEntry, LaneState},
    },
    lane::split,
};
use std::sync::atomic::Ordering::Acquire;
use uuid::Uuid;

impl Member {
    /// Calls `each` with the published records of the segments that are not released, in log order.
    /// The lane was [abandoned](Self::abandon): with an owner that releases segments, some might be
    /// others' by now.
    pub fn records(&self, mut each: impl FnMut(&Record<'_>)) {
        let geometry = self.core.superblock.geometry;
        let mark = self.published();
        let mut segments: Vec<(Lsn, u64)> = (0..usize::from(SEGMENTS_MAX))
            .filter_map(|slot| self.state.segment(slot, &geometry))
            .map(|(offset, start)| (start, offset))
            .collect();
        segments.sort_unstable();
        for (start, offset) in segments {
            let published = mark.saturating_sub(start).min(geometry.segment_bytes);
            let mut copy = vec![0; usize::try_from(published).unwrap_or(0)];
            self.core.media.load(offset, &mut copy);
            let header = SegmentHeader::decode(&copy);
            if let Some(header) = header.filter(|h| h.start == start && h.owner == self.owner) {
                RecordWalk::new(&copy, header, self.epoch()).for_each(|record| each(&record));
            }
        }
    }

    /// The owner of the log: the same for no other lane, of whatever pool.
    #[must_use]
    pub fn owner(&self) -> Uuid {
        self.owner
    }

    /// Changes the lane's label, durably.
    ///
    /// # Errors
    /// If the lane is not in the pool's table.
    pub fn relabel(&self, label: &str) -> Result<(), PoolError> {
        let (lane, ..) = self.entry()?;
        // The disk may have failed in one place only, or for a while.
        self.core.media.try_again();
        self.core.tables().write_label(lane, label);
        self.core.check()
    }

    /// The lane was [abandoned](Self::abandon), and everything in it is durable elsewhere: a
    /// recovery finds nothing in it. Its segments stay its own, since another member may be in the
    /// middle of an append that ends with [`AppendError::Closed`](crate::AppendError). One member
    /// at a time.
    ///
    /// # Errors
    /// If the lane is not in the pool's table, or its state is damaged.
    pub fn settle(&self) -> Result<(), PoolError> {
        let _pool = self.core.lock_pool()?;
        let (lane, mut entry, state) = self.entry()?;
        let (slot, _) = split(self.state.tail.0.load(Acquire));
        let geometry = self.core.superblock.geometry;
        let Some((_, start)) = self.state.segment(slot, &geometry) else {
            return Err(self.damaged("its tail is in no segment"));
        };
        let head = start + geometry.segment_bytes;
        // The disk may have failed in one place only, or for a while.
        self.core.media.try_again();
        self.core
            .tables()
            .write_lane(lane, &mut entry, LaneState { head, ..state });
        self.core.check()
    }

    fn entry(&self) -> Result<(u32, LaneEntry, LaneState), PoolError> {
        let lanes = self.core.superblock.geometry.lanes;
        let entries = (0..lanes).map(|lane| (lane, self.core.tables().lane(lane)));
        let mut ours = entries.filter_map(|(lane, entry)| {
            let state = entry.state.filter(|s| s.taken && s.owner == self.owner)?;
            Some((lane, entry, state))
        });
        ours.next()
            .ok_or_else(|| self.damaged("it is not in the table of lanes"))
    }

    fn damaged(&self, what: &str) -> PoolError {
        let what = format!("a shared lane: {what}");
        PoolError::new(&self.core.path, PoolErrorKind::Damaged { what })
    }
}
