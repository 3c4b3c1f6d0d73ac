//! Ranges that are deleted by one record: what goes, what stays, and what it costs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, VARIANTS, small, tiny, within};
use forebay_store::{Batch, Durability, ScanRange, Snapshot, Store, StoreError};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

fn key(number: u32) -> Vec<u8> {
    format!("key {number:08}").into_bytes()
}

fn between(from: u32, to: u32) -> ScanRange {
    ScanRange::new(key(from)..key(to))
}

fn fill(store: &Store, keys: std::ops::Range<u32>) {
    keys.for_each(|i| store.put(&key(i), &[i as u8; 100]).unwrap());
}

/// The numbers of the keys there are, by every way to look for them.
fn numbers(store: &Store) -> Vec<u32> {
    let all: Vec<_> = scanned(store.scan(ScanRange::all()).unwrap());
    let mut reversed = scanned(store.scan(ScanRange::all().reversed()).unwrap());
    reversed.reverse();
    assert_eq!(all, reversed);
    for i in 0..all.last().map_or(0, |last| last + 10) {
        let found = store.get(&key(i)).unwrap();
        assert_eq!(found.is_some(), all.binary_search(&i).is_ok(), "{i}");
        assert_eq!(store.contains_key(&key(i)).unwrap(), found.is_some());
        assert!(found.is_none_or(|found| *found == [i as u8; 100]));
    }
    all
}

fn scanned(scan: forebay_store::Scan) -> Vec<u32> {
    let number = |key: Vec<u8>| String::from_utf8(key).unwrap()[4..].parse().unwrap();
    scan.map(|pair| number(pair.unwrap().0)).collect()
}

fn seen_by(snapshot: &Snapshot) -> usize {
    snapshot.scan(ScanRange::all()).unwrap().count()
}

/// Promise (store): A deleted range has no key of before, and every key that is put there later,
/// whatever is ingested, merged or collected, and after a close or a crash.
#[test]
fn a_deleted_range_stays_deleted_through_everything() {
    for (number, variant) in VARIANTS.into_iter().enumerate() {
        within(Duration::from_secs(120), "deleting ranges", move || {
            let bench = Bench::new();
            let mut store = bench.open(&tiny(variant));
            let mut expected: Vec<u32> = (0..1500).collect();
            fill(&store, 0..1500);
            for (from, to) in [(100, 200), (150, 900), (890, 1000), (300, 310)] {
                store.delete_range(between(from, to)).unwrap();
                expected.retain(|&i| !(from..to).contains(&i));
                let again = [from + 5, to - 3];
                again.iter().for_each(|&i| fill(&store, i..i + 1));
                expected.extend(again);
                expected.sort_unstable();
                expected.dedup();
                assert_eq!(numbers(&store), expected);
                store.gc().unwrap();
                assert_eq!(numbers(&store), expected);
                match from % 4 + number as u32 % 2 {
                    0 => store.close().unwrap(),
                    _ => drop(store),
                }
                store = bench.open(&tiny(variant));
                assert_eq!(numbers(&store), expected);
            }
            assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
            store.delete_range(ScanRange::all()).unwrap();
            drop(store);
            let store = bench.open(&tiny(variant));
            assert!(numbers(&store).is_empty());
        });
    }
}

/// Promise (store): In a batch a deleted range takes what is put before it, and leaves what is put
/// after it.
#[test]
fn a_deleted_range_has_its_place_in_its_batch() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    fill(&store, 0..20);
    let mut batch = store.batch();
    batch.put(&key(3), &[3; 100]).unwrap();
    batch.delete_range(between(0, 10)).unwrap();
    batch.put(&key(4), &[4; 100]).unwrap();
    batch.delete_range(ScanRange::new(key(15)..)).unwrap();
    // No key: nothing.
    batch.delete_range(between(7, 7)).unwrap();
    batch.delete(&key(12)).unwrap();
    assert_eq!(batch.len(), 5);
    store.write(&batch).unwrap();
    let expected = [4, 10, 11, 13, 14];
    assert_eq!(numbers(&store), expected);
    drop(store);
    let store = bench.open(&tiny(Durability::DOUBLE));
    assert_eq!(numbers(&store), expected);
    store.gc().unwrap();
    assert_eq!(numbers(&store), expected);
    let mut batch = store.batch();
    let long = vec![7; 40_000];
    let refused = batch.delete_range(ScanRange::new(&long[..]..)).unwrap_err();
    assert!(
        matches!(refused, StoreError::BatchTooLarge { .. }),
        "{refused}"
    );
    assert!(batch.is_empty());
}

/// Promise (store): A snapshot sees what it saw, though a range of it is deleted, and one that was
/// taken behind that sees nothing of it.
#[test]
fn snapshots_before_and_after_a_deleted_range_stay_as_they_are() {
    within(Duration::from_secs(120), "snapshots", || {
        let bench = Bench::new();
        let store = bench.open(&tiny(Durability::DOUBLE));
        fill(&store, 0..3000);
        store.gc().unwrap();
        fill(&store, 3000..4000);
        let before = store.snapshot().unwrap();
        let scan = store.scan(ScanRange::all()).unwrap();
        store.delete_range(between(500, 3500)).unwrap();
        let after = store.snapshot().unwrap();
        fill(&store, 1000..1100);
        let later = store.snapshot().unwrap();
        for _ in 0..3 {
            let seen = [&before, &after, &later].map(seen_by);
            assert_eq!(seen, [4000, 1000, 1100]);
            assert!(before.get(&key(600)).unwrap().is_some());
            assert!(after.get(&key(1050)).unwrap().is_none());
            assert!(later.get(&key(1050)).unwrap().is_some());
            store.gc().unwrap();
        }
        assert_eq!(scan.map(Result::unwrap).count(), 4000);
        let copy = bench.dir.path().join("copy");
        store.checkpoint(&copy).unwrap();
        let copy = tiny(Durability::NoSync).open(&copy, None).unwrap();
        assert_eq!(numbers(&copy).len(), 1100);
        let backups = bench.dir.path().join("backups");
        store.backup(&backups, |_| {}).unwrap();
        let backup = backups.join("000001");
        let backup = tiny(Durability::NoSync).open(&backup, None).unwrap();
        assert_eq!(numbers(&backup).len(), 1100);
    });
}

/// Promise (store): A process that reads a store beside its owner finds nothing of a deleted range.
#[test]
fn a_reader_beside_its_owner_sees_no_key_of_a_deleted_range() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::Fsync));
    fill(&store, 0..300);
    store.gc().unwrap();
    let reader = tiny(Durability::Fsync)
        .open_read_only(bench.path(), None)
        .unwrap();
    let count = || reader.scan(ScanRange::all()).unwrap().count();
    let before = reader.snapshot().unwrap();
    for collects in [false, true] {
        let to = if collects { 200 } else { 100 };
        store.delete_range(between(0, to)).unwrap();
        if collects {
            store.gc().unwrap();
        }
        reader.refresh().unwrap();
        assert_eq!(count(), 300 - to as usize);
        assert!(reader.get(&key(to - 1)).unwrap().is_none());
        assert!(reader.get(&key(to)).unwrap().is_some());
    }
    assert!(before.contains_key(&key(0)).unwrap());
}

/// Promise (store): A range is deleted in the time of one write, and a scan over it, or right
/// behind it, looks at none of its keys in the index.
#[test]
fn a_scan_over_a_deleted_range_passes_over_few_keys() {
    const KEYS: u32 = 60_000;
    within(
        Duration::from_secs(120),
        "scans over a deleted range",
        || {
            for collects in [false, true] {
                let bench = Bench::new();
                let store = bench.open(&small(Durability::DOUBLE).memtable_size(4 << 20));
                fill(&store, 0..KEYS);
                if collects {
                    store.gc().unwrap();
                }
                let before = store.stats().scan_passed_keys;
                let begun = Instant::now();
                store.delete_range(between(10, KEYS - 10)).unwrap();
                assert!(begun.elapsed() < Duration::from_secs(1));
                for _ in 0..3 {
                    let mut behind = store.range(key(10)..).unwrap();
                    assert_eq!(behind.next().unwrap().unwrap().0, key(KEYS - 10));
                    let before = ScanRange::new(..key(KEYS - 10)).reversed();
                    let mut before = store.scan(before).unwrap();
                    assert_eq!(before.next().unwrap().unwrap().0, key(9));
                    assert_eq!(numbers_only(&store), 20);
                }
                let passed = store.stats().scan_passed_keys - before;
                // Nine scans, each over what the active chunk has at most.
                assert!(passed < 9 * 10_000, "{passed}");
            }
        },
    );
}

/// Promise (store): Tables of the index that a deleted range hides as a whole are removed without
/// being read, and value-log files of which nothing is live without a record being copied.
#[test]
fn what_a_deleted_range_hides_as_a_whole_is_given_back_uncopied() {
    within(Duration::from_secs(120), "giving back", || {
        let bench = Bench::new();
        let store = bench.open(&small(Durability::DOUBLE));
        fill(&store, 0..40_000);
        store.gc().unwrap();
        let full = store.stats();
        assert!(full.index.entries >= 40_000 && full.value_log_files >= 1);
        store.delete_range(ScanRange::prefix("key ")).unwrap();
        assert_eq!(numbers_only(&store), 0);
        let report = store.gc().unwrap();
        assert_eq!(report.relocated, 0);
        // Tables go behind the ingestion, and with the last one what hid it.
        while store.stats().index.entries > 0 || store.stats().index.deleted_ranges > 0 {
            thread::sleep(Duration::from_millis(5));
        }
        drop(store);
        let store = bench.open(&small(Durability::DOUBLE));
        assert_eq!(numbers_only(&store), 0);
        assert_eq!(store.stats().index.deleted_ranges, 0);
    });
}

fn numbers_only(store: &Store) -> usize {
    store.scan(ScanRange::all().keys_only()).unwrap().count()
}

/// Promise (store): With as many deleted ranges as a store keeps apart, another one is refused, and
/// one that takes in others is not.
#[test]
fn too_many_ranges_are_refused_until_they_are_fewer() {
    within(Duration::from_secs(120), "many ranges", || {
        let bench = Bench::new();
        let options = small(Durability::NoSync).chunk_log_size(64 << 20).gc(false);
        let store = options
            .memtable_size(16 << 20)
            .open(bench.path(), None)
            .unwrap();
        // Every one hides something.
        fill(&store, 0..22_000);
        let every_other = |hundred: u32| {
            let mut batch = Batch::new();
            for i in 0..100 {
                let from = (hundred * 100 + i) * 2;
                batch.delete_range(between(from, from + 1)).unwrap();
            }
            store.write(&batch)
        };
        (0..100).for_each(|hundred| every_other(hundred).unwrap());
        let refused = every_other(100).unwrap_err();
        assert!(
            matches!(refused, StoreError::TooManyRanges { .. }),
            "{refused}"
        );
        assert_eq!(numbers_only(&store), 12_000);
        store.delete_range(between(0, 15_000)).unwrap();
        every_other(100).unwrap();
        assert_eq!(numbers_only(&store), 2500 + 1000 + 900);
    });
}

/// Promise: as `too_many_ranges_are_refused_until_they_are_fewer`.
#[test]
fn one_write_deletes_no_more_ranges_than_a_store_keeps() {
    let bench = Bench::new();
    let store = small(Durability::NoSync).open(bench.path(), None).unwrap();
    fill(&store, 0..10);
    let every_other = |ranges: u32| {
        let mut batch = Batch::new();
        for i in 0..ranges {
            batch.delete_range(between(i * 2, i * 2 + 1)).unwrap();
        }
        store.write(&batch)
    };
    let refused = every_other(10_001).unwrap_err();
    assert!(
        matches!(refused, StoreError::TooManyRanges { ranges: 10_001 }),
        "{refused}"
    );
    assert_eq!(numbers_only(&store), 10);
    every_other(10_000).unwrap();
    assert_eq!(numbers_only(&store), 5);
}

/// Promise (store): A transaction that read a key of a range that was deleted meanwhile, or went
/// through it, is not committed; one that found nothing there is.
#[test]
fn a_deleted_range_is_a_conflict_where_it_changed_what_was_read() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    fill(&store, 0..100);
    for (reads_key, from, conflicts) in [
        (true, 10, true),
        (true, 60, false),
        (false, 10, true),
        (false, 60, false),
        // Over what was read, where nothing is left.
        (false, 10, false),
    ] {
        let mut tx = store.begin().unwrap();
        match reads_key {
            true => assert!(tx.get(&key(15)).unwrap().is_some()),
            false => drop(tx.scan(between(0, 50)).unwrap().count()),
        }
        tx.put(&key(1000), &[0xE8; 100]).unwrap();
        store.delete_range(between(from, from + 10)).unwrap();
        let done = tx.commit();
        match conflicts {
            true => assert!(matches!(done, Err(StoreError::Conflict { .. })), "{done:?}"),
            false => done.unwrap(),
        }
        if conflicts && reads_key {
            fill(&store, 10..20);
        }
    }
    let swapped = store
        .compare_and_swap(&key(15), Some(&[15; 100]), Some(b"new"))
        .unwrap();
    assert!(!swapped);
    assert!(
        store
            .compare_and_swap(&key(15), None, Some(&[15; 100]))
            .unwrap()
    );
    assert_eq!(
        store
            .update(&key(16), |found| found.map(<[u8]>::to_vec))
            .unwrap(),
        None
    );
}

/// Promise (store): A transaction deletes a range as it writes keys: it sees that itself, and
/// nobody else does before it is committed.
#[test]
fn a_transaction_deletes_a_range_with_its_writes() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    fill(&store, 0..50);
    let mut tx = store.begin().unwrap();
    tx.put(&key(5), &[5; 100]).unwrap();
    tx.delete_range(between(0, 20)).unwrap();
    tx.put(&key(7), &[7; 100]).unwrap();
    assert!(tx.get(&key(5)).unwrap().is_none() && !tx.contains_key(&key(6)).unwrap());
    assert!(tx.contains_key(&key(7)).unwrap());
    let own: Vec<_> = tx
        .scan(between(0, 22))
        .unwrap()
        .map(|pair| pair.unwrap().0)
        .collect();
    assert_eq!(own, [key(7), key(20), key(21)]);
    assert_eq!(numbers(&store).len(), 50);
    // What it does not read it does not depend on.
    store.put(&key(60), &[60; 100]).unwrap();
    tx.commit().unwrap();
    let expected: Vec<_> = [7].into_iter().chain(20..50).chain([60]).collect();
    assert_eq!(numbers(&store), expected);
    drop(store);
    let store = bench.open(&tiny(Durability::DOUBLE));
    assert_eq!(numbers(&store), expected);
}

/// Promise (store): A put beside the delete of a range is before it or behind it, with a collector
/// at work, and stays so after a crash.
#[test]
fn each_put_is_before_or_behind_the_delete_of_its_range() {
    const KEYS: usize = 8;
    const ROUNDS: u64 = 100;
    within(Duration::from_secs(120), "puts beside deletes", || {
        let bench = Bench::new();
        let options = tiny(Durability::DOUBLE);
        let store = bench.open(&options);
        let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
        let acknowledged: Vec<_> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let done = AtomicBool::new(false);
        let name = |key: usize| format!("key {key}");
        let read = |key: usize| {
            let found = store.get(&name(key)).unwrap();
            found.map(|found| u64::from_le_bytes(found[..8].try_into().unwrap()))
        };
        thread::scope(|scope| {
            for key in 0..KEYS {
                let (store, read, name) = (&store, &read, &name);
                let (begun, ended) = (&begun, &ended);
                let (acknowledged, done) = (&acknowledged[key], &done);
                scope.spawn(move || {
                    for number in 1u64.. {
                        let before = ended.load(SeqCst);
                        let value = [&number.to_le_bytes()[..], &[7; 700]].concat();
                        store.put(&name(key), &value).unwrap();
                        acknowledged.store(number, SeqCst);
                        match read(key) {
                            Some(found) => assert_eq!(found, number),
                            None => assert!(begun.load(SeqCst) > before, "a put is lost"),
                        }
                        if done.load(SeqCst) {
                            break;
                        }
                    }
                });
            }
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    store.gc().unwrap();
                }
            });
            for _ in 0..ROUNDS {
                let before: Vec<_> = acknowledged.iter().map(|put| put.load(SeqCst)).collect();
                begun.fetch_add(1, SeqCst);
                store.delete_range(ScanRange::prefix("key ")).unwrap();
                ended.fetch_add(1, SeqCst);
                for (key, before) in before.into_iter().enumerate() {
                    let found = read(key);
                    assert!(found.is_none_or(|found| found > before), "{key} came back");
                }
            }
            done.store(true, SeqCst);
        });
        let left: Vec<_> = (0..KEYS).map(read).collect();
        drop(store);
        let store = bench.open(&options);
        for (key, left) in left.into_iter().enumerate() {
            let found = store.get(&name(key)).unwrap();
            let found = found.map(|found| u64::from_le_bytes(found[..8].try_into().unwrap()));
            assert_eq!(found, left);
        }
    });
}
