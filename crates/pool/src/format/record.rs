//! The record: the unit of a log, in the pool and in the value-log file alike. docs/pool-format.md,
//! "Record".
//!
//! ```text
//!  0  CRC-32C       4   over the log's owner uuid, bytes 4..32, and the payload
//!  4  length        4   payload bytes
//!  8  address       8   this record's own log address (its LSN)
//! 16  epoch         4   session that wrote it (`LaneState::epoch`)
//! 20  lag           4   in lines: its address minus the address below which everything was
//!                       durable when its place was reserved
//! 24  kind          2   0: end of segment; 0xFFFF: void; others are the owner's
//! 26  magic         2   0xFB0A
//! 28  reserved      4   zero
//! 32  payload       length bytes, zero-padded to whole lines
//! ```
//! A record names its own address, so one of an earlier generation of the segment never passes as a
//! current one. It names its epoch, so one that an earlier session wrote and did not acknowledge
//! never passes as a later session's, and its owner, by the checksum. The lag tells corruption from
//! a torn tail: a valid record behind an invalid one whose lag does not reach back to it proves
//! that the invalid one had been durable.
//!
//! A *void* record takes a place where nothing was written, or nothing that counts: its checksum is
//! over the header alone, and readers step over it.

pub use crate::lsn::Lsn;

use crate::{
    checksum::{Checksum, crc32c_seeded},
    format::layout::{u16_at, u32_at, u64_at},
    persist::{LINE, load_once},
};
use std::{fmt, io::IoSlice};
use uuid::Uuid;

/// Bytes of a record's header.
pub const HEADER: usize = 32;
/// Bytes from a record's address to its payload, for [`Lane::read`](crate::Lane::read).
pub const RECORD_HEADER: Lsn = HEADER as Lsn;
/// The kind of the record that ends a segment before it is full.
pub const KIND_SEAL: u16 = 0;
/// The kind of a record without content, which takes the place of one that was never finished.
pub const KIND_VOID: u16 = u16::MAX;
const MAGIC: u16 = 0xFB0A;

const _: () = assert!(HEADER * 2 == LINE);

/// Bytes that a record with `payload` bytes of payload takes in the log.
#[inline]
#[must_use]
pub const fn record_bytes(payload: usize) -> u64 {
    (HEADER + payload).next_multiple_of(LINE) as u64
}

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Payload bytes.
    pub length: u32,
    /// Its own log address.
    pub lsn: Lsn,
    /// Session that wrote it.
    pub epoch: u32,
    /// Lines between the durable end of the log when it was reserved and itself.
    pub lag: u32,
    /// The payload's kind.
    pub kind: u16,
}

impl RecordHeader {
    /// The header's bytes, checksum included.
    #[inline]
    pub fn encode(&self, owner: Uuid, payload: &[IoSlice<'_>]) -> [u8; HEADER] {
        let mut bytes = self.fields();
        let crc = checksum(owner, &bytes, payload.iter().map(|part| &part[..]));
        bytes[0..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header's bytes, the checksum zero.
    #[inline]
    fn fields(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lsn.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.lag.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.kind.to_le_bytes());
        bytes[26..28].copy_from_slice(&MAGIC.to_le_bytes());
        bytes
    }

    /// The log address below which everything was durable when this record was reserved.
    #[must_use]
    pub fn durable_before(&self) -> Lsn {
        self.lsn.saturating_sub(u64::from(self.lag) * LINE as u64)
    }

    /// The header of a void record that takes `bytes` bytes of the log, whole lines, at most 4 GiB.
    pub(crate) fn void(lsn: Lsn, bytes: u64, epoch: u32, lag: u32) -> Self {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(LINE as u64));
        Self {
            length: u32::try_from(bytes - HEADER as u64).unwrap_or(u32::MAX),
            lsn,
            epoch,
            lag,
            kind: KIND_VOID,
        }
    }

    /// Bytes of the whole record in the log.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        record_bytes(self.length as usize)
    }
}

/// Bytes of a record's payload that stand in its first line.
pub(crate) const INLINE: usize = LINE - HEADER;

/// A record's first line while its payload is being copied: header and first payload bytes, and the
/// checksum so far.
pub(crate) struct FirstLine {
    line: [u8; LINE],
    /// The checksum over the payload so far; of the rest it is continued over the stored bytes.
    pub(crate) sum: Checksum,
}

impl FirstLine {
    /// Takes the first bytes of the payload, `parts`, which another thread may be changing: they
    /// are loaded once.
    #[inline]
    pub(crate) fn new(header: &RecordHeader, owner: Uuid, parts: &[IoSlice<'_>]) -> Self {
        let mut line = [0; LINE];
        line[..HEADER].copy_from_slice(&header.fields());
        let mut filled = HEADER;
        for part in parts {
            let (now, _) = part.split_at(part.len().min(LINE - filled));
            load_once(&mut line[filled..filled + now.len()], now);
            filled += now.len();
        }
        // Gathered first: one short update is cheaper than two.
        let mut seed = [0; SEED + INLINE];
        seed[..16].copy_from_slice(owner.as_bytes());
        seed[16..].copy_from_slice(&line[4..]);
        let mut sum = Checksum::new();
        sum.add(&seed[..16 + filled - 4]);
        Self { line, sum }
    }

    /// The line, with the checksum.
    #[inline]
    pub(crate) fn finish(mut self) -> [u8; LINE] {
        self.line[0..4].copy_from_slice(&self.sum.value().to_le_bytes());
        self.line
    }
}

/// Bytes that are checksummed before the payload: the owner, and the header from its second word
/// on.
const SEED: usize = 16 + HEADER - 4;

fn checksum<'a>(owner: Uuid, header: &[u8], payload: impl Iterator<Item = &'a [u8]>) -> u32 {
    // Gathered first: one short update is cheaper than two.
    let mut seed = [0; SEED];
    seed[..16].copy_from_slice(owner.as_bytes());
    seed[16..].copy_from_slice(&header[4..HEADER]);
    crc32c_seeded(&seed, payload)
}

/// The reason that bytes are not the record expected there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidRecord {
    /// Fewer bytes than a header, or than the header states.
    Short {
        /// Bytes there.
        found: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Not a record header.
    NoMagic,
    /// A record that belongs at another address (an earlier generation of the segment).
    Elsewhere(Lsn),
    /// The checksum does not match: torn, damaged, or another owner's.
    Checksum {
        /// The header's checksum.
        stated: u32,
        /// The checksum of the bytes.
        found: u32,
    },
}

impl fmt::Display for InvalidRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { found, needed } => write!(f, "{found} bytes where {needed} are needed"),
            Self::NoMagic => write!(f, "no record header"),
            Self::Elsewhere(lsn) => write!(f, "a record of address {lsn}"),
            Self::Checksum { stated, found } => {
                write!(f, "checksum {found:08x} where {stated:08x} is stated")
            }
        }
    }
}

/// A record as read.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its header.
    pub header: RecordHeader,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Reads the header at the start of `bytes` without checking the checksum.
///
/// # Errors
/// [`InvalidRecord::Short`], [`InvalidRecord::NoMagic`].
#[inline]
pub fn peek(bytes: &[u8]) -> Result<RecordHeader, InvalidRecord> {
    if bytes.len() < HEADER {
        return Err(InvalidRecord::Short {
            found: bytes.len(),
            needed: HEADER,
        });
    }
    if u16_at(bytes, 26) != MAGIC {
        return Err(InvalidRecord::NoMagic);
    }
    Ok(RecordHeader {
        length: u32_at(bytes, 4),
        lsn: u64_at(bytes, 8),
        epoch: u32_at(bytes, 16),
        lag: u32_at(bytes, 20),
        kind: u16_at(bytes, 24),
    })
}

/// Reads and checks the record of log address `lsn` at the start of `bytes`, which may go on behind
/// it.
///
/// # Errors
/// What is there instead.
pub fn read(bytes: &[u8], lsn: Lsn, owner: Uuid) -> Result<Record<'_>, InvalidRecord> {
    let header = peek(bytes)?;
    if header.lsn != lsn {
        return Err(InvalidRecord::Elsewhere(header.lsn));
    }
    let needed = HEADER + header.length as usize;
    let payload = bytes.get(HEADER..needed).ok_or(InvalidRecord::Short {
        found: bytes.len(),
        needed,
    })?;
    let payload = match header.kind {
        KIND_VOID => &[],
        _ => payload,
    };
    let (stated, found) = (
        u32_at(bytes, 0),
        checksum(owner, &bytes[..HEADER], std::iter::once(payload)),
    );
    if stated != found && !crate::fault_enabled!("no-checksum") {
        return Err(InvalidRecord::Checksum { stated, found });
    }
    Ok(Record { header, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Uuid = Uuid::from_u128(0xF0);

    fn record(payload: &[u8]) -> Vec<u8> {
        let header = RecordHeader {
            length: payload.len() as u32,
            lsn: 6400,
            epoch: 2,
            lag: 1,
            kind: 7,
        };
        let mut bytes = header.encode(OWNER, &[IoSlice::new(payload)]).to_vec();
        bytes.extend_from_slice(payload);
        bytes.resize(record_bytes(payload.len()) as usize, 0);
        bytes
    }

    #[test]
    fn a_record_is_read_back_whole() {
        for length in [0, 1, 31, 32, 33, 64, 4096] {
            let payload: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let bytes = record(&payload);
            let read = read(&bytes, 6400, OWNER).unwrap();
            assert_eq!(read.payload, payload);
            assert_eq!(read.header.kind, 7);
            assert_eq!(read.header.durable_before(), 6336);
            assert_eq!(read.header.record_bytes(), bytes.len() as u64);
        }
    }

    #[test]
    fn a_first_line_gathered_from_parts_is_the_one_encode_makes() {
        for length in [0, 1, 31, 32, 33, 100] {
            let payload: Vec<u8> = (0..length).map(|i| i as u8 + 1).collect();
            let whole = record(&payload);
            let header = peek(&whole).unwrap();
            for cut in [0, length / 3, length] {
                let parts = [&payload[..cut], &payload[cut..]].map(IoSlice::new);
                let mut first = FirstLine::new(&header, OWNER, &parts);
                first.sum.add(payload.get(INLINE..).unwrap_or_default());
                assert_eq!(first.finish(), whole[..LINE]);
            }
        }
    }

    #[test]
    fn any_flipped_bit_of_header_or_payload_makes_a_record_invalid() {
        let payload = [0xA5; 40];
        let bytes = record(&payload);
        for bit in 0..(HEADER + payload.len()) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped, 6400, OWNER).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_void_record_is_read_whatever_stands_behind_its_header() {
        let header = RecordHeader::void(6400, 4 * LINE as u64, 2, 1);
        let mut bytes = header.encode(OWNER, &[]).to_vec();
        bytes.resize(4 * LINE, 0x5A);
        let read = read(&bytes, 6400, OWNER).unwrap();
        assert!(read.payload.is_empty());
        assert_eq!(read.header, header);
        assert_eq!(read.header.record_bytes(), 4 * LINE as u64);
        assert!(super::read(&bytes[..3 * LINE], 6400, OWNER).is_err());
    }

    #[test]
    fn a_record_of_another_address_or_owner_is_not_taken_for_ours() {
        let bytes = record(b"x");
        assert!(matches!(
            read(&bytes, 6464, OWNER),
            Err(InvalidRecord::Elsewhere(6400))
        ));
        assert!(matches!(
            read(&bytes, 6400, Uuid::from_u128(1)),
            Err(InvalidRecord::Checksum { .. })
        ));
        assert!(matches!(
            read(&bytes[..20], 6400, OWNER),
            Err(InvalidRecord::Short { .. })
        ));
        assert!(matches!(
            read(&[0; 64], 6400, OWNER),
            Err(InvalidRecord::NoMagic)
        ));
    }
}
