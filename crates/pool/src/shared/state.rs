//! Memory that the processes of a shared lane share: atomics only, no pointers. A member that
//! corrupts it harms its own lane; every number read from it is checked before it is used.
#![expect(unsafe_code, reason = "says that it consists of atomics")]

use crate::{
    commit::Commits,
    format::{
        layout::{PAGE, PoolGeometry, SEGMENTS_MAX},
        record::Lsn,
        segment::SEGMENT_HEADER,
    },
    lane::{FinishedRecords, PublishMark},
    media::{Atomics, OwnLine, wake},
};
use std::{
    cell::Cell,
    sync::atomic::{
        AtomicI32, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    },
};
use uuid::Uuid;

/// Changes with the layout: members of another version are refused.
pub(super) const VERSION: u64 = 0x4642_4C41_4E45_0001;
/// A tail, or a next segment, that there is not.
pub(super) const NONE: u64 = u64::MAX;
/// Appends at a time; more wait for one to end.
const WRITERS: usize = 1024;

/// One append in progress.
#[repr(C, align(64))]
pub(super) struct WriterCell {
    /// Counts uses of the cell; in the low bits the member's number and one of the two phases, or 0
    /// if it is free.
    state: AtomicU64,
    /// The start of its reservation, once it says so.
    from: AtomicU64,
    to: AtomicU64,
}

const ANNOUNCED: u64 = 1;
const CLAIMED: u64 = 2;
const PHASE: u64 = 3;
const MEMBER_SHIFT: u32 = 2;
const USE: u64 = 1 << 24;

const _: () = assert!((super::MEMBERS_MAX as u64) << MEMBER_SHIFT <= USE);

/// The place of a segment of the lane, and its log address.
#[repr(C)]
struct SegmentSlot {
    /// Log address of its first byte, or [`NONE`].
    start: AtomicU64,
    /// Offset in the pool.
    offset: AtomicU64,
}

/// Something is appended.
const OPEN: u32 = 0;
/// Nothing is appended any more.
const CLOSED: u32 = 1;
/// Nor does what was being appended wait for what precedes it: a hole may be there that no owner
/// fills.
const ABANDONED: u32 = 2;

/// The state of a shared lane.
#[repr(C)]
pub(super) struct SharedState {
    version: AtomicU64,
    /// The log's owner, two halves.
    owner: [AtomicU64; 2],
    /// The pool, likewise.
    pool: [AtomicU64; 2],
    pub(super) epoch: AtomicU32,
    /// [`OPEN`], [`CLOSED`] or [`ABANDONED`].
    closed: AtomicU32,
    /// The error that the medium failed with in a member's commit; 0 if it has not.
    failed: AtomicI32,
    /// The place of the next record, as in a lane of one process: log address and slot.
    pub(super) tail: OwnLine<AtomicU64>,
    /// Everything below is published: durable without a gap.
    pub(super) mark: OwnLine<AtomicU64>,
    /// The segment after the open one, as a tail has it: its start and slot. [`NONE`] until it is
    /// prepared.
    pub(super) next: AtomicU64,
    /// Counts segments prepared; members that wait for one sleep on it.
    pub(super) prepared: AtomicU32,
    /// Counts segments begun and members that are waiting; the owner sleeps on it.
    pub(super) turned: AtomicU32,
    /// On a medium that needs it: the committed address, and the members that commit, by their
    /// numbers plus one.
    pub(super) commits: Commits,
    slots: [SegmentSlot; SEGMENTS_MAX as usize],
    writers: [WriterCell; WRITERS],
    pub(super) finished: FinishedRecords,
}

// SAFETY: it consists of atomics.
unsafe impl Atomics for SharedState {}

impl SharedState {
    /// The first contents of a new lane, by its owner.
    pub(super) fn begin(&self, pool: Uuid, owner: Uuid, epoch: u32, start: Lsn) {
        store_uuid(&self.owner, owner);
        store_uuid(&self.pool, pool);
        self.epoch.store(epoch, Relaxed);
        for slot in &self.slots {
            slot.start.store(NONE, Relaxed);
        }
        self.tail.0.store(NONE, Relaxed);
        self.mark.0.store(start, Relaxed);
        self.next.store(NONE, Relaxed);
        self.commits.start_at(start);
        self.version.store(VERSION, Release);
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    pub(super) fn owner(&self) -> Uuid {
        load_uuid(&self.owner)
    }

    pub(super) fn pool(&self) -> Uuid {
        load_uuid(&self.pool)
    }

    pub(super) fn close(&self) {
        self.closed.fetch_max(CLOSED, SeqCst);
        wake(&self.prepared);
        wake(&self.turned);
    }

    /// The medium failed: nothing is durable by this log any more.
    pub(super) fn fail(&self, errno: i32) {
        let _ = (self.failed).compare_exchange(0, errno, SeqCst, Relaxed);
        self.close();
    }

    pub(super) fn failure(&self) -> Option<i32> {
        Some(self.failed.load(SeqCst)).filter(|errno| *errno != 0)
    }

    pub(super) fn abandon(&self) {
        self.closed.store(ABANDONED, SeqCst);
        wake(&self.prepared);
        wake(&self.turned);
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed) != OPEN
    }

    /// Offset in the pool and log address of the segment in `slot`; none if it is not in use, or
    /// lies where no segment of the pool does.
    #[inline]
    pub(super) fn segment(&self, slot: usize, geometry: &PoolGeometry) -> Option<(u64, Lsn)> {
        let slot = self.slots.get(slot)?;
        let start = slot.start.load(Acquire);
        let offset = slot.offset.load(Acquire);
        let last = geometry.segment(geometry.segments - 1);
        let possible = offset.is_multiple_of(PAGE)
            && (geometry.data()..=last).contains(&offset)
            && start.is_multiple_of(PAGE)
            && start <= crate::format::layout::LSN_MAX;
        possible.then_some((offset, start))
    }

    /// The owner: `slot` holds the segment that starts at `start`, at `offset` in the pool.
    pub(super) fn set_segment(&self, slot: usize, offset: u64, start: Lsn) {
        self.slots[slot].offset.store(offset, Relaxed);
        self.slots[slot].start.store(start, Release);
    }

    /// A cell for an append of `member`; none if all are taken and the lane is closed.
    pub(super) fn announce(&self, member: u32) -> Option<&WriterCell> {
        thread_local! {
            /// The cell at which this thread looks first.
            static HINT: Cell<usize> = const { Cell::new(usize::MAX) };
        }
        static THREADS: AtomicU32 = AtomicU32::new(0);
        let mut at = HINT.get();
        if at == usize::MAX {
            // Apart from those of other members' threads.
            let thread = THREADS.fetch_add(1, Relaxed) as usize;
            at = (member as usize).wrapping_mul(61).wrapping_add(thread) % WRITERS;
            HINT.set(at);
        }
        loop {
            let writer = &self.writers[at % WRITERS];
            let state = writer.state.load(Relaxed);
            let announced = (state & !(USE - 1)).wrapping_add(USE)
                | u64::from(member) << MEMBER_SHIFT
                | ANNOUNCED;
            if state & PHASE == 0
                && (writer.state)
                    .compare_exchange(state, announced, SeqCst, Relaxed)
                    .is_ok()
            {
                return Some(writer);
            }
            at += 1;
            if at.is_multiple_of(WRITERS) {
                if self.is_closed() {
                    return None;
                }
                std::thread::yield_now();
            }
        }
    }

    pub(super) fn writers(&self) -> &[WriterCell] {
        &self.writers
    }
}

impl WriterCell {
    /// The lines that it reserved.
    #[inline]
    pub(super) fn claim(&self, from: Lsn, to: Lsn) {
        // The owner that reads one of these finds the cell in this use, or a later one, when it
        // looks at it again.
        self.from.store(from, Release);
        self.to.store(to, Release);
        let state = self.state.load(Relaxed);
        self.state.store(state & !PHASE | CLAIMED, Release);
    }

    /// Frees the cell: its announced work is done, or was not.
    #[inline]
    pub(super) fn free(&self) {
        let state = self.state.load(Relaxed);
        self.state.store(state & !(USE - 1), Release);
    }

    /// The cell's contents; the owner alone looks.
    pub(super) fn seen(&self) -> SeenCell {
        SeenCell(self.state.load(SeqCst))
    }

    /// The lines that it claims, if it is `seen` still.
    pub(super) fn claimed(&self, seen: SeenCell) -> Option<(Lsn, Lsn)> {
        let claimed = (self.from.load(Acquire), self.to.load(Acquire));
        (self.seen() == seen).then_some(claimed)
    }

    /// The owner: frees the cell, if it is `seen` still.
    pub(super) fn free_dead(&self, seen: SeenCell) {
        let free = seen.0 & !(USE - 1);
        let _ = (self.state).compare_exchange(seen.0, free, AcqRel, Relaxed);
    }
}

/// A cell as it was seen. Two that are equal are of one use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeenCell(u64);

impl SeenCell {
    pub(super) fn is_announced(self) -> bool {
        self.0 & PHASE == ANNOUNCED
    }

    pub(super) fn is_claimed(self) -> bool {
        self.0 & PHASE == CLAIMED
    }

    pub(super) fn member(self) -> u32 {
        u32::try_from((self.0 & (USE - 1)) >> MEMBER_SHIFT).unwrap_or(u32::MAX)
    }
}

impl PublishMark for SharedState {
    #[inline]
    fn at(&self) -> Lsn {
        self.mark.0.load(SeqCst)
    }

    #[inline]
    fn set(&self, to: Lsn) {
        self.mark.0.store(to, Release);
    }

    #[inline]
    fn move_from(&self, from: Lsn, to: Lsn) -> bool {
        let mark = &self.mark.0;
        mark.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }

    fn is_abandoned(&self) -> bool {
        self.closed.load(Relaxed) == ABANDONED
    }
}

fn store_uuid(words: &[AtomicU64; 2], uuid: Uuid) {
    let (high, low) = uuid.as_u64_pair();
    words[0].store(high, Relaxed);
    words[1].store(low, Relaxed);
}

fn load_uuid(words: &[AtomicU64; 2]) -> Uuid {
    Uuid::from_u64_pair(words[0].load(Relaxed), words[1].load(Relaxed))
}

/// The place of a first record.
pub(super) const fn first(start: Lsn) -> Lsn {
    start + SEGMENT_HEADER
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    // docs/pool-format.md, "Shared lanes", draws it.
    #[test]
    fn the_layout_is_the_one_that_is_documented() {
        assert_eq!(offset_of!(SharedState, owner), 8);
        assert_eq!(offset_of!(SharedState, pool), 24);
        assert_eq!(offset_of!(SharedState, epoch), 40);
        assert_eq!(offset_of!(SharedState, closed), 44);
        assert_eq!(offset_of!(SharedState, failed), 48);
        assert_eq!(offset_of!(SharedState, tail), 128);
        assert_eq!(offset_of!(SharedState, mark), 256);
        assert_eq!(offset_of!(SharedState, next), 384);
        assert_eq!(offset_of!(SharedState, prepared), 392);
        assert_eq!(offset_of!(SharedState, turned), 396);
        assert_eq!(offset_of!(SharedState, commits), 512);
        assert_eq!(offset_of!(SharedState, slots), 768);
        assert_eq!(offset_of!(SegmentSlot, offset), 8);
        assert_eq!(offset_of!(SharedState, writers), 1792);
        assert_eq!(
            (offset_of!(WriterCell, from), offset_of!(WriterCell, to)),
            (8, 16)
        );
        assert_eq!(offset_of!(SharedState, finished), 67328);
        assert_eq!(size_of::<FinishedRecords>(), 256 * 16);
        assert_eq!(size_of::<SharedState>(), 71424);
        assert_eq!(VERSION, 0x4642_4C41_4E45_0001);
    }
}
