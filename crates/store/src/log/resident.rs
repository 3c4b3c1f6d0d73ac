//! [`Resident`]: a log that stays in the pool. docs/store-format.md, "A resident store".
//!
//! Nothing is drained. Segments are given back oldest first, once the collector has copied what is
//! live in them to the log's end (`db/gc/resident.rs`): a circular log. So that it always can, the
//! last free segments are kept for those who make room:
//!
//! | free segments, the open one not counted | who may append to the open segment | who may open the next |
//! |---|---|---|
//! | 3 or more | all | all |
//! | 2 | all | deletes, the collector |
//! | 1 | deletes, the collector | the collector |
//! | 0 | the collector | none |
//!
//! The live records of one segment always fit into an empty one, so the collector never needs a
//! second. On a pool that lies on a disk they may not: a writer that commits while the collector
//! copies ends a page, with a void behind the copies that are there. Of those in the collector's
//! last segments there are few, since only what was appended before is committed then
//! ([`Resident::written`]). For these one segment more is kept free: all figures of the table but
//! the collector's are one higher there.
//!
//! Lock order: `opening`, then the lane's own lock. No thread waits for room here: one that must
//! wait does so without a key's lock, which the collector needs.

use super::refused::refused;
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

/// The appender, which decides how far into the last free segments it may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RoomClaim {
    /// A put or a batch.
    Put = 0,
    /// A delete, which makes room in the end.
    Delete = 1,
    /// The collector's copy of what is in a segment.
    Copy = 2,
    /// The collector's copy of what is in a file: has the claim of a put.
    FileCopy = 3,
}

impl RoomClaim {
    /// True of a copy, which changes no value.
    #[inline]
    pub(crate) fn is_copy(self) -> bool {
        matches!(self, Self::Copy | Self::FileCopy)
    }

    /// How far into the last free segments it may go: a file's copy as far as a put.
    #[inline]
    fn level(self) -> u8 {
        match self {
            Self::FileCopy => Self::Put as u8,
            other => other as u8,
        }
    }
}

/// Segments that a resident store needs: one that is open, one to collect, and those in reserve.
pub(crate) const fn segments_min(needs_commit: bool) -> usize {
    4 + voids(needs_commit)
}

/// Free segments that are the collector's alone, for voids between its copies.
const fn voids(needs_commit: bool) -> usize {
    needs_commit as usize
}

/// A lane that keeps the whole log.
pub(crate) struct Resident {
    lane: Box<Lane>,
    voids: usize,
    /// Held while a segment is opened or released.
    opening: Mutex<()>,
    /// The least [`RoomClaim`] that may append to the open segment.
    level: AtomicU8,
    /// Records that writers appended: tells whether anything can have become garbage.
    appended: AtomicU64,
    /// Log address behind which there are only the collector's copies, or nothing.
    written: AtomicU64,
}

impl Resident {
    pub(crate) fn new(lane: Box<Lane>) -> Self {
        let resident = Self {
            voids: voids(lane.needs_commit()),
            lane,
            opening: Mutex::default(),
            level: AtomicU8::new(0),
            appended: AtomicU64::new(0),
            written: AtomicU64::new(0),
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
        claim: RoomClaim,
        kind: u16,
        parts: &[IoSlice<'_>],
    ) -> Result<Lsn, StoreError> {
        loop {
            let segment = self.lane.segment();
            if let Some(start) = segment {
                // Read behind the segment's start: it was set before that segment was opened, and a
                // segment that was opened since is not appended to here.
                if self.level.load(SeqCst) > claim.level() {
                    return Err(self.full("it is being collected"));
                }
                let appended = self.lane.append_in(start, kind, parts);
                if let Some(lsn) = appended.map_err(|e| refused(&self.lane, e))? {
                    if claim != RoomClaim::Copy {
                        self.appended.fetch_add(1, Relaxed);
                        self.written.fetch_max(lsn + 1, Relaxed);
                    }
                    return Ok(lsn);
                }
            }
            self.open_next(claim, segment)?;
        }
    }

    /// Opens the segment after `full`, unless another thread did.
    #[cold]
    fn open_next(&self, claim: RoomClaim, full: Option<Lsn>) -> Result<(), StoreError> {
        let _opening = self.opening.lock();
        if self.lane.segment() != full {
            return Ok(());
        }
        let free = self.free();
        if !self.may_open(claim, free) {
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
    pub(crate) fn has_room(&self, claim: RoomClaim) -> bool {
        let _opening = self.opening.lock();
        self.may_open(claim, self.free())
    }

    /// True if so little is free that the collector should be at work.
    pub(crate) fn is_short(&self) -> bool {
        self.free() < (self.lane.segments() / 4).max(segments_min(self.lane.needs_commit()))
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

    /// Log address below which there is everything that writers have appended in this session. What
    /// is behind is the collector's, which commits it itself: another thread that did would end a
    /// page behind each copy, until the collector has no room.
    pub(crate) fn written(&self) -> Lsn {
        self.written.load(Relaxed)
    }

    fn free(&self) -> usize {
        let usage = self.lane.usage();
        usage.segments - usage.segments_used
    }

    fn set_level(&self, free: usize) {
        let level = match free.checked_sub(self.voids) {
            None | Some(0) => RoomClaim::Copy,
            Some(1) => RoomClaim::Delete,
            Some(_) => RoomClaim::Put,
        };
        self.level.store(level as u8, SeqCst);
    }

    /// True if a thread with `claim` may open a segment while `free` are free.
    fn may_open(&self, claim: RoomClaim, free: usize) -> bool {
        match claim {
            RoomClaim::Copy => free > 0,
            _ => free + usize::from(claim.level()) >= 3 + self.voids,
        }
    }

    pub(crate) fn full(&self, reason: &str) -> StoreError {
        StoreError::Full {
            segments: self.lane.segments(),
            segment_bytes: self.lane.segment_bytes(),
            reason: reason.to_owned(),
        }
    }
}
