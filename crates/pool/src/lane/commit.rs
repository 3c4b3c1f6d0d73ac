//! Commits of a lane of one process; those of any lane share [`commit`](crate::commit).
//!
//! Only what is committed leaves the lane: a drain is handed nothing else, and no segment is
//! released before. So what the leader writes back is never another segment meanwhile, and no
//! recovery finds less in the log than the owner has made of it elsewhere.
//!
//! A page of a segment is written once: the segment's header with the first records, a seal with
//! the last ones. A medium that fails ends the lane: what is in it can still be read, nothing is
//! appended any more, and what is not committed may not be recovered.
//!
//! Lock order: the leader may take `control`; no thread commits while holding it.

use super::{Lane, LaneControl, NO_SEGMENT, SlotState, pack, split};
use crate::{
    commit::{CommitLog, Commits, LogPart, write_void},
    error::AppendError,
    format::{
        layout::PAGE,
        record::Lsn,
        segment::{SEGMENT_HEADER, next_start},
    },
    media::{Media, SegmentWindow},
    persist::LINE,
};
use parking_lot::MutexGuard;
use std::{
    hint, io,
    ops::Range,
    sync::atomic::Ordering::{AcqRel, Acquire},
    thread,
    time::Duration,
};

/// The number of any committer: the threads of one process need none of their own.
const THREAD: u32 = 1;
/// Turns of the busy wait for records before the end to be published.
const SPINS: u32 = 1000;
/// Sleep of a leader after that before it looks again: their writer has lost its processor.
const NAP: Duration = Duration::from_micros(50);

impl Lane {
    /// True if an append alone is not durable: see [`commit`](Self::commit).
    #[inline]
    #[must_use]
    pub fn needs_commit(&self) -> bool {
        self.commits.is_some()
    }

    /// Returns when every record that was appended at an address below `lsn` is durable; at once
    /// where an append is so by itself. Threads that commit at the same time share a write.
    ///
    /// # Errors
    /// [`AppendError::Closed`]: the medium failed ([`failure`](Self::failure) says how). What is not committed may not be recovered then, or in
    /// part: a record of it only with all before it.
    ///
    /// ```
    /// use std::io::IoSlice;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = forebay_pool::PoolOptions::new().size(1 << 20).segment_size(64 << 10).on_disk(true).create(dir.path().join("pool"))?;
    /// # let (lane, _) = pool.claim(forebay_pool::Uuid::new_v4(), &forebay_pool::ClaimOptions::new())?;
    /// lane.append(1, &[IoSlice::new(b"sold: a boat")])?;
    /// let lsn = lane.append(1, &[IoSlice::new(b"sold: another one")])?;
    /// lane.commit(lsn + 1)?; // both are durable, on any medium
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn commit(&self, lsn: Lsn) -> Result<(), AppendError> {
        self.core.check_own()?;
        match &self.commits {
            Some(commits) if !commits.reach(lsn) => self.commit_below(commits, lsn),
            _ => Ok(()),
        }
    }

    /// The failure of the medium after which nothing is appended or committed any more.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if let Err(forked) = self.core.check_own() {
            return Some(forked.to_string());
        }
        self.control.lock().failure.clone()
    }

    /// True if everything below `lsn` is durable once it is published.
    #[inline]
    pub(super) fn is_committed(&self, lsn: Lsn) -> bool {
        (self.commits.as_ref()).is_none_or(|commits| commits.reach(lsn))
    }

    /// The address below which records that are published below `visible` are durable.
    pub(super) fn durable_below(&self, visible: Lsn) -> Lsn {
        (self.commits.as_deref()).map_or(visible, |commits| visible.min(commits.committed()))
    }

    #[cold]
    fn commit_below(&self, commits: &Commits, lsn: Lsn) -> Result<(), AppendError> {
        commits.commit(self, lsn, THREAD)
    }

    /// Commits the sealed segments that are not. False if there are none, or it cannot be done.
    pub(super) fn commit_sealed(&self, control: &mut MutexGuard<'_, LaneControl>) -> bool {
        if self.commits.is_none() || control.failure.is_some() {
            return false;
        }
        let sealed = (control.states.iter()).filter_map(|state| match state {
            SlotState::Sealed(end) => Some(next_start(*end)),
            _ => None,
        });
        let Some(end) = sealed.max().filter(|end| !self.is_committed(*end)) else {
            return false;
        };
        MutexGuard::unlocked(control, || self.commit(end)).is_ok()
    }

    /// Ends the page in which the log ends, and waits until everything in it is published: the open
    /// segment's stretch of the log up to there. None while no segment is open: then all before are
    /// sealed, or about to be.
    fn fill_page(&self) -> Option<Range<Lsn>> {
        loop {
            let tail = self.tail.0.load(Acquire);
            if tail == NO_SEGMENT {
                return None;
            }
            let (slot, lsn) = split(tail);
            let window = &*self.slots[slot];
            // As in `reserve`: the tail still points into that segment, so it was open when its
            // start was read.
            let start = window.start();
            let (Some(start), true) = (start, self.tail.0.load(Acquire) == tail) else {
                hint::spin_loop();
                continue;
            };
            if lsn == start + SEGMENT_HEADER {
                // Nothing is in it, and so nothing to be committed.
                return Some(start..start);
            }
            let end = lsn.next_multiple_of(PAGE);
            if end == lsn {
                wait_published(window, start, end);
                return Some(start..end);
            }
            let filled = pack(slot, end);
            if (self.tail.0)
                .compare_exchange(tail, filled, AcqRel, Acquire)
                .is_ok()
            {
                self.void(window, start, lsn, end);
                // Returns when everything before is published, too.
                self.finished.publish(window, lsn, end);
                return Some(start..end);
            }
        }
    }

    /// Makes `[lsn, end)` a void record.
    fn void(&self, window: &SegmentWindow, start: Lsn, lsn: Lsn, end: Lsn) {
        let place = window.place(start, lsn);
        let lines = (self.commits.as_ref()).map_or(0, |own| own.behind(lsn) / LINE as u64);
        let lag = u32::try_from(lines).unwrap_or(u32::MAX);
        let log = (self.owner, self.epoch);
        write_void(self.media(), place.offset(), (lsn, end), log, lag);
    }

    /// The parts of the log that are to be committed, with the places of their segments, and their
    /// end: all that is sealed, and the `filled` part of the open segment.
    fn parts_below(&self, filled: Option<Range<Lsn>>) -> Result<(Vec<LogPart>, Lsn), AppendError> {
        // A segment that is being sealed is so when this is locked.
        let control = self.control.lock();
        if control.failure.is_some() {
            return Err(AppendError::Closed);
        }
        let mut end = control.next_start;
        let mut parts = Vec::new();
        for &slot in &control.order {
            let window = &self.slots[slot];
            let Some(start) = window.start() else {
                continue;
            };
            let part = match control.states[slot] {
                SlotState::Sealed(end) | SlotState::Draining(end) | SlotState::Drained(end) => {
                    start..next_start(end)
                }
                SlotState::Open => match &filled {
                    Some(filled) if filled.start == start => filled.clone(),
                    // It was opened since.
                    _ => start..start,
                },
                SlotState::Free => continue,
            };
            end = part.end;
            parts.push((part, window.offset()));
        }
        Ok((parts, end))
    }

    /// The medium failed: nothing is appended or committed any more, and those that wait for that
    /// are told.
    pub(super) fn end_by(&self, control: &mut LaneControl, error: &io::Error) {
        if let Some(slot) = control.open() {
            // Never committed, and so never handed out. Appends find no segment from now on.
            self.seal_open(control, slot);
        }
        control.failure.get_or_insert_with(|| error.to_string());
        self.freed.notify_all();
        self.sealed.notify_all();
    }
}

impl CommitLog for Lane {
    fn check(&self) -> Result<(), AppendError> {
        match self.control.lock().failure {
            Some(_) => Err(AppendError::Closed),
            None => Ok(()),
        }
    }

    fn fill(&self) -> Result<(Vec<LogPart>, Lsn), AppendError> {
        let open = self.fill_page();
        self.parts_below(open)
    }

    fn media(&self) -> &dyn Media {
        Lane::media(self)
    }

    fn fail(&self, error: &io::Error) {
        self.end_by(&mut self.control.lock(), error);
    }
}

/// Waits until everything below `end` is published in the segment that starts at `start`. One that
/// is sealed meanwhile is.
fn wait_published(window: &SegmentWindow, start: Lsn, end: Lsn) {
    let mut turns = 0;
    while window.start() == Some(start) && window.visible() < end {
        turns += 1;
        match turns < SPINS {
            true => hint::spin_loop(),
            false => thread::sleep(NAP),
        }
    }
}
