//! The short way to a key: the block of a table, and the place in the block, without allocation.
//!
//! The lookup of lsm-tree parses its way through the block index and the block with general,
//! double-ended iterators and makes owned keys and values on the way. Random keys of ten million,
//! all blocks cached, cost 4.2 µs that way and 2.6 µs this way (`tests/index_speed.rs`). Most of
//! what is left is cache misses. [`Fences`] and [`find_in_block`] do the same on the same bytes.
//! Both may answer that they cannot tell; the caller then takes lsm-tree's way, which also does all
//! reading from the file.
//!
//! A data block as lsm-tree 3.1.10 writes it, uncompressed (varints are LEB128):
//!
//! ```text
//! entry …                                 255   heads (step bytes each)   …   trailer (31 bytes)
//!
//! every `interval`th entry, a head:       type  seqno  key length           key   [length  value]
//! the entries after it:                   type  seqno  shared  rest length  rest  [length  value]
//! trailer:                                interval u8, step u8, heads u32, heads' place u32, …
//! ```
//!
//! `shared` counts the leading bytes that an entry's key has in common with its head's. A tombstone
//! (type 1) has no value part.
use super::{RecordAddress, ValueForm, address};
use lsm_tree::{
    CompressionType, Table,
    table::{Block, BlockOffset, IndexBlock},
};
use std::fs::File;

const TRAILER_BYTES: usize = 31;
const TYPE_VALUE: u8 = 0;
const TYPE_TOMBSTONE: u8 = 1;

/// Answer of a lookup that may not be able to tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Found(RecordAddress),
    Absent,
    Unsure,
}

/// The last keys of a table's blocks, eight bytes of each.
///
/// All keys of a table share the leading bytes that its first and last key share. The eight bytes
/// after these are kept for each block, in one array, so that the search touches little memory: 16
/// bytes for each block of some 200 entries.
pub(super) struct Fences {
    shared: usize,
    ends: Box<[u64]>,
    offsets: Box<[u64]>,
}

/// Eight bytes of a key after the first `shared`, zeros after its end, as a number of the same
/// order.
fn eight(key: &[u8], shared: usize) -> u64 {
    let mut bytes = [0; 8];
    let rest = key.get(shared..).unwrap_or_default();
    let len = rest.len().min(8);
    bytes[..len].copy_from_slice(&rest[..len]);
    u64::from_be_bytes(bytes)
}

fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Fences {
    /// Reads the block index of a table from its `file`; `None` if it is in parts.
    ///
    /// # Errors
    /// I/O errors and a damaged index.
    pub(super) fn read(table: &Table, file: &File) -> lsm_tree::Result<Option<Self>> {
        let plain = table.metadata.data_block_compression == CompressionType::None;
        if !plain || table.regions.index.is_some() {
            return Ok(None);
        }
        let compression = table.metadata.index_block_compression;
        let index = IndexBlock::new(Block::from_file(file, table.regions.tli, compression)?);
        let range = &table.metadata.key_range;
        let shared = shared_len(range.min(), range.max());
        let mut ends = Vec::with_capacity(index.len());
        let mut offsets = Vec::with_capacity(index.len());
        for item in index.iter() {
            let key = index.as_slice().get(item.end_key.0..item.end_key.1);
            let (None, Some(key)) = (&item.prefix, key) else {
                return Ok(None);
            };
            ends.push(eight(key, shared));
            offsets.push(*item.offset);
        }
        Ok(ends.is_sorted().then_some(Self {
            shared,
            ends: ends.into(),
            offsets: offsets.into(),
        }))
    }

    /// Offset in the file of the block that alone may hold `key`, a key within the table's range.
    /// `None` if eight bytes do not tell.
    pub(super) fn block_of(&self, key: &[u8]) -> Option<BlockOffset> {
        let wanted = eight(key, self.shared);
        let at = self.ends.partition_point(|&end| end < wanted);
        // A block that ends with the same eight bytes may end before the key or after it.
        if *self.ends.get(at)? == wanted {
            return None;
        }
        self.offsets.get(at).map(|&offset| BlockOffset(offset))
    }

    /// The share of the blocks between two keys within the table's range; none: its first and last.
    pub(super) fn share_between(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> f64 {
        let below = |key: &[u8]| {
            let wanted = eight(key, self.shared);
            self.ends.partition_point(|&end| end < wanted)
        };
        let (from, to) = (from.map_or(0, below), to.map_or(self.ends.len(), below));
        to.saturating_sub(from) as f64 / self.ends.len().max(1) as f64
    }

    /// Memory taken, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.ends.len() * 2 * size_of::<u64>()
    }
}

/// A position in a block. Reading past the end is `None`, and so is whatever is not as it should
/// be.
#[derive(Clone, Copy)]
struct BlockReader<'a>(&'a [u8]);

impl<'a> BlockReader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A varint of at most 32 bits.
    fn number(&mut self) -> Option<usize> {
        let first = self.byte()?;
        let mut number = usize::from(first & 0x7f);
        let (mut last, mut shift) = (first, 7);
        while last & 0x80 != 0 {
            if shift > 28 {
                return None;
            }
            last = self.byte()?;
            number |= usize::from(last & 0x7f) << shift;
            shift += 7;
        }
        Some(number)
    }

    /// Type and sequence number, which must be 0.
    fn kind(&mut self) -> Option<u8> {
        let kind = self.byte()?;
        (self.byte()? == 0 && kind <= TYPE_TOMBSTONE).then_some(kind)
    }

    fn value(&mut self, kind: u8) -> Option<&'a [u8]> {
        if kind == TYPE_VALUE {
            let len = self.number()?;
            self.bytes(len)
        } else {
            Some(&[])
        }
    }
}

fn found(kind: u8, value: &[u8]) -> Option<Lookup> {
    if kind == TYPE_VALUE {
        return address::decode(value).map(Lookup::Found);
    }
    Some(Lookup::Found(RecordAddress {
        lsn: 0,
        len: 0,
        form: ValueForm::Tombstone,
    }))
}

/// Looks for `key` in the bytes of a data block.
pub(super) fn find_in_block(block: &[u8], key: &[u8]) -> Lookup {
    find(block, key).unwrap_or(Lookup::Unsure)
}

fn find(block: &[u8], key: &[u8]) -> Option<Lookup> {
    let (body, trailer) = block.split_at_checked(block.len().checked_sub(TRAILER_BYTES)?)?;
    let word = |at: usize| {
        trailer
            .get(at..at + 4)
            .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]) as usize)
    };
    let (interval, step, count, place) = (trailer[0], usize::from(trailer[1]), word(2)?, word(6)?);
    let heads = body.get(place..place.checked_add(count.checked_mul(step)?)?)?;
    let entries = body.get(..place.checked_sub(1)?)?;
    let head = |at: usize| -> Option<(u8, &[u8], BlockReader<'_>)> {
        let place = match (step, heads.get(at * step..at * step + step)?) {
            (2, &[a, b]) => usize::from(u16::from_le_bytes([a, b])),
            (4, &[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]) as usize,
            _ => return None,
        };
        let mut reader = BlockReader(entries.get(place..)?);
        let kind = reader.kind()?;
        let len = reader.number()?;
        Some((kind, reader.bytes(len)?, reader))
    };

    // The last head that is not above the key.
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if head(middle)?.1 <= key {
            low = middle + 1
        } else {
            high = middle
        }
    }
    let Some(at) = low.checked_sub(1) else {
        return Some(Lookup::Absent);
    };
    let (kind, base, mut reader) = head(at)?;
    let value = reader.value(kind)?;
    if base == key {
        return found(kind, value);
    }
    let common = shared_len(base, key);
    for _ in 1..interval {
        if reader.0.is_empty() {
            break;
        }
        let kind = reader.kind()?;
        let shared = reader.number()?;
        let rest = reader.number()?;
        let rest = reader.bytes(rest)?;
        let value = reader.value(kind)?;
        // All keys here are above the head's. One that shares more with it than the wanted key does
        // is below the wanted key; one that shares less is above it.
        if shared < common {
            return Some(Lookup::Absent);
        }
        if shared == common {
            match rest.cmp(&key[common..]) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return found(kind, value),
                std::cmp::Ordering::Greater => return Some(Lookup::Absent),
            }
        }
    }
    Some(Lookup::Absent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lsm_tree::{InternalValue, ValueType, table::DataBlock};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn block_of(entries: &BTreeMap<Vec<u8>, Option<RecordAddress>>, interval: u8) -> Vec<u8> {
        let items: Vec<InternalValue> = entries
            .iter()
            .map(|(key, address)| match address {
                Some(a) => {
                    let value = address::encode(*a).as_slice().to_vec();
                    InternalValue::from_components(&key[..], value, 0, ValueType::Value)
                }
                None => InternalValue::new_tombstone(&key[..], 0),
            })
            .collect();
        DataBlock::encode_into_vec(&items, interval, 0.0).unwrap()
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(0u8..3, 1..9),
            (0u32..2000).prop_map(|n| format!("user:{n:08}").into_bytes()),
            (0u16..400).prop_map(|n| n.to_be_bytes().to_vec()),
            (0usize..300).prop_map(|n| vec![7; n + 1]),
        ]
    }

    fn address() -> impl Strategy<Value = Option<RecordAddress>> {
        proptest::option::weighted(
            0.8,
            (any::<u64>(), any::<u32>()).prop_map(|(lsn, len)| RecordAddress {
                lsn,
                len,
                form: ValueForm::Record,
            }),
        )
    }

    proptest! {
        #[test]
        fn a_block_is_searched_as_a_map_is(
            entries in proptest::collection::btree_map(key(), address(), 1..300),
            others in proptest::collection::vec(key(), 50),
            interval in 1u8..20,
        ) {
            let block = block_of(&entries, interval);
            for key in entries.keys().chain(&others) {
                let expected = match entries.get(key) {
                    Some(Some(address)) => Lookup::Found(*address),
                    Some(None) => Lookup::Found(RecordAddress { lsn: 0, len: 0, form: ValueForm::Tombstone }),
                    None => Lookup::Absent,
                };
                prop_assert_eq!(find_in_block(&block, key), expected);
            }
        }

        #[test]
        fn any_bytes_are_searched_without_panic(
            mut block in proptest::collection::vec(any::<u8>(), 0..200),
            place in 0u8..100,
            key in key(),
        ) {
            find_in_block(&block, &key);
            // The same with a trailer that leads somewhere.
            block.extend([16, 2, 2, 0, 0, 0, place, 0, 0, 0]);
            block.extend([0; 21]);
            find_in_block(&block, &key);
        }

        #[test]
        fn fences_lead_to_the_block_that_may_hold_a_key(
            keys in proptest::collection::btree_set(key(), 2..200),
            wanted in key(),
        ) {
            let keys: Vec<_> = keys.into_iter().collect();
            let (min, max) = (&keys[0], &keys[keys.len() - 1]);
            let shared = shared_len(min, max);
            let fences = Fences {
                shared,
                ends: keys.iter().map(|k| eight(k, shared)).collect(),
                offsets: (0..keys.len() as u64).collect(),
            };
            prop_assert!(fences.ends.is_sorted());
            if (min..=max).contains(&&wanted) && let Some(offset) = fences.block_of(&wanted) {
                prop_assert_eq!(*offset as usize, keys.partition_point(|end| *end < wanted));
            }
        }
    }
}
