//! [`SortedChunk`]: a frozen chunk in key order, as an ingestion reads it.

use super::{
    shard::{Shard, place, unplace},
    sort::sort_places,
};
use crate::index::RecordAddress;
use forebay_pool::Lsn;
use parking_lot::RwLockReadGuard;
use std::ops::Range;

/// A frozen chunk's entries in key order, its shards locked for reading.
pub(crate) struct SortedChunk<'a> {
    shards: Vec<RwLockReadGuard<'a, Shard>>,
    order: Vec<(u64, u32)>,
}

impl<'a> SortedChunk<'a> {
    /// Sorts the entries of a chunk, whose shards these are.
    pub(super) fn of(shards: Vec<RwLockReadGuard<'a, Shard>>) -> Self {
        let mut order: Vec<(u64, u32)> = shards
            .iter()
            .enumerate()
            .flat_map(|(s, shard)| (0..shard.len()).map(move |n| (0, place(s, n))))
            .collect();
        sort_places(&mut order, |place, use_key| {
            let (shard, number) = unplace(place);
            let shard: &Shard = &shards[shard];
            use_key(shard.key(shard.entry(number)));
        });
        Self { shards, order }
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Number of keys that are deleted.
    pub(crate) fn deletes(&self) -> usize {
        self.shards.iter().map(|shard| shard.deletes()).sum()
    }

    /// The keys that were written to between two log addresses, in order, each with its newest
    /// address below the later one, tombstones included.
    pub(crate) fn between(
        &self,
        versions: Range<Lsn>,
    ) -> impl Iterator<Item = (&[u8], RecordAddress)> {
        self.order.iter().filter_map(move |&(_, place)| {
            let (shard, number) = unplace(place);
            let shard: &Shard = &self.shards[shard];
            let entry = shard.entry(number);
            let address = shard.below(entry, versions.end)?;
            (address.lsn >= versions.start).then(|| (shard.key(entry), address))
        })
    }
}
