//! Recent keys in memory.
//!
//! A [`Chunk`] is a sharded hash table from key to log address. The active chunk takes new keys; a full one
//! is *frozen*: nothing is written to it any more, it is sorted in the background, and merged into the index. A [`View`] is
//! what a reader sees: the active chunk, the frozen ones, and the index's tables.

mod chunk;
mod merge;
mod view;

pub(crate) use chunk::Chunk;
pub(crate) use merge::{MergedChunks, merged};
pub(crate) use view::View;
