//! Recovery: from a lane's segments to its log. docs/pool-format.md, "Recovery".
//!
//! 1. The log starts at the lane's head. The segment there is the one whose header is intact, names
//!    the owner, and starts at exactly that address.
//! 2. Its records are walked in order. Each must name its own address, carry an intact checksum and
//!    an epoch that does not fall. The first bytes that do not are the end of the log, unless a
//!    seal came first: then the next segment is looked for at the next page boundary, as in 1.
//! 3. Whatever lies behind the end was never acknowledged, *unless* a valid record behind it was
//!    written after the end had become durable. Then the pool is damaged, and recovery refuses.
//! 4. Segments that begin behind the end are *left over*: on a disk a later commit may arrive
//!    before an earlier one. They are erased before the log goes on, or one of them would be found
//!    at the head, once all before it is drained. After a salvage all that lies behind the end is.

use crate::{
    error::{PoolError, PoolErrorKind},
    format::{
        record::{Lsn, Record},
        segment::{RecordWalk, SEGMENT_HEADER, SegmentHeader, WalkEnd, next_start, witness},
        table::LaneState,
    },
    media::{SegmentWindow, WindowPin},
};
use std::{path::Path, sync::Arc};

/// One segment of a recovered log.
pub(crate) struct LiveSegment {
    pub(crate) slot: usize,
    pub(crate) header: SegmentHeader,
    /// Log address behind its last record (or its seal).
    pub(crate) end: Lsn,
    /// True if the log goes on in another segment.
    pub(crate) sealed: bool,
    bytes: WindowPin,
}

/// A lane's records at the last crash or close, in log order.
pub struct Recovered {
    pub(crate) segments: Vec<LiveSegment>,
    /// Slots of segments that begin behind the end of the log.
    pub(crate) left_over: Vec<usize>,
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
            .flat_map(|s| RecordWalk::new(&s.bytes, s.header, self.epoch_max))
    }

    /// The damage that was given up, if the lane was opened with salvage and is damaged.
    #[must_use]
    pub fn lost(&self) -> Option<&PoolErrorKind> {
        self.lost.as_ref()
    }

    /// The start of the log's next segment.
    pub(crate) fn next_start(&self) -> Lsn {
        next_start(self.end())
    }
}

/// Walks the log of `lane`, whose `windows` are closed, and which no thread writes to. The windows
/// of the segments found are left open, fully published; the others closed.
///
/// # Errors
/// [`PoolErrorKind::LostRecords`] unless `salvage`.
pub(crate) fn recover(
    path: &Path,
    lane: u32,
    state: &LaneState,
    windows: &[Arc<SegmentWindow>],
    segment_bytes: u64,
    salvage: bool,
) -> Result<Recovered, PoolError> {
    let held = LaneSegments {
        state,
        windows,
        segment_bytes,
    };
    let WalkedLane {
        segments,
        epoch,
        found,
        left_over,
    } = held.walk();
    let lost_at = match segments.last() {
        Some(last) if !last.sealed => last.end,
        Some(last) => next_start(last.end),
        None => state.head,
    };
    let lost = held
        .witness(&segments, lost_at, epoch)
        .map(|witness| PoolErrorKind::LostRecords {
            lane,
            lsn: lost_at,
            found,
            witness,
        });
    match lost {
        Some(lost) if !salvage => Err(PoolError::new(path, lost)),
        lost => Ok(Recovered {
            segments,
            left_over,
            epoch_max: state.epoch,
            head: state.head,
            lost,
        }),
    }
}

/// A lane's parts in the pool: its state, and the windows of its segments.
struct LaneSegments<'a> {
    state: &'a LaneState,
    windows: &'a [Arc<SegmentWindow>],
    segment_bytes: u64,
}

/// The log from its head to the first bytes that are not its next record.
struct WalkedLane {
    segments: Vec<LiveSegment>,
    /// Of the last record.
    epoch: u32,
    /// The finding at the end, in words.
    found: String,
    /// Slots of segments that begin behind the end.
    left_over: Vec<usize>,
}

impl LaneSegments<'_> {
    /// All bytes of the segment behind `window`, which is left open as one that starts at `start`.
    fn open_whole(&self, window: &Arc<SegmentWindow>, start: Lsn) -> Option<WindowPin> {
        window
            .open(start, start + self.segment_bytes)
            .then(|| self.pin_whole(window, start))
            .flatten()
    }

    /// All bytes of the segment behind `window`, which is open as one that starts at `start`.
    fn pin_whole(&self, window: &Arc<SegmentWindow>, start: Lsn) -> Option<WindowPin> {
        let bytes = usize::try_from(self.segment_bytes).unwrap_or(usize::MAX);
        window.pin(start, bytes)
    }

    /// The intact headers that name the lane's owner, with their slots.
    fn headers(&self) -> Vec<(usize, SegmentHeader)> {
        let mut headers = Vec::new();
        for (slot, window) in self.windows.iter().enumerate() {
            let header = self
                .open_whole(window, 0)
                .and_then(|bytes| SegmentHeader::decode(&bytes));
            window.close();
            headers.extend(
                header
                    .filter(|h| h.owner == self.state.owner && h.bytes == self.segment_bytes)
                    .map(|h| (slot, h)),
            );
        }
        headers
    }

    /// Steps 1 and 2.
    fn walk(&self) -> WalkedLane {
        let headers = self.headers();
        let mut walked = WalkedLane {
            segments: Vec::new(),
            epoch: 0,
            found: "no segment".to_owned(),
            left_over: Vec::new(),
        };
        let mut expected = Some(self.state.head);
        while let Some(start) = expected.take() {
            // Two sessions may have opened a segment at the same address; the later one counts.
            let epochs = walked.epoch..=self.state.epoch;
            let next = headers
                .iter()
                .filter(|(_, h)| h.start == start && epochs.contains(&h.epoch))
                .max_by_key(|(_, h)| h.epoch);
            let Some(&(slot, header)) = next else {
                break;
            };
            let Some(bytes) = self.open_whole(&self.windows[slot], start) else {
                break;
            };
            let (end, last_epoch) = RecordWalk::new(&bytes, header, self.state.epoch).finish();
            walked.epoch = last_epoch;
            let (end, sealed) = match end {
                WalkEnd::Sealed(end) => {
                    expected = Some(next_start(end));
                    (end, true)
                }
                WalkEnd::Open(end, invalid) => {
                    walked.found = invalid.to_string();
                    (end, false)
                }
            };
            walked.segments.push(LiveSegment {
                slot,
                header,
                end,
                sealed,
                bytes,
            });
        }
        let end = (walked.segments.last()).map_or(self.state.head, |last| last.end);
        walked.left_over = (headers.iter())
            .filter(|(slot, h)| h.start >= end && walked.segments.iter().all(|s| s.slot != *slot))
            .map(|(slot, _)| *slot)
            .collect();
        walked
    }

    /// Step 3: the log address of a valid record of `epoch` or later that was written once
    /// everything up to `end` was durable, if there is one.
    fn witness(&self, segments: &[LiveSegment], end: Lsn, epoch: u32) -> Option<Lsn> {
        self.windows.iter().enumerate().find_map(|(slot, window)| {
            let live = segments.iter().find(|s| s.slot == slot);
            let bytes = match live {
                Some(segment) => self.pin_whole(window, segment.header.start),
                None => self.open_whole(window, 0),
            };
            let proof = bytes.and_then(|bytes| witness(&bytes, self.state.owner, end, epoch));
            if live.is_none() {
                window.close();
            }
            proof.map(|proof| proof.lsn)
        })
    }
}

impl LiveSegment {
    /// True if there is not a single record in the segment.
    pub(crate) fn is_empty(&self) -> bool {
        self.end == self.header.start + SEGMENT_HEADER
    }
}
