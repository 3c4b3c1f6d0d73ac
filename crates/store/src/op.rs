//! Operations as bytes: the payloads of the log's records. docs/store-format.md, "Operations".
//!
//! ```text
//! put     (kind 1)   key length 2 | key | value
//! delete  (kind 2)   key length 2 | key
//! large   (kind 3)   key length 2 | key | large value's id 8 | length 8 | CRC-32C 4
//! range   (kind 5)   key length 2 | first key deleted | 0, or 1 | first key behind (after a 1)
//! batch   (kind 4)   operations, each:
//!                      CRC-32C 4 | kind 2 (not 4) | key length 2 | body length 4 | key | body
//!                    the checksum is over the operation behind it, so that one operation is
//!                    read and checked without its neighbours
//!
//! expires (bit 0x200 of a put's or large value's kind)
//!                    before the value, or the id: milliseconds since the epoch 8
//! compressed (bit 0x100 of these)
//!                    what is stored of the value is compressed (`compression`)
//! ```

use crate::keyspace::is_marked;
use forebay_pool::{
    Record, crc32c,
    format::{
        layout::{u16_at, u32_at},
        record::{self, HEADER, InvalidRecord},
    },
};
use std::fmt;
use uuid::Uuid;

/// Record kind: one put.
pub(crate) const KIND_PUT: u16 = 1;
/// Record kind: one delete.
pub(crate) const KIND_DELETE: u16 = 2;
/// Record kind: one put of a large value, which lies in a file of its own.
pub(crate) const KIND_LARGE: u16 = 3;
/// Record kind: several operations, all or nothing.
pub(crate) const KIND_BATCH: u16 = 4;
/// Record kind: one delete of a range of keys.
pub(crate) const KIND_DELETE_RANGE: u16 = 5;

/// Bit of a put's or large value's kind: when it expires stands before the rest of its body.
pub(crate) const EXPIRES: u16 = 0x200;
/// Bytes of that.
pub(crate) const EXPIRY: usize = 8;

/// Bit of a put's kind, and of a large value's: its value is compressed.
pub(crate) const COMPRESSED: u16 = 0x100;

const KIND_PUT_COMPRESSED: u16 = KIND_PUT | COMPRESSED;
const KIND_LARGE_COMPRESSED: u16 = KIND_LARGE | COMPRESSED;

/// Bytes of the key length that starts a single operation's payload.
pub(crate) const KEY_LENGTH: usize = 2;
/// Bytes of an operation's header within a batch.
pub(crate) const BATCH_OP_HEADER: usize = 12;

/// Bytes that an operation on `key` takes in a batch, at most: its value may expire.
pub(crate) fn op_bytes(key: &[u8], body: usize) -> usize {
    BATCH_OP_HEADER + key.len() + expiry_room(key) + body
}

/// Bytes that an expiry may take before the value of a stored key.
#[inline]
pub(crate) fn expiry_room(key: &[u8]) -> usize {
    if is_marked(key) { EXPIRY } else { 0 }
}

/// The body of a put or large value that expires.
pub(crate) fn expiring(expiry: u64, rest: &[u8]) -> Vec<u8> {
    [&expiry.to_le_bytes()[..], rest].concat()
}

/// The kind of a put whose value is stored so.
#[inline]
pub(crate) fn put_kind(compressed: bool) -> u16 {
    if compressed {
        KIND_PUT_COMPRESSED
    } else {
        KIND_PUT
    }
}

/// The place of a large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LargeRef {
    /// Number of its file.
    pub(crate) id: u64,
    /// Bytes that are stored of the value.
    pub(crate) bytes: u64,
    /// CRC-32C of these.
    pub(crate) crc: u32,
    /// They are compressed.
    pub(crate) compressed: bool,
}

impl LargeRef {
    pub(crate) const BYTES: usize = 20;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// The kind of what leads to it.
    pub(crate) fn kind(&self) -> u16 {
        match self.compressed {
            true => KIND_LARGE_COMPRESSED,
            false => KIND_LARGE,
        }
    }

    fn decode(bytes: &[u8], compressed: bool) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        Some(Self {
            id: u64::from_le_bytes(bytes[0..8].try_into().ok()?),
            bytes: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
            crc: u32::from_le_bytes(bytes[16..20].try_into().ok()?),
            compressed,
        })
    }
}

/// An operation's effect on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyChange<'a> {
    /// The value is this.
    Put(&'a [u8]),
    /// The value is what these bytes are, decompressed.
    Compressed(&'a [u8]),
    /// The value is in a large file.
    Large(LargeRef),
    /// There is no value any more.
    Delete,
    /// Nor of any key behind it that is less than this one; of any at all, if there is none. Its
    /// own key may have no byte then: the first of all keys.
    DeleteRange(Option<&'a [u8]>),
}

/// The body of a delete of a range that ends before this key.
pub(crate) fn range_body(end: Option<&[u8]>) -> Vec<u8> {
    match end {
        None => vec![0],
        Some(end) => [&[1][..], end].concat(),
    }
}

/// One operation, as found in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) change: KeyChange<'a>,
    /// The milliseconds since the epoch at which the value expires, if it does.
    pub(crate) expiry: Option<u64>,
    /// As it is written: its kind, and all that follows the key.
    pub(crate) kind: u16,
    pub(crate) body: &'a [u8],
    /// Offset of the operation's own bytes in the record (0: the record is the operation).
    pub(crate) at: usize,
    /// Length of those bytes.
    pub(crate) bytes: usize,
}

/// The reason that bytes are not the operation expected there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAnOp {
    Record(InvalidRecord),
    Kind(u16),
    Shape,
    Checksum,
}

impl fmt::Display for NotAnOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(invalid) => write!(f, "{invalid}"),
            Self::Kind(kind) => write!(f, "a record of unknown kind {kind}"),
            Self::Shape => write!(f, "an operation whose lengths do not fit"),
            Self::Checksum => write!(f, "an operation whose checksum does not match"),
        }
    }
}

/// An operation of these parts, which is the whole record.
fn op<'a>(kind: u16, key: &'a [u8], body: &'a [u8], bytes: usize) -> Result<Op<'a>, NotAnOp> {
    let (expiry, rest) = match kind & EXPIRES {
        0 => (None, body),
        _ => {
            let (expiry, rest) = body.split_first_chunk::<EXPIRY>().ok_or(NotAnOp::Shape)?;
            (Some(u64::from_le_bytes(*expiry)), rest)
        }
    };
    let change = match change(kind & !EXPIRES, rest) {
        Ok(KeyChange::Delete | KeyChange::DeleteRange(_)) | Err(NotAnOp::Kind(_))
            if expiry.is_some() =>
        {
            return Err(NotAnOp::Kind(kind));
        }
        change => change?,
    };
    Ok(Op {
        key,
        change,
        expiry,
        kind,
        body,
        at: 0,
        bytes,
    })
}

fn change(kind: u16, body: &[u8]) -> Result<KeyChange<'_>, NotAnOp> {
    match kind {
        KIND_PUT => Ok(KeyChange::Put(body)),
        KIND_PUT_COMPRESSED => Ok(KeyChange::Compressed(body)),
        KIND_DELETE if body.is_empty() => Ok(KeyChange::Delete),
        KIND_LARGE | KIND_LARGE_COMPRESSED => LargeRef::decode(body, kind != KIND_LARGE)
            .map(KeyChange::Large)
            .ok_or(NotAnOp::Shape),
        KIND_DELETE_RANGE => match body {
            [0] => Ok(KeyChange::DeleteRange(None)),
            [1, end @ ..] => Ok(KeyChange::DeleteRange(Some(end))),
            _ => Err(NotAnOp::Shape),
        },
        KIND_DELETE => Err(NotAnOp::Shape),
        _ => Err(NotAnOp::Kind(kind)),
    }
}

/// The operations of a record, in order.
pub(crate) fn ops<'a>(record: Record<'a>) -> impl Iterator<Item = Result<Op<'a>, NotAnOp>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= record.payload.len() {
            return None;
        }
        let op = if record.header.kind == KIND_BATCH {
            op_in_batch(&record.payload[at..]).map(|op| Op {
                at: HEADER + at,
                ..op
            })
        } else {
            single(record)
        };
        at = match (&op, record.header.kind) {
            (Ok(op), KIND_BATCH) => at + op.bytes,
            _ => usize::MAX,
        };
        Some(op)
    })
}

/// The operation of a record that holds one.
fn single(record: Record<'_>) -> Result<Op<'_>, NotAnOp> {
    let (length, rest) = record
        .payload
        .split_at_checked(KEY_LENGTH)
        .ok_or(NotAnOp::Shape)?;
    let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
    let (key, body) = rest.split_at_checked(length).ok_or(NotAnOp::Shape)?;
    op(record.header.kind, key, body, HEADER + record.payload.len())
}

/// Reads and checks the one operation of the record of log address `lsn`.
pub(crate) fn read_record(bytes: &[u8], lsn: u64, owner: Uuid) -> Result<Op<'_>, NotAnOp> {
    single(record::read(bytes, lsn, owner).map_err(NotAnOp::Record)?)
}

/// Reads and checks the operation of a batch at the start of `bytes`, which may go on behind it.
pub(crate) fn op_in_batch(bytes: &[u8]) -> Result<Op<'_>, NotAnOp> {
    let (header, rest) = bytes
        .split_at_checked(BATCH_OP_HEADER)
        .ok_or(NotAnOp::Shape)?;
    let (key_length, body_length) = (usize::from(u16_at(header, 6)), u32_at(header, 8) as usize);
    let (key, rest) = rest.split_at_checked(key_length).ok_or(NotAnOp::Shape)?;
    let body = rest.get(..body_length).ok_or(NotAnOp::Shape)?;
    if u32_at(header, 0) != crc32c([&header[4..], key, body]) {
        return Err(NotAnOp::Checksum);
    }
    op(
        u16_at(header, 4),
        key,
        body,
        BATCH_OP_HEADER + key_length + body_length,
    )
}

/// Appends an operation to a batch's payload; its offset and length there.
pub(crate) fn push_op(payload: &mut Vec<u8>, kind: u16, key: &[u8], body: &[u8]) -> (usize, usize) {
    let at = payload.len();
    let mut header = [0; BATCH_OP_HEADER];
    header[4..6].copy_from_slice(&kind.to_le_bytes());
    header[6..8].copy_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
    header[8..12].copy_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    let crc = crc32c([&header[4..], key, body]);
    header[0..4].copy_from_slice(&crc.to_le_bytes());
    payload.extend_from_slice(&header);
    payload.extend_from_slice(key);
    payload.extend_from_slice(body);
    (at, payload.len() - at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_pool::RecordHeader;
    use std::io::IoSlice;

    fn record(kind: u16, payload: &[u8]) -> Vec<u8> {
        let header = RecordHeader {
            length: payload.len() as u32,
            lsn: 64,
            epoch: 1,
            lag: 0,
            kind,
        };
        let mut bytes = header
            .encode(Uuid::nil(), &[IoSlice::new(payload)])
            .to_vec();
        bytes.extend_from_slice(payload);
        bytes
    }

    fn all(bytes: &[u8]) -> Vec<Result<Op<'_>, NotAnOp>> {
        ops(record::read(bytes, 64, Uuid::nil()).unwrap()).collect()
    }

    fn large_ref(compressed: bool) -> LargeRef {
        LargeRef {
            id: 7,
            bytes: 1 << 30,
            crc: 9,
            compressed,
        }
    }

    #[test]
    fn each_operation_is_read_back_from_a_record_of_its_own() {
        let (large, packed) = (large_ref(false), large_ref(true));
        for (kind, body, expected) in [
            (KIND_PUT, &b"value"[..], KeyChange::Put(b"value")),
            (KIND_PUT, b"", KeyChange::Put(b"")),
            (KIND_DELETE, b"", KeyChange::Delete),
            (KIND_LARGE, &large.encode(), KeyChange::Large(large)),
            (KIND_DELETE_RANGE, &[0], KeyChange::DeleteRange(None)),
            (
                KIND_DELETE_RANGE,
                &range_body(Some(b"kez")),
                KeyChange::DeleteRange(Some(b"kez")),
            ),
            (0x101, b"frame", KeyChange::Compressed(b"frame")),
            (0x103, &large.encode(), KeyChange::Large(packed)),
        ] {
            let bytes = record(kind, &[&[3, 0][..], b"key", body].concat());
            let op = read_record(&bytes, 64, Uuid::nil()).unwrap();
            assert_eq!((op.key, op.change), (&b"key"[..], expected));
            assert_eq!(all(&bytes), [Ok(op)]);
            assert_eq!(op.bytes, bytes.len());
            assert_eq!((op.kind, op.body), (kind, body));
        }
    }

    #[test]
    fn each_operation_of_a_batch_is_read_back_alone_and_in_order() {
        let mut payload = Vec::new();
        let first = push_op(&mut payload, KIND_PUT, b"a", b"1");
        let second = push_op(&mut payload, KIND_DELETE, b"b", b"");
        let bytes = record(KIND_BATCH, &payload);
        let read: Vec<Op> = all(&bytes).into_iter().map(Result::unwrap).collect();
        assert_eq!(read.len(), 2);
        for (op, (at, length)) in read.iter().zip([first, second]) {
            assert_eq!((op.at, op.bytes), (HEADER + at, length));
            let alone = op_in_batch(&bytes[op.at..]).unwrap();
            assert_eq!((alone.key, alone.change), (op.key, op.change));
        }
        assert_eq!(read[1].change, KeyChange::Delete);
        for at in 0..length_of(&payload) {
            let mut flipped = payload.clone();
            flipped[at] ^= 1;
            assert!(op_in_batch(&flipped).is_err(), "byte {at}");
        }
    }

    fn length_of(payload: &[u8]) -> usize {
        op_in_batch(payload).unwrap().bytes
    }

    #[test]
    fn an_operation_that_expires_is_read_back_with_its_time() {
        let (large, packed) = (large_ref(false), large_ref(true));
        for (kind, rest, expected) in [
            (KIND_PUT, &b"value"[..], KeyChange::Put(b"value")),
            (KIND_PUT, b"", KeyChange::Put(b"")),
            (KIND_LARGE, &large.encode(), KeyChange::Large(large)),
            (0x101, b"frame", KeyChange::Compressed(b"frame")),
            (0x103, &large.encode(), KeyChange::Large(packed)),
        ] {
            let body = expiring(1 << 50, rest);
            let bytes = record(kind | EXPIRES, &[&[3, 0][..], b"key", &body].concat());
            let mut payload = Vec::new();
            push_op(&mut payload, kind | EXPIRES, b"key", &body);
            let alone = read_record(&bytes, 64, Uuid::nil()).unwrap();
            for op in [alone, op_in_batch(&payload).unwrap()] {
                assert_eq!((op.key, op.change), (&b"key"[..], expected));
                assert_eq!(op.expiry, Some(1 << 50));
                assert_eq!((op.kind, op.body), (kind | EXPIRES, &body[..]));
            }
        }
        let short = record(KIND_PUT | EXPIRES, &[1, 0, b'k', 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(all(&short), [Err(NotAnOp::Shape)]);
        for kind in [KIND_DELETE, KIND_BATCH, 99] {
            let payload = [&[1, 0, b'k'][..], &expiring(1, b"")].concat();
            let kind = kind | EXPIRES;
            assert_eq!(all(&record(kind, &payload)), [Err(NotAnOp::Kind(kind))]);
        }
    }

    #[test]
    fn lengths_that_do_not_fit_and_unknown_kinds_are_refused() {
        for payload in [&[9, 0, b'k'][..], &[9][..]] {
            assert_eq!(all(&record(KIND_PUT, payload)), [Err(NotAnOp::Shape)]);
        }
        assert_eq!(
            all(&record(0x102, &[1, 0, b'k'])),
            [Err(NotAnOp::Kind(0x102))]
        );
        assert_eq!(all(&record(99, &[1, 0, b'k'])), [Err(NotAnOp::Kind(99))]);
        assert_eq!(all(&record(KIND_BATCH, &[0; 20])), [Err(NotAnOp::Checksum)]);
        for body in [&[1][..], &[], &[2], &[0, b'k']] {
            let kind = if body == [1] {
                KIND_LARGE
            } else {
                KIND_DELETE_RANGE
            };
            let payload = [&[1, 0, b'k'][..], body].concat();
            assert_eq!(all(&record(kind, &payload)), [Err(NotAnOp::Shape)]);
        }
    }
}
