//! [`Resident`]: a log that stays in the pool. docs/store-format.md, "A resident store".
//!
//! Nothing is drained. Segments are given back oldest first, once the collector has copied what is live in them to the log's end
//! (`db/gc/resident.rs`): a circular log. So that it always can, the last free segments are kept for
//! those who make room:
//!
//! | free segments, the open one not counted | who may append to the open segment | who may open the next |
//! |---|---|---|
//! | 3 or more | all | all |
//! | 2 | all | deletes, the collector |
//! | 1 | deletes, the collector | the collector |
//! | 0 | the collector | nobody |
//!
//! The live records of one segment always fit into an empty one, so the collector never needs a second.
//!
//! Lock order: `opening`, then the lane's own lock. Nobody waits for room here: whoever must wait does so without a key's stripe, which
//! the collector needs.

use super::tail::refused;
use crate::error::StoreError;
use forebay_pool::{Lane, Lsn};
use parking_lot::Mutex;
use std::{
    io::IoSlice,
    sync::atomic::{
        AtomicU8, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

/// Who appends, and so how far into the last free segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Claim {
    /// A put or a batch.
    Put = 0,
    /// A delete, which makes room in the end.
    Delete = 1,
    /// The collector's copy.
    Copy = 2,
}

/// Segments that a resident store needs: one that is open, one to collect, and those in reserve.
pub(crate) const SEGMENTS_MIN: usize = 4;

/// A lane that keeps the whole log.
pub(crate) struct Resident {
    lane: Box<Lane>,
    /// Held while a segment is opened or released.
    opening: Mutex<()>,
    /// The least [`Claim`] that may append to the open segment.
    level: AtomicU8,
    /// Records that writers appended: tells whether anything can have become garbage.
    appended: AtomicU64,
}

impl Resident {
    pub(crate) fn new(lane: Box<Lane>) -> Self {
        let resident = Self {
            lane,
            opening: Mutex::default(),
            level: AtomicU8::new(0),
            appended: AtomicU64::new(0),
        };
        resident.set_level(resident.free());
        resident
    }

    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Appends a record. [`StoreError::Full`] if `claim` has no room now; nothing was done then.
    #[inline]
    pub(crate) fn append(
        &self,
        claim: Claim,
        kind: u16,
        parts: &[IoSlice<'_>],
    ) -> Result<Lsn, StoreError> {
        loop {
            let segment = self.lane.segment();
            if let Some(start) = segment {
                // Read behind the segment's start: it was set before that segment was opened, and a segment that was opened since
                // is not appended to here.
                if self.level.load(SeqCst) > claim as u8 {
                    return Err(self.full("it is being collected"));
                }
                let appended = self.lane.append_in(start, kind, parts);
                if let Some(lsn) = appended.map_err(|e| refused(&self.lane, e))? {
                    if claim != Claim::Copy {
                        self.appended.fetch_add(1, Relaxed);
                    }
                    return Ok(lsn);
                }
            }
            self.open_next(claim, segment)?;
        }
    }

    /// Opens the segment after `full`, unless somebody else did.
    #[cold]
    fn open_next(&self, claim: Claim, full: Option<Lsn>) -> Result<(), StoreError> {
        let _opening = self.opening.lock();
        if self.lane.segment() != full {
            return Ok(());
        }
        let free = self.free();
        if !may_open(claim, free) {
            return Err(self.full("it is being collected"));
        }
        self.set_level(free - 1);
        let next = self.lane.next_segment(full);
        if next.map_err(|e| refused(&self.lane, e))?.is_none() {
            self.set_level(free);
            return Err(self.full("readers are in its free segments"));
        }
        Ok(())
    }

    /// True if `claim` may open a segment, or append to the one that is open.
    pub(crate) fn has_room(&self, claim: Claim) -> bool {
        let _opening = self.opening.lock();
        may_open(claim, self.free())
    }

    /// True if so little is free that the collector should be at work.
    pub(crate) fn is_short(&self) -> bool {
        self.free() < (self.lane.segments() / 4).max(SEGMENTS_MIN)
    }

    /// Gives the lane's oldest segment back: `release` does it.
    pub(crate) fn release(&self, release: impl FnOnce()) {
        let _opening = self.opening.lock();
        release();
        self.set_level(self.free());
    }

    /// Records that writers have appended in this session.
    pub(crate) fn appended(&self) -> u64 {
        self.appended.load(Relaxed)
    }

    fn free(&self) -> usize {
        let usage = self.lane.usage();
        usage.segments - usage.segments_used
    }

    fn set_level(&self, free: usize) {
        let level = match free {
            0 => Claim::Copy,
            1 => Claim::Delete,
            _ => Claim::Put,
        };
        self.level.store(level as u8, SeqCst);
    }

    pub(crate) fn full(&self, reason: &str) -> StoreError {
        StoreError::Full {
            segments: self.lane.segments(),
            segment_bytes: self.lane.segment_bytes(),
            reason: reason.to_owned(),
        }
    }
}

/// True if whoever has `claim` may open a segment while `free` are free.
fn may_open(claim: Claim, free: usize) -> bool {
    free + claim as usize >= 3
}
