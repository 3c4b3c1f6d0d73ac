//! Draining: sealed segments go to the owner, who makes them durable elsewhere and releases them.
//!
//! Several threads may drain at once. Segments are released in any order; the head, and with it
//! what recovery starts from, moves over a prefix only. The new head is durable before a slot of
//! that prefix is used again. Draining takes nothing from the pool, so it cannot deadlock with
//! writers.
//!
//! On a disk nothing is handed out that is not committed, so that what is elsewhere is in the log
//! that a recovery finds. A segment that is sealed is committed by the drain that wants it.

use super::{
    Lane, LaneControl, SlotState, Stall,
    ahead_pages::{AheadBytes, AheadPages, SegmentGrowth, WrittenAhead},
};
use crate::{
    error::AppendError, format::layout::PAGE, format::record::Lsn, format::segment::next_start,
    format::table::LaneState, media::WindowPin,
};
use std::time::{Duration, Instant};

/// The next step of a drain.
pub enum DrainWork<'a> {
    /// Write the rest of a sealed segment, sync, release it.
    Sealed(Sealed<'a>),
    /// Write pages of the open segment.
    Ahead(AheadPages<'a>),
}

/// A sealed segment in the drain's hands. Dropped without [`release`](Self::release), it goes back
/// to the queue, to be written from its start, and its bytes stay.
pub struct Sealed<'a> {
    lane: &'a Lane,
    slot: usize,
    start: Lsn,
    end: Lsn,
    ahead: u64,
    /// Gone only while it is dropped.
    bytes: Option<WindowPin>,
    released: bool,
}

impl Lane {
    /// The next sealed segment in log order; waits up to `wait` for one. `None` on time-out, or at
    /// once when the lane is closed, or its medium [failed](Self::failure), and nothing is left.
    ///
    /// ```
    /// use std::{fs::File, os::unix::fs::FileExt, time::Duration};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = forebay_pool::PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(dir.path().join("pool"))?;
    /// # let (lane, _) = pool.claim(forebay_pool::Uuid::new_v4(), &forebay_pool::ClaimOptions::new())?;
    /// # let file = File::create(dir.path().join("log"))?;
    /// # lane.append(1, &[std::io::IoSlice::new(b"hello")])?;
    /// # lane.seal();
    /// while let Some(sealed) = lane.take_sealed(Duration::from_millis(100)) {
    ///     file.write_all_at(sealed.bytes(), sealed.start())?;
    ///     file.sync_data()?;
    ///     sealed.release(); // without this, it is offered again
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn take_sealed(&self, wait: Duration) -> Option<Sealed<'_>> {
        match self.take(None, wait)? {
            DrainWork::Sealed(sealed) => Some(sealed),
            DrainWork::Ahead(_) => None,
        }
    }

    /// The next sealed segment in log order, or with `ahead`, if there is none, pages of the open
    /// one; waits up to `wait` for either. `None` on time-out, or at once when the lane is closed,
    /// or its medium [failed](Self::failure), and nothing is left.
    pub fn take(&self, ahead: Option<AheadBytes>, wait: Duration) -> Option<DrainWork<'_>> {
        self.core.check_own().ok()?;
        let deadline = Instant::now().checked_add(wait);
        let mut control = self.control.lock();
        let mut growth = SegmentGrowth::default();
        loop {
            if let Some(sealed) = self.next_sealed(&mut control) {
                return Some(DrainWork::Sealed(sealed));
            }
            if self.commit_sealed(&mut control) {
                continue;
            }
            let grown = ahead.and_then(|limits| match self.next_ahead(&mut control, limits) {
                Ok(work) => Some(Ok(work)),
                // Looked at as long as it grows, and only then.
                Err(lacking) => growth.look(Instant::now(), lacking).map(Err),
            });
            let poll = match grown {
                Some(Ok(work)) => return Some(DrainWork::Ahead(work)),
                Some(Err(at)) => Some(at),
                None => None,
            };
            if control.has_ended() {
                return None;
            }
            let until = match (poll, deadline) {
                (Some(poll), Some(deadline)) => Some(poll.min(deadline)),
                (poll, deadline) => poll.or(deadline),
            };
            match until {
                Some(until) => drop(self.sealed.wait_until(&mut control, until)),
                None => self.sealed.wait(&mut control),
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                // One more look: a segment may have been sealed at the last moment.
                return self.next_sealed(&mut control).map(DrainWork::Sealed);
            }
        }
    }

    fn next_sealed(&self, control: &mut LaneControl) -> Option<Sealed<'_>> {
        let (slot, end) = control
            .order
            .iter()
            .find_map(|&slot| match control.states[slot] {
                SlotState::Sealed(end)
                    if !control.ahead[slot].in_flight && self.is_committed(next_start(end)) =>
                {
                    Some((slot, end))
                }
                _ => None,
            })?;
        let start = self.slots[slot].start()?;
        // O_DIRECT wants whole pages; what stands behind the seal is never read.
        let bytes = usize::try_from((end - start).next_multiple_of(PAGE)).ok()?;
        let bytes = self.slots[slot].pin(start, bytes)?;
        control.states[slot] = SlotState::Draining(end);
        Some(Sealed {
            lane: self,
            slot,
            start,
            end,
            ahead: control.ahead[slot].bytes,
            bytes: Some(bytes),
            released: false,
        })
    }

    /// Waits until everything below `lsn` is drained.
    ///
    /// # Errors
    /// [`AppendError::Stalled`] if the drain cannot go on: what it began before this call and
    /// failed does not count, for what was in its way may be gone. [`AppendError::Closed`].
    ///
    /// ```
    /// use std::{io::IoSlice, thread, time::Duration};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = forebay_pool::PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(dir.path().join("pool"))?;
    /// # let (lane, _) = pool.claim(forebay_pool::Uuid::new_v4(), &forebay_pool::ClaimOptions::new())?;
    /// lane.append(1, &[IoSlice::new(b"hello")])?;
    /// let end = lane.seal();
    /// thread::scope(|scope| {
    ///     scope.spawn(|| lane.take_sealed(Duration::MAX).map(|sealed| sealed.release()));
    ///     lane.wait_drained(end)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_drained(&self, lsn: Lsn) -> Result<(), AppendError> {
        self.core.check_own()?;
        let asked = Instant::now();
        let mut control = self.control.lock();
        while control.head() < lsn {
            if let Some(stall) = &control.stalled
                && stall.begun.is_none_or(|begun| begun >= asked)
            {
                return Err(AppendError::Stalled(stall.reason.clone()));
            }
            if control.has_ended() {
                return Err(AppendError::Closed);
            }
            self.freed.wait(&mut control);
        }
        Ok(())
    }

    /// The reason that the drain cannot go on at present, if it has said so.
    #[must_use]
    pub fn stalled(&self) -> Option<String> {
        self.core.check_own().ok()?;
        let control = self.control.lock();
        control.stalled.as_ref().map(|stall| stall.reason.clone())
    }

    /// Tells writers why there will be no drain: they fail instead of waiting.
    pub fn set_stalled(&self, reason: String) {
        self.stall(Some(Stall {
            reason,
            begun: None,
        }));
    }

    /// Tells writers the reason that the drain begun at `begun` failed: they fail instead of
    /// waiting, until it goes on.
    pub fn drain_failed(&self, begun: Instant, reason: String) {
        self.stall(Some(Stall {
            reason,
            begun: Some(begun),
        }));
    }

    /// The drain goes on.
    pub fn drain_goes_on(&self) {
        self.stall(None);
    }

    fn stall(&self, stall: Option<Stall>) {
        if self.core.check_own().is_err() {
            return;
        }
        let mut control = self.control.lock();
        if stall.is_some() || control.stalled.is_some() {
            control.stalled = stall;
            self.freed.notify_all();
        }
    }

    /// Refuses appends that need a new segment from now on and lets drains that find nothing
    /// return.
    pub fn close(&self) {
        if self.core.check_own().is_err() {
            return;
        }
        let mut control = self.control.lock();
        control.closed = true;
        self.freed.notify_all();
        self.sealed.notify_all();
    }

    /// Moves the head over the drained prefix and frees its slots.
    fn release_prefix(&self, control: &mut LaneControl) {
        let mut freed = Vec::new();
        let mut head = None;
        while let Some(&slot) = control.order.front()
            && let SlotState::Drained(end) = control.states[slot]
        {
            control.order.pop_front();
            freed.push(slot);
            head = Some(next_start(end));
        }
        let (Some(head), Some(state)) = (head, control.entry.state) else {
            return;
        };
        let tables = self.core.tables();
        crate::failpoint!("pool:release-entry");
        tables.write_lane(self.lane, &mut control.entry, LaneState { head, ..state });
        if let Err(error) = self.core.media.check() {
            // A recovery may begin where the head was: what is there stays there.
            return self.end_by(control, &error);
        }
        crate::failpoint!("pool:release-free");
        for slot in freed {
            self.slots[slot].close();
            control.states[slot] = SlotState::Free;
        }
        self.note_crowding(control);
        self.freed.notify_all();
    }
}

impl Sealed<'_> {
    /// Log address of the segment's first byte, its header; a multiple of 4 KiB.
    #[must_use]
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// Log address behind its last record.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The segment up to its end, in whole pages, page-aligned in memory.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }

    /// The number of its first bytes that were [`written`](AheadPages::written) ahead, whole pages:
    /// they need not be written again, but synced.
    #[must_use]
    pub fn ahead(&self) -> usize {
        usize::try_from(self.ahead)
            .unwrap_or(usize::MAX)
            .min(self.bytes().len())
    }

    /// Gives the segment back to the lane: its bytes are durable elsewhere.
    pub fn release(mut self) {
        self.released = true;
    }
}

impl Drop for Sealed<'_> {
    fn drop(&mut self) {
        // First, or a writer would find the slot free but pinned.
        self.bytes = None;
        if self.lane.core.check_own().is_err() {
            return;
        }
        let mut control = self.lane.control.lock();
        if self.released {
            control.states[self.slot] = SlotState::Drained(self.end);
            self.lane.release_prefix(&mut control);
        } else {
            // What was written ahead may be lost with the sync that failed.
            control.ahead[self.slot] = WrittenAhead::default();
            control.states[self.slot] = SlotState::Sealed(self.end);
            self.lane.sealed.notify_one();
        }
    }
}
