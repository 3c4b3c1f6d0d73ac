//! Looking at a pool from outside: the owners of its parts, and its damage.

use crate::{
    error::{PoolError, PoolErrorKind},
    format::record::{Lsn, Record},
    lane::recover::recover,
    media::{LockGuard, PoolAccess},
    pool::Pool,
};
use uuid::Uuid;

/// One lane as seen from outside its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// The damage of its entry, if any.
    pub damage: Option<String>,
}

/// The lock of who recovers a lane, until this is dropped: see [`Pool::lock_recovery`].
#[must_use]
pub struct RecoveryLock(#[expect(dead_code, reason = "held")] LockGuard);

/// The pool lock, until this is dropped: see [`Pool::lock`].
#[must_use]
pub struct PoolHold<'a> {
    pool: &'a Pool,
    _lock: LockGuard,
}

impl PoolHold<'_> {
    /// As [`Pool::lanes`], and it stays so.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneStatus> {
        self.pool.lanes_locked()
    }
}

/// The finding of a check of one lane.
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
    /// Every lane that has an owner, or is damaged. None in a child that was forked since the pool
    /// was opened.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneStatus> {
        if self.core.check_process().is_err() {
            return Vec::new();
        }
        if self.core.access == PoolAccess::Read {
            // Whether a lane is locked is seen without taking a lock.
            let _ = self.core.load_tables();
            return self.lanes_locked();
        }
        // So that no process that claims a lane meanwhile finds it taken by us.
        let _pool = self.core.lock_pool();
        self.lanes_locked()
    }

    /// Takes the lock under which lanes change hands: until it is dropped, nobody claims one. Who
    /// removes the pool's file meanwhile can be sure that nobody claims one of that afterwards
    /// either: a claim of a file that has lost its name fails.
    ///
    /// # Errors
    /// Of the locks of the pool's file.
    pub fn lock(&self) -> Result<PoolHold<'_>, PoolError> {
        let _lock = self.core.lock_pool()?;
        Ok(PoolHold { pool: self, _lock })
    }

    fn lanes_locked(&self) -> Vec<LaneStatus> {
        self.entries()
            .filter(|(_, e)| e.state.is_some_and(|s| s.taken) || e.damage.is_some())
            .map(|(lane, entry)| {
                let free = match self.core.access {
                    PoolAccess::Read => matches!(self.core.is_lane_free(lane), Ok(true)),
                    PoolAccess::ReadWrite => {
                        matches!(self.core.try_lock_lane(lane), Ok(Some(_)))
                    }
                };
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

    /// Takes the lock by which those who recover the log of lane `lane` for its owner exclude each
    /// other; none if another has it. It keeps no owner from its lane: it tells those who find the
    /// lane in use whether it is its owner who has it, or a recovery.
    ///
    /// # Errors
    /// Of the locks of the pool's file.
    pub fn lock_recovery(&self, lane: u32) -> Result<Option<RecoveryLock>, PoolError> {
        Ok(self.core.try_lock_recovery(lane)?.map(RecoveryLock))
    }

    /// Segments that no lane has.
    ///
    /// # Errors
    /// In words, the segment map entry that is damaged.
    pub fn segments_free(&self) -> Result<u64, String> {
        (self.core.check_process()).map_err(|error| error.to_string())?;
        let taken: u64 = self
            .lanes()
            .iter()
            .map(|lane| u64::from(lane.segments))
            .sum();
        self.core.tables().segment_owners()?;
        Ok(self.geometry().segments.saturating_sub(taken))
    }

    /// Walks the log of lane `lane` without changing anything, under its lock: so not in a pool
    /// that was [opened for reading](crate::PoolOptions::open_read_only), which
    /// [`copy_lane`](Self::copy_lane) looks into.
    #[must_use]
    pub fn check_lane(&self, lane: u32) -> LaneCheck {
        self.look_into_lane(lane, |_| {})
    }

    /// The same, and calls `found` with each record, in order, once the log is known to be whole.
    #[must_use]
    pub fn look_into_lane(&self, lane: u32, found: impl FnMut(&Record<'_>)) -> LaneCheck {
        let walked = self.walk(lane, false, found);
        walked.unwrap_or_else(LaneCheck::Damaged)
    }

    /// The same of the records before the damage, if the log is damaged, as
    /// [`ClaimOptions::salvage`](crate::ClaimOptions::salvage) would give them.
    #[must_use]
    pub fn look_into_damaged_lane(&self, lane: u32, found: impl FnMut(&Record<'_>)) -> LaneCheck {
        let walked = self.walk(lane, true, found);
        walked.unwrap_or_else(LaneCheck::Damaged)
    }

    fn walk(
        &self,
        lane: u32,
        salvage: bool,
        mut found: impl FnMut(&Record<'_>),
    ) -> Result<LaneCheck, PoolError> {
        let damaged = |what| PoolError::new(&self.core.path, PoolErrorKind::Damaged { what });
        let lanes = self.geometry().lanes;
        if lane >= lanes {
            return Err(damaged(format!("lane {lane} is none of its {lanes} lanes")));
        }
        let _pool = self.core.lock_pool()?;
        let Some(lock) = self.core.try_lock_lane(lane)? else {
            return Ok(LaneCheck::InUse);
        };
        let entry = self.core.tables().lane(lane);
        let segments = self.segments_of(lane, &entry)?;
        let state = match entry.state {
            Some(state) if state.taken => state,
            Some(_) => return Ok(whole(0, 0)),
            None => return Err(damaged(entry.damage.unwrap_or_default())),
        };
        for &segment in &segments {
            self.prepare_segment(segment, false)?;
            self.load_segment(segment)?;
        }
        let recovered = recover(
            &self.core.path,
            lane,
            &state,
            &self.windows(&segments, lock),
            self.core.superblock.geometry.segment_bytes,
            salvage,
        )?;
        let (mut records, mut bytes) = (0, 0);
        for record in recovered.records() {
            found(&record);
            records += 1;
            bytes += record.payload.len() as u64;
        }
        Ok(whole(records, bytes))
    }
}

fn whole(records: u64, payload_bytes: u64) -> LaneCheck {
    LaneCheck::Whole {
        records,
        payload_bytes,
    }
}
