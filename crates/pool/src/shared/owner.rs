//! The owner of a shared lane: it opens segments, and releases those that are durable elsewhere.

use super::{
    control::SharedControl,
    member::Member,
    state::{NONE, SharedState, first},
};
use crate::{
    MonotonicTime,
    error::{AppendError, PoolError},
    format::{
        layout::PAGE,
        record::{Lsn, Record},
        segment::{RecordWalk, SegmentHeader},
        table::LaneState,
    },
    lane::{LaneUse, pack, split},
    media::{LockGuard, wait, wake},
    pool::Pool,
    steps,
};
use parking_lot::Mutex;
use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::Ordering::{Acquire, SeqCst},
    time::Duration,
};
use uuid::Uuid;

/// The owner's wait for steps that members take without waiting themselves.
pub(super) const MOMENT: Duration = Duration::from_millis(5);

/// True once the owner has waited long enough. Where a scheduler decides who goes on it waits no
/// time at all.
pub(super) fn is_over(deadline: MonotonicTime) -> bool {
    steps::is_scheduled() || MonotonicTime::now() >= deadline
}

/// A segment that is complete: everything in it is published, and nothing is appended to it any
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleteSegment {
    /// Log address of its first byte.
    pub start: Lsn,
    /// Log address behind it.
    pub end: Lsn,
}

/// A lane that several processes append to, in the hands of the one that opens and releases its
/// segments.
pub struct SharedLane {
    pub(super) us: Member,
    pub(super) state_fd: OwnedFd,
    pub(super) lane: u32,
    pub(super) control: Mutex<SharedControl>,
    /// Dropped when the lane is given back. Otherwise it is left to the pool's open file, which
    /// other processes may have.
    pub(super) lock: Option<LockGuard>,
    /// The pool that further segments come from. Its lock is taken before `control`.
    pub(super) pool: Pool,
}

impl Drop for SharedLane {
    fn drop(&mut self) {
        if !self.control.get_mut().given_back
            && let Some(lock) = self.lock.take()
        {
            lock.leave();
        }
    }
}

impl SharedLane {
    pub(super) fn state(&self) -> &SharedState {
        &self.us.state
    }

    fn segment_bytes(&self) -> u64 {
        self.us.core.superblock.geometry.segment_bytes
    }

    /// Makes a free slot the segment that starts at `start`.
    pub(super) fn write_header(&self, control: &mut SharedControl, start: Lsn) -> Option<usize> {
        let slot = control.free.pop()?;
        let header = SegmentHeader {
            start,
            epoch: self.us.epoch(),
            bytes: self.segment_bytes(),
            owner: self.us.owner,
        };
        let media = &*self.us.core.media;
        media.store(control.offsets[slot], &[IoSlice::new(&header.encode())]);
        media.fence();
        // The head may come to this segment before anything in it is committed.
        if let Err(error) = media.commit_pages(control.offsets[slot], PAGE) {
            self.fail(&error);
            return None;
        }
        self.state().set_segment(slot, control.offsets[slot], start);
        control.order.push_back((slot, start));
        Some(slot)
    }

    /// The medium failed: the lane ends.
    fn fail(&self, error: &io::Error) {
        self.state().fail(error.raw_os_error().unwrap_or(libc::EIO));
    }

    /// The descriptor that members join by.
    #[must_use]
    pub fn state_fd(&self) -> BorrowedFd<'_> {
        self.state_fd.as_fd()
    }

    /// The owner's own part: it appends, too.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.us
    }

    /// The lane's number in the pool.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.lane
    }

    /// Prepares the next segment, if there is none, all before the open one is published, and a
    /// slot is free. True if one is prepared.
    pub fn prepare(&self) -> bool {
        let state = self.state();
        let mut control = self.control.lock();
        if control.has_holes {
            self.fill_holes(&mut control);
        }
        // What the owner, and the dead, noted no writer waits for, and the one that moved the mark
        // there may have missed it.
        state.finished.advance(state);
        let (_, lsn) = split(state.tail.0.load(Acquire));
        let Some(&(_, last)) = control.order.back() else {
            return false;
        };
        // At the end of the one before, the tail stands at the start of this one and does not point
        // into it.
        if control.given_back || lsn < first(last) {
            // It is there still.
            return !control.given_back;
        }
        // At most two segments are not published.
        let mark = state.mark.0.load(Acquire);
        if mark < last {
            return false;
        }
        crate::failpoint!("prepare:looked");
        // What the owner, and the dead, noted.
        state.finished.forget_below(mark);
        let start = last + self.segment_bytes();
        let Some(slot) = self.write_header(&mut control, start) else {
            return false;
        };
        crate::failpoint!("prepare:header");
        control.next = pack(slot, start);
        state.next.store(control.next, SeqCst);
        crate::failpoint!("prepare:next");
        wake(&state.prepared);
        true
    }

    /// True if all of the lane's segments are in use: then [`prepare`](Self::prepare) needs another
    /// one, which [`grow`](Self::grow) takes. Otherwise it waits for members.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.control.lock().free.is_empty()
    }

    /// Counts segments that were begun and members that found none prepared: read it before
    /// looking, to [`wait`](Self::wait) with.
    #[must_use]
    pub fn turned(&self) -> u32 {
        self.state().turned.load(Acquire)
    }

    /// Sleeps until a member has begun a segment since `seen`, or finds none prepared, or `limit`
    /// is over.
    pub fn wait(&self, seen: u32, limit: Duration) {
        wait(&self.state().turned, seen, limit);
    }

    /// Complete segments that are not released, in log order. The last one is not among them before
    /// the next one is begun.
    #[must_use]
    pub fn complete(&self) -> Vec<CompleteSegment> {
        let bytes = self.segment_bytes();
        let control = self.control.lock();
        let Some(mark) = self.sane_mark(&control) else {
            return Vec::new();
        };
        let segments = control.order.iter().map(|(_, start)| CompleteSegment {
            start: *start,
            end: start + bytes,
        });
        // At its end the mark may stand while the tail still points into it.
        segments.take_while(|segment| segment.end < mark).collect()
    }

    /// Ends the open segment, if it holds any record: log address up to which
    /// [`release`](Self::release) must come for everything appended before this call. `None` while
    /// no segment is prepared. It is [`complete`](Self::complete) once members that are appending
    /// to it are done, which is waited for no longer than a moment.
    ///
    /// # Errors
    /// [`AppendError::Closed`].
    pub fn seal(&self) -> Result<Option<Lsn>, AppendError> {
        self.prepare();
        let mut control = self.control.lock();
        let (from, limit) = loop {
            let (tail, _, start) = self.us.open_segment()?;
            let (_, lsn) = split(tail);
            if lsn == first(start) {
                return Ok(Some(start));
            }
            let limit = start + self.segment_bytes();
            let Some(next) = self.us.next_tail(limit) else {
                return Ok(None);
            };
            if self.us.exchange_tail(tail, next) {
                break (lsn, limit);
            }
        };
        crate::failpoint!("seal:turned");
        // Not claimed: only the owner looks at claims, under this lock. It does not wait for
        // members, who may wait for it.
        let hole = (from, first(limit));
        control.has_holes |= !self.fill(&control.segments(), hole);
        drop(control);
        let state = self.state();
        wake(&state.turned);
        let deadline = MonotonicTime::now() + MOMENT;
        loop {
            // As in `prepare`: a writer may miss the note of the hole.
            state.finished.advance(state);
            if self.us.published() > limit || is_over(deadline) {
                return Ok(Some(limit));
            }
            crate::failpoint!("seal:waits");
            std::thread::yield_now();
        }
    }

    /// Everything below `end`, the end of a complete segment, is durable elsewhere: its segments
    /// are free.
    pub fn release(&self, end: Lsn) {
        self.between_commits(|| self.release_below(end));
        self.prepare();
    }

    fn release_below(&self, end: Lsn) {
        let bytes = self.segment_bytes();
        let mut control = self.control.lock();
        let Some(mark) = self.sane_mark(&control) else {
            return;
        };
        let is_free = |start: Lsn| start + bytes <= end && start + bytes < mark;
        let freed = (control.order.iter()).take_while(|(_, start)| is_free(*start));
        let freed: Vec<_> = freed.copied().collect();
        let head = freed.last().map(|(_, start)| start + bytes);
        if let (Some(head), Some(state)) = (head, control.entry.state) {
            crate::failpoint!("pool:release-entry");
            let tables = self.us.core.tables();
            tables.write_lane(self.lane, &mut control.entry, LaneState { head, ..state });
            if let Err(error) = self.us.core.media.check() {
                // A recovery begins where the head was: what is there stays there, and is not
                // released.
                self.fail(&error);
                return;
            }
            self.committed_to(head);
            crate::failpoint!("pool:release-free");
            for (slot, _) in freed {
                control.order.pop_front();
                self.state().set_segment(slot, control.offsets[slot], NONE);
                control.free.push(slot);
            }
        }
    }

    /// Calls `each` with the published records that are not released, in log order.
    pub fn records(&self, mut each: impl FnMut(&Record<'_>)) {
        let control = self.control.lock();
        let bytes = self.segment_bytes();
        let mark = self.us.published();
        for (offset, start) in control.segments() {
            let published = mark.saturating_sub(start).min(bytes);
            let mut copy = vec![0; usize::try_from(published).unwrap_or(0)];
            self.us.core.media.load(offset, &mut copy);
            let Some(header) = SegmentHeader::decode(&copy) else {
                continue;
            };
            RecordWalk::new(&copy, header, self.us.epoch()).for_each(|record| each(&record));
        }
    }

    /// Position and fill.
    #[must_use]
    pub fn usage(&self) -> LaneUse {
        let control = self.control.lock();
        let (_, tail) = split(self.state().tail.0.load(Acquire));
        LaneUse {
            head: control.entry.state.map_or(0, |state| state.head),
            tail,
            segments_used: control.order.iter().filter(|(_, s)| *s < tail).count(),
            segments: control.segment_count(),
        }
    }

    /// The error that the pool's disk failed with, in a commit of any member or here: the lane is
    /// closed then.
    #[must_use]
    pub fn failure(&self) -> Option<io::Error> {
        let of_a_member = self.state().failure().map(io::Error::from_raw_os_error);
        of_a_member.or_else(|| self.us.core.media.check().err())
    }

    /// The owner of the log: the same for no other lane, of whatever pool.
    #[must_use]
    pub fn owner(&self) -> Uuid {
        self.us.owner
    }

    /// Changes the label, durably.
    ///
    /// # Errors
    /// The medium failed, so that a recovery may find the label as it was.
    pub fn relabel(&self, label: &str) -> Result<(), PoolError> {
        let core = &self.us.core;
        if self.state().is_closed() {
            // The disk may have failed in one place only, or for a while.
            core.media.try_again();
        }
        core.tables().write_label(self.lane, label);
        core.check()
    }

    /// Nothing is appended from now on: members are told that the lane is closed. What is being
    /// appended is finished.
    pub fn close(&self) {
        self.state().close();
    }

    /// Ends the lane: nothing is appended any more, and everything in it is durable elsewhere, so
    /// that a recovery finds nothing. Its segments stay its own until it is [given
    /// back](Self::give_back): a member may be in the middle of an append, which ends with
    /// [`AppendError::Closed`](crate::AppendError).
    ///
    /// # Errors
    /// The medium failed, so that a recovery finds what is in it.
    pub fn settle(&self) -> Result<(), PoolError> {
        self.state().abandon();
        let mut control = self.control.lock();
        let last = control.order.back().copied();
        let (Some((_, last)), Some(state)) = (last, control.entry.state) else {
            return Ok(());
        };
        let head = last + self.segment_bytes();
        let tables = self.us.core.tables();
        // The disk may have failed in one place only, or for a while.
        self.us.core.media.try_again();
        tables.write_lane(self.lane, &mut control.entry, LaneState { head, ..state });
        self.us.core.check()?;
        control.settled = true;
        Ok(())
    }

    /// As [`settle`](Self::settle) where that cannot be written to the medium: the caller has noted
    /// elsewhere, durably, that nothing which a recovery finds in the lane is needed.
    pub fn settled_elsewhere(&self) {
        self.state().abandon();
        self.control.lock().settled = true;
    }

    /// True once the lane is [settled](Self::settle).
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.control.lock().settled
    }

    /// Closes the lane and gives it back to the pool, if everything in it was released, or it is
    /// [settled](Self::settle). False otherwise, or if the medium fails: then it stays its owner's,
    /// with everything in it. The caller knows that no member lives.
    #[must_use]
    pub fn give_back(&self) -> bool {
        self.close();
        let mut control = self.control.lock();
        let (_, lsn) = split(self.state().tail.0.load(SeqCst));
        // The open segment is the first one, and holds nothing.
        let open = control.order.front().copied();
        let empty = open.filter(|(_, start)| control.settled || first(*start) == lsn);
        let (Some((_, open)), Some(state)) = (empty, control.entry.state) else {
            return false;
        };
        let head = state.head.max(open + PAGE);
        let freed = LaneState {
            taken: false,
            head,
            segments: 0,
            ..state
        };
        let tables = self.us.core.tables();
        tables.write_lane(self.lane, &mut control.entry, freed);
        if let Err(error) = self.us.core.media.check() {
            self.fail(&error);
            return false;
        }
        control.given_back = true;
        control.order.clear();
        true
    }
}
