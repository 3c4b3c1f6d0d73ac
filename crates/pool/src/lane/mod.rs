//! The lane: one owner's log in the pool.
//!
//! A lane is an ordered list of segments over a fixed set of [`SegmentWindow`]s: one is a single
//! buffer, two are a double buffer. When [`Lane::append`] returns, the record and all before it
//! are durable (`append`). A full segment is *sealed* and handed to the
//! owner's drain, which makes its bytes durable elsewhere and releases it (`drain`). After a crash
//! the log is walked from the lane's head to its last valid record (`recover`).
//! docs/pool-format.md, "The life of a segment".
//!
//! On a disk an append alone is not durable: [`Lane::commit`] makes it so (`commit`). Nothing
//! leaves the lane before.
//!
//! Lock order: a lane has one mutex, `control`, for everything that happens once a segment. It is
//! never held while waiting for another lock. Appends and reads take no lock.

mod ahead_pages;
mod append;
mod commit;
mod crowding;
mod drain;
mod publish;
mod read;
pub(crate) mod recover;
mod resume;
mod write;

use ahead_pages::WrittenAhead;
pub use ahead_pages::{AheadBytes, AheadPages};
pub use crowding::Crowded;
use crowding::Crowding;
pub use drain::{DrainWork, Sealed};
pub(crate) use publish::{FinishedRecords, PublishMark, nap};
pub use read::PinnedBytes;
pub use recover::Recovered;
pub(crate) use write::{payload_of, write_record};

use crate::{
    commit::Commits,
    core::Core,
    format::{record::Lsn, table::LaneEntry},
    media::{Media, OwnLine, SegmentWindow},
};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Acquire},
    },
    time::Instant,
};
use uuid::Uuid;

/// One owner's log in the pool. Shared by reference between any number of threads.
///
/// It is given back when it and all that was lent out of it ([`PinnedBytes`], [`Recovered`]) are
/// dropped.
///
/// In a child that was forked from its process it refuses everything
/// ([`AppendError::Forked`](crate::AppendError::Forked)), gives nothing, and what was lent out
/// panics when it is looked at: the memory is not there. Dropping it in the child takes nothing
/// from the parent.
pub struct Lane {
    core: Arc<Core>,
    lane: u32,
    owner: Uuid,
    epoch: u32,
    segment_bytes: u64,
    slots: Box<[Arc<SegmentWindow>]>,
    /// The place of the next record: its log address, with the number of its slot in the six low
    /// bits; or [`NO_SEGMENT`]. Addresses only rise, so no value but that one ever comes back.
    tail: OwnLine<AtomicU64>,
    /// Records that are durable before an earlier one is.
    finished: FinishedRecords,
    /// The committed address, on a medium that needs it.
    commits: Option<Box<Commits>>,
    /// The lag of the drain.
    crowding: Crowding,
    /// Everything that changes once a segment.
    control: Mutex<LaneControl>,
    /// A slot became free, the head moved, or the lane stalled or closed.
    freed: Condvar,
    /// A segment was sealed, or the lane closed.
    sealed: Condvar,
}

/// The tail while no segment is open.
const NO_SEGMENT: u64 = u64::MAX;

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    /// Nothing in it is needed.
    Free,
    /// Records are appended to it.
    Open,
    /// Complete up to the address; waits for the drain.
    Sealed(Lsn),
    /// The drain has it.
    Draining(Lsn),
    /// Durable elsewhere, but an earlier segment is not.
    Drained(Lsn),
}

/// The reason that the drain cannot go on.
struct Stall {
    reason: String,
    /// Start of the attempt that failed; none if there will be no other.
    begun: Option<Instant>,
}

struct LaneControl {
    entry: LaneEntry,
    states: Vec<SlotState>,
    /// For each slot, what the drain wrote before the segment was sealed.
    ahead: Vec<WrittenAhead>,
    /// The slots in use, in log order.
    order: VecDeque<usize>,
    /// The start of the next segment.
    next_start: Lsn,
    /// The reason that the drain cannot go on, if it cannot.
    stalled: Option<Stall>,
    /// The reason that nothing is durable by this lane any more: the medium failed.
    failure: Option<String>,
    closed: bool,
}

impl LaneControl {
    /// The slot that records are appended to, if a segment is open.
    fn open(&self) -> Option<usize> {
        self.states.iter().position(|s| *s == SlotState::Open)
    }

    /// True if nothing is appended any more.
    fn has_ended(&self) -> bool {
        self.closed || self.failure.is_some()
    }

    /// Log address below which everything is drained and released.
    fn head(&self) -> Lsn {
        self.entry.state.map_or(0, |s| s.head)
    }
}

/// A lane's position and fill, for status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneUse {
    /// Log address below which everything is drained.
    pub head: Lsn,
    /// Log address behind the last record: of the next one, or of the segment that it will begin.
    pub tail: Lsn,
    /// Segments that hold something not drained.
    pub segments_used: usize,
    /// Segments of the lane.
    pub segments: usize,
}

impl Lane {
    /// The lane's number in the pool.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.lane
    }

    /// The session number stamped on records.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Bytes of one segment.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Number of segments.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.slots.len()
    }

    /// Position and fill. Nothing but zeros in a forked child, whose the lane is not.
    #[must_use]
    pub fn usage(&self) -> LaneUse {
        if self.core.check_own().is_err() {
            return LaneUse {
                head: 0,
                tail: 0,
                segments_used: 0,
                segments: self.slots.len(),
            };
        }
        let control = self.control.lock();
        let tail = match control.open() {
            Some(slot) if self.open_has_records(slot) => split(self.tail.0.load(Acquire)).1,
            Some(slot) => self.slots[slot].start().unwrap_or(control.next_start),
            None => control.next_start,
        };
        LaneUse {
            head: control.head(),
            tail,
            segments_used: control.order.len(),
            segments: self.slots.len(),
        }
    }

    /// In a child that was forked from the lane's owner: gives up all that would hold the lane for
    /// as long as the child lives. In the owner nothing is done.
    pub fn abandon(&self) {
        if self.core.check_own().is_err() {
            self.media().abandon();
        }
    }

    fn media(&self) -> &dyn Media {
        &*self.core.media
    }
}

/// The slot and the log address packed into a tail.
#[inline]
pub(crate) fn split(tail: u64) -> (usize, Lsn) {
    const SLOT: u64 = crate::persist::LINE as u64 - 1;
    ((tail & SLOT) as usize, tail & !SLOT)
}

#[inline]
pub(crate) fn pack(slot: usize, lsn: Lsn) -> u64 {
    debug_assert!(split(lsn).0 == 0 && slot < crate::persist::LINE);
    lsn | slot as u64
}
