//! What every variant of the store must do.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, VARIANTS, small};
use forebay_store::{Batch, ScanRange, Store, StoreError, Variant};

fn key(i: u32) -> Vec<u8> {
    format!("key {i:06}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    vec![(i % 251) as u8; (i as usize * 37) % 3000]
}

#[test]
fn a_value_is_read_as_it_was_put_in_every_variant_and_after_close_and_after_drop() {
    for variant in VARIANTS {
        let bench = Bench::new();
        let options = small(variant);
        // Each put of this variant takes a sync.
        let count = if variant == Variant::Fsync { 200 } else { 2000 };
        let store = bench.open(&options);
        for i in 0..count {
            store.put(&key(i), &value(i)).unwrap();
        }
        for i in (0..count).step_by(3) {
            store.delete(&key(i)).unwrap();
        }
        let check = |store: &Store| {
            for i in 0..count {
                let expected = (i % 3 != 0).then(|| value(i));
                assert_eq!(
                    store.get(&key(i)).unwrap().map(|v| v.into_vec()),
                    expected,
                    "{variant} {i}"
                );
            }
            let scanned: Vec<_> = store
                .scan(ScanRange::all())
                .unwrap()
                .map(|pair| pair.map(|(k, v)| (k, v.into_vec())).unwrap())
                .collect();
            let expected: Vec<_> = (0..count)
                .filter(|i| i % 3 != 0)
                .map(|i| (key(i), value(i)))
                .collect();
            assert!(scanned == expected, "{variant}: {} scanned", scanned.len());
        };
        check(&store);
        drop(store);
        let store = bench.open(&options);
        check(&store);
        store.put(b"after the crash", b"x").unwrap();
        store.close().unwrap();
        let store = bench.open(&options);
        check_contains(&store, b"after the crash");
        store.delete(b"after the crash").unwrap();
        check(&store);
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}

fn check_contains(store: &Store, key: &[u8]) {
    assert!(store.get(key).unwrap().is_some());
}

#[test]
fn every_variant_opens_what_any_other_left_closed_or_crashed() {
    for (number, first) in VARIANTS.into_iter().enumerate() {
        for second in VARIANTS {
            for closed in [true, false] {
                let bench = Bench::new();
                let store = bench.open(&small(first));
                for i in 0..30 {
                    store.put(&key(i), &value(i)).unwrap();
                }
                if closed {
                    store.close().unwrap();
                } else {
                    drop(store);
                }
                let store = bench.open(&small(second));
                for i in 30..60 {
                    store.put(&key(i), &value(i)).unwrap();
                }
                drop(store);
                let store = bench.open(&small(VARIANTS[(number + 1) % VARIANTS.len()]));
                for i in 0..60 {
                    let got = store.get(&key(i)).unwrap().map(|v| v.into_vec());
                    assert_eq!(
                        got,
                        Some(value(i)),
                        "{first} then {second}, closed {closed}, key {i}"
                    );
                }
            }
        }
    }
}

#[test]
fn values_from_nothing_to_many_segments_and_keys_from_one_byte_to_64_kib_are_kept() {
    for variant in [Variant::DOUBLE, Variant::Fsync] {
        let bench = Bench::with_segments(256 << 10);
        let options = small(variant);
        let store = bench.open(&options);
        let sizes = [
            0, 1, 100, 4096, 100_000, 131_000, 131_040, 200_000, 600_000, 5_000_000,
        ];
        for (i, &size) in sizes.iter().enumerate() {
            store.put(&key(i as u32), &vec![i as u8 + 1; size]).unwrap();
        }
        for length in [1, 8, 9, 1000, 65_535] {
            store
                .put(&vec![b'k'; length], &length.to_le_bytes())
                .unwrap();
        }
        let check = |store: &Store| {
            for (i, &size) in sizes.iter().enumerate() {
                assert_eq!(
                    store.get(&key(i as u32)).unwrap().unwrap(),
                    vec![i as u8 + 1; size]
                );
            }
            for length in [1usize, 8, 9, 1000, 65_535] {
                assert_eq!(
                    store.get(&vec![b'k'; length]).unwrap().unwrap(),
                    length.to_le_bytes()
                );
            }
        };
        check(&store);
        drop(store);
        let store = bench.open(&options);
        check(&store);
        // A large value that is replaced is collected; the one that is not stays.
        // By this collection, or by the one in the background before it.
        let before = store.stats().large_value_files;
        store.put(&key(9), b"small now").unwrap();
        let report = store.gc().unwrap();
        assert_eq!(store.stats().large_value_files, before - 1, "{report:?}");
        assert_eq!(store.get(&key(9)).unwrap().unwrap(), b"small now");
        assert_eq!(store.get(&key(8)).unwrap().unwrap(), vec![9; 600_000]);
        for (bytes, bad) in [(0, vec![]), (65_536, vec![1; 65_536])] {
            let error = store.put(&bad, b"").unwrap_err();
            assert!(matches!(error, StoreError::BadKey { bytes: b } if b == bytes));
            assert!(store.get(&bad).unwrap().is_none());
        }
    }
}

#[test]
fn a_batch_is_all_or_nothing_and_its_last_operation_on_a_key_counts() {
    let bench = Bench::new();
    let store = bench.open(&small(Variant::DOUBLE));
    store.put(b"gone", b"x").unwrap();
    let mut batch = Batch::new();
    batch.put(b"a", b"1");
    batch.put(b"a", b"2");
    batch.delete(b"gone");
    batch.put(b"large", &[7; 100_000]);
    store.write(&batch).unwrap();
    let mut too_large = Batch::new();
    for i in 0..40 {
        too_large.put(&key(i), &[0; 1000]);
    }
    let error = store.write(&too_large).unwrap_err();
    assert!(matches!(error, StoreError::BatchTooLarge { .. }), "{error}");
    store.write(&Batch::new()).unwrap();
    for _ in 0..2 {
        assert_eq!(store.get(b"a").unwrap().unwrap(), b"2");
        assert_eq!(store.get(b"large").unwrap().unwrap(), [7; 100_000]);
        assert!(store.get(b"gone").unwrap().is_none());
        assert!(store.get(&key(0)).unwrap().is_none());
    }
    drop(store);
    let store = bench.open(&small(Variant::DOUBLE));
    assert_eq!(store.get(b"a").unwrap().unwrap(), b"2");
    assert_eq!(store.get(b"large").unwrap().unwrap(), [7; 100_000]);
    assert!(store.get(b"gone").unwrap().is_none());
}

#[test]
fn a_scan_gives_exactly_its_range_in_both_directions() {
    let bench = Bench::new();
    let store = bench.open(&small(Variant::DOUBLE));
    for i in 0..3000 {
        store.put(&key(i), &i.to_le_bytes()).unwrap();
    }
    let keys = |range: ScanRange| -> Vec<Vec<u8>> {
        store
            .scan(range)
            .unwrap()
            .map(|pair| pair.unwrap().0)
            .collect()
    };
    let expected = |range: std::ops::Range<u32>| -> Vec<Vec<u8>> { range.map(key).collect() };
    use std::ops::Bound::{Excluded, Included, Unbounded};
    assert_eq!(keys(ScanRange::prefix(b"key 0012")), expected(1200..1300));
    assert_eq!(
        keys(ScanRange::new(Included(key(10)), Excluded(key(20)))),
        expected(10..20)
    );
    assert_eq!(
        keys(ScanRange::new(Excluded(key(10)), Included(key(20)))),
        expected(11..21)
    );
    assert_eq!(
        keys(ScanRange::new(Excluded(key(20)), Included(key(10)))),
        expected(0..0)
    );
    let mut reversed = keys(ScanRange::new(Unbounded, Excluded(key(700))).reversed());
    reversed.reverse();
    assert_eq!(reversed, expected(0..700));
    let pair = store
        .scan(ScanRange::prefix(&key(5)).keys_only())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert!(pair.1.is_empty());
}

#[test]
fn a_snapshot_does_not_change_whatever_is_written_deleted_collected_or_merged() {
    let bench = Bench::new();
    let store = bench.open(&small(Variant::DOUBLE));
    for i in 0..4000 {
        store.put(&key(i), &value(i)).unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    for round in 0..3 {
        for i in 0..4000 {
            if i % 5 == 0 {
                store.delete(&key(i)).unwrap();
            } else {
                store.put(&key(i), &round_value(round, i)).unwrap();
            }
        }
        store.gc().unwrap();
    }
    let seen: Vec<_> = snapshot
        .scan(ScanRange::all())
        .unwrap()
        .map(|pair| pair.map(|(k, v)| (k, v.into_vec())).unwrap())
        .collect();
    assert!(seen == (0..4000).map(|i| (key(i), value(i))).collect::<Vec<_>>());
    for i in (0..4000).step_by(77) {
        assert_eq!(snapshot.get(&key(i)).unwrap().unwrap(), value(i));
    }
    drop(snapshot);
    let report = store.gc().unwrap();
    let stats = store.stats();
    assert!(stats.value_log_bytes < 48 << 20, "{report:?} {stats:?}");
    for i in 0..4000 {
        let expected = (i % 5 != 0).then(|| round_value(2, i));
        assert_eq!(store.get(&key(i)).unwrap().map(|v| v.into_vec()), expected);
    }
}

fn round_value(round: u8, i: u32) -> Vec<u8> {
    [&[round][..], &value(i)].concat()
}

#[test]
fn garbage_collection_gives_space_back_and_keeps_every_live_value_also_after_a_crash() {
    for variant in [Variant::DOUBLE, Variant::NoSync] {
        let bench = Bench::with_segments(256 << 10);
        let options = small(variant).gc(false);
        let store = bench.open(&options);
        for round in 0..20u8 {
            for i in 0..2000 {
                store
                    .put(&key(i), &[&[round][..], &vec![i as u8; 2000]].concat())
                    .unwrap();
            }
        }
        let before = store.stats().value_log_bytes;
        let report = store.gc().unwrap();
        assert!(report.files > 0 && report.reclaimed_bytes > 0, "{report:?}");
        let after = store.stats();
        assert!(after.value_log_bytes < before, "{before} {after:?}");
        drop(store);
        let store = bench.open(&options);
        for i in 0..2000 {
            let expected = [&[19][..], &vec![i as u8; 2000]].concat();
            assert_eq!(store.get(&key(i)).unwrap().unwrap(), expected);
        }
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn writers_readers_scanners_and_the_collector_work_at_the_same_time() {
    let bench = Bench::with_segments(256 << 10);
    let store = &bench.open(&small(Variant::DOUBLE));
    std::thread::scope(|scope| {
        for writer in 0..3u32 {
            scope.spawn(move || {
                for i in 0..6000 {
                    let number = writer * 1000 + i % 1000;
                    store.put(&key(number), &i.to_le_bytes()).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for i in 0..6000 {
                if let Some(value) = store.get(&key(i % 3000)).unwrap() {
                    assert_eq!(value.len(), 4);
                }
            }
        });
        scope.spawn(|| {
            for _ in 0..30 {
                let keys: Vec<_> = store
                    .scan(ScanRange::all())
                    .unwrap()
                    .map(|pair| pair.unwrap().0)
                    .collect();
                assert!(keys.is_sorted());
            }
        });
        scope.spawn(|| {
            for _ in 0..5 {
                store.gc().unwrap();
            }
        });
    });
    for writer in 0..3 {
        for i in 0..1000 {
            let last = store.get(&key(writer * 1000 + i)).unwrap().unwrap();
            assert_eq!(last, (5000 + i).to_le_bytes());
        }
    }
}

#[test]
fn verify_finds_nothing_wrong_while_writers_and_the_collector_work() {
    let bench = Bench::new();
    let options = common::tiny(Variant::DOUBLE).space_amplification_max(1.2);
    let store = &bench.open(&options);
    let done = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..12_000u32 {
                store.put(&key(i % 400), &value(i)).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        while !done.load(std::sync::atomic::Ordering::SeqCst) {
            assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
            store.gc().unwrap();
        }
    });
    let stats = store.stats();
    assert!(stats.gc_files_removed > 0, "{stats:?}");
}

#[test]
fn a_damaged_header_of_a_large_value_does_not_cost_the_value_at_an_opening_after_a_crash() {
    let bench = Bench::new();
    let store = bench.open(&small(Variant::DOUBLE));
    store.put(b"large", &[7; 100_000]).unwrap();
    drop(store);
    let file = bench.path().join("large/0000000000000001.val");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let store = bench.open(&small(Variant::DOUBLE));
    assert_eq!(store.get(b"large").unwrap().unwrap(), [7; 100_000]);
}

#[test]
fn a_value_that_is_read_again_and_again_is_always_the_one_written_last() {
    for variant in [Variant::DOUBLE, Variant::NoSync] {
        let bench = Bench::new();
        let store = bench.open(&small(variant));
        let mut buffer = Vec::new();
        for round in 0..4u8 {
            for i in 0..500 {
                store.put(&key(i), &round_value(round, i)).unwrap();
            }
            for _ in 0..3 {
                for i in 0..500 {
                    let expected = round_value(round, i);
                    assert_eq!(store.get(&key(i)).unwrap().unwrap(), expected);
                    let found = store.get_into(&key(i), &mut buffer).unwrap();
                    assert_eq!(found, Some(&expected[..]));
                }
                let scanned = store.scan(ScanRange::all()).unwrap();
                for (i, pair) in (0..).zip(scanned) {
                    let (found, value) = pair.unwrap();
                    assert_eq!(found, key(i));
                    assert_eq!(value.into_vec(), round_value(round, i));
                }
                // What was collected has a new address.
                store.gc().unwrap();
            }
        }
        store.delete(&key(0)).unwrap();
        assert_eq!(store.get(&key(0)).unwrap(), None);
    }
}

#[test]
fn what_is_in_the_cache_is_still_verified_on_the_disk() {
    let bench = Bench::new();
    let store = bench.open(&small(Variant::DOUBLE));
    store.put(b"key", &[7; 1000]).unwrap();
    store.flush().unwrap();
    for _ in 0..3 {
        assert_eq!(store.get(b"key").unwrap().unwrap(), [7; 1000]);
    }
    let file = common::value_log_files(&bench.path())[0].clone();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[4096 + 300] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert_eq!(store.get(b"key").unwrap().unwrap(), [7; 1000]);
    let report = store.verify().unwrap();
    assert_eq!((report.keys, report.problems.len()), (0, 2), "{report:?}");
}

#[test]
fn a_snapshot_taken_beside_writers_has_all_of_each_batch_or_nothing_and_stays() {
    const KEYS: u32 = 300;
    let bench = Bench::new();
    let store = &bench.open(&small(Variant::DOUBLE));
    let write = |round: u32| {
        let mut batch = Batch::new();
        (0..KEYS).for_each(|i| batch.put(&key(i), &round.to_le_bytes()));
        batch.put(&[&b"only "[..], &round.to_le_bytes()].concat(), b"");
        store.write(&batch).unwrap();
    };
    write(0);
    let done = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            (1..400).for_each(write);
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        let mut held = Vec::new();
        let mut rounds = Vec::new();
        while !done.load(std::sync::atomic::Ordering::SeqCst) || held.len() < 20 {
            let snapshot = store.snapshot().unwrap();
            let value = |i: u32| snapshot.get(&key(i)).unwrap().unwrap().into_vec();
            let round = value(0);
            rounds.push(round.clone());
            held.push((snapshot.clone(), round));
            for (snapshot, round) in held.iter().rev().take(20) {
                let mut scan = snapshot.scan(ScanRange::prefix(b"key ")).unwrap();
                assert!(scan.all(|pair| pair.unwrap().1 == *round));
                let only = snapshot
                    .scan(ScanRange::prefix(b"only ").keys_only())
                    .unwrap();
                let round = u32::from_le_bytes(round[..].try_into().unwrap());
                assert_eq!(only.count() as u32, round + 1);
            }
            if held.len() > 100 {
                held.drain(..50);
            }
        }
    });
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn more_snapshots_than_a_store_keeps_are_refused_and_those_of_one_moment_are_one() {
    let bench = Bench::new();
    let store = bench.open(&small(Variant::DOUBLE));
    store.put(b"key", b"0").unwrap();
    let same: Vec<_> = (0..5000).map(|_| store.snapshot().unwrap()).collect();
    let mut held = Vec::new();
    let refused = loop {
        match store.snapshot() {
            Ok(snapshot) => held.push(snapshot),
            Err(error) => break error,
        }
        store.put(b"key", &held.len().to_le_bytes()).unwrap();
    };
    assert!(matches!(refused, StoreError::TooManySnapshots { open } if open == held.len()));
    let scan = store.scan(ScanRange::all());
    assert!(matches!(
        scan.err(),
        Some(StoreError::TooManySnapshots { .. })
    ));
    assert!(same[0].get(b"key").unwrap().unwrap() == *b"0");
    held.truncate(500);
    store.put(b"more", b"").unwrap();
    assert_eq!(store.scan(ScanRange::all()).unwrap().count(), 2);
    let value = held[7].get(b"key").unwrap().unwrap();
    assert_eq!(*value, 7usize.to_le_bytes());
}
