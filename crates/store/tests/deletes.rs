//! Deleted keys go: from the index, and from the way of scans.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, small, within};
use forebay_store::{Durability, ScanRange, Store};
use std::{collections::VecDeque, fs, thread, time::Duration};

fn key(number: u32) -> Vec<u8> {
    format!("key {number:08}").into_bytes()
}

/// Promise (store): Deleted keys leave the index and stop slowing scans down.
#[test]
fn an_index_of_which_every_key_is_deleted_has_no_entries_left() {
    within(Duration::from_secs(120), "merging tombstones away", || {
        const KEYS: u32 = 30_000;
        let bench = Bench::new();
        let store = bench.open(&small(Durability::DOUBLE));
        (0..KEYS).for_each(|i| store.put(&key(i), b"value").unwrap());
        let snapshot = store.snapshot().unwrap();
        (0..KEYS).for_each(|i| store.delete(&key(i)).unwrap());
        store.gc().unwrap();
        while store.stats().index.entries > 0 {
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(store.scan(ScanRange::all()).unwrap().count(), 0);
        // What the snapshot sees is where it was.
        let seen = snapshot.scan(ScanRange::all()).unwrap();
        assert_eq!(seen.map(Result::unwrap).count(), KEYS as usize);
        drop((snapshot, store));
        let store = bench.open(&small(Durability::DOUBLE));
        assert_eq!(store.scan(ScanRange::all()).unwrap().count(), 0);
    });
}

/// Takes `pops` keys from a queue of `live`, each time the first that a scan gives. Keys that scans
/// passed over meanwhile.
fn pop(store: &Store, queue: &mut VecDeque<u32>, next: &mut u32, pops: u32) -> u64 {
    let before = store.stats().scan_passed_keys;
    for _ in 0..pops {
        let first = store.prefix("key ").unwrap().next();
        let (first, _) = first.unwrap().unwrap();
        assert_eq!(first, key(queue.pop_front().unwrap()));
        store.delete(&first).unwrap();
        store.put(&key(*next), b"task").unwrap();
        queue.push_back(*next);
        *next += 1;
    }
    store.stats().scan_passed_keys - before
}

/// Promise: as `an_index_of_which_every_key_is_deleted_has_no_entries_left`.
#[test]
fn a_pop_passes_over_few_deleted_keys_however_many_came_before() {
    const LIVE: u32 = 500;
    const POPS: u32 = 3000;
    // Chunks that hold all of it, and chunks that go into the index again and again.
    for memtable_bytes in [4 << 20, 64 << 10] {
        let bench = Bench::new();
        let store = bench.open(&small(Durability::DOUBLE).memtable_size(memtable_bytes));
        let mut queue: VecDeque<u32> = (0..LIVE).collect();
        queue
            .iter()
            .for_each(|&i| store.put(&key(i), b"task").unwrap());
        let mut next = LIVE;
        for round in 0..5 {
            if round == 2 {
                // The queue goes into the tables, and is popped from there.
                store.gc().unwrap();
            }
            let passed = pop(&store, &mut queue, &mut next, POPS);
            let each = passed / u64::from(POPS);
            assert!(each < 100, "{memtable_bytes}, {round}: {each} a pop");
        }
    }
}

/// Promise: as `an_index_of_which_every_key_is_deleted_has_no_entries_left`.
#[test]
fn a_pop_passes_over_few_deleted_keys_of_an_uningested_chunk() {
    const LIVE: u32 = 300;
    within(Duration::from_secs(120), "popping", || {
        let bench = Bench::new();
        let store = bench.open(&small(Durability::DOUBLE));
        let mut queue: VecDeque<u32> = (0..LIVE).collect();
        (queue.iter()).for_each(|&i| store.put(&key(i), b"task").unwrap());
        // As long as its directory is away nothing can be ingested.
        let (index, away) = (bench.path().join("index"), bench.path().join("away"));
        fs::rename(&index, &away).unwrap();
        // They fill the queue's chunk, which is frozen.
        for other in 0..900u32 {
            store.put(format!("other {other}").as_bytes(), b"").unwrap();
        }
        assert_eq!(store.stats().index.entries, 0);
        let mut next = LIVE;
        let passed = pop(&store, &mut queue, &mut next, LIVE);
        let each = passed / u64::from(LIVE);
        assert!(each <= 20, "{each} a pop");
        fs::rename(&away, &index).unwrap();
        // Once it is in the tables nothing of it is met either.
        while store.gc().is_err() {
            thread::sleep(Duration::from_millis(10));
        }
        pop(&store, &mut queue, &mut next, LIVE);
        let left = store.scan(ScanRange::prefix(b"key ").keys_only()).unwrap();
        let left: Vec<_> = left.map(|pair| pair.unwrap().0).collect();
        assert_eq!(left, queue.iter().map(|&i| key(i)).collect::<Vec<_>>());
    });
}

#[test]
fn every_scan_meets_keys_as_they_are_deleted_and_put_again() {
    const KEYS: u32 = 400;
    let bench = Bench::new();
    let store = bench.open(&small(Durability::DOUBLE).memtable_size(4 << 20));
    let keys = |range: ScanRange| -> Vec<Vec<u8>> {
        let scan = store.scan(range.keys_only()).unwrap();
        scan.map(|pair| pair.unwrap().0).collect()
    };
    for round in 0..6 {
        (0..KEYS).for_each(|i| store.put(&key(i), b"value").unwrap());
        if round == 3 {
            // From here on the keys are in the tables as well.
            store.gc().unwrap();
        }
        (0..KEYS - 1).for_each(|i| store.delete(&key(i)).unwrap());
        for _ in 0..5 {
            // The first of them makes the deleted keys leave the order.
            assert_eq!(keys(ScanRange::all()), [key(KEYS - 1)]);
            assert_eq!(keys(ScanRange::all().reversed()), [key(KEYS - 1)]);
        }
        let snapshot = store.snapshot().unwrap();
        (0..KEYS)
            .step_by(2)
            .for_each(|i| store.put(&key(i), b"again").unwrap());
        let expected: Vec<_> = (0..KEYS)
            .filter(|i| i % 2 == 0 || *i == KEYS - 1)
            .map(key)
            .collect();
        assert_eq!(keys(ScanRange::all()), expected, "{round}");
        let mut reversed = keys(ScanRange::all().reversed());
        reversed.reverse();
        assert_eq!(reversed, expected, "{round}");
        assert_eq!(snapshot.scan(ScanRange::all()).unwrap().count(), 1);
    }
}
