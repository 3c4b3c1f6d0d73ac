//! A commit: the transaction's reads are looked at again, and its writes are appended as one.
//!
//! 1. If it went through ranges: begin to watch them ([`range_watch`](crate::db::range_watch)),
//!    take a second snapshot, and compare what both have in the ranges. No writer waits. Then
//!    compare what was noted meanwhile, until that is little. If it is more than is noted, begin
//!    anew.
//! 2. Lock all keys that were read and that are to be written. No writer changes them now.
//! 3. Each key that was read must have the value that it had.
//! 4. Lock the thread's stripe; if there are ranges, all stripes. No keyspace is dropped now, until
//!    6: those that were read must be there. With all stripes nothing is written at all: the rest
//!    of what was written to the ranges since the second snapshot was noted by the watch, and these
//!    keys must have the values that they had then.
//! 5. Append the batch.
//! 6. Insert its keys into the memtable, and unlock: as any other batch (`write`).
//!
//! So its reads hold at the moment of its append, and each write that changes one of them lies
//! behind it in the log.
//!
//! Of values that expire it has seen those that had not at its beginning. As long as a key's record
//! is the one that was there then, time alone is no conflict. Once another one is there, or a
//! delete, it is not known what others have read of it: only the collector's copy, and the same
//! value put again and alive, are no conflict, and that what it saw as expired was deleted.

use super::ReadSet;
use crate::{
    db::{
        Snapshot, StoreCore, Value, range::ScanRange, range_watch::RangeWatch, read::live,
        scan::Scan, snapshot::SnapshotMoment,
    },
    error::StoreError,
    index::RecordAddress,
    keyspace::{KeyspaceId, user_key},
};
use std::{cell::Cell, collections::BTreeSet, sync::Arc};

/// So many noted keys are few enough to be compared while no writer writes.
const FEW: usize = 16;
/// How often it is tried to have so few.
const CATCH_UPS: u32 = 16;

/// The reads that a transaction's commit depends on.
pub(in crate::db) struct CommitCheck<'s> {
    keys: Vec<ReadKey<'s>>,
    ranges: Option<CheckedRanges<'s>>,
    /// The keyspaces of both.
    keyspaces: BTreeSet<KeyspaceId>,
    /// When the transaction began.
    time: u64,
}

/// A key that was read, and where its value was.
struct ReadKey<'s> {
    hash: u64,
    key: &'s [u8],
    address: Option<RecordAddress>,
}

/// Ranges that are as they were read at a second snapshot, and what is written to them since.
struct CheckedRanges<'s> {
    watch: RangeWatch<'s>,
    now: Snapshot,
    /// More was written to them than is noted.
    is_overrun: Cell<bool>,
}

impl<'s> CommitCheck<'s> {
    /// Step 1.
    pub(super) fn begin(
        shared: &'s Arc<StoreCore>,
        then: &Snapshot,
        reads: &'s ReadSet,
    ) -> Result<Self, StoreError> {
        let keys = reads.keys.iter().map(|(key, &address)| ReadKey {
            hash: shared.hash(key),
            key,
            address,
        });
        let (keys, time) = (keys.collect(), then.time());
        let ranges: Vec<ScanRange> = reads.ranges.iter().flatten().cloned().collect();
        let of_keys = reads.keys.keys().map(|key| KeyspaceId::of(key));
        let keyspaces = of_keys.chain(ranges.iter().map(ScanRange::keyspace));
        let mut check = Self {
            keys,
            ranges: None,
            keyspaces: keyspaces.collect(),
            time,
        };
        if ranges.is_empty() {
            return Ok(check);
        }
        let watch = shared.range_watches.watch(ranges.clone());
        let now = Snapshot::new(shared)?.at(time);
        forebay_pool::failpoint!("store:watching");
        if now.view().limit() != then.view().limit() {
            for range in ranges {
                shared.compare_range(then, &now, range)?;
            }
        }
        check.ranges = Some(CheckedRanges {
            watch,
            now,
            is_overrun: Cell::new(false),
        });
        Ok(check)
    }

    /// The hashes of the keys that were read.
    pub(in crate::db) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.keys.iter().map(|read| read.hash)
    }

    /// True if it needs all stripes.
    pub(in crate::db) fn has_ranges(&self) -> bool {
        self.ranges.is_some()
    }

    /// True if it was refused for more writes to its ranges than are noted: a new one may do.
    pub(super) fn is_overrun(&self) -> bool {
        (self.ranges.as_ref()).is_some_and(|ranges| ranges.is_overrun.get())
    }

    /// Step 1, the rest. The caller has locked nothing.
    pub(in crate::db) fn catch_up(&self, shared: &StoreCore) -> Result<(), StoreError> {
        let Some(ranges) = &self.ranges else {
            return Ok(());
        };
        for _ in 0..CATCH_UPS {
            // Who has noted a key inserts it before the key is unlocked.
            let wait = |hash| drop(shared.locks.key(hash).lock());
            if ranges.compare_noted(shared, wait)? <= FEW {
                break;
            }
        }
        Ok(())
    }

    /// Step 3. The keys are locked.
    pub(in crate::db) fn keys_are_as_read(&self, shared: &StoreCore) -> Result<(), StoreError> {
        for ReadKey { hash, key, address } in &self.keys {
            shared.check_unchanged(*hash, key, *address, self.time)?;
        }
        Ok(())
    }

    /// Step 4. The thread's stripe is locked: a drop that comes now comes behind.
    pub(in crate::db) fn keyspaces_are_there(&self, shared: &StoreCore) -> Result<(), StoreError> {
        let mut read = self.keyspaces.iter();
        read.try_for_each(|id| shared.keyspaces().check_id(*id))
    }

    /// Step 4. All stripes are locked.
    pub(in crate::db) fn ranges_are_as_read(&self, shared: &StoreCore) -> Result<(), StoreError> {
        match &self.ranges {
            Some(ranges) => ranges.compare_noted(shared, |_| {}).map(drop),
            None => Ok(()),
        }
    }
}

impl CheckedRanges<'_> {
    /// Refuses unless the keys that were noted since the last time have the values of the second
    /// snapshot, each after `wait` with its hash; how many there are.
    fn compare_noted(&self, shared: &StoreCore, wait: impl Fn(u64)) -> Result<usize, StoreError> {
        let noted = self.watch.take();
        if let Some(key) = noted.not_noted {
            self.is_overrun.set(true);
            return Err(conflict(key));
        }
        for key in &noted.keys {
            let (moment, hash): (&SnapshotMoment, u64) = (self.now.view(), shared.hash(key));
            wait(hash);
            let address = live(moment.find(hash, key)?);
            shared.check_unchanged(hash, key, address, self.now.time())?;
        }
        Ok(noted.keys.len())
    }
}

impl StoreCore {
    /// Refuses unless the key's value is the one at `address`, which a snapshot keeps readable.
    fn check_unchanged(
        &self,
        hash: u64,
        key: &[u8],
        address: Option<RecordAddress>,
        time: u64,
    ) -> Result<(), StoreError> {
        let now = live(self.view.load().find(hash, key)?);
        match self.is_same_value(key, address, now, time)? {
            true => Ok(()),
            false => Err(conflict(key.to_vec())),
        }
    }

    /// True if the values at the two addresses are the same to who began at `time`, and saw `then`
    /// as of that: the collector may have copied it, or deleted it when it had expired.
    fn is_same_value(
        &self,
        key: &[u8],
        then: Option<RecordAddress>,
        now: Option<RecordAddress>,
        time: u64,
    ) -> Result<bool, StoreError> {
        match (then, now) {
            (then, now) if then == now => Ok(true),
            (Some(then), Some(now)) => {
                let (then, now) = (self.value_at(key, then)?, self.value_at(key, now)?);
                let is_copy = then.expiry() == now.expiry();
                let is_alive = |value: &Value| value.expiry().is_none_or(|end| time < end);
                // The clock may have been set since.
                let are_alive = is_alive(&then) && is_alive(&now) && self.is_alive(now.expiry());
                Ok(*then == *now && (is_copy || are_alive))
            }
            // Whether the collector has deleted it nobody knows; what was not seen is not missed.
            (Some(then), None) => Ok(!self.is_alive_at(key, then, time)?),
            (None, _) => Ok(false),
        }
    }

    /// Refuses unless both snapshots have the same keys in the range, with the same values. Records
    /// that had expired are compared, too: one that was put since may have.
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
        let time = then.time();
        let mut then = Scan::everything_in(then.clone(), range.clone());
        let mut now = Scan::everything_in(now.clone(), range);
        let (mut was, mut is) = (then.next_address()?, now.next_address()?);
        loop {
            let key = match (&was, &is) {
                (None, None) => return Ok(()),
                (Some((key, at)), Some((same, other))) if key == same => {
                    if !self.is_same_value(key, Some(*at), Some(*other), time)? {
                        return Err(conflict(key.clone()));
                    }
                    (was, is) = (then.next_address()?, now.next_address()?);
                    continue;
                }
                (Some((key, _)), Some((other, _))) => key.min(other),
                (Some((key, _)), None) | (None, Some((key, _))) => key,
            };
            // Had it expired then, and was it deleted since?
            if let Some((gone, at)) = &was
                && gone == key
                && self.is_same_value(gone, Some(*at), None, time)?
            {
                was = then.next_address()?;
                continue;
            }
            return Err(conflict(key.clone()));
        }
    }
}

/// What was read of this stored key was changed.
fn conflict(stored: Vec<u8>) -> StoreError {
    StoreError::Conflict {
        key: user_key(stored),
    }
}

#[cfg(test)]
mod tests {
    use super::{CommitCheck, FEW};
    use crate::{Durability, StoreError, StoreOptions, db::write::Batch};
    use std::os::unix::fs::FileExt;

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
            let reads = tx.reads.take();
            let check = CommitCheck::begin(shared, &tx.snapshot, &reads).unwrap();
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
        let often = || (0..2000).try_for_each(|_| store.put("b", "a third"));
        assert_eq!(met(&often).unwrap(), b"b");
        assert_eq!(met(&often), None, "as it was, and noted once");
        // More than is noted.
        let many = || {
            let mut keys = (0..2000u32).map(|i| format!("bc{i}"));
            keys.try_for_each(|key| store.put(&key, "it").and_then(|()| store.delete(&key)))
        };
        assert!(met(&many).is_some());
        assert_eq!(met(&|| Ok(())), None);
        assert!(!shared.range_watches.is_any());
        assert_eq!(store.range("a".."e").unwrap().count(), 4);
    }

    /// Promise: as `a_value_that_was_only_moved_is_no_conflict`.
    #[test]
    fn any_number_of_copies_beside_a_commit_is_no_conflict() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().durability(Durability::NoSync);
        let options = options.file_size(1 << 20).segment_size(64 << 10);
        let options = options.memtable_size(64 << 10).chunk_log_size(128 << 10);
        let store = options.open(dir.path().join("store"), None).unwrap();
        let key = |i: u32| format!("key {i:05}");
        for i in 0..6000 {
            store.put(&key(i), &[7; 500]).unwrap();
        }
        for i in (0..6000).filter(|i: &u32| !i.is_multiple_of(3)) {
            store.delete(&key(i)).unwrap();
        }
        let tx = store.begin().unwrap();
        assert_eq!(tx.prefix("key").unwrap().count(), 2000);
        let reads = tx.reads.take();
        let check = CommitCheck::begin(&store.shared, &tx.snapshot, &reads).unwrap();
        let copied = store.gc().unwrap().relocated;
        assert!(copied > 1024, "{copied}");
        let mut batch = Batch::new();
        batch.put("done", "so").unwrap();
        store.shared.write_batch(&batch, Some(&check)).unwrap();
    }

    /// A transaction that cannot tell whether what it has read is still so leaves nothing behind.
    #[test]
    fn a_failed_comparison_leaves_no_large_value() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let options = StoreOptions::new().durability(Durability::NoSync);
        let store = options.open(&path, None).unwrap();
        let unique = b"what is read and compared";
        store.put("key", unique).unwrap();
        let mut tx = store.begin().unwrap();
        assert!(tx.get("key").unwrap().is_some());
        tx.put("large", &vec![7; 16 << 20]).unwrap();
        // Another record of the same value; the first is damaged.
        store.put("key", unique).unwrap();
        let file = std::fs::read_dir(path.join("vlog")).unwrap().next();
        let file = file.unwrap().unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        let at = bytes.windows(unique.len()).position(|it| it == unique);
        let file = std::fs::File::options().write(true).open(&file).unwrap();
        file.write_all_at(b"W", at.unwrap() as u64).unwrap();
        let refused = tx.commit().unwrap_err();
        assert!(matches!(refused, StoreError::Damaged { .. }), "{refused}");
        let mut left = std::fs::read_dir(path.join("large")).unwrap();
        assert!(left.next().is_none());
        assert!(!store.contains_key("large").unwrap());
    }

    /// Promise (store): Other writers wait for few comparisons of a commit at most, however many
    /// keys of its ranges they have written.
    #[test]
    fn what_was_noted_is_compared_before_writers_are_shut_out() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().durability(Durability::NoSync);
        let store = options.open(dir.path().join("store"), None).unwrap();
        let key = |i: u32| format!("key {i:05}");
        let put = |keys: std::ops::Range<u32>| {
            keys.for_each(|i| store.put(&key(i), "value").unwrap());
        };
        put(0..1000);
        let tx = store.begin().unwrap();
        assert_eq!(tx.prefix("key").unwrap().count(), 1000);
        let reads = tx.reads.take();
        let check = CommitCheck::begin(&store.shared, &tx.snapshot, &reads).unwrap();
        // Twice what is noted at a time, all in all.
        for _ in 0..2 {
            put(0..1000);
            check.catch_up(&store.shared).unwrap();
        }
        let noted = &check.ranges.as_ref().unwrap().watch;
        assert!(noted.take().keys.len() <= FEW);
        assert!(!check.is_overrun());
        put(0..5);
        check.ranges_are_as_read(&store.shared).unwrap();
        store.put(&key(5), "another").unwrap();
        assert!(check.catch_up(&store.shared).is_err());
    }

    /// Promise (store): A transaction that went through a range is committed although more was
    /// written there beside it than is noted, if it is as it was.
    #[test]
    fn an_overrun_comparison_is_done_again() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().durability(Durability::NoSync);
        let store = options.open(dir.path().join("store"), None).unwrap();
        let tx = store.begin().unwrap();
        assert_eq!(tx.prefix("key").unwrap().count(), 0);
        let reads = tx.reads.take();
        let check = CommitCheck::begin(&store.shared, &tx.snapshot, &reads).unwrap();
        for i in 0..2000 {
            let key = format!("key {i}");
            store.put(&key, "value").unwrap();
            store.delete(&key).unwrap();
        }
        assert!(check.catch_up(&store.shared).is_err() && check.is_overrun());
        let again = CommitCheck::begin(&store.shared, &tx.snapshot, &reads).unwrap();
        again.catch_up(&store.shared).unwrap();
        again.ranges_are_as_read(&store.shared).unwrap();
    }
}
