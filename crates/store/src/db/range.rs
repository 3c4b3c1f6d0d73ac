//! [`ScanRange`]: the keys that a scan gives, and their direction.

use crate::{
    keyspace::KeyspaceId,
    limits::STORED_KEY_BYTES_MAX,
    memtable::{Chunk, SortedRun},
    range_tombstones::RangeTombstone,
};
use std::ops::{Bound, RangeBounds};

/// The keys that a scan gives, and their order. [`Store::range`](crate::Store::range) and
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
    ///
    /// ```
    /// use forebay_store::ScanRange;
    /// let letters = ScanRange::new("a"..="z");
    /// let beyond = ScanRange::new("boat"..);
    /// ```
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
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// for pair in store.scan(forebay_store::ScanRange::all())? {
    ///     let (key, value) = pair?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn all() -> Self {
        Self::new::<&[u8]>(..)
    }

    /// The keys that start with `prefix`.
    ///
    /// ```
    /// use forebay_store::ScanRange;
    /// assert_eq!(ScanRange::prefix("boat/"), ScanRange::new("boat/".."boat0"));
    /// ```
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
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// use forebay_store::ScanRange;
    /// store.put("a", "1")?;
    /// store.put("b", "2")?;
    /// let last = store.scan(ScanRange::all().reversed())?.next();
    /// assert_eq!(last.transpose()?.map(|(key, _)| key), Some(b"b".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            reversed: true,
            ..self
        }
    }

    /// Values are not read: they are given empty.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// use forebay_store::ScanRange;
    /// store.put("a", "1")?;
    /// assert_eq!(store.scan(ScanRange::all().keys_only())?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn keys_only(self) -> Self {
        Self {
            keys_only: true,
            ..self
        }
    }

    /// What is left of it behind a key, in its direction: for who goes on with a scan later.
    ///
    /// ```
    /// use forebay_store::ScanRange;
    /// use std::ops::Bound::{Excluded, Unbounded};
    /// let behind = ScanRange::new::<&str>((Excluded("boat"), Unbounded));
    /// assert_eq!(ScanRange::new("ark"..).behind("boat"), behind);
    /// let before = ScanRange::new("ark".."boat").reversed();
    /// assert_eq!(ScanRange::new("ark"..).reversed().behind("boat"), before);
    /// ```
    #[must_use]
    pub fn behind(mut self, key: impl AsRef<[u8]>) -> Self {
        self.begin_at(Bound::Excluded(key.as_ref().to_vec()));
        self
    }

    /// The stored keys of those of a keyspace.
    pub(super) fn stored(self, keyspace: KeyspaceId) -> Self {
        let (from, to) = keyspace.stored_bounds(self.from, self.to);
        Self { from, to, ..self }
    }

    /// Of stored keys: whose they are.
    pub(super) fn keyspace(&self) -> KeyspaceId {
        match &self.from {
            Bound::Unbounded => KeyspaceId::DEFAULT,
            Bound::Included(key) | Bound::Excluded(key) => KeyspaceId::of(key),
        }
    }

    /// True if it is of stored keys of which any may be another keyspace's than the default one's.
    pub(super) fn may_expire(&self) -> bool {
        match &self.to {
            Bound::Unbounded => true,
            Bound::Included(key) | Bound::Excluded(key) => **key > *KeyspaceId::DEFAULT.end(),
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
        RangeBounds::<[u8]>::contains(&self.bounds(), key)
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

    /// The stored keys between the bounds as a delete has them, with every key that there may be:
    /// its first one, and the first one behind. `None` if there can be none.
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

    /// Its beginning, in its direction.
    pub(super) fn near(&self) -> &Bound<Vec<u8>> {
        match self.reversed {
            true => &self.to,
            false => &self.from,
        }
    }

    /// Its end, in its direction.
    pub(super) fn far(&self) -> &Bound<Vec<u8>> {
        match self.reversed {
            true => &self.from,
            false => &self.to,
        }
    }

    /// Has it begin elsewhere, in its direction; where it did.
    pub(super) fn begin_at(&mut self, bound: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
        let near = match self.reversed {
            true => &mut self.to,
            false => &mut self.from,
        };
        std::mem::replace(near, bound)
    }

    /// The part of it from `key` on, in its direction.
    pub(super) fn part_from(&self, key: &[u8]) -> Self {
        match self.reversed {
            true => self.not_above(key),
            false => self.not_below(key),
        }
    }

    /// The part of it up to `key`, in its direction.
    pub(super) fn part_up_to(&self, key: &[u8]) -> Self {
        match self.reversed {
            true => self.not_below(key),
            false => self.not_above(key),
        }
    }

    fn not_below(&self, key: &[u8]) -> Self {
        let mut part = self.clone();
        match &part.from {
            Bound::Included(from) | Bound::Excluded(from) if from[..] >= *key => {}
            _ => part.from = Bound::Included(key.to_vec()),
        }
        part
    }

    fn not_above(&self, key: &[u8]) -> Self {
        let mut part = self.clone();
        match &part.to {
            Bound::Included(to) | Bound::Excluded(to) if to[..] <= *key => {}
            _ => part.to = Bound::Included(key.to_vec()),
        }
        part
    }
}

/// The first of all possible keys that is no less than `key`, or with `behind` greater; `None` if
/// none is.
fn first_key(key: &[u8], behind: bool) -> Option<Vec<u8>> {
    let (longest, behind) = match key.split_at_checked(STORED_KEY_BYTES_MAX) {
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
        let longest = vec![7; STORED_KEY_BYTES_MAX];
        let longer = vec![7; STORED_KEY_BYTES_MAX + 1];
        let highest = vec![u8::MAX; STORED_KEY_BYTES_MAX];
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
            for key in keys.iter().filter(|key| key.len() <= STORED_KEY_BYTES_MAX) {
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
