//! Memory that open snapshots and scans cost: the tests read this process's resident memory, one at
//! a time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, small};
use forebay_store::{Durability, ScanRange, Store};
use std::{fs, sync::Mutex};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const MIB: u64 = 1 << 20;

/// Bytes of resident memory of this process.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:08}").into_bytes()
}

fn counted(store: &Store, round: u32) {
    store.put(b"round", &round.to_le_bytes()).unwrap();
}

/// Promise (store): Snapshots and scans keep to the memory of the options, however many are open
/// and however long.
#[test]
fn snapshots_with_a_put_between_them_share_the_memtable() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let bench = Bench::with_segments(1 << 20);
    let store = bench.open(&small(Durability::DOUBLE).memtable_size(64 << 20));
    (0..1000).for_each(|i| store.put(&key(i), &[0; 10]).unwrap());
    drop(store.snapshot().unwrap());
    let before = resident();
    let mut held = Vec::new();
    for round in 0..60 {
        counted(&store, round);
        // The threads behind have the time to make a chunk ready.
        std::thread::sleep(std::time::Duration::from_millis(50));
        held.push(store.snapshot().unwrap());
        let mut scan = store.scan(ScanRange::all()).unwrap();
        assert_eq!(scan.next().unwrap().unwrap().0, key(0));
    }
    let grown = resident().saturating_sub(before);
    // An active chunk and the one in reserve, where nothing was touched before.
    assert!(grown < 320 * MIB, "{} MiB", grown / MIB);
    for (round, snapshot) in (0u32..).zip(&held) {
        let value = snapshot.get(b"round").unwrap().unwrap();
        assert_eq!(*value, round.to_le_bytes());
        assert_eq!(snapshot.scan(ScanRange::all()).unwrap().count(), 1001);
    }
}

/// Promise: as `snapshots_with_a_put_between_them_share_the_memtable`.
#[test]
fn held_snapshots_and_scans_keep_to_the_memory_of_the_options() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    const ROUNDS: u32 = 40;
    const KEYS: u32 = 40_000;
    let bench = Bench::with_segments(1 << 20);
    let options = small(Durability::DOUBLE)
        .memtable_size(2 << 20)
        .chunk_log_size(64 << 20)
        .cache_size(1 << 20)
        .gc(false);
    let store = bench.open(&options);
    let write = |round: u32| {
        counted(&store, round);
        // Each round has keys of its own, and takes one key of each earlier round away.
        for i in 0..KEYS {
            store.put(&key(round * KEYS + i), &[]).unwrap();
        }
        (0..round).for_each(|earlier| store.delete(&key(earlier * KEYS + round)).unwrap());
    };
    write(0);
    let before = resident();
    let (mut snapshots, mut scans) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            snapshots.push((round, store.snapshot().unwrap()));
        } else {
            let mut scan = store.scan(ScanRange::all().keys_only()).unwrap();
            assert_eq!(scan.next().unwrap().unwrap().0, key(0));
            scans.push((round, scan));
        }
        write(round + 1);
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 72 * MIB, "{} MiB", grown / MIB);
    // Keys of the rounds so far, the counter, and without those that were taken away.
    let live = |round: u32| ((round + 1) * KEYS + 1 - round * (round + 1) / 2) as usize;
    for (round, snapshot) in snapshots.iter().step_by(6) {
        let value = snapshot.get(b"round").unwrap().unwrap();
        assert_eq!(*value, round.to_le_bytes());
        let count = snapshot.scan(ScanRange::all().keys_only()).unwrap().count();
        assert_eq!(count, live(*round), "{round}");
    }
    for (round, scan) in scans.into_iter().step_by(7) {
        assert_eq!(scan.map(Result::unwrap).count() + 1, live(round), "{round}");
    }
}

/// Reads each value twice, so that it is worth keeping, and scans; how much memory that took.
fn read_all_twice(store: &Store, keys: u32) -> u64 {
    let before = resident();
    for i in 0..keys {
        for _ in 0..2 {
            assert!(store.get(&key(i)).unwrap().is_some());
        }
    }
    let some: Vec<_> = (0..keys).step_by(7).map(key).collect();
    assert!(store.multi_get(&some).unwrap().iter().all(Option::is_some));
    assert_eq!(
        store.scan(ScanRange::all()).unwrap().rev().count(),
        keys as usize
    );
    resident().saturating_sub(before)
}

/// Promise (store): The cache keeps to its size, blocks of the index and values of any length
/// together, however much is read.
#[test]
fn reads_of_much_more_than_the_cache_keep_to_its_size() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    const CACHE: u64 = 16 * MIB;
    for (keys, value_bytes) in [(3000_u32, 20_000), (200_000, 12), (80_000, 300)] {
        let bench = Bench::with_segments(1 << 20);
        let options = small(Durability::DOUBLE)
            .cache_size(CACHE)
            .memtable_size(1 << 20);
        let store = bench.open(&options);
        for i in 0..keys {
            store.put(&key(i), &vec![7; value_bytes]).unwrap();
        }
        store.close().unwrap();
        // All of it is in files, and nothing else goes on.
        let store = bench.open(&options);
        let grown = read_all_twice(&store, keys);
        let index = store.stats().index;
        // What tables pin is not the cache's: filters and where their blocks begin.
        let pinned = index.entries * 3 / 2;
        let counted = index.memory_bytes;
        println!("values of {value_bytes}: {counted} bytes counted, {grown} taken");
        assert!(counted <= CACHE + pinned, "{counted} counted");
        assert!(counted > CACHE / 4, "the cache was not used: {counted}");
        assert!(
            grown <= CACHE * 3 / 2 + 4 * MIB,
            "{grown} taken for values of {value_bytes}"
        );
    }
}
