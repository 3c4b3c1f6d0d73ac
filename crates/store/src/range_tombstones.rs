//! [`RangeTombstones`]: deleted ranges of keys, each up to a log address. docs/store-format.md,
//! "Deleted ranges".
//!
//! A log address is a version, so one number says what a deleted range hides: every entry of its
//! keys with a lower address, at whichever level it lies. Of two deletes of a key the later one
//! hides what the earlier one does. So what is kept is a list of ranges that do not overlap, each
//! with the latest delete's address. A store that deletes what is older than some day, every day,
//! has one.

use std::sync::Arc;

/// Deleted ranges that do not touch, and bytes of their keys, of which the index has entries: each
/// look-up is one among them, and each of the index's manifests names them.
pub(crate) const RANGES_MAX: usize = 10_000;
pub(crate) const RANGE_BYTES_MAX: usize = 1 << 20;
/// Their size in such a manifest, at most: keys in hexadecimal, and addresses.
pub(crate) const RANGES_IN_MANIFEST: u64 = 3 << 20;

/// A range of keys, of which everything below a log address is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeTombstone {
    /// The first key; without a byte: from the first key of all on.
    pub(crate) start: Arc<[u8]>,
    /// The first key behind it; none: to the last key of all.
    pub(crate) end: Option<Arc<[u8]>>,
    /// Records below this in the log are hidden.
    pub(crate) lsn: u64,
}

impl RangeTombstone {
    pub(crate) fn new(start: &[u8], end: Option<&[u8]>, lsn: u64) -> Self {
        Self {
            start: start.into(),
            end: end.map(Into::into),
            lsn,
        }
    }

    /// True if it has no key.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends_by(&self.start)
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        *self.start <= *key && !self.ends_by(key)
    }

    /// True if all its keys are less than `key`.
    fn ends_by(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_some_and(|end| **end <= *key)
    }

    /// True if it has keys less than `end`, which is behind all keys if there is none.
    fn begins_before(&self, end: Option<&[u8]>) -> bool {
        end.is_none_or(|end| *self.start < *end)
    }

    /// True if a key may be in both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.begins_before(other.end.as_deref()) && other.begins_before(self.end.as_deref())
    }

    /// Bytes of its keys.
    pub(crate) fn bytes(&self) -> usize {
        self.start.len() + self.end.as_ref().map_or(0, |end| end.len())
    }
}

/// Deleted ranges in key order that do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeTombstones {
    spans: Vec<RangeTombstone>,
}

impl RangeTombstones {
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Bytes of all keys.
    pub(crate) fn bytes(&self) -> usize {
        self.spans.iter().map(RangeTombstone::bytes).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RangeTombstone> {
        self.spans.iter()
    }

    /// The range that has the key.
    #[inline]
    pub(crate) fn at(&self, key: &[u8]) -> Option<&RangeTombstone> {
        let behind = self.spans.partition_point(|span| *span.start <= *key);
        let span = &self.spans[behind.checked_sub(1)?];
        span.contains(key).then_some(span)
    }

    /// The range whose last key lies right before `key`.
    pub(crate) fn ending_at(&self, key: &[u8]) -> Option<&RangeTombstone> {
        let behind = self.spans.partition_point(|span| *span.start < *key);
        let span = &self.spans[behind.checked_sub(1)?];
        (span.end.as_deref() == Some(key)).then_some(span)
    }

    /// True if an entry of the key with that log address is deleted.
    #[inline]
    pub(crate) fn hides(&self, key: &[u8], lsn: u64) -> bool {
        self.at(key).is_some_and(|span| span.lsn > lsn)
    }

    /// The ranges that have any key from `first` to `last`.
    pub(crate) fn overlapping(&self, first: &[u8], last: &[u8]) -> &[RangeTombstone] {
        let from = self.spans.partition_point(|span| span.ends_by(first));
        let to = self.spans.partition_point(|span| *span.start <= *last);
        &self.spans[from..to.max(from)]
    }

    /// Adds a delete, whatever the order in which they come.
    pub(crate) fn add(&mut self, new: RangeTombstone) {
        if new.is_empty() {
            return;
        }
        let end = new.end.as_deref();
        let first = self.spans.partition_point(|old| old.ends_by(&new.start));
        let behind = self.spans.partition_point(|old| old.begins_before(end));
        let mut pieces = Vec::new();
        // What of it no older one has begins here.
        let mut rest = Some(Arc::clone(&new.start));
        for old in &self.spans[first..behind] {
            if old.start < new.start {
                push(&mut pieces, &old.start, Some(&new.start), old.lsn);
            }
            if let Some(from) = rest.as_ref().filter(|from| **from < old.start) {
                push(&mut pieces, from, Some(&old.start), new.lsn);
            }
            let from = Arc::clone((&old.start).max(&new.start));
            let is_longer = old.end.is_none() && end.is_some()
                || end.is_some_and(|end| old.end.as_ref().is_some_and(|of| **of > *end));
            let to = if is_longer { &new.end } else { &old.end };
            push(&mut pieces, &from, to.as_ref(), old.lsn.max(new.lsn));
            rest.clone_from(to);
            if let (true, Some(end)) = (is_longer, &new.end) {
                push(&mut pieces, end, old.end.as_ref(), old.lsn);
            }
        }
        if let Some(from) = rest.filter(|from| end.is_none_or(|end| **from < *end)) {
            push(&mut pieces, &from, new.end.as_ref(), new.lsn);
        }
        self.spans.splice(first..behind, pieces);
    }

    /// Those of which `keep` says so.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&RangeTombstone) -> bool) {
        self.spans.retain(keep);
    }
}

/// Adds a piece behind the others, as a part of the last one if that ends there and hides the same.
fn push(pieces: &mut Vec<RangeTombstone>, start: &Arc<[u8]>, end: Option<&Arc<[u8]>>, lsn: u64) {
    if let Some(last) = pieces.last_mut()
        && last.lsn == lsn
        && last.end.as_ref() == Some(start)
    {
        last.end = end.cloned();
        return;
    }
    pieces.push(RangeTombstone {
        start: Arc::clone(start),
        end: end.cloned(),
        lsn,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tombstone(start: u8, end: Option<u8>, lsn: u64) -> RangeTombstone {
        let start: &[u8] = match &start {
            0 => b"",
            _ => &[start],
        };
        RangeTombstone::new(start, end.as_ref().map(std::slice::from_ref), lsn)
    }

    #[test]
    fn a_delete_of_more_takes_the_place_of_those_before() {
        let mut all = RangeTombstones::default();
        for day in 1..100 {
            all.add(tombstone(0, Some(day), u64::from(day) * 10));
        }
        assert_eq!(all.len(), 1);
        assert!(all.hides(&[98], 989) && !all.hides(&[98], 990));
        assert!(!all.hides(&[99], 0));
        all.add(tombstone(50, Some(51), 2000));
        assert_eq!(all.len(), 3);
        assert!(all.hides(&[50, 7], 1999) && all.hides(&[49], 989) && all.hides(&[51], 989));
        all.add(tombstone(0, None, 3000));
        assert_eq!(all.len(), 1);
    }

    proptest! {
        #[test]
        fn deleted_ranges_in_any_order_hide_what_each_of_them_does(
            deletes in proptest::collection::vec(
                (0u8..20, proptest::option::of(0u8..21), 1u64..50), 0..12,
            ),
        ) {
            let deletes: Vec<_> = deletes.iter().map(|&(s, e, lsn)| tombstone(s, e, lsn)).collect();
            let mut all = RangeTombstones::default();
            deletes.iter().cloned().for_each(|delete| all.add(delete));
            for key in 1u8..25 {
                let of = deletes.iter().filter(|delete| delete.contains(&[key]));
                let expected = of.map(|delete| delete.lsn).max();
                prop_assert_eq!(all.at(&[key]).map(|span| span.lsn), expected);
                let overlapping = all.overlapping(&[key], &[key]);
                prop_assert_eq!(overlapping.first().map(|span| span.lsn), expected);
            }
            for pair in all.spans.windows(2) {
                prop_assert!(pair[0].ends_by(&pair[1].start));
            }
            let mut again = RangeTombstones::default();
            all.spans.iter().rev().for_each(|span| again.add(span.clone()));
            prop_assert_eq!(again, all);
        }
    }
}
