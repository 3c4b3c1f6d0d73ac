//! A store whose value log stays in the pool: it holds what was put, uses dead space again, says
//! when it is full, and comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, Rng, files_in, tiny, value_log_files, within};
use forebay_pool::Pool;
use forebay_store::{Batch, Durability, ScanRange, Store, StoreError, StoreOptions};
use std::{
    collections::BTreeMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};

const SEGMENT: u64 = 64 << 10;

fn pool(segments: u64) -> Pool {
    Bench::with_room(segments, SEGMENT).pool
}

fn resident(buffers: u16) -> StoreOptions {
    tiny(Durability::Buffered(buffers)).resident(true)
}

fn value(n: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i as u64 * 7 + n) as u8).collect()
}

fn fill_until_full(store: &Store) -> u64 {
    for n in 0u64.. {
        match store.put(&n.to_be_bytes(), &value(n, 1000)) {
            Ok(()) => {}
            Err(StoreError::Full { segments, .. }) => {
                assert_eq!(segments, 16);
                return n;
            }
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!()
}

#[test]
fn nothing_is_drained_and_everything_is_read_from_the_pool() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let pool = pool(17);
    let store = resident(16).open(&path, &pool).unwrap();
    assert!(store.is_resident());
    for n in 0..500u64 {
        store.put(&n.to_be_bytes(), &value(n, 1000)).unwrap();
    }
    store.flush().unwrap();
    for n in 0..500u64 {
        assert!(store.get(&n.to_be_bytes()).unwrap().unwrap() == value(n, 1000));
    }
    assert_eq!(store.stats().log_drained, 0);
    store.close().unwrap();
    assert!(value_log_files(&path).is_empty());
    let store = resident(16).open(&path, &pool).unwrap();
    assert_eq!(store.scan(ScanRange::all()).unwrap().count(), 500);
    assert!(store.verify().unwrap().problems.is_empty());
}

/// Promise (store): A transaction does not wait for room that a snapshot keeps, which may be its
/// own; the next try is made without it.
#[test]
fn a_transaction_does_not_wait_for_its_own_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool(17);
    let store = resident(16).open(dir.path().join("store"), &pool).unwrap();
    store.put(b"key", &value(0, 1000)).unwrap();
    let kept = store.snapshot().unwrap();
    let refused = (0..).find_map(|n| store.put(b"garbage", &value(n, 1000)).err());
    assert!(
        matches!(refused, Some(StoreError::Full { .. })),
        "{refused:?}"
    );
    let commit = |_| {
        let mut tx = store.begin().unwrap();
        tx.put(b"other", &value(1, 1000)).unwrap();
        let begun = Instant::now();
        let refused = tx.commit().unwrap_err();
        assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
        begun.elapsed()
    };
    // A machine with much else to do may be slow once.
    let shortest = (0..5).map(commit).min().unwrap();
    assert!(shortest < Duration::from_millis(400), "{shortest:?}");
    drop(kept);
    store
        .transaction(|tx| tx.put(b"other", &value(1, 1000)))
        .unwrap();
    assert!(store.get(b"other").unwrap().unwrap() == value(1, 1000));
}

#[test]
fn a_store_reopened_and_not_written_to_gives_back_what_is_dead() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let pool = pool(17);
    for n in 0..3u64 {
        let store = resident(16).open(&path, &pool).unwrap();
        store.put(b"key", &value(n, 1000)).unwrap();
        store.close().unwrap();
    }
    // All that was written is in the index; the log's end was sealed behind it.
    let store = resident(16).open(&path, &pool).unwrap();
    let report = within(Duration::from_secs(60), "collecting", move || {
        let report = store.gc().unwrap();
        assert!(store.get(b"key").unwrap().unwrap() == value(2, 1000));
        report
    });
    assert_eq!(report.records, 3, "{report:?}");
    let store = resident(16).open(&path, &pool).unwrap();
    assert!(store.get(b"key").unwrap().unwrap() == value(2, 1000));
    assert!(store.verify().unwrap().problems.is_empty());
}

#[test]
fn overwriting_goes_on_for_ever_in_the_same_segments() {
    within(Duration::from_secs(120), "overwriting", || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let pool = pool(17);
        let store = resident(16).open(&path, &pool).unwrap();
        // A third of the pool is live; thirty times the pool is written, in single puts and
        // batches.
        let mut rng = Rng(7);
        let mut last = BTreeMap::new();
        for n in 0..30_000u64 {
            // Some keys are written all the time and others hardly ever.
            let number = rng.below(300) * rng.below(300) / 300;
            let key = number.to_be_bytes();
            last.insert(number, n);
            if n % 3 == 0 {
                let mut batch = Batch::new();
                batch.put(&key, &value(n, 1000)).unwrap();
                // As copies of their own these would take more lines than in the batch.
                for small in 0..10u64 {
                    batch
                        .put(&[b's', (small + n % 50) as u8], &n.to_be_bytes())
                        .unwrap();
                }
                store.write(&batch).unwrap();
            } else {
                store.put(&key, &value(n, 1000)).unwrap();
            }
        }
        assert!(store.stats().gc_relocated_bytes > 0);
        assert!(value_log_files(&path).is_empty());
        assert!(store.verify().unwrap().problems.is_empty());
        for (key, n) in last {
            assert!(store.get(&key.to_be_bytes()).unwrap().unwrap() == value(n, 1000));
        }
    });
}

#[test]
fn a_full_store_says_so_loses_nothing_and_takes_deletes() {
    within(Duration::from_secs(120), "filling", || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let pool = pool(17);
        let store = resident(16).open(&path, &pool).unwrap();
        let there = fill_until_full(&store);
        // 16 segments, of which three are kept free, and records have headers.
        assert!(there * 1000 > 11 * SEGMENT, "{there}");
        let error = store.put(b"one more", &value(1, 1000)).unwrap_err();
        assert!(
            error.to_string().contains("Delete keys, drop snapshots"),
            "{error}"
        );
        for n in 0..there {
            assert!(store.get(&n.to_be_bytes()).unwrap().unwrap() == value(n, 1000));
        }
        for n in 0..there / 2 {
            store.delete(&n.to_be_bytes()).unwrap();
        }
        for n in 0..there / 3 {
            store.put(&n.to_be_bytes(), &value(n + 1, 1000)).unwrap();
        }
        drop(store);
        let store = resident(16).open(&path, &pool).unwrap();
        for n in 0..there {
            let found = store.get(&n.to_be_bytes()).unwrap();
            let expected = match n {
                n if n < there / 3 => Some(value(n + 1, 1000)),
                n if n < there / 2 => None,
                n => Some(value(n, 1000)),
            };
            assert!(found.map(|v| v.into_vec()) == expected, "{n}");
        }
    });
}

#[test]
fn without_collection_a_full_store_refuses_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool(17);
    let options = resident(16).gc(false);
    let store = options.open(dir.path().join("store"), &pool).unwrap();
    let there = fill_until_full(&store);
    for n in 0..there {
        assert!(store.get(&n.to_be_bytes()).unwrap().unwrap() == value(n, 1000));
    }
}

#[test]
fn an_open_snapshot_keeps_what_it_leads_to_and_writers_are_told() {
    within(Duration::from_secs(120), "a snapshot", || {
        let dir = tempfile::tempdir().unwrap();
        let pool = pool(17);
        let store = resident(16).open(dir.path().join("store"), &pool).unwrap();
        for n in 0..100u64 {
            store.put(&n.to_be_bytes(), &value(n, 1000)).unwrap();
        }
        let snapshot = store.snapshot().unwrap();
        let refused = (0..100_000u64)
            .find_map(|n| {
                store
                    .put(&(n % 100).to_be_bytes(), &value(n + 5, 1000))
                    .err()
            })
            .unwrap();
        assert!(refused.to_string().contains("snapshot"), "{refused}");
        for n in 0..100u64 {
            assert!(snapshot.get(&n.to_be_bytes()).unwrap().unwrap() == value(n, 1000));
        }
        drop(snapshot);
        for n in 0..10_000u64 {
            store
                .put(&(n % 100).to_be_bytes(), &value(n + 6, 1000))
                .unwrap();
        }
    });
}

#[test]
fn a_store_is_opened_in_turn_resident_and_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let pool = pool(17);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let ways = [
        tiny(Durability::DOUBLE),
        resident(8),
        tiny(Durability::Fsync),
        resident(8),
        tiny(Durability::DOUBLE),
        resident(16),
        resident(16),
        tiny(Durability::SINGLE),
    ];
    for (round, options) in (0u64..).zip(ways.iter().cycle().take(24)) {
        let store = options.open(&path, &pool).unwrap();
        for (key, value) in &model {
            let found: forebay_store::Value = store.get(key).unwrap().unwrap();
            assert!(found == *value, "round {round}");
        }
        for n in 0..200u64 {
            let key = ((n + round * 50) % 250).to_be_bytes().to_vec();
            let value = value(n + round, 700);
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        assert!(store.verify().unwrap().problems.is_empty(), "round {round}");
        if round % 3 == 0 {
            store.gc().unwrap();
        }
        if round % 2 == 0 {
            store.close().unwrap();
        }
    }
}

/// A store with 100 live values in files whose other halves are garbage, opened with its log in the
/// pool and without a collector.
fn resident_above_files(path: &Path, pool: &Pool) -> Store {
    let store = tiny(Durability::DOUBLE).gc(false).open(path, pool).unwrap();
    for n in 0..200u64 {
        store.put(&key_in_files(n), &value(n, 1000)).unwrap();
    }
    for n in 0..100u64 {
        store.delete(&key_in_files(n)).unwrap();
    }
    store.close().unwrap();
    resident(16).gc(false).open(path, pool).unwrap()
}

fn key_in_files(n: u64) -> [u8; 9] {
    let mut key = [b'f'; 9];
    key[1..].copy_from_slice(&n.to_be_bytes());
    key
}

#[test]
fn a_file_is_set_aside_until_its_live_values_fit_into_the_pool() {
    within(Duration::from_secs(120), "collecting", || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let pool = pool(17);
        let store = resident_above_files(&path, &pool);
        let there = fill_until_full(&store);
        let report = store.gc().unwrap();
        assert!(!report.set_aside.is_empty());
        let reason = &report.set_aside[0].reason;
        assert!(reason.contains("does not fit"), "{reason}");
        for n in 100..200u64 {
            assert!(store.get(&key_in_files(n)).unwrap().unwrap() == value(n, 1000));
        }
        assert!(store.verify().unwrap().problems.is_empty());
        for n in 0..there / 2 {
            store.delete(&n.to_be_bytes()).unwrap();
        }
        // The segments' garbage is collected for what is live in the files.
        let report = store.gc().unwrap();
        assert!(report.set_aside.is_empty(), "{:?}", report.set_aside);
        assert!(report.files > 0);
        for n in 100..200u64 {
            assert!(store.get(&key_in_files(n)).unwrap().unwrap() == value(n, 1000));
        }
        for n in there / 2..there {
            assert!(store.get(&n.to_be_bytes()).unwrap().unwrap() == value(n, 1000));
        }
    });
}

#[test]
fn a_store_opened_again_and_again_never_runs_out_of_segments() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let pool = pool(17);
    let there = {
        let store = resident(16).open(&path, &pool).unwrap();
        fill_until_full(&store)
    };
    // Each opening seals the segment that the last one was in, however little it holds.
    for round in 0..12u64 {
        let store = resident(16).open(&path, &pool).unwrap();
        store.delete(&round.to_be_bytes()).unwrap();
    }
    let store = resident(16).open(&path, &pool).unwrap();
    for n in 0..there {
        let found = store.get(&n.to_be_bytes()).unwrap();
        assert_eq!(found.is_some(), n >= 12, "{n}");
    }
    for n in 0..200u64 {
        store.delete(&n.to_be_bytes()).unwrap();
    }
    store.gc().unwrap();
    for n in 0..100u64 {
        store.put(&n.to_be_bytes(), &value(n, 1000)).unwrap();
    }
    assert!(store.verify().unwrap().problems.is_empty());
}

#[test]
fn a_closed_resident_store_is_refused_without_its_pool() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let pool = pool(17);
    let store = resident(8).open(&path, &pool).unwrap();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    let before = files_in(&path);
    let refused = tiny(Durability::Fsync).open(&path, None).err().unwrap();
    assert!(
        matches!(refused, StoreError::DataInPool { .. }),
        "{refused}"
    );
    assert_eq!(files_in(&path), before);
}

/// Promise (store): The large values of a range that is deleted in a resident store are given back,
/// although nothing more is written.
#[test]
fn large_values_of_a_deleted_range_go_from_a_resident_store() {
    within(Duration::from_secs(60), "large values", || {
        let dir = tempfile::tempdir().unwrap();
        let pool = pool(17);
        let store = resident(16).open(dir.path().join("store"), &pool).unwrap();
        for n in 0..20u64 {
            store.put(&n.to_be_bytes(), &value(n, 100_000)).unwrap();
        }
        let range = ScanRange::new(5u64.to_be_bytes()..);
        store.delete_range(range).unwrap();
        while store.stats().large_value_files > 5 {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(store.get(&4u64.to_be_bytes()).unwrap().unwrap() == value(4, 100_000));
    });
}
