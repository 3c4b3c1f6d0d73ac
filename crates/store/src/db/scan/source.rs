//! One source of keys in order: a run of a chunk, or the tables.
//!
//! Between two batches of a scan a source holds no chunk ([`KeySource::pin`]): a chunk that is in
//! the tables is dropped, however slowly a scan is read.

use crate::{
    index::{IndexEntry, IndexError, IndexIter},
    memtable::{Chunk, SortedRun},
    range_tombstones::RangeTombstone,
};
use forebay_pool::Lsn;
use std::sync::{Arc, Weak};

/// One source of keys in order, with its next one looked at.
pub(super) struct KeySource {
    pub(super) from: SourceOrigin,
    pub(super) next: Option<IndexEntry>,
}

pub(super) enum SourceOrigin {
    /// Part of a run of a chunk.
    Chunk {
        /// The number of newer chunks.
        age: usize,
        /// The start of the next one: its own records lie below.
        end: Lsn,
        chunk: Weak<Chunk>,
        run: Weak<SortedRun>,
        low: usize,
        high: usize,
    },
    Tables(IndexIter),
}

/// A source's chunk and run while keys are taken from it; none for the tables.
pub(super) type SourcePin = Option<(Arc<Chunk>, Arc<SortedRun>)>;

impl KeySource {
    pub(super) fn advance(
        &mut self,
        pin: &SourcePin,
        limit: Lsn,
        reversed: bool,
    ) -> Result<(), IndexError> {
        self.next = match (&mut self.from, pin) {
            (SourceOrigin::Chunk { low, high, .. }, Some((chunk, run))) => loop {
                if *low >= *high {
                    break None;
                }
                let position = if reversed {
                    *high -= 1;
                    *high
                } else {
                    *low += 1;
                    *low - 1
                };
                if let Some(found) = chunk.nth(run, position, limit) {
                    break Some(found);
                }
            },
            (SourceOrigin::Chunk { .. }, None) => None,
            (SourceOrigin::Tables(iter), _) => if reversed {
                iter.next_back()
            } else {
                iter.next()
            }
            .transpose()?,
        };
        Ok(())
    }

    /// Goes on behind a deleted range, if the source has nothing newer than that.
    pub(super) fn skip(&mut self, pin: &SourcePin, range: &RangeTombstone, reversed: bool) {
        let (SourceOrigin::Chunk { end, low, high, .. }, Some((chunk, run))) =
            (&mut self.from, pin)
        else {
            return;
        };
        if *end > range.lsn {
            return;
        }
        if reversed {
            *high = (*high).min(chunk.keys_below(run, &range.start, false));
        } else {
            let behind = range.end.as_deref();
            let behind = behind.map_or(*high, |behind| chunk.keys_below(run, behind, false));
            *low = (*low).max(behind);
        }
    }

    /// The number of chunks that are newer than this source.
    pub(super) fn age(&self) -> usize {
        match &self.from {
            SourceOrigin::Chunk { age, .. } => *age,
            SourceOrigin::Tables(_) => usize::MAX,
        }
    }

    pub(super) fn pin(&self) -> Option<SourcePin> {
        match &self.from {
            SourceOrigin::Chunk { chunk, run, .. } => {
                Some(Some((chunk.upgrade()?, run.upgrade()?)))
            }
            SourceOrigin::Tables(_) => Some(None),
        }
    }
}
