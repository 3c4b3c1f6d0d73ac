//! Writing ahead: an owner may write published pages of the open segment before it is sealed. So a
//! device need not idle while a segment fills, and little is left to write when it is sealed.
//!
//! That is a head start, no more: nothing is released before the segment is sealed, written to its
//! end, and synced ([`drain`](super::drain)).

use super::{Lane, LaneControl};
use crate::{
    format::{layout::PAGE, record::Lsn},
    media::WindowPin,
};
use std::time::{Duration, Instant};

/// A drain looks again whether the open segment has grown enough to write ahead when that is to be
/// expected, but no sooner and no later than this. Each look takes a processor from a writer, where
/// there are more writers than processors.
const AHEAD_POLL: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(5));

/// Bytes of the open segment that a drain writes ahead at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AheadBytes {
    /// Less is not worth a write.
    pub min: u64,
    /// More would delay the seal's own write.
    pub max: u64,
}

/// Published pages of the open segment in the drain's hands.
pub struct AheadPages<'a> {
    lane: &'a Lane,
    slot: usize,
    segment: Lsn,
    at: Lsn,
    bytes: Option<WindowPin>,
    written: bool,
}

/// The part of a slot's segment that was written ahead.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WrittenAhead {
    /// Bytes from the segment's start, whole pages.
    pub(super) bytes: u64,
    pub(super) in_flight: bool,
    /// Writes in flight do not count: a sync failed meanwhile.
    void: bool,
}

/// The growth of an open segment.
#[derive(Default)]
pub(super) struct SegmentGrowth {
    /// The published address at the last look, and its time. The address is none while no segment
    /// is open.
    last: Option<(Instant, Option<Lsn>)>,
}

impl SegmentGrowth {
    /// `open` is, if a segment is, how far it is published at `now`, and how many bytes are
    /// lacking: when that is worth another look. `None` if nothing has changed since the last.
    pub(super) fn look(&mut self, now: Instant, open: Option<(Lsn, u64)>) -> Option<Instant> {
        let (soonest, latest) = AHEAD_POLL;
        let visible = open.map(|(visible, _)| visible);
        let wait = match (self.last.replace((now, visible)), open) {
            (Some((_, before)), _) if before == visible => return None,
            (Some((at, Some(before))), Some((visible, lacking))) if before < visible => {
                let took = now.duration_since(at).as_secs_f64();
                let seconds = took * lacking as f64 / (visible - before) as f64;
                Duration::from_secs_f64(seconds.min(1.0)).clamp(soonest, latest)
            }
            _ => soonest,
        };
        Some(now + wait)
    }
}

impl Lane {
    /// Pages of the open segment that are published and not written; if there are too few, the
    /// published address and the number of missing bytes.
    pub(super) fn next_ahead(
        &self,
        control: &mut LaneControl,
        limits: AheadBytes,
    ) -> Result<AheadPages<'_>, Option<(Lsn, u64)>> {
        let slot = control.open().ok_or(None)?;
        let start = self.slots[slot].start().ok_or(None)?;
        let visible = self.durable_below(self.slots[slot].visible());
        let written = &mut control.ahead[slot];
        let at = start + written.bytes;
        let ready = (visible.saturating_sub(at) / PAGE * PAGE).min(limits.max);
        let min = limits.min.max(PAGE);
        if written.in_flight || ready < min {
            return Err(Some((visible, min.saturating_sub(ready))));
        }
        let bytes = usize::try_from(ready)
            .ok()
            .and_then(|ready| self.slots[slot].pin(at, ready));
        let bytes = bytes.ok_or(None)?;
        written.in_flight = true;
        Ok(AheadPages {
            lane: self,
            slot,
            segment: start,
            at,
            bytes: Some(bytes),
            written: false,
        })
    }

    /// A sync failed, and may have lost pages written ahead: they are to be written again.
    pub fn forget_ahead(&self) {
        if self.core.check_own().is_err() {
            return;
        }
        for ahead in &mut self.control.lock().ahead {
            ahead.bytes = 0;
            ahead.void = ahead.in_flight;
        }
    }
}

impl AheadPages<'_> {
    /// Log address of the segment's first byte.
    #[must_use]
    pub fn segment(&self) -> Lsn {
        self.segment
    }

    /// Log address of the first byte of these pages.
    #[must_use]
    pub fn at(&self) -> Lsn {
        self.at
    }

    /// The pages, page-aligned in memory.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }

    /// They are written, though not synced.
    pub fn written(mut self) {
        self.written = true;
    }
}

impl Drop for AheadPages<'_> {
    fn drop(&mut self) {
        if self.lane.core.check_own().is_err() {
            return;
        }
        let bytes = self.bytes().len() as u64;
        // First, or a writer would find the slot free but pinned.
        self.bytes = None;
        let mut control = self.lane.control.lock();
        let ahead = &mut control.ahead[self.slot];
        if self.written && !ahead.void {
            ahead.bytes += bytes;
        }
        ahead.in_flight = false;
        ahead.void = false;
        self.lane.sealed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_segment_is_looked_at_again_when_it_should_suffice() {
        let (soonest, latest) = AHEAD_POLL;
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut growth = SegmentGrowth::default();
        // Nothing is known yet.
        let mut look = |ms, open| growth.look(at(ms), open);
        assert_eq!(look(0, Some((1000, 900))), Some(begun + soonest));
        // 100 bytes a millisecond.
        assert_eq!(look(1, Some((1100, 400))), Some(at(5)));
        assert_eq!(look(2, Some((1200, 1))), Some(at(2) + soonest));
        assert_eq!(look(3, Some((1300, 1 << 40))), Some(at(3) + latest));
        // It does not grow; then none is open, and then another one.
        assert_eq!(look(4, Some((1300, 900))), None);
        assert_eq!(look(5, None), Some(at(5) + soonest));
        assert_eq!(look(6, None), None);
        assert_eq!(look(7, Some((1400, 900))), Some(at(7) + soonest));
    }
}
