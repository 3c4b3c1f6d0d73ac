//! Draining: sealed segments go to the owner, who makes them durable elsewhere and releases them.
//!
//! Several threads may drain at once. Segments are released in any order; the head, and with it what recovery
//! starts from, moves over a prefix only. The new head is durable before a slot of that
//! prefix is used again. Draining takes nothing from the pool, so it cannot deadlock with writers.

use super::{Control, Lane, SlotState};
use crate::{
    error::AppendError, layout::PAGE, media::Pin, record::Lsn, segment::next_start,
    table::LaneState,
};
use std::time::{Duration, Instant};

/// A sealed segment in the drain's hands. Dropped without [`release`](Self::release), it goes back to
/// the queue and its bytes stay.
pub struct Sealed<'a> {
    lane: &'a Lane,
    slot: usize,
    start: Lsn,
    end: Lsn,
    /// Gone only while it is dropped.
    bytes: Option<Pin>,
    released: bool,
}

impl Lane {
    /// The next sealed segment in log order; waits up to `wait` for one. `None` on time-out, or at once
    /// when the lane is closed and nothing is left.
    pub fn take_sealed(&self, wait: Duration) -> Option<Sealed<'_>> {
        let deadline = Instant::now().checked_add(wait);
        let mut control = self.control.lock();
        loop {
            let next = control
                .order
                .iter()
                .copied()
                .find_map(|slot| match control.states[slot] {
                    SlotState::Sealed(end) => Some((slot, end)),
                    _ => None,
                });
            if let Some((slot, end)) = next
                && let Some(start) = self.slots[slot].start()
            {
                // O_DIRECT wants whole pages; what stands behind the seal is never read.
                let bytes = usize::try_from((end - start).next_multiple_of(PAGE)).ok()?;
                let bytes = self.slots[slot].pin(start, bytes)?;
                control.states[slot] = SlotState::Draining(end);
                return Some(Sealed {
                    lane: self,
                    slot,
                    start,
                    end,
                    bytes: Some(bytes),
                    released: false,
                });
            }
            if control.closed {
                return None;
            }
            match deadline {
                Some(deadline) => {
                    if self.sealed.wait_until(&mut control, deadline).timed_out() {
                        return None;
                    }
                }
                None => self.sealed.wait(&mut control),
            }
        }
    }

    /// Waits until everything below `lsn` is drained.
    ///
    /// # Errors
    /// [`AppendError::Stalled`] if the drain cannot go on, [`AppendError::Closed`].
    pub fn wait_drained(&self, lsn: Lsn) -> Result<(), AppendError> {
        let mut control = self.control.lock();
        while control.head() < lsn {
            if let Some(reason) = &control.stalled {
                return Err(AppendError::Stalled(reason.clone()));
            }
            if control.closed {
                return Err(AppendError::Closed);
            }
            self.freed.wait(&mut control);
        }
        Ok(())
    }

    /// Tells writers why the drain cannot go on (they fail instead of waiting), or that it can again.
    pub fn set_stalled(&self, reason: Option<String>) {
        let mut control = self.control.lock();
        if control.stalled != reason {
            control.stalled = reason;
            self.freed.notify_all();
        }
    }

    /// Refuses appends that need a new segment from now on and lets drains that find nothing return.
    pub fn close(&self) {
        let mut control = self.control.lock();
        control.closed = true;
        self.freed.notify_all();
        self.sealed.notify_all();
    }

    /// Moves the head over the drained prefix and frees its slots.
    fn release_prefix(&self, control: &mut Control) {
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
        tables.write_lane(self.lane, &mut control.entry, LaneState { head, ..state });
        for slot in freed {
            self.slots[slot].close();
            control.states[slot] = SlotState::Free;
        }
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

    /// Gives the segment back to the lane: its bytes are durable elsewhere.
    pub fn release(mut self) {
        self.released = true;
    }
}

impl Drop for Sealed<'_> {
    fn drop(&mut self) {
        // First, or a writer would find the slot free but pinned.
        self.bytes = None;
        let mut control = self.lane.control.lock();
        if self.released {
            control.states[self.slot] = SlotState::Drained(self.end);
            self.lane.release_prefix(&mut control);
        } else {
            control.states[self.slot] = SlotState::Sealed(self.end);
            self.lane.sealed.notify_one();
        }
    }
}
