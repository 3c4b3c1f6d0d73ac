//! Merging frozen chunks in key order; of a key that several have, the newest chunk's address counts.

use super::{Chunk, chunk::ChunkRead};
use crate::index::Address;
use forebay_pool::Lsn;

/// Several sorted chunks, newest first, to be walked in key order.
pub(crate) struct MergedChunks<'a> {
    chunks: Vec<ChunkRead<'a>>,
}

impl<'a> MergedChunks<'a> {
    /// Takes frozen chunks, newest first; sorts those that are not sorted yet.
    pub(crate) fn new(chunks: impl Iterator<Item = &'a Chunk>) -> Self {
        Self {
            chunks: chunks.map(Chunk::read_sorted).collect(),
        }
    }

    /// The keys in order, each with its newest address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Address)> {
        let mut next = vec![0; self.chunks.len()];
        std::iter::from_fn(move || {
            let mut best: Option<(usize, u64, &[u8])> = None;
            for (number, chunk) in self.chunks.iter().enumerate() {
                let at: usize = next[number];
                if at >= chunk.len() {
                    continue;
                }
                let prefix = chunk.prefix(at);
                // Of equal keys the first chunk, the newest, stays.
                if best.is_none_or(|(_, p, k)| prefix < p || (prefix == p && chunk.key(at) < k)) {
                    best = Some((number, prefix, chunk.key(at)));
                }
            }
            let (best, _, key) = best?;
            let address = self.chunks[best].address(next[best]);
            for (number, chunk) in self.chunks.iter().enumerate() {
                let at = next[number];
                if number == best || (at < chunk.len() && chunk.key(at) == key) {
                    next[number] += 1;
                }
            }
            Some((key, address))
        })
    }
}

/// One chunk with the contents of several, given newest first.
pub(crate) fn merged<'a>(
    chunks: impl Iterator<Item = &'a Chunk> + Clone,
    start: Lsn,
    hash: impl Fn(&[u8]) -> u64,
) -> Chunk {
    let bytes: usize = chunks.clone().map(Chunk::bytes).sum();
    let into = Chunk::new(bytes * 2, start, false);
    let all = MergedChunks::new(chunks);
    for (key, address) in all.iter() {
        into.insert(hash(key), key, address, &hash);
    }
    into
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Form;

    fn hash(key: &[u8]) -> u64 {
        key.iter().fold(7, |hash: u64, &b| {
            (hash ^ u64::from(b)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        })
    }

    #[test]
    fn of_a_key_in_several_chunks_the_newest_address_is_given_once() {
        let chunk = |entries: &[(&str, u64)]| {
            let chunk = Chunk::new(1 << 20, 0, false);
            for (key, lsn) in entries {
                let address = Address {
                    lsn: *lsn,
                    len: 1,
                    form: Form::Record,
                };
                chunk.insert(hash(key.as_bytes()), key.as_bytes(), address, hash);
            }
            chunk
        };
        let newest = chunk(&[("b", 20), ("longer than eight", 21)]);
        let middle = chunk(&[("a", 10), ("b", 11)]);
        let oldest = chunk(&[("b", 1), ("c", 2), ("longer than eight", 3)]);
        let chunks = [&newest, &middle, &oldest];
        let merged = merged(chunks.into_iter(), 0, hash);
        merged.sort();
        let all: Vec<_> = (0..4)
            .map(|i| merged.nth(i).map(|(k, a)| (k, a.lsn)).unwrap())
            .collect();
        assert_eq!(
            all,
            [
                (b"a".to_vec(), 10),
                (b"b".to_vec(), 20),
                (b"c".to_vec(), 2),
                (b"longer than eight".to_vec(), 21)
            ]
        );
        assert_eq!(merged.len(), 4);
    }
}
