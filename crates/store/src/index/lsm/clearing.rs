//! Entries of dropped keyspaces: a run that has any is written anew without them, by a merge of
//! that run alone. Tables without any are taken over as they are, and those with nothing else go
//! unread.

use super::Index;
use crate::index::{IndexError, merge::Merge, run::TableRun, scan::RunScan, view::IndexView};
use crate::keyspace::KeyspaceId;
use lsm_tree::Slice;
use std::{ops::Bound, sync::Arc};

/// True if the run has an entry of that keyspace.
fn has_any(run: &Arc<TableRun>, id: u32) -> Result<bool, IndexError> {
    let id = KeyspaceId(id);
    let bounds = (
        Bound::Included(Slice::from(id.first())),
        Bound::Excluded(Slice::from(id.end())),
    );
    if run.tables_within(&bounds).is_empty() {
        return Ok(false);
    }
    let first = RunScan::new(std::slice::from_ref(run), bounds, None).next();
    first.transpose().map(|first| first.is_some())
}

impl Index {
    /// The run that is to be cleared next, if any and nothing else is merged now. What is written
    /// anew of it takes no more than `room` bytes.
    pub(super) fn to_clear(
        &self,
        view: &IndexView,
        merges: &[Merge],
        room: u64,
    ) -> Result<Option<usize>, IndexError> {
        let dropped = self.maker.keyspaces.dropped();
        if dropped.is_empty() || !merges.is_empty() {
            return Ok(None);
        }
        for (at, run) in view.runs.iter().enumerate() {
            if self.left_of(run) > room {
                continue;
            }
            for dropped in &dropped {
                if has_any(run, dropped.id)? {
                    return Ok(Some(at));
                }
            }
        }
        Ok(None)
    }

    /// Bytes of the run's tables that have anything but entries of one dropped keyspace.
    fn left_of(&self, run: &TableRun) -> u64 {
        let keyspaces = &self.maker.keyspaces;
        let left = run.tables().iter().filter(|table| {
            let (first, last) = table.key_range();
            !keyspaces.is_all_dead(first, last)
        });
        left.map(|table| table.facts().bytes).sum()
    }

    /// The last key that any table has.
    pub(crate) fn last_key(&self) -> Option<Vec<u8>> {
        let view = self.view();
        let last = view.tables().map(|table| table.key_range().1).max();
        last.map(|key| key.to_vec())
    }

    /// True if a table has an entry of that dropped keyspace.
    ///
    /// # Errors
    /// I/O errors and damaged tables.
    pub(crate) fn has_any_of(&self, id: u32) -> Result<bool, IndexError> {
        for run in &self.view().runs {
            if has_any(run, id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        index::{Index, IndexOptions, RecordAddress},
        keyspace::{KeyspaceId, KeyspaceOptions, KeyspaceState},
    };

    /// Promise (store): On a full disk the index's tables that a dropped keyspace has alone are
    /// given back.
    #[test]
    fn tables_with_nothing_else_are_cleared_without_any_room() {
        let dir = tempfile::tempdir().unwrap();
        let index = Index::open(dir.path(), IndexOptions::default()).unwrap();
        let mut state = KeyspaceState::default();
        state.add(state.next("one", &KeyspaceOptions::new()).unwrap());
        index.keyspaces().load(&state);
        let address = RecordAddress::at(0);
        let fill = |id: u32| {
            let keys = (0..1000_u32).map(|i| KeyspaceId(id).to_stored(&i.to_be_bytes()));
            let keys: Vec<_> = keys.collect();
            let mut entries = keys.iter().map(|key| (&key[..], address));
            index.ingest(&mut entries, 0).unwrap();
        };
        fill(1);
        fill(0);
        state.drop(1);
        index.keyspaces().load(&state);
        assert!(index.has_any_of(1).unwrap());
        while index.compact_within(0).unwrap() {}
        assert!(!index.has_any_of(1).unwrap());
        assert_eq!(index.stats().entries, 1000);
    }
}
