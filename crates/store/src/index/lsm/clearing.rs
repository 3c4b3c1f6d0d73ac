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
    let first = RunScan::new(std::slice::from_ref(run), bounds).next();
    first.transpose().map(|first| first.is_some())
}

impl Index {
    /// The run of no more than `room` bytes that is to be cleared next, if any and nothing else is
    /// merged now.
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
            for dropped in &dropped {
                if run.bytes() <= room && has_any(run, dropped.id)? {
                    return Ok(Some(at));
                }
            }
        }
        Ok(None)
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
