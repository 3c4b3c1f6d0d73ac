//! The segment: a stretch of a log, with a header that says which. docs/pool-format.md, "Segment".
//!
//! ```text
//!  0  magic "FSEG"   4
//!  4  CRC-32C        4   over bytes 8..64
//!  8  start          8   log address of this header; the segment's generation
//! 16  epoch          4   session that opened it
//! 20  version        4
//! 24  bytes          8   size of the segment
//! 32  owner         16   uuid of the log's owner
//! 48  reserved      16   zero
//! ```
//! The first record stands at `start + 64`. A segment ends with a seal record, or where no line is
//! left; void records are stepped over. The next one starts at the following multiple of 4 KiB.
//! What is drained is the segment verbatim, so a value-log file is a row of segments and reads by
//! this same module.

use crate::{
    checksum::crc32c,
    format::{
        layout::{LSN_MAX, PAGE, u32_at, u64_at},
        record::{self, InvalidRecord, KIND_SEAL, KIND_VOID, Lsn, Record, RecordHeader},
    },
    persist::LINE,
};
use uuid::Uuid;

/// Bytes of a segment's header: one line.
pub const SEGMENT_HEADER: u64 = LINE as u64;
const MAGIC: &[u8; 4] = b"FSEG";
const VERSION: u32 = 1;

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Log address of the header.
    pub start: Lsn,
    /// Session that opened the segment.
    pub epoch: u32,
    /// Size of the segment.
    pub bytes: u64,
    /// Owner of the log.
    pub owner: Uuid,
}

impl SegmentHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; LINE] {
        let mut bytes = [0; LINE];
        bytes[0..4].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.start.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[20..24].copy_from_slice(&VERSION.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[32..48].copy_from_slice(self.owner.as_bytes());
        let crc = crc32c([&bytes[8..]]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header; `None` if there is no intact one, or one that no segment can have: its
    /// addresses are pages below [`LSN_MAX`].
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..LINE)?;
        if &bytes[0..4] != MAGIC
            || u32_at(bytes, 4) != crc32c([&bytes[8..]])
            || u32_at(bytes, 20) != VERSION
        {
            return None;
        }
        let mut owner = [0; 16];
        owner.copy_from_slice(&bytes[32..48]);
        let header = Self {
            start: u64_at(bytes, 8),
            epoch: u32_at(bytes, 16),
            bytes: u64_at(bytes, 24),
            owner: Uuid::from_bytes(owner),
        };
        let possible =
            header.start.is_multiple_of(PAGE) && header.start <= LSN_MAX && header.bytes <= LSN_MAX;
        possible.then_some(header)
    }
}

/// The start of the segment that follows one whose last record ends at `end`.
#[must_use]
pub const fn next_start(end: Lsn) -> Lsn {
    end.next_multiple_of(PAGE)
}

/// The end of a walk over a segment's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkEnd {
    /// With a seal, or no line left: the log goes on at [`next_start`] of this address.
    Sealed(Lsn),
    /// Before bytes that are no record: the log ends here, as far as this segment can tell.
    Open(Lsn, InvalidRecord),
}

/// Walks a segment's records in order, up to the first bytes that are not the next record.
pub struct RecordWalk<'a> {
    bytes: &'a [u8],
    header: SegmentHeader,
    at: Lsn,
    /// Epoch of the last record; they never fall.
    epoch: u32,
    epoch_max: u32,
    end: Option<WalkEnd>,
}

impl<'a> RecordWalk<'a> {
    /// The records of the segment `bytes` with this `header`, written by sessions up to
    /// `epoch_max`.
    #[must_use]
    pub fn new(bytes: &'a [u8], header: SegmentHeader, epoch_max: u32) -> Self {
        Self {
            bytes,
            header,
            at: header.start.saturating_add(SEGMENT_HEADER),
            epoch: header.epoch,
            epoch_max,
            end: None,
        }
    }

    /// The end of the walk, once there is one.
    #[must_use]
    pub fn end(&self) -> Option<WalkEnd> {
        self.end
    }

    /// The epoch of the last record seen (of the header before the first).
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Walks to the end and says how it ended.
    pub fn finish(mut self) -> (WalkEnd, u32) {
        loop {
            if self.next().is_none()
                && let Some(end) = self.end
            {
                return (end, self.epoch);
            }
        }
    }

    fn read(&self) -> Result<Record<'a>, InvalidRecord> {
        let at = usize::try_from(self.at - self.header.start).unwrap_or(usize::MAX);
        let bytes = self.bytes.get(at..).unwrap_or_default();
        let record = record::read(bytes, self.at, self.header.owner)?;
        // A record that an earlier session wrote behind its last acknowledged one is not part of
        // the log.
        if !(self.epoch..=self.epoch_max).contains(&record.header.epoch) {
            return Err(InvalidRecord::Elsewhere(self.at));
        }
        Ok(record)
    }
}

impl<'a> Iterator for RecordWalk<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        while self.end.is_none() {
            if self.at >= self.header.start.saturating_add(self.header.bytes) {
                self.end = Some(WalkEnd::Sealed(self.at));
                break;
            }
            match self.read() {
                Ok(record) => {
                    self.epoch = record.header.epoch;
                    self.at = self.at.saturating_add(record.header.record_bytes());
                    match record.header.kind {
                        KIND_SEAL => self.end = Some(WalkEnd::Sealed(self.at)),
                        KIND_VOID => {}
                        _ => return Some(record),
                    }
                }
                Err(invalid) => self.end = Some(WalkEnd::Open(self.at, invalid)),
            }
        }
        None
    }
}

/// Looks through a segment, line by line, for a valid record that was written after everything
/// below `lost` had become durable: the proof that `lost` was acknowledged and is damaged.
///
/// Only records of `epoch` or later count: what earlier sessions left behind was dealt with then.
#[must_use]
pub fn witness(bytes: &[u8], owner: Uuid, lost: Lsn, epoch: u32) -> Option<RecordHeader> {
    (0..bytes.len())
        .step_by(LINE)
        .filter_map(|at| {
            let header = record::peek(&bytes[at..]).ok()?;
            (header.epoch >= epoch && header.lsn > lost && header.durable_before() > lost)
                .then_some((at, header))
        })
        .find(|(at, header)| record::read(&bytes[*at..], header.lsn, owner).is_ok())
        .map(|(_, header)| header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_any_flipped_bit_invalidates_it() {
        let header = SegmentHeader {
            start: 8192,
            epoch: 4,
            bytes: 65536,
            owner: Uuid::from_u128(3),
        };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Some(header));
        for bit in 0..LINE * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&flipped), None, "bit {bit}");
        }
        assert_eq!(SegmentHeader::decode(&bytes[..63]), None);
    }

    #[test]
    fn unreachable_addresses_make_no_header_and_overflow_no_walk() {
        let good = SegmentHeader {
            start: 8192,
            epoch: 4,
            bytes: 65536,
            owner: Uuid::from_u128(3),
        };
        for (start, bytes) in [
            (u64::MAX - 4095, 65536),
            (8192, u64::MAX),
            (8192 + 64, 65536),
            (LSN_MAX + PAGE, 65536),
        ] {
            let absurd = SegmentHeader {
                start,
                bytes,
                ..good
            };
            assert_eq!(SegmentHeader::decode(&absurd.encode()), None);
            let (end, _) = RecordWalk::new(&[0; 4096], absurd, 9).finish();
            assert!(matches!(end, WalkEnd::Open(..) | WalkEnd::Sealed(..)));
        }
    }

    #[test]
    fn a_walk_ends_at_a_record_of_an_earlier_or_future_session() {
        let header = SegmentHeader {
            start: 8192,
            epoch: 2,
            bytes: 4096,
            owner: Uuid::from_u128(3),
        };
        let walk = |epochs: [u32; 3]| {
            let mut bytes = header.encode().to_vec();
            for epoch in epochs {
                let record = RecordHeader {
                    length: 0,
                    lsn: header.start + bytes.len() as u64,
                    epoch,
                    lag: 0,
                    kind: 1,
                };
                bytes.extend(record.encode(header.owner, &[]));
                bytes.resize(bytes.len().next_multiple_of(LINE), 0);
            }
            RecordWalk::new(&bytes, header, 5).count()
        };
        assert_eq!(walk([2, 2, 5]), 3);
        assert_eq!(walk([2, 4, 3]), 2);
        assert_eq!(walk([2, 6, 6]), 1);
        assert_eq!(walk([1, 2, 2]), 0);
    }

    #[test]
    fn the_next_segment_starts_at_a_page() {
        assert_eq!(next_start(4096), 4096);
        assert_eq!(next_start(4096 + 64), 8192);
    }
}
