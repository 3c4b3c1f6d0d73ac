//! Space: the value log keeps to its limit while it is overwritten, and writers always get on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, Rng, tiny, value_log_files, within};
use forebay_store::{Durability, ScanRange, Store, StoreOptions};
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::Duration,
};

const VALUE: usize = 4096;
/// Bytes of a record with such a value, and a key of four bytes, in the log.
const RECORD: u64 = 4160;
const KEYS: u32 = 6000;
const FILE: u64 = 1 << 20;

fn options(variant: Durability) -> StoreOptions {
    tiny(variant)
        .file_size(FILE)
        .memtable_size(1 << 20)
        .chunk_log_size(4 << 20)
}

fn put(store: &Store, key: u32, round: u32) {
    let mut value = vec![key as u8; VALUE];
    value[..4].copy_from_slice(&round.to_le_bytes());
    store.put(&key.to_be_bytes(), &value).unwrap();
}

/// Overwrites keys chosen by `choose` several times over, and watches the space.
fn overwrite(store: &Store, times: u32, choose: impl FnMut() -> u32) {
    overwrite_beside(store, 0, times, choose);
}

/// As [`overwrite`], where so many bytes of files cannot be collected.
fn overwrite_beside(store: &Store, stuck: u64, times: u32, mut choose: impl FnMut() -> u32) {
    let live = u64::from(KEYS) * RECORD + stuck;
    for round in 0..times * KEYS {
        put(store, choose(), round);
        if round % 16 == 0 {
            let stats = store.stats();
            assert!(stats.value_log_bytes * 2 <= live * 3, "{round}: {stats:?}");
        }
    }
    assert!(store.stats().gc_files_removed > 0);
}

#[test]
fn random_overwrites_keep_a_log_within_1_5_times_the_live_data() {
    for variant in [Durability::DOUBLE, Durability::NoSync] {
        let bench = Bench::new();
        let store = bench.open(&options(variant));
        (0..KEYS).for_each(|key| put(&store, key, 0));
        let mut rng = Rng(1);
        overwrite(&store, 5, || rng.below(u64::from(KEYS)) as u32);
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn nor_does_one_of_which_a_few_keys_are_overwritten() {
    let bench = Bench::new();
    let store = bench.open(&options(Durability::DOUBLE));
    (0..KEYS).for_each(|key| put(&store, key, 0));
    let mut rng = Rng(2);
    overwrite(&store, 5, || rng.below(u64::from(KEYS) / 10) as u32);
    assert_eq!(store.scan(ScanRange::all()).unwrap().count(), KEYS as usize);
}

#[test]
fn nor_does_one_that_is_opened_again_and_again() {
    let bench = Bench::new();
    let mut rng = Rng(3);
    let store = bench.open(&options(Durability::DOUBLE));
    (0..KEYS).for_each(|key| put(&store, key, 0));
    drop(store);
    for _ in 0..4 {
        // Not closed: the log is replayed.
        let store = bench.open(&options(Durability::DOUBLE));
        overwrite(&store, 1, || rng.below(u64::from(KEYS)) as u32);
    }
}

#[test]
fn deleted_keys_space_comes_back_while_others_are_written() {
    let bench = Bench::new();
    let store = bench.open(&options(Durability::DOUBLE));
    (0..KEYS).for_each(|key| put(&store, key, 0));
    (1000..KEYS).for_each(|key| store.delete(&key.to_be_bytes()).unwrap());
    // Little is live: four files of garbage are allowed for.
    let limit = 1000 * RECORD + 4 * FILE;
    let mut rng = Rng(4);
    let rounds = (0..20_000)
        .take_while(|&round| {
            put(&store, rng.below(1000) as u32, round);
            store.stats().value_log_bytes > limit
        })
        .count();
    assert!(rounds < 20_000, "{:?}", store.stats());
    assert_eq!(store.scan(ScanRange::all()).unwrap().count(), 1000);
}

/// Promise (store): A snapshot keeps no file of the log, and no large value, that was begun after
/// it.
#[test]
fn a_snapshot_keeps_none_of_the_files_begun_after_it() {
    for variant in [Durability::DOUBLE, Durability::NoSync] {
        let bench = Bench::new();
        let store = bench.open(&options(variant));
        let large = vec![7; 100_000];
        (0..KEYS).for_each(|key| put(&store, key, 0));
        (0..20).for_each(|i| store.put(format!("large {i}").as_bytes(), &large).unwrap());
        let snapshot = store.snapshot().unwrap();
        let before = store.stats();
        let kept = before.value_log_bytes;
        let live = u64::from(KEYS) * RECORD;
        let mut rng = Rng(8);
        for round in 1..=10 * KEYS {
            put(&store, rng.below(u64::from(KEYS)) as u32, round);
            if round % 500 == 0 {
                let i = rng.below(20);
                store.put(format!("large {i}").as_bytes(), &large).unwrap();
            }
            let stats = store.stats();
            let most = kept + live * 3 / 2 + 4 * FILE;
            assert!(
                stats.value_log_bytes <= most,
                "{variant}, {round}: {stats:?}"
            );
        }
        store.gc().unwrap();
        let files = store.stats().large_value_files;
        assert!(files <= 60, "{variant}: {files} large values are kept");
        let seen = snapshot.scan(ScanRange::all()).unwrap();
        let seen: Vec<_> = seen.map(|pair| pair.unwrap().1).collect();
        assert_eq!(seen.len(), KEYS as usize + 20);
        assert!(
            seen.iter()
                .all(|value| value.len() > VALUE || value[..4] == [0; 4])
        );
        drop(snapshot);
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn an_open_snapshot_keeps_its_files_and_stops_no_writer() {
    within(Duration::from_secs(120), "writing", || {
        let bench = Bench::new();
        let store = bench.open(&options(Durability::DOUBLE));
        (0..KEYS).for_each(|key| put(&store, key, 0));
        let snapshot = store.snapshot().unwrap();
        let mut rng = Rng(5);
        for round in 0..3 * KEYS {
            put(&store, rng.below(u64::from(KEYS)) as u32, round);
        }
        let seen = snapshot.scan(ScanRange::all()).unwrap();
        assert!(seen.map(|pair| pair.unwrap().1).all(|v| v[..4] == [0; 4]));
        drop(snapshot);
        let limit = u64::from(KEYS) * RECORD * 3 / 2;
        while store.stats().value_log_bytes > limit {
            put(&store, rng.below(u64::from(KEYS)) as u32, 0);
        }
    });
}

#[test]
fn a_requested_collection_has_its_turn_beside_many_writes() {
    within(Duration::from_secs(120), "collecting on request", || {
        let bench = Bench::new();
        let store = &bench.open(&options(Durability::DOUBLE));
        let done = &AtomicBool::new(false);
        (0..KEYS).for_each(|key| put(store, key, 0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut rng = Rng(7);
                while !done.load(SeqCst) {
                    put(store, rng.below(u64::from(KEYS)) as u32, 0);
                }
            });
            for _ in 0..3 {
                store.gc().unwrap();
            }
            done.store(true, SeqCst);
        });
    });
}

#[test]
fn a_file_that_is_damaged_stays_and_the_others_are_collected() {
    let bench = Bench::new();
    let store = bench.open(&options(Durability::DOUBLE));
    (0..KEYS).for_each(|key| put(&store, key, 0));
    store.flush().unwrap();
    let damaged = value_log_files(&bench.path())[3].clone();
    let mut bytes = std::fs::read(&damaged).unwrap();
    // Within the first record: a page for the file's header, a line for the segment's, and one for
    // the record's.
    bytes[4096 + 2 * 64] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let mut rng = Rng(6);
    overwrite_beside(&store, FILE, 3, || rng.below(u64::from(KEYS)) as u32);
    assert!(damaged.exists());
}

#[test]
fn large_values_that_are_overwritten_go_by_themselves() {
    within(Duration::from_secs(120), "collecting", || {
        let bench = Bench::new();
        let store = bench.open(&options(Durability::DOUBLE));
        for round in 0..40u8 {
            store.put(b"large", &vec![round; 200_000]).unwrap();
        }
        // Whatever is written makes the collector look.
        while store.stats().large_value_files > 1 {
            for _ in 0..100 {
                store.put(b"small", &[0; 1000]).unwrap();
            }
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(store.get(b"large").unwrap().unwrap(), vec![39; 200_000]);
    });
}

#[test]
fn values_of_larger_segments_than_todays_are_collected_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let with_segments = |segment_bytes| {
        options(Durability::NoSync)
            .segment_size(segment_bytes)
            .gc(false)
    };
    let store = with_segments(256 << 10).open(&path, None).unwrap();
    for round in 0..3u8 {
        for key in 0..20u32 {
            store
                .put(&key.to_be_bytes(), &vec![round; 100_000])
                .unwrap();
        }
    }
    store.close().unwrap();
    let store = with_segments(64 << 10).open(&path, None).unwrap();
    store.gc().unwrap();
    // By this collection, or by the one in the background before it.
    assert!(store.stats().gc_files_removed > 0);
    for key in 0..20u32 {
        let value = store.get(&key.to_be_bytes()).unwrap().unwrap();
        assert_eq!(value, vec![2; 100_000]);
    }
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_small_store_has_small_files_whatever_the_options_allow() {
    let bench = Bench::new();
    let options = options(Durability::DOUBLE).file_size(512 << 20);
    let store = bench.open(&options);
    put(&store, 1, 1);
    store.flush().unwrap();
    let files = value_log_files(&bench.path());
    let lengths: Vec<u64> = files.iter().map(|f| f.metadata().unwrap().len()).collect();
    assert_eq!(lengths, [(16 << 20) + 4096]);
}
