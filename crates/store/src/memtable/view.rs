//! [`ReadView`]: everything a reader looks at, as of one moment.

use super::Chunk;
use crate::index::{IndexError, IndexView, RecordAddress};
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
}

impl ReadView {
    /// The key's newest address, a tombstone's included. `hash` is the key's.
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Result<Option<RecordAddress>, IndexError> {
        let in_memory = self
            .active
            .iter()
            .chain(&self.frozen)
            .find_map(|chunk| chunk.get(hash, key));
        match in_memory {
            Some(address) => Ok(Some(address)),
            None => self.tables.get(key),
        }
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
        match in_memory {
            Some(address) => Ok(Some(address)),
            None => self.tables.get(key),
        }
    }
}
