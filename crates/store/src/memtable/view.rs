//! [`ReadView`]: everything a reader looks at, as of one moment.

use super::Chunk;
use crate::{
    index::{IndexError, IndexView, RecordAddress},
    range_tombstones::{RangeTombstone, RangeTombstones},
};
use forebay_pool::Lsn;
use std::sync::Arc;

/// The chunks and tables in which a key may be, newest first.
#[derive(Clone)]
pub(crate) struct ReadView {
    /// Takes writes; none in a snapshot's view once it is in the tables.
    pub(crate) active: Option<Arc<Chunk>>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Chunk>>,
    /// The index's tables; every key of theirs is older than any in a chunk.
    pub(crate) tables: Arc<IndexView>,
    /// The ranges deleted of all that; none if nothing is.
    pub(crate) deleted: Option<Arc<RangeTombstones>>,
}

impl ReadView {
    /// With the ranges that tables and chunks say are deleted.
    pub(crate) fn new(
        active: Option<Arc<Chunk>>,
        frozen: Vec<Arc<Chunk>>,
        tables: Arc<IndexView>,
    ) -> Self {
        let mut deleted = RangeTombstones::clone(tables.deleted());
        for chunk in active.iter().chain(&frozen) {
            let of_chunk = chunk.range_deletes(&(0..Lsn::MAX));
            of_chunk.into_iter().for_each(|range| deleted.add(range));
        }
        Self {
            active,
            frozen,
            tables,
            deleted: (!deleted.is_empty()).then(|| Arc::new(deleted)),
        }
    }

    /// The same with these ranges deleted as well.
    pub(crate) fn with_deleted(&self, ranges: impl IntoIterator<Item = RangeTombstone>) -> Self {
        let mut deleted = self.deleted.as_deref().cloned().unwrap_or_default();
        ranges.into_iter().for_each(|range| deleted.add(range));
        Self {
            deleted: Some(Arc::new(deleted)),
            ..self.clone()
        }
    }

    /// What was found, unless a deleted range hides it.
    #[inline]
    fn not_hidden(&self, key: &[u8], found: Option<RecordAddress>) -> Option<RecordAddress> {
        match &self.deleted {
            None => found,
            Some(deleted) => found.filter(|address| !deleted.hides(key, address.lsn)),
        }
    }

    /// The key's newest address, a tombstone's included. `hash` is the key's.
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Result<Option<RecordAddress>, IndexError> {
        let in_memory = self
            .active
            .iter()
            .chain(&self.frozen)
            .find_map(|chunk| chunk.get(hash, key));
        let found = match in_memory {
            Some(address) => Some(address),
            None => self.tables.get(key)?,
        };
        Ok(self.not_hidden(key, found))
    }

    /// The chunks, newest first.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        self.active.iter().chain(&self.frozen)
    }

    /// As [`find`](Self::find), as of a snapshot that sees what lies below `limit` in the log.
    pub(crate) fn find_below(
        &self,
        hash: u64,
        key: &[u8],
        limit: Lsn,
    ) -> Result<Option<RecordAddress>, IndexError> {
        let in_memory = self
            .chunks()
            .find_map(|chunk| chunk.get_below(hash, key, limit));
        let found = match in_memory {
            Some(address) => Some(address),
            None => self.tables.get(key)?,
        };
        Ok(self.not_hidden(key, found))
    }
}
