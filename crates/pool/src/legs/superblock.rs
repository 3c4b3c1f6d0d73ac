//! A leg's superblock: its pool, and the complete legs. docs/legs.md, "A leg's bytes".
//!
//! ```text
//!  0  magic "FORELEG\0"      8
//!  8  version                4
//! 12  CRC-32C                4   over the 128 bytes with this field zero
//! 16  legs' identity        16
//! 32  writer                16   drawn by the process that took the pool over
//! 48  writer's boot         16
//! 64  generation             8
//! 72  pool bytes             8
//! 80  this leg               1
//! 81  legs                   1
//! 82  copies                 1
//! 83  set of live legs       1   bit n: leg n
//! 84  flags                  4   bit 0: the writer closed the pool; bit 1: it is only announced
//! 88  reserved, zero        40
//! ```
//!
//! Two slots of a page, by the generation's parity. A writer writes them in turn, so that a torn
//! write leaves the one before. An announcement goes to the slot that has not the record which
//! counts: it says that a writer comes, and nothing of which legs are complete.

use super::mask::{LEGS_MAX, LegMask};
use crate::{
    checksum::crc32c,
    format::layout::{PAGE, u32_at, u64_at},
};
use uuid::Uuid;

const MAGIC: &[u8; 8] = b"FORELEG\0";
const VERSION: u32 = 1;
const BYTES: usize = 128;
const CRC: std::ops::Range<usize> = 12..16;
const CLOSED: u32 = 1;
const ANNOUNCED: u32 = 2;

/// The pool's beginning in a leg: behind the two slots.
pub(crate) const LEG_DATA: u64 = 2 * PAGE;
/// Generations of one writer: the next one begins at the next multiple, so two writers' differ.
pub(crate) const TERM: u64 = 1 << 16;

/// No generation is as high: a leg that says so says nonsense.
const GENERATION_MAX: u64 = 1 << 62;

/// The contents of a leg's superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LegRecord {
    pub(crate) identity: Uuid,
    /// Its writer: two of one generation with different writers are of two machines that took the
    /// pool over at once.
    pub(crate) writer: Uuid,
    pub(crate) boot: Uuid,
    pub(crate) generation: u64,
    pub(crate) pool_bytes: u64,
    pub(crate) legs: usize,
    pub(crate) copies: usize,
    /// The legs that are complete from this generation on.
    pub(crate) set: LegMask,
    /// The writer has ended, and writes no more.
    pub(crate) closed: bool,
    /// Its writer is to begin: of the legs it says nothing.
    pub(crate) announced: bool,
}

impl LegRecord {
    /// The slot it is written to.
    pub(crate) fn offset(&self) -> u64 {
        self.generation % 2 * PAGE
    }

    /// True of a record that another writer wrote later.
    pub(super) fn is_newer_than(&self, own: &Self) -> bool {
        self.writer != own.writer && self.generation >= own.generation
    }

    /// A whole page, for leg number `leg`.
    pub(crate) fn encode(&self, leg: usize) -> Vec<u8> {
        let mut bytes = vec![0; PAGE as usize];
        bytes[0..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(self.identity.as_bytes());
        bytes[32..48].copy_from_slice(self.writer.as_bytes());
        bytes[48..64].copy_from_slice(self.boot.as_bytes());
        bytes[64..72].copy_from_slice(&self.generation.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.pool_bytes.to_le_bytes());
        let counts = [leg as u8, self.legs as u8, self.copies as u8, self.set.0];
        bytes[80..84].copy_from_slice(&counts);
        let flags = u32::from(self.closed) * CLOSED + u32::from(self.announced) * ANNOUNCED;
        bytes[84..88].copy_from_slice(&flags.to_le_bytes());
        let crc = crc32c([&bytes[..BYTES]]);
        bytes[CRC].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The record of leg number `leg` in a slot; none if it is torn, or anything else.
    fn decode(slot: &[u8], leg: usize) -> Option<Self> {
        let bytes: &[u8; BYTES] = slot.get(..BYTES)?.try_into().ok()?;
        let mut zeroed = *bytes;
        zeroed[CRC].fill(0);
        let is_whole = bytes.starts_with(MAGIC)
            && u32_at(bytes, 8) == VERSION
            && u32_at(bytes, CRC.start) == crc32c([&zeroed[..]]);
        let uuid = |at: usize| Uuid::from_slice(&bytes[at..at + 16]).ok();
        let found = Self {
            identity: uuid(16)?,
            writer: uuid(32)?,
            boot: uuid(48)?,
            generation: u64_at(bytes, 64),
            pool_bytes: u64_at(bytes, 72),
            legs: bytes[81].into(),
            copies: bytes[82].into(),
            set: LegMask(bytes[83]),
            closed: u32_at(bytes, 84) & CLOSED != 0,
            announced: u32_at(bytes, 84) & ANNOUNCED != 0,
        };
        let is_sane = usize::from(bytes[80]) == leg
            && (1..=LEGS_MAX).contains(&found.legs)
            && (1..=found.legs).contains(&found.copies)
            && !found.set.is_empty()
            && found.set.without(LegMask::all(found.legs)).is_empty()
            && found.generation > 0
            && found.generation < GENERATION_MAX;
        (is_whole && is_sane).then_some(found)
    }

    /// The newest of the two slots at the start of leg number `leg`.
    pub(crate) fn newest(start: &[u8], leg: usize) -> Option<Self> {
        Self::slots(start, leg).max_by_key(|found| found.generation)
    }

    /// The newest that says which legs are complete.
    pub(super) fn counting(start: &[u8], leg: usize) -> Option<Self> {
        let slots = Self::slots(start, leg).filter(|found| !found.announced);
        slots.max_by_key(|found| found.generation)
    }

    fn slots(start: &[u8], leg: usize) -> impl Iterator<Item = Self> {
        let slots = start.chunks(PAGE as usize).take(2);
        slots.filter_map(move |slot| Self::decode(slot, leg))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(generation: u64) -> LegRecord {
        LegRecord {
            identity: Uuid::new_v4(),
            writer: Uuid::new_v4(),
            boot: Uuid::new_v4(),
            generation,
            pool_bytes: 1 << 20,
            legs: 3,
            copies: 2,
            set: LegMask(0b101),
            closed: false,
            announced: false,
        }
    }

    #[test]
    fn a_torn_leg_superblock_leaves_the_one_before() {
        let (old, new) = (record(TERM), record(TERM + 1));
        let mut start = old.encode(2);
        start.extend(new.encode(2));
        assert_eq!(LegRecord::newest(&start, 2), Some(new));
        for at in 0..BYTES {
            let mut torn = start.clone();
            torn[PAGE as usize + at] ^= 1;
            assert_eq!(LegRecord::newest(&torn, 2), Some(old), "byte {at}");
        }
        // Another leg's, as of two exports that were exchanged, is none.
        assert_eq!(LegRecord::newest(&start, 1), None);
        assert_eq!(LegRecord::newest(&[], 1), None);
    }

    #[test]
    fn an_announcement_leaves_the_record_that_counts() {
        let counting = record(TERM);
        let announced = LegRecord {
            announced: true,
            ..record(2 * TERM + 1)
        };
        let mut start = counting.encode(0);
        start.extend(announced.encode(0));
        assert_ne!(counting.offset(), announced.offset());
        assert_eq!(LegRecord::counting(&start, 0), Some(counting));
        assert_eq!(LegRecord::newest(&start, 0), Some(announced));
    }
}
