//! Recent keys in memory.
//!
//! A [`Chunk`] is a sharded hash table from key to log address. The active chunk takes new keys; a
//! full one is *frozen*: nothing is written to it any more, it is sorted in the background, and
//! merged into the index. A [`ReadView`] is what a reader sees: the active chunk, the frozen ones,
//! and the index's tables. Scans and snapshots look into the active chunk as well: `order` has its
//! keys in order, and replaced versions stay in it as long as a snapshot sees them.

mod chunk;
mod merge;
mod order;
mod runs;
mod shard;
mod shared_shard;
mod sort;
mod sorted;
#[cfg(test)]
mod testing;
mod view;

pub(crate) use chunk::Chunk;
#[cfg(test)]
pub(crate) use chunk::RANGE_DELETES_MAX;
pub(crate) use merge::merged;
pub(crate) use runs::{KeyStretch, SortedRun};
pub(crate) use sorted::SortedChunk;
pub(crate) use view::ReadView;
