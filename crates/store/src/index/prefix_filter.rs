//! [`PrefixFilter`]: which prefixes of a length a table's keys have, in a bloom filter of its own.
//! docs/store-format.md, "Prefix filters".
//!
//! A filter of whole keys says nothing of a range. This one says of a range within one prefix that
//! a table has no key of it, so that the table is not read. It is another section of lsm-tree's
//! file, an archive in which programs look for the sections that they know:
//!
//! ```text
//! 0 length of the prefixes 4 │ 4 lsm-tree's standard bloom filter │ XXH3-128 of all before
//! ```
//!
//! A prefix is that many bytes of a user's key, behind what its stored key has before it. A shorter
//! key has none, and is in no range within one.

use super::table::KeyBounds;
use crate::keyspace::stored_prefix;
use lsm_tree::{
    checksum::ChecksummedWriter,
    table::filter::standard_bloom::{Builder, StandardBloomFilterReader},
};
use std::{
    fs::File,
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    ops::Bound,
};

/// The section's name.
const SECTION: &[u8] = b"forebay_prefixes";
/// Bits for each prefix: about one range in a hundred that a table has nothing of is read in vain.
const BITS: f32 = 10.0;
const LENGTH: usize = size_of::<u32>();
const CHECKSUM: usize = size_of::<u128>();

/// The prefixes of a table that is being written.
pub(super) struct PrefixCollector {
    len: usize,
    last: Vec<u8>,
    hashes: Vec<u64>,
}

impl PrefixCollector {
    pub(super) fn new(len: usize) -> Self {
        Self {
            len,
            last: Vec::new(),
            hashes: Vec::new(),
        }
    }

    /// Takes in a key, the next in order.
    pub(super) fn add(&mut self, key: &[u8]) {
        if let Some(prefix) = stored_prefix(key, self.len)
            && *prefix != *self.last
        {
            self.last.clear();
            self.last.extend_from_slice(prefix);
            self.hashes.push(Builder::get_hash(prefix));
        }
    }

    fn encode(&self) -> Vec<u8> {
        // One of no prefix denies everything, too: lsm-tree makes none for none.
        let mut filter = Builder::with_bpk(self.hashes.len().max(1), BITS);
        self.hashes
            .iter()
            .for_each(|&hash| filter.set_with_hash(hash));
        let len = u32::try_from(self.len).unwrap_or(u32::MAX);
        let mut bytes = len.to_le_bytes().to_vec();
        bytes.append(&mut filter.build());
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Adds the filter to a table that is written, and syncs it. A crash meanwhile leaves a table
    /// that no manifest names.
    pub(super) fn append_to(&self, table: &File) -> io::Result<()> {
        let archive = sfa::Reader::from_reader(&mut &*table).map_err(foreign)?;
        let mut writer = sfa::Writer::from_writer(SectionWriter {
            file: BufWriter::new(table),
            at: 0,
        });
        // The sections that there are, as they lie, and this one where their contents table was.
        let mut end = 0;
        for section in archive.toc().iter() {
            if section.pos() != end {
                return Err(io::Error::other("the sections of a table do not adjoin"));
            }
            writer.get_mut().at = end;
            writer.start(section.name())?;
            end += section.len();
        }
        let section = writer.get_mut();
        section.at = section.file.seek(SeekFrom::Start(end))?;
        writer.start(SECTION)?;
        writer.write_all(&self.encode())?;
        writer.finish().map_err(foreign)?;
        table.sync_all()
    }
}

fn foreign(error: sfa::Error) -> io::Error {
    match error {
        sfa::Error::Io(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, format!("{other:?}")),
    }
}

/// A file, and where in the archive its next byte lies.
struct SectionWriter<'f> {
    file: BufWriter<&'f File>,
    at: u64,
}

impl Write for SectionWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for SectionWriter<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match to {
            SeekFrom::Current(0) => Ok(self.at),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

fn checksum(bytes: &[u8]) -> u128 {
    let mut hasher = ChecksummedWriter::new(io::sink());
    // Writing to a sink cannot fail.
    let _ = hasher.write_all(bytes);
    hasher.checksum().into_u128()
}

/// A table's filter, in memory.
pub(super) struct PrefixFilter {
    len: usize,
    filter: Box<[u8]>,
}

impl PrefixFilter {
    /// That of a table; none if it has none.
    ///
    /// # Errors
    /// I/O errors; a filter that is damaged, which the text names.
    pub(super) fn read(table: &File) -> io::Result<Option<Self>> {
        let archive = sfa::Reader::from_reader(&mut &*table).map_err(foreign)?;
        let Some(section) = archive.toc().section(SECTION) else {
            return Ok(None);
        };
        let file_bytes = table.metadata()?.len();
        if section.pos().saturating_add(section.len()) > file_bytes {
            return Err(damaged());
        }
        let mut bytes = Vec::new();
        let mut file = table;
        file.seek(SeekFrom::Start(section.pos()))?;
        file.take(section.len()).read_to_end(&mut bytes)?;
        Self::decode(&bytes).ok_or_else(damaged).map(Some)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<CHECKSUM>()?;
        if u128::from_le_bytes(*sum) != checksum(body) {
            return None;
        }
        let (len, filter) = body.split_first_chunk::<LENGTH>()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        StandardBloomFilterReader::new(filter).ok()?;
        Some(Self {
            len,
            filter: filter.into(),
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.filter.len()
    }

    /// True if the table has no key within the bounds, for sure.
    pub(super) fn denies(&self, bounds: &KeyBounds) -> bool {
        let Some(prefix) = shared_prefix(bounds, self.len) else {
            return false;
        };
        let filter = StandardBloomFilterReader::new(&self.filter);
        filter.is_ok_and(|filter| !filter.contains_hash(Builder::get_hash(prefix)))
    }
}

fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "its filter of prefixes is damaged",
    )
}

/// The prefix that all keys within the bounds have; none if they may have several.
fn shared_prefix(bounds: &KeyBounds, len: usize) -> Option<&[u8]> {
    let (Bound::Included(from) | Bound::Excluded(from), to) = (&bounds.0, &bounds.1) else {
        return None;
    };
    let prefix = stored_prefix(from, len)?;
    let is_within = match to {
        Bound::Unbounded => false,
        Bound::Included(to) => to.starts_with(prefix),
        Bound::Excluded(to) => to.starts_with(prefix) || is_first_behind(to, prefix),
    };
    is_within.then_some(prefix)
}

/// True if `key` is the first of all keys behind those with the prefix.
fn is_first_behind(key: &[u8], prefix: &[u8]) -> bool {
    let Some(last) = prefix.iter().rposition(|&byte| byte < u8::MAX) else {
        return false;
    };
    key.len() == last + 1 && key[..last] == prefix[..last] && key[last] == prefix[last] + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::KeyspaceId;
    use lsm_tree::Slice;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn filter(keys: &BTreeSet<Vec<u8>>, len: usize) -> PrefixFilter {
        let mut prefixes = PrefixCollector::new(len);
        keys.iter().for_each(|key| prefixes.add(key));
        PrefixFilter::decode(&prefixes.encode()).unwrap()
    }

    fn owned(bound: Bound<Vec<u8>>) -> Bound<Slice> {
        bound.map(Slice::from)
    }

    /// The first of all keys behind those with a prefix, if there is one.
    fn behind(prefix: &[u8]) -> Bound<Vec<u8>> {
        let Some(last) = prefix.iter().rposition(|&byte| byte < u8::MAX) else {
            return Bound::Unbounded;
        };
        let mut behind = prefix[..=last].to_vec();
        behind[last] += 1;
        Bound::Excluded(behind)
    }

    /// Keys that share much, and bytes at which ranges and keyspaces end.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0u8), Just(1), Just(2), Just(0xfe), Just(0xff)];
        proptest::collection::vec(byte, 1..6)
    }

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        prop_oneof![
            1 => Just(Bound::Unbounded),
            3 => key().prop_map(Bound::Included),
            3 => key().prop_map(Bound::Excluded),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
        /// Promise (store): A table's filter of prefixes denies no range of which the table has a
        /// key, whatever the range's ends are and whichever keyspace it is of.
        #[test]
        fn a_filter_of_prefixes_denies_no_key_there_is(
            keys in proptest::collection::btree_set((key(), 0u32..3), 0..20),
            (from, to) in (bound(), bound()),
            (keyspace, len, by_prefix) in (0u32..3, 1usize..5, any::<bool>()),
        ) {
            let stored = |(key, keyspace): &(Vec<u8>, u32)| KeyspaceId(*keyspace).to_stored(key);
            let keys: BTreeSet<Vec<u8>> = keys.iter().map(stored).collect();
            let to = match &from {
                Bound::Included(prefix) if by_prefix => behind(prefix),
                _ => to,
            };
            let (from, to) = KeyspaceId(keyspace).stored_bounds(from, to);
            let has = keys.iter().any(|key| {
                let is_behind = match &from {
                    Bound::Included(from) => key >= from,
                    Bound::Excluded(from) => key > from,
                    Bound::Unbounded => true,
                };
                is_behind && match &to {
                    Bound::Included(to) => key <= to,
                    Bound::Excluded(to) => key < to,
                    Bound::Unbounded => true,
                }
            });
            let denies = filter(&keys, len).denies(&(owned(from), owned(to)));
            prop_assert!(!(has && denies));
        }
    }

    /// Promise (store): Of the prefixes that a table does not have, its filter lets two in a
    /// hundred pass at most.
    #[test]
    fn a_filter_of_prefixes_denies_most_that_are_not_there() {
        let key = |number: u32, rest: u32| {
            let number = number.wrapping_mul(0x9e37_79b1).to_be_bytes();
            [&number[..], &rest.to_be_bytes()].concat()
        };
        let keys = (0..20_000).flat_map(|number| (0..3).map(move |rest| key(number, rest)));
        let filter = filter(&keys.collect(), 4);
        // As many bits as there are prefixes, not keys.
        assert!(filter.bytes() < 20_000 * 11 / 8);
        let denied = |number: u32| {
            let prefix = key(number, 0)[..4].to_vec();
            let to = owned(behind(&prefix));
            filter.denies(&(owned(Bound::Included(prefix)), to))
        };
        assert!(!(0..20_000).any(denied));
        let passed = (20_000..120_000).filter(|&number| !denied(number)).count();
        assert!(passed < 2000, "{passed} of 100,000");
    }

    #[test]
    fn a_damaged_filter_of_prefixes_is_told_from_a_whole_one() {
        let mut prefixes = PrefixCollector::new(2);
        prefixes.add(b"key");
        let bytes = prefixes.encode();
        assert!(PrefixFilter::decode(&bytes).is_some());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(PrefixFilter::decode(&damaged).is_none());
            assert!(PrefixFilter::decode(&bytes[..at]).is_none());
        }
    }
}
