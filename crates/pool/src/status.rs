//! Looking at a pool from outside: who has what, and whether it is whole.

use crate::{
    error::PoolError,
    lane::recover::recover,
    pool::{Pool, lane_lock},
    record::Lsn,
};
use uuid::Uuid;

/// One lane as seen from outside its owner.
#[derive(Clone, Debug)]
pub struct LaneStatus {
    /// The lane's number.
    pub lane: u32,
    /// Its owner.
    pub owner: Uuid,
    /// The owner's words for itself.
    pub label: String,
    /// True if a process has it now.
    pub in_use: bool,
    /// Log address below which everything is drained.
    pub head: Lsn,
    /// Session number.
    pub epoch: u32,
    /// Its number of segments.
    pub segments: u32,
    /// What is wrong with its entry, if anything.
    pub damage: Option<String>,
}

/// What a check of one lane found.
#[derive(Debug)]
pub enum LaneCheck {
    /// A process has it: its log is moving and was not walked.
    InUse,
    /// The log is whole: number of records and payload bytes in the pool.
    Whole {
        /// Records not drained.
        records: u64,
        /// Their payload bytes.
        payload_bytes: u64,
    },
    /// The log is not whole.
    Damaged(PoolError),
}

impl Pool {
    /// Every lane that has an owner, or is damaged.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneStatus> {
        self.entries()
            .filter(|(_, e)| e.state.is_some_and(|s| s.taken) || e.damage.is_some())
            .map(|(lane, entry)| {
                let free = self.core.try_lane_lock(lane).unwrap_or(false);
                if free {
                    self.core.media.unlock(lane_lock(lane));
                }
                LaneStatus {
                    lane,
                    owner: entry.state.map_or_else(Uuid::nil, |s| s.owner),
                    label: entry.label,
                    in_use: !free,
                    head: entry.state.map_or(0, |s| s.head),
                    epoch: entry.state.map_or(0, |s| s.epoch),
                    segments: entry.state.map_or(0, |s| s.segments),
                    damage: entry.damage,
                }
            })
            .collect()
    }

    /// Segments that no lane has.
    ///
    /// # Errors
    /// In words, the segment map entry that is damaged.
    pub fn segments_free(&self) -> Result<u64, String> {
        let taken: u64 = self
            .lanes()
            .iter()
            .map(|lane| u64::from(lane.segments))
            .sum();
        self.core.tables().segment_owners()?;
        Ok(self.superblock().geometry.segments.saturating_sub(taken))
    }

    /// Walks the log of lane `lane` without changing anything.
    #[must_use]
    pub fn check_lane(&self, lane: u32) -> LaneCheck {
        match self.core.try_lane_lock(lane) {
            Ok(true) => {}
            Ok(false) => return LaneCheck::InUse,
            Err(e) => return LaneCheck::Damaged(e),
        }
        let walked = self.walk(lane);
        self.core.media.unlock(lane_lock(lane));
        walked.map_or_else(LaneCheck::Damaged, |(records, payload_bytes)| {
            LaneCheck::Whole {
                records,
                payload_bytes,
            }
        })
    }

    fn walk(&self, lane: u32) -> Result<(u64, u64), PoolError> {
        let entry = self.core.tables().lane(lane);
        let segments = self.segments_of(lane, &entry)?;
        let Some(state) = entry.state else {
            return Ok((0, 0));
        };
        let recovered = recover(
            &self.core.path,
            lane,
            &state,
            &self.windows(&segments),
            self.core.superblock.geometry.segment_bytes,
            false,
        )?;
        Ok(recovered
            .records()
            .fold((0, 0), |(records, bytes), record| {
                (records + 1, bytes + record.payload.len() as u64)
            }))
    }
}
