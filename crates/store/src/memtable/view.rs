//! [`View`]: everything a reader looks at, as of one moment.

use super::Chunk;
use crate::index::{Address, IndexError, IndexSnapshot};
use std::sync::Arc;

/// The chunks and tables in which a key may be, newest first.
#[derive(Clone)]
pub(crate) struct View {
    /// Takes writes; none in a snapshot's view.
    pub(crate) active: Option<Arc<Chunk>>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Chunk>>,
    /// The index's tables; every key of theirs is older than any in a chunk.
    pub(crate) tables: Arc<dyn IndexSnapshot>,
}

impl View {
    /// The key's newest address, a tombstone's included. `hash` is the key's.
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Result<Option<Address>, IndexError> {
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
}
