//! Values of the log in the memory of the index's block cache: one budget, and whichever is read
//! more stays.
//!
//! A log address stands for the same bytes for ever, so what is kept under it is never out of date;
//! once nothing leads to it, it is not read any more, and goes. A value is kept when it is read for
//! the second time: reading everything once, or at random from much more than fits, then costs no
//! copying into the cache, and displaces nothing.

use lsm_tree::{
    Cache, Checksum, GlobalTableId, Slice,
    table::{
        Block, BlockOffset,
        block::{BlockType, Header},
    },
};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// Stands for the log where the cache's keys name a tree and a table: the index's own tree is 0.
const LOG: (u64, u64) = (1, 0);
/// Larger values are not kept: what is saved is little beside copying them.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Bytes of memory for a value beside its own, and beside those that the cache counts for a block's
/// header: its key, the block, and its place among the others (`tests/memory.rs`).
const ENTRY_BYTES: u32 = 160;
/// The cache's bytes for each value of which it is remembered that it was read.
const BYTES_PER_SEEN: u64 = 8192;

/// Values by log address.
pub(crate) struct ValueCache {
    cache: Arc<Cache>,
    /// Parts of log addresses that were read lately, each at a place that the address gives.
    seen: Box<[AtomicU32]>,
}

impl ValueCache {
    pub(super) fn new(cache: Arc<Cache>) -> Self {
        let places = (cache.capacity() / BYTES_PER_SEEN).clamp(1, 1 << 24);
        let places = usize::try_from(places.next_power_of_two()).unwrap_or(1);
        Self {
            cache,
            seen: (0..places).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// The value at a log address, if it is kept.
    #[inline]
    pub(crate) fn get(&self, lsn: u64) -> Option<Slice> {
        let block = self.cache.get_block(LOG.into(), BlockOffset(lsn))?;
        Some(block.data)
    }

    /// The value at a log address was read: keeps it, if that has happened before.
    pub(crate) fn offer(&self, lsn: u64, value: &[u8]) {
        if value.len() > VALUE_BYTES_MAX || !self.seen_before(lsn) {
            return;
        }
        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let block = Block {
            header: Header {
                block_type: BlockType::Data,
                // Those are of blocks in files.
                checksum: Checksum::from_raw(0),
                data_length: length,
                // What the cache counts.
                uncompressed_length: length.saturating_add(ENTRY_BYTES),
            },
            data: Slice::new(value),
        };
        self.cache
            .insert_block(GlobalTableId::from(LOG), BlockOffset(lsn), block);
    }

    /// True if the address was read lately. Now it was.
    fn seen_before(&self, lsn: u64) -> bool {
        // Records begin at multiples of 64, operations of batches anywhere.
        let mixed = lsn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let tag = (mixed >> 8) as u32 | 1;
        let place = (mixed >> 40) as usize & (self.seen.len() - 1);
        self.seen[place].swap(tag, Relaxed) == tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(bytes: u64) -> ValueCache {
        ValueCache::new(Arc::new(Cache::with_capacity_bytes(bytes)))
    }

    #[test]
    fn a_value_is_kept_once_it_is_read_for_the_second_time() {
        let values = cache(1 << 20);
        values.offer(4096, b"value");
        assert!(values.get(4096).is_none());
        values.offer(4096, b"value");
        assert_eq!(&*values.get(4096).unwrap(), b"value");
        assert!(values.get(4160).is_none());
    }

    #[test]
    fn values_take_no_more_than_the_caches_memory() {
        let values = cache(1 << 20);
        for lsn in (0..4000).map(|n| n * 4160) {
            for _ in 0..2 {
                values.offer(lsn, &[7; 4096]);
            }
        }
        assert!(values.cache.size() > 1 << 19);
        assert!(values.cache.size() <= 1 << 20);
    }

    #[test]
    fn very_large_values_are_not_kept() {
        let values = cache(64 << 20);
        for _ in 0..3 {
            values.offer(64, &[0; VALUE_BYTES_MAX + 1]);
        }
        assert!(values.get(64).is_none());
    }
}
