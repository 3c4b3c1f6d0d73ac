//! The map of segments: the lane of each, and segments changing hands. docs/pool-format.md,
//! "Segment map".
//!
//! A segment that changes hands is made zero before the map names its new lane: nothing that was in
//! it is ever taken for the new lane's. The map is only written under the pool lock. It may name
//! more segments of a lane than the lane's entry counts, never fewer.

use super::Pool;
use crate::{
    error::{PoolError, PoolErrorKind},
    format::{layout::SEGMENTS_MAX, table::LaneEntry},
    media::{LockGuard, SegmentWindow},
};
use std::sync::Arc;

impl Pool {
    /// The segments that the map gives to `lane`: as many as its state says, or more, where a crash
    /// cut a change of their number (see `shared::breathe`).
    pub(crate) fn segments_of(&self, lane: u32, entry: &LaneEntry) -> Result<Vec<u64>, PoolError> {
        let damaged = |what| self.core.fail(PoolErrorKind::Damaged { what });
        let Some(state) = entry.state.filter(|s| s.taken) else {
            return Ok(Vec::new());
        };
        let owners = self.core.tables().segment_owners().map_err(damaged)?;
        let segments: Vec<u64> = owners
            .iter()
            .zip(0..)
            .filter(|(owner, _)| **owner == Some((lane, state.incarnation)))
            .map(|(_, segment)| segment)
            .collect();
        if segments.len() < state.segments as usize || segments.len() > usize::from(SEGMENTS_MAX) {
            return Err(damaged(format!(
                "lane {lane} has {} segments in the segment map, its entry states {}",
                segments.len(),
                state.segments
            )));
        }
        Ok(segments)
    }

    /// The owner of each segment. What a free lane has by the map is free: its owner left, or died
    /// while taking it.
    pub(super) fn segment_owners(
        &self,
        free: &[(u32, LaneEntry)],
    ) -> Result<Vec<Option<(u32, u32)>>, PoolError> {
        let mut owners = (self.core.tables().segment_owners())
            .map_err(|what| self.core.fail(PoolErrorKind::Damaged { what }))?;
        for owner in &mut owners {
            if owner.is_some_and(|(lane, _)| free.iter().any(|(free, ..)| *free == lane)) {
                *owner = None;
            }
        }
        Ok(owners)
    }

    /// Under the pool lock: gives a free segment, made zero, to `lane` in the map, durably. None if
    /// there is none.
    pub(crate) fn take_segment(
        &self,
        lane: u32,
        incarnation: u32,
    ) -> Result<Option<u64>, PoolError> {
        let core = &self.core;
        core.tables().settle_pool();
        let free_lanes = self.free_lanes()?;
        let mut owners = self.segment_owners(&free_lanes)?;
        let Some(at) = owners.iter().position(Option::is_none) else {
            return Ok(None);
        };
        let segment = at as u64;
        crate::failpoint!("pool:segment-taken");
        self.erase_segment(segment)?;
        owners[at] = Some((lane, incarnation));
        core.tables().write_segment_owners(&owners);
        Ok(Some(segment))
    }

    /// Under the pool lock: takes a segment from its lane in the map, durably.
    pub(crate) fn give_segment(&self, segment: u64) -> Result<(), PoolError> {
        let mut owners = self.segment_owners(&[])?;
        if let Some(owner) = usize::try_from(segment)
            .ok()
            .and_then(|at| owners.get_mut(at))
        {
            *owner = None;
        }
        self.core.tables().write_segment_owners(&owners);
        Ok(())
    }

    /// Maps the pages of a segment and makes them zero, durably.
    pub(super) fn erase_segment(&self, segment: u64) -> Result<(), PoolError> {
        self.prepare_segment(segment, true)?;
        let geometry = self.core.superblock.geometry;
        self.core
            .zero(geometry.segment(segment), geometry.segment_bytes)
    }

    /// Gets the durable bytes of a segment into memory.
    pub(crate) fn load_segment(&self, segment: u64) -> Result<(), PoolError> {
        let geometry = self.core.superblock.geometry;
        let at = geometry.segment(segment);
        let loaded = self.core.media.fetch(at, geometry.segment_bytes);
        loaded.map_err(|e| PoolError::io(&self.core.path, "reading a segment", e))
    }

    /// Maps the pages of a segment, see [`Media::prepare`].
    pub(crate) fn prepare_segment(&self, segment: u64, write: bool) -> Result<(), PoolError> {
        let geometry = self.core.superblock.geometry;
        let at = geometry.segment(segment);
        self.core.prepare(at, geometry.segment_bytes, write)
    }

    /// A window for each of `segments`, which keep the `lock` of their lane.
    pub(crate) fn windows(&self, segments: &[u64], lock: LockGuard) -> Vec<Arc<SegmentWindow>> {
        let geometry = self.core.superblock.geometry;
        let lock = Arc::new(lock);
        segments
            .iter()
            .map(|&segment| {
                let media = Arc::clone(&self.core.media);
                Arc::new(SegmentWindow::new(
                    media,
                    Arc::clone(&lock),
                    geometry.segment(segment),
                    geometry.segment_bytes,
                ))
            })
            .collect()
    }
}
