//! The table of lanes as the pool looks at it: the owners of lanes, and the free ones.
//! docs/pool-format.md, "Lane table".
//!
//! What only looks takes no lock and changes nothing. A lane whose entry is damaged could be any
//! owner's, so it is never taken for a free one, nor its owner for one that has none.

use super::Pool;
use crate::{
    error::{PoolError, PoolErrorKind},
    format::table::LaneEntry,
};
use uuid::Uuid;

impl Pool {
    /// True if `owner` has a lane here.
    ///
    /// # Errors
    /// [`PoolErrorKind::Damaged`] if the lane table is.
    pub fn has_lane(&self, owner: Uuid) -> Result<bool, PoolError> {
        self.core.load_tables()?;
        Ok(self.lane_of(owner)?.is_some())
    }

    /// The number of the last session on the lane of `owner`, if it has one. Takes nothing and
    /// changes nothing.
    ///
    /// # Errors
    /// As [`has_lane`](Self::has_lane).
    pub fn last_session(&self, owner: Uuid) -> Result<Option<u32>, PoolError> {
        self.core.load_tables()?;
        let lane = self.lane_of(owner)?;
        Ok(lane
            .and_then(|(_, entry)| entry.state)
            .map(|state| state.epoch))
    }

    /// Changes the label of `owner`'s lane, if it has one, as
    /// [`Lane::relabel`](crate::Lane::relabel) does: also of a lane in use.
    ///
    /// # Errors
    /// As [`has_lane`](Self::has_lane); the medium failed.
    pub fn relabel(&self, owner: Uuid, label: &str) -> Result<(), PoolError> {
        self.core.check_writable()?;
        self.core.load_tables()?;
        if let Some((lane, _)) = self.lane_of(owner)? {
            self.core.tables().write_label(lane, label);
        }
        self.core.check()
    }

    /// Every lane's entry.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, LaneEntry)> {
        (0..self.core.superblock.geometry.lanes).map(|lane| (lane, self.core.tables().lane(lane)))
    }

    /// The lane that `owner` has, if any.
    pub(super) fn lane_of(&self, owner: Uuid) -> Result<Option<(u32, LaneEntry)>, PoolError> {
        let mut unreadable = None;
        for (lane, entry) in self.entries() {
            match entry.state {
                Some(state) if state.taken && state.owner == owner => {
                    return Ok(Some((lane, entry)));
                }
                Some(_) => {}
                None => unreadable = entry.damage,
            }
        }
        // A lane without an intact state could be any owner's: refuse rather than take its owner
        // for new.
        match unreadable {
            Some(what) => Err(self.core.fail(PoolErrorKind::Damaged { what })),
            None => Ok(None),
        }
    }

    /// Under the pool lock, without which none becomes another's: the lanes that are free. One
    /// whose lock is held was given back, but something read from it is still lent out.
    pub(super) fn free_lanes(&self) -> Result<Vec<(u32, LaneEntry)>, PoolError> {
        let mut free = Vec::new();
        for (lane, entry) in self.entries() {
            if entry.state.is_some_and(|s| !s.taken) && self.core.is_lane_free(lane)? {
                self.core.tables().settle_lane(lane);
                free.push((lane, entry));
            }
        }
        Ok(free)
    }
}
