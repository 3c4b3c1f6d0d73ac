//! Merging frozen chunks in key order; of a key that several have, the newest chunk's address
//! counts.

use super::SortedChunk;
use crate::index::RecordAddress;
use forebay_pool::Lsn;
use std::ops::Range;

/// The keys of several chunks, given newest first, that were written to between two log addresses:
/// in order, each with its newest address below the later one.
pub(crate) fn merged<'a>(
    chunks: &'a [SortedChunk<'_>],
    versions: Range<Lsn>,
) -> impl Iterator<Item = (&'a [u8], RecordAddress)> {
    let between = |chunk: &'a SortedChunk<'_>| chunk.between(versions.clone()).peekable();
    let mut sources: Vec<_> = chunks.iter().map(between).collect();
    std::iter::from_fn(move || {
        let mut best: Option<(usize, &[u8])> = None;
        for (number, source) in sources.iter_mut().enumerate() {
            // Of equal keys the first chunk, the newest, stays.
            if let Some(&(key, _)) = source.peek()
                && best.is_none_or(|(_, best)| key < best)
            {
                best = Some((number, key));
            }
        }
        let (number, key) = best?;
        for older in &mut sources[number + 1..] {
            older.next_if(|(other, _)| *other == key);
        }
        sources[number].next()
    })
}

#[cfg(test)]
mod tests {
    use super::super::Chunk;
    use super::*;
    use crate::index::ValueForm;
    use crate::memtable::testing;

    #[test]
    fn of_a_key_in_several_chunks_the_newest_address_is_given_once() {
        let chunk = |entries: &[(&str, u64)]| {
            let chunk = testing::chunk(false);
            for (key, lsn) in entries {
                let address = RecordAddress {
                    lsn: *lsn,
                    len: 1,
                    form: ValueForm::Record,
                };
                chunk.insert(testing::hash(key.as_bytes()), key.as_bytes(), address, 0);
            }
            chunk
        };
        let newest = chunk(&[("b", 20), ("longer than eight", 21)]);
        let middle = chunk(&[("a", 10), ("b", 11)]);
        let oldest = chunk(&[("b", 1), ("c", 2), ("longer than eight", 3)]);
        let sorted = [&newest, &middle, &oldest].map(Chunk::read_sorted);
        let all = |versions| {
            let found = merged(&sorted, versions).map(|(key, a)| (key.to_vec(), a.lsn));
            found.collect::<Vec<_>>()
        };
        let long = || b"longer than eight".to_vec();
        let (a, b, c) = (b"a".to_vec(), b"b".to_vec(), b"c".to_vec());
        let newest = [(a.clone(), 10), (b.clone(), 20), (c, 2), (long(), 21)];
        assert_eq!(all(0..Lsn::MAX), newest);
        // As of a snapshot at 20, behind one at 3.
        assert_eq!(all(3..20), [(a, 10), (b, 11), (long(), 3)]);
    }
}
