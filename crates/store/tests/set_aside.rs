//! Value-log files that cannot be collected: each is set aside and named, and the others are
//! collected as ever.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Bench,
    hook_disk::{Doing, HookDisk},
    tiny, value_log_files,
};
use forebay_store::{Durability, Store, StoreOptions};
use std::{
    io,
    ops::ControlFlow,
    path::PathBuf,
    sync::{Arc, Mutex, atomic::AtomicBool, atomic::Ordering::SeqCst},
};

const VALUE: usize = 4096;
const KEYS: u32 = 500;
/// Live bytes, about.
const LIVE: u64 = KEYS as u64 * 4160;
const FILE: u64 = 1 << 20;

fn options() -> StoreOptions {
    tiny(Durability::NoSync)
        .memtable_size(1 << 20)
        .chunk_log_size(1 << 20)
}

fn put(store: &Store, key: u32, round: u32) {
    let mut value = vec![key as u8; VALUE];
    value[..4].copy_from_slice(&round.to_le_bytes());
    store.put(&key.to_be_bytes(), &value).unwrap();
}

/// Overwrites all keys so many times; the log's bytes beside the live ones at the end, once
/// collection has caught up.
fn overwrite(store: &Store, times: u32) {
    for round in 0..times {
        (0..KEYS).for_each(|key| put(store, key, round));
    }
}

/// A disk on which one file has a sector that cannot be read.
type Unreadable = Arc<Mutex<Option<(PathBuf, u64)>>>;

fn disk(unreadable: &Unreadable) -> Arc<HookDisk> {
    let unreadable = Arc::clone(unreadable);
    HookDisk::new(move |doing| match (doing, &*unreadable.lock().unwrap()) {
        (Doing::Read(path, offset, bytes), Some((bad, sector)))
            if path == bad && offset < sector + 512 && offset + bytes as u64 > *sector =>
        {
            Err(io::Error::from_raw_os_error(5))
        }
        _ => Ok(()),
    })
}

/// Promise (store): A file that cannot be collected (an unreadable sector, a key too long for
/// today's segments) is named and stops the collection of no other.
#[test]
fn a_dead_files_bad_sector_is_named_and_stops_no_collection() {
    // Where a sample looks, and where none does.
    for sector in [4096 + 300_000, 4096 + 40 * 4096 + 512] {
        let bench = Bench::new();
        let unreadable = Unreadable::default();
        let path = bench.path();
        let store = options()
            .open_on(disk(&unreadable), None, &path, None)
            .unwrap();
        (0..KEYS).for_each(|key| put(&store, key, 0));
        let bad = value_log_files(&path)[0].clone();
        *unreadable.lock().unwrap() = Some((bad.clone(), sector));
        overwrite(&store, 40);
        let stats = store.stats();
        let name = bad.file_name().unwrap().to_str().unwrap();
        assert!(
            stats.value_log_bytes <= 4 * LIVE + 8 * FILE,
            "sector {sector}: {stats:?}"
        );
        assert!(stats.gc_files_removed > 20, "{stats:?}");
        assert!(bad.exists());
        let [aside] = &stats.set_aside[..] else {
            panic!("{stats:?}");
        };
        assert!(
            aside.file.contains(name) && aside.reason.contains("os error 5"),
            "{aside:?}"
        );
        assert!(aside.bytes > FILE / 2, "{aside:?}");
        let report = store.verify().unwrap();
        assert!(
            report.not_collectable.iter().any(|n| n.contains(name)),
            "{report:?}"
        );
        // What is set aside counts, too.
        assert!(stats.space_amplification > 1.2, "{stats:?}");
        assert_eq!(stats.trouble, None);
        // It is readable again: a request collects it.
        *unreadable.lock().unwrap() = None;
        let report = store.gc().unwrap();
        assert_eq!(report.set_aside, []);
        assert!(!bad.exists() && store.stats().set_aside.is_empty());
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}

/// Promise: as `a_dead_files_bad_sector_is_named_and_stops_no_collection`.
#[test]
fn a_key_too_long_for_segments_is_named_and_stops_no_collection() {
    // At the places in a file that samples look at, and between them.
    for before in [0, 21, 22, 23, 24, 25, 26, 27, 28] {
        let bench = Bench::new();
        let path = bench.path();
        let long = vec![b'k'; 40_000];
        let larger = options().segment_size(1 << 20);
        let store = larger.open(&path, None).unwrap();
        for key in 0..KEYS {
            if key == before {
                store.put(&long, b"value").unwrap();
            }
            put(&store, key, 0);
        }
        store.close().unwrap();
        let store = options().open(&path, None).unwrap();
        let first = value_log_files(&path)[0].clone();
        let name = first.file_name().unwrap().to_str().unwrap();
        overwrite(&store, 20);
        let stats = store.stats();
        assert!(stats.value_log_bytes <= 4 * LIVE + 8 * FILE, "{stats:?}");
        assert!(stats.gc_files_removed > 10, "{stats:?}");
        assert!(
            stats.set_aside.len() == 1 && stats.set_aside[0].file.contains(name),
            "{stats:?}"
        );
        let report = store.verify().unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
        assert!(
            report.not_collectable.len() == 1 && report.not_collectable[0].contains("40000 bytes"),
            "{report:?}"
        );
        assert_eq!(store.get(&long).unwrap().unwrap(), b"value");
        store.close().unwrap();
        // With segments as large as they were, it is collected.
        let store = larger.open(&path, None).unwrap();
        assert_eq!(store.gc().unwrap().set_aside, []);
        assert!(!first.exists());
        assert_eq!(store.get(&long).unwrap().unwrap(), b"value");
    }
}

/// Promise (store): A disk that cannot be written makes the collector set no file aside.
#[test]
fn an_unwritable_log_sets_no_file_aside_and_the_reason_is_told() {
    let bench = Bench::new();
    let full = Arc::new(AtomicBool::new(false));
    let disk = HookDisk::by(&full, move |doing, full| match doing {
        Doing::Create(path) | Doing::Write(path, _)
            if full.load(SeqCst) && path.extension().is_some_and(|e| e == "vlog") =>
        {
            Err(io::ErrorKind::StorageFull.into())
        }
        _ => Ok(()),
    });
    let store = options().open_on(disk, None, bench.path(), None).unwrap();
    for round in 0..6 {
        for key in 0..KEYS {
            // Some of each file stays live.
            if round == 0 || key % 8 != round {
                put(&store, key, round);
            }
        }
    }
    full.store(true, SeqCst);
    let error = store.gc().unwrap_err();
    assert!(error.to_string().contains("make room"), "{error}");
    assert_eq!(store.stats().set_aside, []);
    full.store(false, SeqCst);
    assert_eq!(store.gc().unwrap().set_aside, []);
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// Promise: as `a_dead_files_bad_sector_is_named_and_stops_no_collection`.
#[test]
fn a_damaged_file_with_most_garbage_ends_no_compaction() {
    let bench = Bench::new();
    let unreadable = Unreadable::default();
    let path = bench.path();
    let options = options().gc(false);
    let store = options
        .open_on(disk(&unreadable), None, &path, None)
        .unwrap();
    (0..KEYS).for_each(|key| put(&store, key, 0));
    // Most of the first file, and some of the second.
    let again = (0..KEYS).filter(|key| *key < 240 && key % 8 > 0 || key % 3 == 0);
    again.for_each(|key| put(&store, key, 1));
    let files = value_log_files(&path);
    *unreadable.lock().unwrap() = Some((files[0].clone(), 4096 + 40 * 4096 + 512));
    let report = store.compact(|_| ControlFlow::Continue(())).unwrap();
    let [aside] = &report.collected.set_aside[..] else {
        panic!("{report:?}");
    };
    let name = files[0].file_name().unwrap().to_str().unwrap();
    assert!(aside.file.contains(name), "{aside:?}");
    assert!(files[0].exists() && !files[1].exists(), "{report:?}");
}
