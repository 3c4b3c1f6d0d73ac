//! Recovery: from a lane's segments to its log. docs/pool-format.md, "Recovery".
//!
//! 1. The log starts at the lane's head. The segment there is the one whose header is intact, names
//!    the owner, and starts at exactly that address.
//! 2. Its records are walked in order. Each must name its own address, carry an intact checksum and an epoch that does not
//!    fall. The first bytes that do not are the end of the log, unless a seal came first: then
//!    the next segment is looked for at the next page boundary, as in 1.
//! 3. Whatever lies behind the end was never acknowledged, *unless* a valid record behind it was written
//!    after the end had become durable. Then the pool is damaged, and recovery refuses.

use crate::{
    error::{PoolError, PoolErrorKind},
    media::{Pin, Window},
    record::{Lsn, Record},
    segment::{End, Records, SEGMENT_HEADER, SegmentHeader, next_start, witness},
    table::LaneState,
};
use std::{collections::VecDeque, path::Path, sync::Arc};

/// One segment of a recovered log.
pub(crate) struct LiveSegment {
    pub(crate) slot: usize,
    pub(crate) header: SegmentHeader,
    /// Log address behind its last record (or its seal).
    pub(crate) end: Lsn,
    /// True if the log goes on in another segment.
    pub(crate) sealed: bool,
    bytes: Pin,
}

/// What a lane held at the last crash or close, in log order.
pub struct Recovered {
    pub(crate) segments: Vec<LiveSegment>,
    epoch_max: u32,
    head: Lsn,
    /// Records given up by salvage, if any.
    lost: Option<PoolErrorKind>,
}

impl Recovered {
    /// Log address at which the log starts: everything below was drained.
    #[must_use]
    pub fn head(&self) -> Lsn {
        self.head
    }

    /// Log address behind the last record.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.segments.last().map_or(self.head, |last| last.end)
    }

    /// All records of the log.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.segments
            .iter()
            .flat_map(|s| Records::new(&s.bytes, s.header, self.epoch_max))
    }

    /// What was given up, if the lane was opened with salvage and is damaged.
    #[must_use]
    pub fn lost(&self) -> Option<&PoolErrorKind> {
        self.lost.as_ref()
    }

    /// Where the next segment of the log starts.
    pub(crate) fn next_start(&self) -> Lsn {
        next_start(self.end())
    }
}

/// Walks the log of `lane`, whose `windows` are closed and written by nobody. The windows of the
/// segments found are left open, fully published; the others closed.
///
/// # Errors
/// [`PoolErrorKind::LostRecords`] unless `salvage`.
pub(crate) fn recover(
    path: &Path,
    lane: u32,
    state: &LaneState,
    windows: &[Arc<Window>],
    segment_bytes: u64,
    salvage: bool,
) -> Result<Recovered, PoolError> {
    let whole = |window: &Arc<Window>, start: Lsn| {
        window
            .open(start, start + segment_bytes)
            .then(|| window.pin(start, usize::try_from(segment_bytes).unwrap_or(usize::MAX)))
            .flatten()
    };
    let mut candidates: VecDeque<(usize, SegmentHeader)> = VecDeque::new();
    for (slot, window) in windows.iter().enumerate() {
        let header = whole(window, 0).and_then(|bytes| SegmentHeader::decode(&bytes));
        window.close();
        candidates.extend(
            header
                .filter(|h| h.owner == state.owner && h.bytes == segment_bytes)
                .map(|h| (slot, h)),
        );
    }
    let mut recovered = Recovered {
        segments: Vec::new(),
        epoch_max: state.epoch,
        head: state.head,
        lost: None,
    };
    let mut epoch = 0;
    let mut found = "no segment".to_owned();
    let mut expected = Some(state.head);
    while let Some(start) = expected.take() {
        // Two sessions may have opened a segment at the same address; the later one counts.
        let next = candidates
            .iter()
            .filter(|(_, h)| h.start == start && (epoch..=state.epoch).contains(&h.epoch))
            .max_by_key(|(_, h)| h.epoch);
        let Some(&(slot, header)) = next else {
            break;
        };
        let Some(bytes) = whole(&windows[slot], start) else {
            break;
        };
        let (end, last_epoch) = Records::new(&bytes, header, state.epoch).finish();
        epoch = last_epoch;
        let (end, sealed) = match end {
            End::Sealed(end) => {
                expected = Some(next_start(end));
                (end, true)
            }
            End::Open(end, invalid) => {
                found = invalid.to_string();
                (end, false)
            }
        };
        recovered.segments.push(LiveSegment {
            slot,
            header,
            end,
            sealed,
            bytes,
        });
    }
    let lost_at = match recovered.segments.last() {
        Some(last) if !last.sealed => last.end,
        Some(last) => next_start(last.end),
        None => recovered.head,
    };
    let evidence = windows.iter().enumerate().find_map(|(slot, window)| {
        let live = recovered.segments.iter().find(|s| s.slot == slot);
        let bytes = match live {
            Some(segment) => window.pin(
                segment.header.start,
                usize::try_from(segment_bytes).unwrap_or(usize::MAX),
            ),
            None => whole(window, 0),
        };
        let proof = bytes.and_then(|bytes| witness(&bytes, state.owner, lost_at, epoch));
        if live.is_none() {
            window.close();
        }
        proof
    });
    if let Some(evidence) = evidence {
        let lost = PoolErrorKind::LostRecords {
            lane,
            lsn: lost_at,
            found,
            witness: evidence.lsn,
        };
        if !salvage {
            return Err(PoolError::new(path, lost));
        }
        recovered.lost = Some(lost);
    }
    Ok(recovered)
}

impl LiveSegment {
    /// True if there is not a single record in the segment.
    pub(crate) fn is_empty(&self) -> bool {
        self.end == self.header.start + SEGMENT_HEADER
    }
}
