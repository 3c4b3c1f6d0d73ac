//! [`SharedShard`]: a shard that threads share, and at which no writer waits for another one.
//!
//! A thread that loses its processor while it has a shard locked may be away for many milliseconds,
//! and every writer comes to every shard much sooner. So a writer that finds the shard locked
//! *leaves* its insert beside it; who has the shard next takes in what was left:
//!
//! 1. A writer that gets the lock at once, or in a moment, takes in what was left, and inserts.
//! 2. Otherwise it leaves its insert. That counts as done: a reader from now on takes it in first.
//!
//! A key's writers exclude each other (`db::write`), and what was left is taken in before anything
//! newer is inserted, in the order in which it was left. So a key's inserts keep their order.

use super::shard::{Insert, Shard};
use crate::index::RecordAddress;
use foldhash::fast::RandomState;
use forebay_pool::Lsn;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::{
    hint, mem,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Acquire, Release},
    },
};

/// Turns of the busy wait for a shard: longer than an insert takes.
const SPINS: u32 = 32;

/// An insert that found the shard locked.
struct PendingInsert {
    hash: u64,
    key: Box<[u8]>,
    address: RecordAddress,
    keep_below: Lsn,
}

/// A shard with its lock, and the inserts that were left.
pub(super) struct SharedShard {
    shard: RwLock<Shard>,
    /// In the order in which they came. Locked for no longer than one takes to be added.
    left: Mutex<Vec<PendingInsert>>,
    /// How many of them there are. Set to 0 under the shard's lock only.
    count: AtomicUsize,
}

impl SharedShard {
    pub(super) fn new(shard: Shard) -> Self {
        Self {
            shard: RwLock::new(shard),
            left: Mutex::default(),
            count: AtomicUsize::new(0),
        }
    }

    /// Inserts, now or before anything else is done with the shard. Its load then; `None`
    /// if the insert was left.
    #[inline]
    pub(super) fn insert(&self, insert: Insert<'_>, hasher: &RandomState) -> Option<usize> {
        let Some(mut shard) = self.try_write_for(SPINS) else {
            self.leave(insert);
            return None;
        };
        self.take_in(&mut shard, hasher);
        shard.insert(insert, hasher);
        Some(shard.load())
    }

    /// The shard, with everything that was inserted before.
    #[inline]
    pub(super) fn read(&self, hasher: &RandomState) -> RwLockReadGuard<'_, Shard> {
        if self.count.load(Acquire) == 0 {
            return self.shard.read();
        }
        let mut shard = self.shard.write();
        self.take_in(&mut shard, hasher);
        RwLockWriteGuard::downgrade(shard)
    }

    /// The same to change, if it is not locked.
    pub(super) fn try_write(&self, hasher: &RandomState) -> Option<RwLockWriteGuard<'_, Shard>> {
        let mut shard = self.shard.try_write()?;
        self.take_in(&mut shard, hasher);
        Some(shard)
    }

    #[inline]
    fn try_write_for(&self, turns: u32) -> Option<RwLockWriteGuard<'_, Shard>> {
        for _ in 0..turns {
            if let Some(shard) = self.shard.try_write() {
                return Some(shard);
            }
            hint::spin_loop();
        }
        None
    }

    #[cold]
    fn leave(&self, insert: Insert<'_>) {
        let mut left = self.left.lock();
        left.push(PendingInsert {
            hash: insert.hash,
            key: insert.key.into(),
            address: insert.address,
            keep_below: insert.keep_below,
        });
        self.count.store(left.len(), Release);
    }

    /// Inserts what was left.
    #[inline]
    fn take_in(&self, shard: &mut Shard, hasher: &RandomState) {
        // What a writer of the same key left, or a reader has to find, was counted before the shard
        // was locked.
        if self.count.load(Acquire) > 0 {
            self.take_in_all(shard, hasher);
        }
    }

    #[cold]
    fn take_in_all(&self, shard: &mut Shard, hasher: &RandomState) {
        let left = {
            let mut left = self.left.lock();
            self.count.store(0, Release);
            mem::take(&mut *left)
        };
        for left in &left {
            let insert = Insert {
                hash: left.hash,
                key: &left.key,
                address: left.address,
                keep_below: left.keep_below,
            };
            shard.insert(insert, hasher);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        hash::BuildHasher,
        sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        thread,
    };

    fn put(shard: &SharedShard, hasher: &RandomState, key: &[u8], lsn: Lsn) -> bool {
        let insert = Insert {
            hash: hasher.hash_one(key),
            key,
            address: RecordAddress::at(lsn),
            keep_below: 0,
        };
        shard.insert(insert, hasher).is_some()
    }

    fn get(shard: &SharedShard, hasher: &RandomState, key: &[u8]) -> Option<Lsn> {
        let shard = shard.read(hasher);
        Some(shard.find(hasher.hash_one(key), key)?.address().lsn)
    }

    /// Promise (store): A writer that loses its processor during a put keeps no put of other keys
    /// waiting for longer than an append in the order of the log.
    #[test]
    fn a_writer_losing_its_processor_in_a_shard_holds_up_no_other() {
        let hasher = RandomState::default();
        let shard = SharedShard::new(Shard::default());
        assert!(put(&shard, &hasher, b"a", 1));
        // As long as a reader has it, and as long as a writer has.
        let away = shard.shard.read();
        assert!(!put(&shard, &hasher, b"a", 2));
        drop(away);
        assert_eq!(get(&shard, &hasher, b"a"), Some(2));
        let away = shard.shard.write();
        thread::scope(|scope| {
            let put = scope.spawn(|| put(&shard, &hasher, b"a key of more than eight bytes", 3));
            assert!(!put.join().unwrap());
        });
        assert!(!put(&shard, &hasher, b"a", 4));
        drop(away);
        // The next writer takes in what was left, before its own: the key's order stays.
        assert!(put(&shard, &hasher, b"a", 5));
        assert_eq!(get(&shard, &hasher, b"a"), Some(5));
        let long = b"a key of more than eight bytes";
        assert_eq!(get(&shard, &hasher, long), Some(3));
        assert_eq!(shard.read(&hasher).len(), 2);
    }

    /// Promise (store): A read misses no insert, also if the inserting thread left it to the writer
    /// that had the shard.
    #[test]
    fn a_thread_reads_its_own_insert_whoever_has_the_shard() {
        const KEYS: u64 = 8;
        const PUTS: u64 = 20_000;
        let hasher = RandomState::default();
        let shard = SharedShard::new(Shard::default());
        let (clock, done) = (AtomicU64::new(0), AtomicBool::new(false));
        let left = AtomicU64::new(0);
        thread::scope(|scope| {
            let writer = |key: u64| {
                let (shard, hasher, clock, left) = (&shard, &hasher, &clock, &left);
                move || {
                    // Until one was left: how soon the threads meet is for the machine to say.
                    for n in 0..100 * PUTS {
                        if n >= PUTS && left.load(Relaxed) > 0 {
                            break;
                        }
                        // Each key has one writer, as if under its lock.
                        let lsn = clock.fetch_add(1, Relaxed) + 1;
                        let inserted = put(shard, hasher, &key.to_le_bytes(), lsn);
                        left.fetch_add(u64::from(!inserted), Relaxed);
                        assert_eq!(get(shard, hasher, &key.to_le_bytes()), Some(lsn));
                    }
                }
            };
            let writers: Vec<_> = (0..KEYS).map(|key| scope.spawn(writer(key))).collect();
            // One that is away with the lock again and again.
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    let away = shard.shard.write();
                    thread::yield_now();
                    drop(away);
                    thread::yield_now();
                }
            });
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            done.store(true, Relaxed);
            ended.into_iter().for_each(|ended| ended.unwrap());
        });
        assert!(left.into_inner() > 0, "no insert found the shard locked");
        assert_eq!(shard.read(&hasher).len() as u64, KEYS);
    }
}
