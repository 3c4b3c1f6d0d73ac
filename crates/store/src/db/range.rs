//! [`ScanRange`]: which keys a scan gives, and in which direction.

use crate::{
    KEY_BYTES_MAX,
    memtable::{Chunk, SortedRun},
    range_tombstones::RangeTombstone,
};
use std::ops::{Bound, RangeBounds};

/// Which keys a scan gives, and how. [`Store::range`](crate::Store::range) and
/// [`Store::prefix`](crate::Store::prefix) need none.
///
/// ```
/// use forebay_store::ScanRange;
/// let users = ScanRange::prefix("user/").keys_only();
/// let latest_first = ScanRange::new("2025-01-01"..).reversed();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanRange {
    pub(super) from: Bound<Vec<u8>>,
    pub(super) to: Bound<Vec<u8>>,
    pub(super) reversed: bool,
    pub(super) keys_only: bool,
}

impl ScanRange {
    /// The keys between two bounds: a range of keys, or a pair of [`Bound`]s.
    #[must_use]
    pub fn new<K: AsRef<[u8]>>(keys: impl RangeBounds<K>) -> Self {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        Self {
            from: owned(keys.start_bound()),
            to: owned(keys.end_bound()),
            reversed: false,
            keys_only: false,
        }
    }

    /// All keys.
    #[must_use]
    pub fn all() -> Self {
        Self::new::<&[u8]>(..)
    }

    /// The keys that start with `prefix`.
    #[must_use]
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        let prefix = prefix.as_ref();
        // The first key behind them: the prefix with its last byte below 255 raised, and cut there.
        let end = prefix.iter().rposition(|&byte| byte < u8::MAX).map(|last| {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end
        });
        Self::new((
            Bound::Included(prefix.to_vec()),
            end.map_or(Bound::Unbounded, Bound::Excluded),
        ))
    }

    /// From the last key to the first.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            reversed: true,
            ..self
        }
    }

    /// Values are not read: they are given empty.
    #[must_use]
    pub fn keys_only(self) -> Self {
        Self {
            keys_only: true,
            ..self
        }
    }

    /// The range's keys in a run of a chunk, by position.
    pub(super) fn positions(&self, chunk: &Chunk, run: &SortedRun) -> (usize, usize) {
        let low = match &self.from {
            Bound::Unbounded => 0,
            Bound::Included(key) => chunk.keys_below(run, key, false),
            Bound::Excluded(key) => chunk.keys_below(run, key, true),
        };
        let high = match &self.to {
            Bound::Unbounded => run.len(),
            Bound::Included(key) => chunk.keys_below(run, key, true),
            Bound::Excluded(key) => chunk.keys_below(run, key, false),
        };
        (low, high.max(low))
    }

    /// True if the key is one of them.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.bounds().contains(key)
    }

    pub(super) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let [from, to] = [&self.from, &self.to].map(|end| end.as_ref().map(Vec::as_slice));
        (from, to)
    }

    /// True if no key is, by the bounds alone.
    pub(super) fn is_empty(&self) -> bool {
        use Bound::{Excluded, Included, Unbounded};
        match (&self.from, &self.to) {
            (Unbounded, _) | (_, Unbounded) => false,
            (Included(from), Included(to)) => from > to,
            (Included(from) | Excluded(from), Included(to) | Excluded(to)) => from >= to,
        }
    }

    /// The keys between the bounds as a delete has them, with every key that there may be: its
    /// first one, and the first one behind. `None` if there can be none.
    pub(super) fn tombstone(&self) -> Option<RangeTombstone> {
        let start = match &self.from {
            Bound::Unbounded => Some(Vec::new()),
            Bound::Included(key) => first_key(key, false),
            Bound::Excluded(key) => first_key(key, true),
        };
        let end = match &self.to {
            Bound::Unbounded => None,
            Bound::Included(key) => first_key(key, true),
            Bound::Excluded(key) => first_key(key, false),
        };
        let range = RangeTombstone::new(&start?, end.as_deref(), 0);
        (!range.is_empty()).then_some(range)
    }

    /// True if a deleted range may have one of them.
    pub(super) fn overlaps(&self, deleted: &RangeTombstone) -> bool {
        self.tombstone().is_some_and(|own| own.overlaps(deleted))
    }

    /// What is left of the range behind `key`, in its direction.
    pub(super) fn go_on_behind(&mut self, key: Vec<u8>) {
        match self.reversed {
            true => self.to = Bound::Excluded(key),
            false => self.from = Bound::Excluded(key),
        }
    }
}

/// The first of all possible keys that is no less than `key`, or with `behind` greater; `None` if
/// none is.
fn first_key(key: &[u8], behind: bool) -> Option<Vec<u8>> {
    let (longest, behind) = match key.split_at_checked(KEY_BYTES_MAX) {
        Some((start, rest)) => (Some(start), behind || !rest.is_empty()),
        None => (None, behind),
    };
    match longest {
        _ if !behind => Some(key.to_vec()),
        None => Some([key, &[0]].concat()),
        Some(key) => {
            let last = key.iter().rposition(|&byte| byte < u8::MAX)?;
            let mut next = key[..=last].to_vec();
            next[last] += 1;
            Some(next)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefixs_range_ends_before_the_first_key_behind_it() {
        let end = |prefix: &[u8]| ScanRange::prefix(prefix).to;
        assert_eq!(end(b"ab"), Bound::Excluded(b"ac".to_vec()));
        assert_eq!(end(b"a\xff\xff"), Bound::Excluded(b"b".to_vec()));
        assert_eq!(end(b"\xff"), Bound::Unbounded);
        assert_eq!(end(b""), Bound::Unbounded);
    }

    #[test]
    fn a_deleted_range_has_the_keys_of_its_bounds() {
        use Bound::{Excluded, Included, Unbounded};
        let longest = vec![7; KEY_BYTES_MAX];
        let longer = vec![7; KEY_BYTES_MAX + 1];
        let highest = vec![u8::MAX; KEY_BYTES_MAX];
        let keys = [&b"a"[..], b"a\0", b"b", &longest, &longer, &highest, &[7]];
        let bounds = || {
            let ends = keys.iter().flat_map(|&key| [Included(key), Excluded(key)]);
            ends.chain([Unbounded])
        };
        for (from, to) in bounds().flat_map(|from| bounds().map(move |to| (from, to))) {
            let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
            let range = ScanRange::new((owned(from), owned(to)));
            let deleted = range.tombstone();
            let has = |key: &[u8]| deleted.as_ref().is_some_and(|range| range.contains(key));
            for key in keys.iter().filter(|key| key.len() <= KEY_BYTES_MAX) {
                assert_eq!(has(key), range.contains(key), "{range:?}");
            }
        }
    }

    #[test]
    fn a_range_without_keys_contains_none() {
        use Bound::{Excluded, Included, Unbounded};
        let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
        let bounds = || {
            let ends = keys.iter().flat_map(|&key| [Included(key), Excluded(key)]);
            ends.chain([Unbounded])
        };
        for (from, to) in bounds().flat_map(|from| bounds().map(move |to| (from, to))) {
            let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
            let range = ScanRange::new((owned(from), owned(to)));
            // The keys themselves, and one in each gap.
            let probes: [&[u8]; 7] = [b"", b"a", b"aa", b"b", b"bb", b"c", b"d"];
            let has_any = probes.iter().any(|key| range.contains(key));
            assert_eq!(range.is_empty(), !has_any, "{range:?}");
        }
    }
}
