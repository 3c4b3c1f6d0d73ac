//! The turn to the next segment: a member takes it when the open one has no room for its record.
//!
//! The owner has *prepared* it, once the mark has reached the start of the last one: header, fence,
//! then its place in the slots, then `next`. The member moves the tail to the prepared segment's
//! first record. It claims the rest of the full one and the next one's header, makes the rest a
//! void, fences, and publishes both. A segment is *complete* once the mark is above its end.

use super::{
    Member,
    state::{NONE, WriterCell, first},
};
use crate::{
    error::AppendError,
    format::record::Lsn,
    lane::{pack, split},
    media::{wait, wake},
};
use std::{sync::atomic::Ordering::Acquire, time::Duration};

impl Member {
    /// Leaves the segment that starts at `full`, if that one is open: the start of the one that is
    /// open then, which the owner prepared. `None` while it has prepared none.
    ///
    /// # Errors
    /// [`AppendError::Closed`].
    pub fn next_segment(&self, full: Lsn) -> Result<Option<Lsn>, AppendError> {
        let writer = self.announce()?;
        crate::failpoint!("shared:turn-announced");
        let (start, ours) = self.turn(full, writer)?;
        if ours || start.is_none() {
            wake(&self.state.turned);
        }
        Ok(start)
    }

    /// Counts the segments that were prepared: read it before [`next_segment`](Self::next_segment),
    /// to [`wait`](Self::wait) with.
    #[must_use]
    pub fn prepared(&self) -> u32 {
        self.state.prepared.load(Acquire)
    }

    /// Sleeps until a segment was prepared since `seen`, or `limit` is over.
    pub fn wait(&self, seen: u32, limit: Duration) {
        wait(&self.state.prepared, seen, limit);
    }

    /// Moves the tail into the next segment, and fills the rest of the one before: the open one's
    /// start, and true if it was this call. The cell is free then.
    fn turn(&self, full: Lsn, writer: &WriterCell) -> Result<(Option<Lsn>, bool), AppendError> {
        loop {
            let open = self.open_segment();
            let (tail, offset, start) = open.inspect_err(|_| writer.free())?;
            if start != full {
                writer.free();
                return Ok((Some(start), false));
            }
            let limit = start + self.segment_bytes;
            let Some(next) = self.next_tail(limit) else {
                writer.free();
                return Ok((None, false));
            };
            let (_, lsn) = split(tail);
            crate::failpoint!("shared:turn-looked");
            if !self.exchange_tail(tail, next) {
                continue;
            }
            crate::failpoint!("shared:turned");
            writer.claim(lsn, first(limit));
            crate::failpoint!("shared:turn-claimed");
            if lsn < limit {
                self.void(offset + (lsn - start), lsn, limit);
                crate::failpoint!("shared:turn-voided");
                if !self.state.finished.publish(&self.mark(), lsn, limit) {
                    writer.free();
                    return Err(AppendError::Closed);
                }
            }
            crate::failpoint!("shared:turn-half");
            // The next segment's header, which is durable since it was prepared.
            self.publish(limit, first(limit), writer)?;
            return Ok((Some(limit), true));
        }
    }

    /// The tail at the first record of the segment that starts at `limit`, if that one is prepared.
    pub(super) fn next_tail(&self, limit: Lsn) -> Option<u64> {
        let next = self.state.next.load(Acquire);
        let (slot, start) = split(next);
        (next != NONE && start == limit).then(|| pack(slot, first(start)))
    }
}
