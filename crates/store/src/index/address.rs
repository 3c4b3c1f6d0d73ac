//! The bytes of one [`RecordAddress`] in a table.
//!
//! A tombstone has no bytes: the table's own entry type says it. Any other address is 3 to 13
//! bytes:
//!
//! ```text
//!  byte 0                                    1 … n          n+1 … n+m
//! ┌─────────┬─────────┬─────────┬──────────┬──────────────┬──────────────┐
//! │ 0       │ m−1     │ n−1     │ form     │ lsn          │ len          │
//! │ (bit 7) │ (6, 5)  │ (4…2)   │ (1, 0)   │ little endian│ little endian│
//! └─────────┴─────────┴─────────┴──────────┴──────────────┴──────────────┘
//! ```
//!
//! `form` is [`ValueForm`]'s number, 1 or 2. `n` (1 to 8) and `m` (1 to 4) are the fewest bytes
//! that hold the number; a zero takes one byte. Entries are some twenty bytes long, so the four or
//! five saved here are a fifth of the table, of the block cache and of every merge.
use super::{RecordAddress, ValueForm};

/// Longest encoding of an address.
const ENCODED_MAX: usize = 1 + 8 + 4;

/// An encoded address.
#[derive(Clone, Copy)]
pub(super) struct Encoded {
    bytes: [u8; ENCODED_MAX],
    len: u8,
}

impl Encoded {
    /// The bytes to store.
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Bytes that hold `number`, at least one.
fn width(number: u64) -> usize {
    8 - (number | 1).leading_zeros() as usize / 8
}

/// Encodes an address that is not a tombstone's.
pub(super) fn encode(address: RecordAddress) -> Encoded {
    debug_assert!(address.form != ValueForm::Tombstone);
    let (n, m) = (width(address.lsn), width(u64::from(address.len)));
    let mut bytes = [0; ENCODED_MAX];
    bytes[0] = address.form as u8 | ((n - 1) as u8) << 2 | ((m - 1) as u8) << 5;
    bytes[1..1 + n].copy_from_slice(&address.lsn.to_le_bytes()[..n]);
    bytes[1 + n..1 + n + m].copy_from_slice(&address.len.to_le_bytes()[..m]);
    Encoded {
        bytes,
        len: (1 + n + m) as u8,
    }
}

/// Decodes what [`encode`] wrote; `None` if it cannot have written these bytes.
pub(super) fn decode(bytes: &[u8]) -> Option<RecordAddress> {
    let (&head, rest) = bytes.split_first()?;
    let form = match head & 3 {
        1 => ValueForm::Record,
        2 => ValueForm::InBatch,
        _ => return None,
    };
    let (n, m) = (
        usize::from(head >> 2 & 7) + 1,
        usize::from(head >> 5 & 3) + 1,
    );
    if head >> 7 != 0 || rest.len() != n + m {
        return None;
    }
    let mut lsn = [0; 8];
    let mut len = [0; 4];
    lsn[..n].copy_from_slice(&rest[..n]);
    len[..m].copy_from_slice(&rest[n..]);
    Some(RecordAddress {
        lsn: u64::from_le_bytes(lsn),
        len: u32::from_le_bytes(len),
        form,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_encoding_at_every_width() {
        for shift in 0..64 {
            for len in [0, 1, 255, 256, 65_535, 65_536, 1 << 24, u32::MAX] {
                for form in [ValueForm::Record, ValueForm::InBatch] {
                    for lsn in [0, 1 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                        let address = RecordAddress { lsn, len, form };
                        assert_eq!(decode(encode(address).as_slice()), Some(address));
                    }
                }
            }
        }
    }

    #[test]
    fn common_addresses_are_short() {
        let address = RecordAddress {
            lsn: 1 << 39,
            len: 1 << 12,
            form: ValueForm::Record,
        };
        assert_eq!(encode(address).as_slice().len(), 8);
    }

    #[test]
    fn foreign_bytes_are_refused() {
        for bad in [
            &[][..],
            &[0],
            &[1],
            &[3, 0, 0],
            &[1, 0],
            &[1, 0, 0, 0],
            &[0x81, 0, 0],
        ] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
