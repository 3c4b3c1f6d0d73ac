//! Claims an owner's lane. docs/pool-format.md, "Claiming, giving back".
//!
//! 1. Under the pool lock, *find* the owner's lane and take its lock; or, if it has none, *make*
//!    one of a free lane and free segments.
//! 2. *Map* its segments, and *recover* its log ([`lane::recover`](crate::lane::recover)).
//! 3. *Begin a session*: its number, higher than every earlier one's, goes into both slots of the
//!    lane's entry.
//! 4. *Resume* the lane ([`Lane::resume`]).
//!
//! A new lane is there with the last write of step 1, and not before. A crash after that leaves a
//! lane whose log the owner's next claim finds whole.

use super::Pool;
use crate::{
    error::{PoolError, PoolErrorKind},
    format::{
        layout::{PAGE, SEGMENTS_MAX, START_MAX},
        record::Lsn,
        segment::SEGMENT_HEADER,
        table::{LaneEntry, LaneState},
    },
    lane::{
        Lane, Recovered,
        recover::{LiveSegment, recover},
    },
    media::{LockGuard, SegmentWindow},
};
use std::sync::Arc;
use uuid::Uuid;

/// Options of a claim, see [`Pool::claim`].
#[derive(Clone, Debug)]
pub struct ClaimOptions {
    pub(crate) segments: u16,
    label: String,
    pub(crate) start: Lsn,
    above: u32,
    salvage: bool,
}

impl Default for ClaimOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl ClaimOptions {
    /// A lane of two segments, whose log starts at address 0.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            segments: 2,
            label: String::new(),
            start: 0,
            above: 0,
            salvage: false,
        }
    }

    /// Number of segments of a new lane, 1 to [`SEGMENTS_MAX`](crate::SEGMENTS_MAX). A lane keeps
    /// its number: to change it, drain it, give it back ([`Lane::remove`]) and claim another.
    /// Default: 2.
    #[must_use]
    pub const fn segments(mut self, segments: u16) -> Self {
        self.segments = segments;
        self
    }

    /// The owner in words, for status: cut to 128 bytes. Default: none.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Log address at which a new lane starts, a multiple of 4 KiB up to 2^61. Default: 0.
    #[must_use]
    pub const fn start(mut self, start: Lsn) -> Self {
        self.start = start;
        self
    }

    /// The session's number is higher than this one. Default: 0.
    #[must_use]
    pub const fn epoch_above(mut self, epoch: u32) -> Self {
        self.above = epoch;
        self
    }

    /// Give up acknowledged records that are unreadable, instead of refusing. [`Recovered::lost`]
    /// says what that was. Default: no.
    #[must_use]
    pub const fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }
}

/// A lane that was found or made, and is ours.
pub(crate) struct ClaimedLane {
    pub(crate) lane: u32,
    pub(crate) lock: LockGuard,
    pub(crate) entry: LaneEntry,
    pub(crate) segments: Vec<u64>,
}

impl Pool {
    /// Claims the lane of `owner`, making one if there is none, and recovers its log.
    ///
    /// What was recovered must be replayed by the owner; then the lane's drain makes it durable
    /// elsewhere as any other segment. The lane belongs to the caller until it, what was recovered,
    /// and what was read from it are dropped.
    ///
    /// # Errors
    /// [`PoolErrorKind::InUse`] if a process has the lane, [`PoolErrorKind::Full`],
    /// [`PoolErrorKind::BadStart`], [`PoolErrorKind::Damaged`], [`PoolErrorKind::LostRecords`].
    ///
    /// ```
    /// use forebay_pool::{ClaimOptions, Uuid};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = forebay_pool::PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(dir.path().join("pool"))?;
    /// let owner = Uuid::from_u128(0x5a1e_5000); // the same for ever: the log is found by it
    /// let (lane, recovered) = pool.claim(owner, &ClaimOptions::new().segments(4).label("sales"))?;
    /// for record in recovered.records() {
    ///     println!("{}: {:?}", record.header.lsn, record.payload);
    /// }
    /// drop(recovered); // it holds the segments that it was read from
    /// # Ok(())
    /// # }
    /// ```
    pub fn claim(
        &self,
        owner: Uuid,
        options: &ClaimOptions,
    ) -> Result<(Lane, Recovered), PoolError> {
        let start = options.start;
        if !start.is_multiple_of(PAGE) || start > START_MAX {
            return Err(self.core.fail(PoolErrorKind::BadStart { start }));
        }
        self.core.begin_writing()?;
        let claimed = {
            let _pool = self.core.lock_pool()?;
            self.core.check_named()?;
            self.core.tables().settle_pool();
            match self.claim_made(owner)? {
                Some(claimed) => claimed,
                None => self.make_lane(owner, options)?,
            }
        };
        self.open_lane(claimed, options)
    }

    /// Under the pool lock: takes the lane that `owner` has, if any.
    fn claim_made(&self, owner: Uuid) -> Result<Option<ClaimedLane>, PoolError> {
        let core = &self.core;
        let Some((lane, entry)) = self.lane_of(owner)? else {
            return Ok(None);
        };
        let Some(lock) = core.try_lock_lane(lane)? else {
            let label = entry.label;
            return Err(core.fail(PoolErrorKind::InUse { lane, label }));
        };
        core.tables().settle_lane(lane);
        // Read again: until we had the lock, its owner may have moved the head, or given it back.
        let entry = core.tables().lane(lane);
        if entry.state.is_some_and(|s| !s.taken) {
            return Ok(None);
        }
        let segments = self.segments_of(lane, &entry)?;
        Ok(Some(ClaimedLane {
            lane,
            lock,
            entry,
            segments,
        }))
    }

    /// Gives `owner` a free lane and free segments, which are zeroed: nothing that was in them, not
    /// even an earlier log of the same owner, is ever taken for this one's. The lane's entry,
    /// written last, is what makes it so.
    fn make_lane(&self, owner: Uuid, options: &ClaimOptions) -> Result<ClaimedLane, PoolError> {
        let core = &self.core;
        let tables = core.tables();
        let wanted = options.segments.clamp(1, SEGMENTS_MAX);
        let free_lanes = self.free_lanes()?;
        let mut owners = self.segment_owners(&free_lanes)?;
        let taken = match free_lanes.into_iter().next() {
            Some((lane, entry)) => core.try_lock_lane(lane)?.map(|lock| (lane, entry, lock)),
            None => None,
        };
        let Some((lane, mut entry, lock)) = taken else {
            return Err(core.fail(PoolErrorKind::Full {
                unit: "lanes",
                wanted: 1,
                free: 0,
            }));
        };
        let incarnation = entry.state.map_or(1, |s| s.incarnation.wrapping_add(1));
        let mut segments = Vec::new();
        for (segment, owner) in (0..).zip(&mut owners) {
            if owner.is_none() && segments.len() < usize::from(wanted) {
                *owner = Some((lane, incarnation));
                segments.push(segment);
            }
        }
        if segments.len() < usize::from(wanted) {
            return Err(core.fail(PoolErrorKind::Full {
                unit: "segments",
                wanted: u64::from(wanted),
                free: segments.len() as u64,
            }));
        }
        for &segment in &segments {
            self.erase_segment(segment)?;
        }
        tables.write_segment_owners(&owners);
        tables.write_label(lane, &options.label);
        entry.label.clone_from(&options.label);
        let state = LaneState {
            taken: true,
            sequence: 0,
            owner,
            head: options.start,
            epoch: entry.state.map_or(0, |s| s.epoch),
            segments: u32::from(wanted),
            incarnation,
        };
        tables.write_lane(lane, &mut entry, state);
        Ok(ClaimedLane {
            lane,
            lock,
            entry,
            segments,
        })
    }

    /// Recovers the lane's log and starts a new session on it.
    fn open_lane(
        &self,
        claimed: ClaimedLane,
        options: &ClaimOptions,
    ) -> Result<(Lane, Recovered), PoolError> {
        let core = &self.core;
        let ClaimedLane {
            lane,
            lock,
            mut entry,
            segments,
        } = claimed;
        let Some(state) = entry.state else {
            return Err(core.fail(PoolErrorKind::Damaged {
                what: format!("lane {lane} has no intact state"),
            }));
        };
        // Here and not while something is appended. The rest of the pool is never mapped: it would
        // count as this process's memory.
        let settled = core.media.settle();
        settled.map_err(|e| PoolError::io(&core.path, "syncing the pool", e))?;
        for &segment in &segments {
            self.prepare_segment(segment, true)?;
            self.load_segment(segment)?;
        }
        let windows = self.windows(&segments, lock);
        let segment_bytes = core.superblock.geometry.segment_bytes;
        let mut recovered = recover(
            &core.path,
            lane,
            &state,
            &windows,
            segment_bytes,
            options.salvage,
        )?;
        let state = LaneState {
            segments: u32::try_from(segments.len()).unwrap_or(u32::MAX),
            ..state
        };
        let epoch = self.begin_session(lane, &mut entry, state, options.above)?;
        self.erase_behind(&recovered, &windows)?;
        // A segment without records, opened by the last session, is opened again. Behind a first
        // record that was torn there can be whole ones that it did not acknowledge. They would
        // testify to a loss if the power failed while the header, which they know to have been
        // durable, is written anew. So they go first.
        if recovered.segments.last().is_some_and(LiveSegment::is_empty)
            && let Some(empty) = recovered.segments.pop()
        {
            let slot = empty.slot;
            drop(empty);
            core.zero(
                windows[slot].offset() + SEGMENT_HEADER,
                segment_bytes - SEGMENT_HEADER,
            )?;
            windows[slot].close();
        }
        let lane = Lane::resume(
            Arc::clone(core),
            lane,
            entry,
            epoch,
            windows,
            &mut recovered,
        )?;
        Ok((lane, recovered))
    }

    /// Erases what stands behind the end of the recovered log and would be found by a later
    /// recovery. Of a log without a loss that is the headers of segments, for the first of which
    /// the head would be mistaken. What a salvage gave up had been acknowledged: each record of it
    /// would prove the same loss again, to a recovery that finds no record of a later session
    /// before it.
    fn erase_behind(
        &self,
        recovered: &Recovered,
        windows: &[Arc<SegmentWindow>],
    ) -> Result<(), PoolError> {
        let core = &self.core;
        if recovered.lost().is_none() {
            let mut left_over = recovered.left_over.iter();
            return left_over.try_for_each(|&slot| core.zero(windows[slot].offset(), PAGE));
        }
        let segment_bytes = core.superblock.geometry.segment_bytes;
        let last = recovered.segments.last();
        for (slot, window) in windows.iter().enumerate() {
            let kept = match last.filter(|last| last.slot == slot) {
                Some(last) => last.end - last.header.start,
                None if recovered.segments.iter().any(|s| s.slot == slot) => segment_bytes,
                None => 0,
            };
            core.zero(window.offset() + kept, segment_bytes - kept)?;
        }
        Ok(())
    }

    /// Gives the lane's next session its number.
    fn begin_session(
        &self,
        lane: u32,
        entry: &mut LaneEntry,
        state: LaneState,
        above: u32,
    ) -> Result<u32, PoolError> {
        let core = &self.core;
        let exhausted = || {
            core.fail(PoolErrorKind::Damaged {
                what: format!("lane {lane} has used up its session numbers"),
            })
        };
        let epoch = state.epoch.max(above).checked_add(1);
        let epoch = epoch.ok_or_else(exhausted)?;
        // Twice, so that both slots have it: a later loss of one slot must not bring the old epoch
        // back.
        for _ in 0..2 {
            core.tables()
                .write_lane(lane, entry, LaneState { epoch, ..state });
        }
        core.check()?;
        Ok(epoch)
    }

    /// Gives a new `owner` a lane, empty, with its first session begun.
    pub(crate) fn claim_new(
        &self,
        owner: Uuid,
        options: &ClaimOptions,
    ) -> Result<ClaimedLane, PoolError> {
        self.core.begin_writing()?;
        let mut claimed = {
            let _pool = self.core.lock_pool()?;
            self.core.check_named()?;
            self.core.tables().settle_pool();
            if let Some((lane, entry)) = self.lane_of(owner)? {
                let label = entry.label;
                return Err(self.core.fail(PoolErrorKind::InUse { lane, label }));
            }
            self.make_lane(owner, options)?
        };
        if let Some(state) = claimed.entry.state {
            self.begin_session(claimed.lane, &mut claimed.entry, state, options.above)?;
        }
        Ok(claimed)
    }
}
