//! Starts of ranges in which all that is older than the active chunk is deleted, so that scans may
//! begin behind them: [`DeadStarts`].
//!
//! A queue is scanned from its start for every pop. What was popped is still in the frozen chunks
//! and in the tables, hidden by deletes in newer ones, until an ingestion and a merge. A key there
//! that is hidden once stays hidden until another chunk is frozen: by the same chunk, by what that
//! became, or by a newer one. A key that is put again is found in the active chunk. So what one
//! scan has found hidden at its start, later scans of the same range skip. Where the active chunk
//! starts says what is older; a later one makes everything here void.

use super::range::ScanRange;
use forebay_pool::Lsn;
use parking_lot::Mutex;

/// Ranges that are remembered at most.
const RANGES_MAX: usize = 64;
/// Fewer hidden keys than this are not worth remembering.
pub(super) const HIDDEN_MIN: u64 = 8;

/// The ranges whose start is hidden.
#[derive(Default)]
pub(super) struct DeadStarts(Mutex<KnownStarts>);

#[derive(Default)]
struct KnownStarts {
    /// Where the active chunk starts.
    active: Lsn,
    starts: Vec<DeadStart>,
}

struct DeadStart {
    range: ScanRange,
    /// A scan that sees less may find what this one found deleted.
    limit: Lsn,
    first: FirstKey,
}

/// The first key of a range that what is older than the active chunk has and that is not known to
/// be hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FirstKey {
    Key(Vec<u8>),
    None,
}

impl DeadStarts {
    /// The first key for a scan of `range`, which sees records below `limit`, in the sources older
    /// than the chunk from `active` on; `None` if nothing is known.
    pub(super) fn find(&self, range: &ScanRange, limit: Lsn, active: Lsn) -> Option<FirstKey> {
        let known = self.0.lock();
        let mut starts = known.starts.iter();
        let start = starts.find(|start| start.range == *range && start.limit <= limit)?;
        (known.active == active).then(|| start.first.clone())
    }

    /// Remembers what such a scan has found.
    pub(super) fn note(&self, range: &ScanRange, limit: Lsn, active: Lsn, first: FirstKey) {
        let mut known = self.0.lock();
        if known.active > active {
            return;
        }
        if known.active < active || known.starts.len() >= RANGES_MAX {
            known.active = active;
            known.starts.clear();
        }
        known.starts.retain(|start| start.range != *range);
        known.starts.push(DeadStart {
            range: range.clone(),
            limit,
            first,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_start_holds_for_its_range_its_chunk_and_no_older_view() {
        let dead = DeadStarts::default();
        let (range, other) = (ScanRange::prefix(b"a"), ScanRange::prefix(b"b"));
        let first = FirstKey::Key(b"a7".to_vec());
        dead.note(&range, 100, 50, first.clone());
        assert_eq!(dead.find(&range, 100, 50), Some(first));
        assert_eq!(dead.find(&range, 99, 50), None);
        assert_eq!(dead.find(&range, 100, 51), None);
        assert_eq!(dead.find(&other, 100, 50), None);
        assert_eq!(dead.find(&range.clone().reversed(), 100, 50), None);
        dead.note(&range, 90, 49, FirstKey::None);
        assert_ne!(dead.find(&range, 100, 50), Some(FirstKey::None));
        dead.note(&other, 200, 60, FirstKey::None);
        assert_eq!(dead.find(&range, 200, 60), None);
        assert_eq!(dead.find(&other, 200, 60), Some(FirstKey::None));
    }
}
