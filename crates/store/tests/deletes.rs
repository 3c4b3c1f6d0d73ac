//! Deleted keys go: from the index, and from the way of scans.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, Rng, small, within};
use forebay_store::{Durability, KeyspaceOptions, Scan, ScanRange, Snapshot, Store, StoreError};
use std::{
    collections::{BTreeSet, VecDeque},
    fs, thread,
    time::Duration,
};

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

/// Promise (store): However many keys in a row are deleted one by one, the first scan right behind
/// passes over those alone that are not ingested yet: a sixteenth of what the memtable has room
/// for.
#[test]
fn the_first_scan_behind_deletes_in_a_row_passes_over_few_keys() {
    const KEYS: u32 = 40_000;
    within(Duration::from_secs(120), "scans behind deletes", || {
        for reversed in [false, true] {
            let bench = Bench::new();
            // A chunk of which is full with 1563 deletes.
            let options = small(Durability::DOUBLE).memtable_size(1 << 20);
            let store = bench.open(&options);
            (0..KEYS).for_each(|i| store.put(&key(i), b"value").unwrap());
            store.gc().unwrap();
            let snapshot = store.snapshot().unwrap();
            let deletes = 10..KEYS - 10;
            match reversed {
                true => deletes.rev().for_each(|i| store.delete(&key(i)).unwrap()),
                false => deletes.for_each(|i| store.delete(&key(i)).unwrap()),
            }
            let before = store.stats().scan_passed_keys;
            // Each another range than the other's.
            let first = store.range(key(10)..).unwrap().next();
            assert_eq!(first.unwrap().unwrap().0, key(KEYS - 10));
            let passed = store.stats().scan_passed_keys - before;
            // Where the ingestion is far behind, writers stand still at five chunks and a quarter.
            assert!(passed < 10_000, "{passed}");
            let last = ScanRange::new(..key(KEYS - 10)).reversed();
            let last = store.scan(last).unwrap().next();
            assert_eq!(last.unwrap().unwrap().0, key(9));
            let passed = store.stats().scan_passed_keys - before;
            assert!(passed < 20_000, "{passed}");

            store.put(&key(777), b"again").unwrap();
            let numbers = |range: ScanRange| -> Vec<Vec<u8>> {
                let scan = store.scan(range.keys_only()).unwrap();
                scan.map(|pair| pair.unwrap().0).collect()
            };
            let expected = [0..10, 777..778, KEYS - 10..KEYS];
            let expected: Vec<_> = expected.into_iter().flatten().map(key).collect();
            assert_eq!(numbers(ScanRange::all()), expected);
            assert!(store.get(&key(776)).unwrap().is_none());
            assert_eq!(&*store.get(&key(777)).unwrap().unwrap(), b"again");
            store.gc().unwrap();
            assert_eq!(numbers(ScanRange::all()), expected);
            // What the snapshot sees is where it was.
            let seen = snapshot.scan(ScanRange::all()).unwrap();
            assert_eq!(seen.map(Result::unwrap).count(), KEYS as usize);
            assert!(snapshot.contains_key(&key(776)).unwrap());
            drop((snapshot, store));
            let store = bench.open(&options);
            let scan = store.scan(ScanRange::all().keys_only()).unwrap();
            assert!(scan.map(|pair| pair.unwrap().0).eq(expected));
        }
    });
}

type Numbers = BTreeSet<u32>;

fn scanned(scan: Result<Scan, StoreError>) -> Vec<u32> {
    let number = |key: Vec<u8>| String::from_utf8(key).unwrap()[4..].parse().unwrap();
    let pairs = scan.unwrap().map(Result::unwrap);
    pairs.map(|(key, _)| number(key)).collect()
}

/// Promise: as `ranges_in_the_place_of_tombstones_hide_what_those_do`.
#[test]
fn many_deletes_in_a_row_hide_no_key_that_is_put_or_seen() {
    within(Duration::from_secs(300), "deletes in a row", || {
        for seed in 0..2 {
            println!("seed {seed}");
            delete_in_rows(&mut Rng(seed));
        }
    });
}

fn delete_in_rows(rng: &mut Rng) {
    const KEYS: u64 = 8000;
    let bench = Bench::new();
    let options = small(Durability::DOUBLE).memtable_size(1 << 20);
    let mut store = bench.open(&options);
    let terms = || KeyspaceOptions::new().ttl(Duration::from_secs(3600));
    let mut models = [Numbers::new(), Numbers::new()];
    let mut held: Vec<(Snapshot, Numbers)> = Vec::new();
    for round in 0..40 {
        let other = store.keyspace("other", terms()).unwrap();
        let (from, len) = (rng.below(KEYS) as u32, 1 + rng.below(KEYS / 2) as u32);
        let step = 1 + rng.below(3) as usize * usize::from(rng.below(4) == 0);
        let mut keys: Vec<u32> = (from..from + len).step_by(step).collect();
        if rng.below(2) == 0 {
            keys.reverse();
        }
        let (which, puts) = (rng.below(2) as usize, rng.below(5) < 2);
        for i in keys {
            match (which, puts) {
                (0, true) => store.put(&key(i), b"value").unwrap(),
                (0, false) => store.delete(&key(i)).unwrap(),
                (_, true) => other.put(&key(i), b"value").unwrap(),
                (_, false) => other.delete(&key(i)).unwrap(),
            }
            match puts {
                true => models[which].insert(i),
                false => models[which].remove(&i),
            };
        }
        for (number, model) in models.iter().enumerate() {
            let scan = |range: ScanRange| match number {
                0 => scanned(store.scan(range)),
                _ => scanned(other.scan(range)),
            };
            assert!(scan(ScanRange::all()).iter().eq(model), "{round}");
            let back = scan(ScanRange::all().reversed());
            assert!(back.iter().eq(model.iter().rev()), "{round}");
            let part = ScanRange::new(key(from + len / 2)..key(from + 2 * len));
            let expected = model.range(from + len / 2..from + 2 * len);
            assert!(scan(part).iter().eq(expected), "{round}");
        }
        for _ in 0..200 {
            let i = rng.below(KEYS) as u32;
            assert_eq!(store.contains_key(&key(i)).unwrap(), models[0].contains(&i));
            assert_eq!(other.contains_key(&key(i)).unwrap(), models[1].contains(&i));
        }
        if rng.below(3) == 0 {
            held.push((store.snapshot().unwrap(), models[0].clone()));
        }
        if held.len() > 3 || rng.below(6) == 0 {
            for (snapshot, model) in held.drain(..) {
                assert!(scanned(snapshot.scan(ScanRange::all())).iter().eq(&model));
            }
        }
        if held.is_empty() && rng.below(5) == 0 {
            drop(store);
            store = bench.open(&options);
        }
    }
    assert!(store.verify().unwrap().problems.is_empty());
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
