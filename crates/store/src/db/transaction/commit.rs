//! A commit: what the transaction read is looked at again, and its writes are appended as one.
//!
//! 1. If it went through ranges: begin to watch them ([`range_watch`](crate::db::range_watch)),
//!    take a second snapshot, and compare what both have in the ranges. No writer waits.
//! 2. Lock all keys that were read and that are to be written. No writer changes them now.
//! 3. Each key that was read must have the value that it had.
//! 4. Lock the thread's stripe; if there are ranges, all stripes. Nothing is written at all now,
//!    until 6: what was written to the ranges since the second snapshot was noted by the watch, and
//!    these keys must have the values that they had then.
//! 5. Append the batch.
//! 6. Insert its keys into the memtable, and unlock: as any other batch (`write`).
//!
//! So its reads hold at the moment of its append, and each write that changes one of them lies
//! behind it in the log.

use super::ReadSet;
use crate::{
    db::{
        Snapshot, StoreCore,
        range::ScanRange,
        range_watch::{NOTED_MAX, RangeWatch},
        read::live,
        scan::Scan,
        snapshot::SnapshotMoment,
    },
    error::StoreError,
    index::RecordAddress,
};
use std::sync::Arc;

/// What a transaction's commit depends on.
pub(in crate::db) struct CommitCheck<'s> {
    keys: Vec<ReadKey>,
    ranges: Option<CheckedRanges<'s>>,
}

/// A key that was read, and where its value was.
struct ReadKey {
    hash: u64,
    key: Vec<u8>,
    address: Option<RecordAddress>,
}

/// Ranges that are as they were read at a second snapshot, and what is written to them since.
struct CheckedRanges<'s> {
    watch: RangeWatch<'s>,
    now: Snapshot,
}

impl<'s> CommitCheck<'s> {
    /// Step 1.
    pub(super) fn begin(
        shared: &'s Arc<StoreCore>,
        then: &Snapshot,
        reads: ReadSet,
    ) -> Result<Self, StoreError> {
        let keys = reads.keys.into_iter().map(|(key, address)| ReadKey {
            hash: shared.hash(&key),
            key,
            address,
        });
        let keys = keys.collect();
        let ranges: Vec<ScanRange> = reads.ranges.into_iter().flatten().collect();
        if ranges.is_empty() {
            return Ok(Self { keys, ranges: None });
        }
        let watch = shared.range_watches.watch(ranges.clone());
        let now = Snapshot::new(shared)?;
        forebay_pool::failpoint!("store:watching");
        if now.view().limit() != then.view().limit() {
            for range in ranges {
                shared.compare_range(then, &now, range)?;
            }
        }
        let ranges = Some(CheckedRanges { watch, now });
        Ok(Self { keys, ranges })
    }

    /// The hashes of the keys that were read.
    pub(in crate::db) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.keys.iter().map(|read| read.hash)
    }

    /// True if it needs all stripes.
    pub(in crate::db) fn has_ranges(&self) -> bool {
        self.ranges.is_some()
    }

    /// Step 3. The keys are locked.
    pub(in crate::db) fn keys_are_as_read(&self, shared: &StoreCore) -> Result<(), StoreError> {
        for ReadKey { hash, key, address } in &self.keys {
            shared.check_unchanged(*hash, key, *address)?;
        }
        Ok(())
    }

    /// Step 4. All stripes are locked.
    pub(in crate::db) fn ranges_are_as_read(&self, shared: &StoreCore) -> Result<(), StoreError> {
        let Some(CheckedRanges { watch, now }) = &self.ranges else {
            return Ok(());
        };
        let written = watch.written();
        if written.len() >= NOTED_MAX
            && let Some(key) = written.first()
        {
            return Err(StoreError::Conflict { key: key.clone() });
        }
        for key in written {
            let (moment, hash): (&SnapshotMoment, u64) = (now.view(), shared.hash(&key));
            let address = live(moment.find(hash, &key)?);
            shared.check_unchanged(hash, &key, address)?;
        }
        Ok(())
    }
}

impl StoreCore {
    /// Refuses unless the key's value is the one at `address`, which a snapshot keeps readable.
    fn check_unchanged(
        &self,
        hash: u64,
        key: &[u8],
        address: Option<RecordAddress>,
    ) -> Result<(), StoreError> {
        let now = live(self.view.load().find(hash, key)?);
        match self.is_same_value(key, address, now)? {
            true => Ok(()),
            false => Err(StoreError::Conflict { key: key.to_vec() }),
        }
    }

    /// True if the values at the two addresses are the same: the collector may have copied it.
    fn is_same_value(
        &self,
        key: &[u8],
        then: Option<RecordAddress>,
        now: Option<RecordAddress>,
    ) -> Result<bool, StoreError> {
        match (then, now) {
            (then, now) if then == now => Ok(true),
            (Some(then), Some(now)) => Ok(*self.value_at(key, then)? == *self.value_at(key, now)?),
            _ => Ok(false),
        }
    }

    /// Refuses unless both snapshots have the same keys in the range, with the same values.
    fn compare_range(
        &self,
        then: &Snapshot,
        now: &Snapshot,
        range: ScanRange,
    ) -> Result<(), StoreError> {
        let range = ScanRange {
            reversed: false,
            ..range.keys_only()
        };
        let mut then = Scan::new(then.clone(), range.clone());
        let mut now = Scan::new(now.clone(), range);
        loop {
            let key = match (then.next_address()?, now.next_address()?) {
                (None, None) => return Ok(()),
                (Some((key, then)), Some((same, now))) if key == same => {
                    if self.is_same_value(&key, Some(then), Some(now))? {
                        continue;
                    }
                    key
                }
                (Some((key, _)), Some((other, _))) => key.min(other),
                (Some((key, _)), None) | (None, Some((key, _))) => key,
            };
            return Err(StoreError::Conflict { key });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CommitCheck;
    use crate::{Durability, StoreError, StoreOptions, db::write::Batch};

    /// Promise: as `g2_a_phantom_is_refused`.
    #[test]
    fn a_write_between_the_comparison_and_the_append_is_met() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().durability(Durability::NoSync);
        let store = options.open(dir.path().join("store"), None).unwrap();
        let shared = &store.shared;
        store.put("b", "value").unwrap();
        let mut batch = Batch::new();
        batch.put("done", "so").unwrap();
        // What is written, and whether that is a conflict.
        let met = |write: &dyn Fn() -> Result<(), StoreError>| {
            let tx = store.begin().unwrap();
            assert!(tx.range("a".."c").unwrap().count() > 0);
            let check = CommitCheck::begin(shared, &tx.snapshot, tx.reads.take()).unwrap();
            write().unwrap();
            match shared.write_batch(&batch, Some(&check)) {
                Ok(()) => None,
                Err(StoreError::Conflict { key }) => Some(key),
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(met(&|| store.put("d", "beside")), None);
        assert_eq!(met(&|| store.put("b", "value")), None, "as it was");
        assert_eq!(met(&|| store.put("b", "another")).unwrap(), b"b");
        assert_eq!(met(&|| store.put("bb", "phantom")).unwrap(), b"bb");
        assert_eq!(met(&|| store.delete("bb")).unwrap(), b"bb");
        let mut others = Batch::new();
        others.delete("x").unwrap();
        others.put("a", "phantom").unwrap();
        assert_eq!(met(&|| store.write(&others)).unwrap(), b"a");
        // More than is noted.
        let many = || (0..2000).try_for_each(|_| store.put("b", "another"));
        assert_eq!(met(&many).unwrap(), b"b");
        assert_eq!(met(&|| Ok(())), None);
        assert!(!shared.range_watches.is_any());
        assert_eq!(store.range("a".."e").unwrap().count(), 4);
    }
}
