//! Closing and opening again, with little or nothing in between.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, VARIANTS, crash_disk::CrashDisk, new_sim, tiny};
use forebay_store::{Durability, Store};
use std::{fs, sync::Arc, thread, time::Duration};

fn get(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|value| value.into_vec())
}

#[test]
fn a_store_closed_without_a_write_reopens_in_every_variant() {
    for first in VARIANTS {
        for second in VARIANTS {
            let bench = Bench::new();
            bench.open(&tiny(first)).close().unwrap();
            let store = bench.open(&tiny(second));
            store.put(b"key", b"value").unwrap();
            store.close().unwrap();
            bench.open(&tiny(first)).close().unwrap();
            drop(bench.open(&tiny(second)));
            let store = bench.open(&tiny(first));
            assert_eq!(get(&store, b"key").unwrap(), b"value", "{first}, {second}");
            assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        }
    }
}

/// Promise (store): Sessions that end in any way and order leave a log that the next opening can
/// walk.
#[test]
fn sessions_that_end_in_any_way_and_order_leave_a_walkable_log() {
    let mut rng = common::Rng(7);
    for round in 0..12 {
        let bench = Bench::new();
        let mut expected = Vec::new();
        let mut past = Vec::new();
        for session in 0..8 {
            let variant = VARIANTS[rng.below(5) as usize];
            let closed = rng.chance(2);
            let writes = rng.below(3);
            past.push((variant, writes, closed));
            let store = bench.open(&tiny(variant));
            for write in 0..writes {
                let key = format!("{session} {write}").into_bytes();
                // Records that end a page, too: what comes next starts on one.
                let bytes = [10, 4032 - 34 - key.len(), 5000][rng.below(3) as usize];
                store.put(&key, &vec![session; bytes]).unwrap();
                expected.push((key, vec![session; bytes]));
            }
            if closed {
                store.close().unwrap();
            } else {
                drop(store);
            }
        }
        let store = bench.open(&tiny(Durability::Fsync));
        for (key, value) in &expected {
            assert_eq!(get(&store, key).as_ref(), Some(value), "{round}: {past:?}");
        }
        let problems = store.verify().unwrap().problems;
        assert!(problems.is_empty(), "{past:?}: {problems:?}");
    }
}

/// Promise (store): A store whose close returned `Ok` needs its pool no more, unless it is a
/// resident one.
#[test]
fn a_store_closed_while_collecting_opens_without_its_pool() {
    for round in 0..6u64 {
        let bench = Bench::new();
        let options = tiny(Durability::DOUBLE).space_amplification_max(1.1);
        let store = bench.open(&options);
        for i in 0..4000u32 {
            let key = (i % 300).to_be_bytes();
            store.put(&key, &[i as u8; 1000]).unwrap();
        }
        thread::sleep(Duration::from_millis(20 * round));
        store.close().unwrap();
        let store = tiny(Durability::Fsync).open(bench.path(), None).unwrap();
        for i in 3700..4000u32 {
            let value = get(&store, &(i % 300).to_be_bytes()).unwrap();
            assert_eq!(value, [i as u8; 1000]);
        }
    }
}

/// Promise (store): A close that returned `Ok` leaves everything in the files, on the disk, in
/// every variant, also while a snapshot is open.
#[test]
fn a_close_puts_every_write_that_was_not_synced_on_the_disk() {
    for round in 0..8u64 {
        let dir = tempfile::tempdir().unwrap();
        let live = dir.path().join("live");
        let clock = new_sim(4096);
        std::fs::create_dir(&live).unwrap();
        let disk = CrashDisk::new(&live, clock);
        let options = tiny(Durability::NoSync).space_amplification_max(1.1);
        let store = options
            .open_on(Arc::new(disk.clone()), None, &live, None)
            .unwrap();
        for i in 0..4000u32 {
            store
                .put(&(i % 300).to_be_bytes(), &[i as u8; 1000])
                .unwrap();
        }
        thread::sleep(Duration::from_millis(15 * round));
        store.close().unwrap();
        let found = dir.path().join("found");
        disk.image(disk.events(), &mut common::Rng(round), &found);
        common::copy_dir(&live.join("index"), &found.join("index"));
        let store = options.open(&found, None).unwrap();
        for i in 3700..4000u32 {
            let value = get(&store, &(i % 300).to_be_bytes()).unwrap();
            assert_eq!(value, [i as u8; 1000]);
        }
    }
}

/// Promise (store): A session never takes bytes that an earlier session left behind the log's end
/// for its own.
#[test]
fn bytes_left_behind_a_logs_end_are_never_a_later_sessions() {
    // Whole lines of records, so that those of two sessions begin at the same places.
    const RECORD: usize = 1024;
    const VALUE: usize = RECORD - 34 - KEY;
    const KEY: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = tiny(Durability::NoSync).gc(false);
    let key = |i: u8| [b'k', 0, i];
    let store = options.open(&path, None).unwrap();
    for i in 0..40 {
        store.put(&key(i), &[1; VALUE]).unwrap();
    }
    drop(store);
    // What a power cut does without syncs: the tenth did not arrive.
    let file = &common::value_log_files(&path)[0];
    let mut bytes = fs::read(file).unwrap();
    bytes[4096 + 64 + 10 * RECORD + RECORD / 2] ^= 1;
    fs::write(file, bytes).unwrap();
    let store = options.open(&path, None).unwrap();
    for i in 0..7 {
        store.put(&key(i), &[2; VALUE]).unwrap();
    }
    // The index is told of all of it: a replay begins at the log's end.
    store.gc().unwrap();
    drop(store);
    let store = options.open(&path, None).unwrap();
    for i in 0..40 {
        let expected = match i {
            0..7 => Some(vec![2; VALUE]),
            7..10 => Some(vec![1; VALUE]),
            _ => None,
        };
        assert!(get(&store, &key(i)) == expected, "{i}");
    }
}

/// Promise: as `bytes_left_behind_a_logs_end_are_never_a_later_sessions`.
#[test]
fn a_file_begun_behind_the_end_of_a_salvaged_log_is_set_aside() {
    // Whole lines of records, so that those of two sessions begin at the same places.
    const RECORD: usize = 1024;
    const VALUE: usize = RECORD - 34 - KEY;
    const KEY: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    // Nothing goes into the index by itself.
    let options = tiny(Durability::NoSync)
        .gc(false)
        .memtable_size(4 << 20)
        .chunk_log_size(64 << 20);
    let key = |i: u16| [b'k', (i >> 8) as u8, i as u8];
    let store = options.open(&path, None).unwrap();
    let mut in_first = 0;
    for i in 0..u16::MAX {
        store.put(&key(i), &[1; VALUE]).unwrap();
        match common::value_log_files(&path).len() {
            1 => in_first = i + 1,
            _ if i < in_first + 40 => {}
            _ => break,
        }
    }
    drop(store);
    // In the first file's last page a record is damaged: from there on the log is given up.
    let files = common::value_log_files(&path);
    let mut bytes = fs::read(&files[0]).unwrap();
    let last = (0..bytes.len() - RECORD / 2)
        .rev()
        .find(|&at| bytes[at..].starts_with(&[1; RECORD / 2]))
        .unwrap();
    assert!(last + RECORD / 2 > bytes.len() - 4096);
    bytes[last] ^= 1;
    fs::write(&files[0], bytes).unwrap();
    let second = fs::read(&files[1]).unwrap();
    let salvage = options.clone().salvage(true);
    let store = salvage.open(&path, None).unwrap();
    let given_up = path.join("given-up").join(files[1].file_name().unwrap());
    assert!(fs::read(given_up).unwrap() == second);
    let said = store.given_up().join("\n");
    assert!(said.contains("given-up"), "{said}");
    // Others than those that were at the same places, and the index is told of all of it: a replay
    // begins at the log's end.
    let later = in_first + 20..in_first + 27;
    for i in later.clone() {
        store.put(&key(i), &[2; VALUE]).unwrap();
    }
    store.gc().unwrap();
    drop(store);
    let store = options.open(&path, None).unwrap();
    for i in 0..in_first + 40 {
        let expected = match i {
            _ if i < in_first - 1 => Some(vec![1; VALUE]),
            _ if later.contains(&i) => Some(vec![2; VALUE]),
            _ => None,
        };
        assert!(get(&store, &key(i)) == expected, "{i} of {in_first}");
    }
}

#[test]
fn a_snapshot_outlives_the_close_and_the_next_session_has_all() {
    for variant in VARIANTS {
        let bench = Bench::new();
        let store = bench.open(&tiny(variant));
        store.put(b"key", b"old").unwrap();
        let snapshot = store.snapshot().unwrap();
        store.put(b"key", b"new").unwrap();
        store.close().unwrap();
        assert_eq!(snapshot.get(b"key").unwrap().unwrap(), b"old", "{variant}");
        drop(snapshot);
        let store = bench.open(&tiny(variant));
        assert_eq!(get(&store, b"key").unwrap(), b"new", "{variant}");
    }
}

/// Promise: as `a_store_closed_while_collecting_opens_without_its_pool`.
#[test]
fn a_closed_store_and_its_open_snapshot_need_no_pool_any_more() {
    for variant in VARIANTS {
        let bench = Bench::new();
        let store = bench.open(&tiny(variant));
        for i in 0..200u32 {
            store.put(&i.to_be_bytes(), &[1; 1000]).unwrap();
        }
        let snapshot = store.snapshot().unwrap();
        for i in 0..200u32 {
            store.put(&i.to_be_bytes(), &[2; 1000]).unwrap();
        }
        store.close().unwrap();
        let check = |store: &Store| {
            for i in 0..200u32 {
                let key = i.to_be_bytes();
                assert_eq!(get(store, &key).unwrap(), [2; 1000], "{variant}");
                assert_eq!(snapshot.get(&key).unwrap().unwrap(), [1; 1000], "{variant}");
            }
        };
        let quiet = |variant| tiny(variant).gc(false);
        let store = quiet(Durability::Fsync).open(bench.path(), None).unwrap();
        check(&store);
        store.close().unwrap();
        // In the same pool too, whose lane was given back.
        let store = bench.open(&quiet(Durability::DOUBLE));
        check(&store);
        store.put(b"later", b"value").unwrap();
        assert!(snapshot.get(b"later").unwrap().is_none());
    }
}
