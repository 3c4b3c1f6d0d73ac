//! For tests: chunks of one mebibyte, and the hash function of all of them.

use super::Chunk;
use foldhash::fast::RandomState;
use std::{hash::BuildHasher, sync::LazyLock};

static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);

pub(super) fn hash(key: &[u8]) -> u64 {
    HASHER.hash_one(key)
}

/// An empty chunk; with `ready`, its memory is touched.
pub(super) fn chunk(ready: bool) -> Chunk {
    Chunk::new(1 << 20, 0, ready, HASHER.clone())
}
