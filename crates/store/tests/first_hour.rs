//! The first hour with the store: the text of a value and an error, the refusals of a batch, the
//! effect of dropping, the files of a small store on the disk.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Bench, small_disk::QuotaDisk, tiny};
use forebay_pool::{Pool, PoolOptions};
use forebay_store::{Durability, ScanRange, Store, StoreError, StoreOptions};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

/// A pool on a disk that syncs in no time.
fn on_disk() -> Pool {
    let media = common::new_disk(1 << 20);
    media.stop_recording();
    common::format(media, 1 << 20)
}

/// Bytes that a directory's files take on the disk.
fn taken(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let taken = entries.map(|entry| match entry.path().is_dir() {
        true => taken(&entry.path()),
        false => entry.metadata().unwrap().blocks() * 512,
    });
    taken.sum()
}

fn fill(store: &Store, keys: u32) {
    for i in 0..keys {
        store.put(&i.to_be_bytes(), "tiny").unwrap();
    }
}

fn check(store: &Store, keys: u32) {
    let found = store.scan(ScanRange::all()).unwrap();
    let found: Vec<_> = found.map(|pair| pair.unwrap().0).collect();
    let expected: Vec<_> = (0..keys).map(|i| i.to_be_bytes().to_vec()).collect();
    assert!(found == expected, "{} of {keys} keys", found.len());
}

/// Promise (store): A small store takes no more than a few MiB on its disk once it is closed or
/// dropped, however small its puts were.
#[test]
fn a_store_of_twelve_thousand_tiny_puts_is_left_small() {
    let (dir, pool) = (tempfile::tempdir().unwrap(), on_disk());
    let path = dir.path().join("store");
    for session in 0..3 {
        let store = StoreOptions::new().open(&path, &pool).unwrap();
        if session > 0 {
            check(&store, 12_000);
        }
        fill(&store, 12_000);
        match session {
            0 => drop(store),
            _ => store.close().unwrap(),
        }
        let bytes = taken(&path);
        assert!(bytes < 6 << 20, "{bytes} bytes after session {session}");
    }
    let store = StoreOptions::new().open(&path, &pool).unwrap();
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    check(&store, 12_000);
}

/// Room is given back when the store closes, and taken again: a log that goes on is in order.
#[test]
fn a_log_goes_on_in_a_file_whose_room_was_given_back() {
    for variant in common::VARIANTS {
        let bench = Bench::new();
        for session in 1..6_u32 {
            let store = bench.open(&tiny(variant).close_on_drop(true));
            fill(&store, session * 500);
            store.put("large enough", &vec![7; 20_000]).unwrap();
            store.delete("large enough").unwrap();
            drop(store);
            let store = bench.open(&tiny(variant));
            check(&store, session * 500);
            assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        }
    }
}

/// Promise (store): A store that is dropped is closed: the next opening has nothing to recover, and
/// needs no pool.
#[test]
fn a_dropped_store_is_closed_and_needs_no_pool() {
    let bench = Bench::new();
    let options = tiny(Durability::DOUBLE).close_on_drop(true);
    let store = bench.open(&options);
    fill(&store, 100);
    let snapshot = store.snapshot().unwrap();
    drop(store);
    assert_eq!(snapshot.get(&7_u32.to_be_bytes()).unwrap().unwrap(), "tiny");
    drop(snapshot);
    let fsync = tiny(Durability::Fsync);
    check(&fsync.open(bench.path(), None).unwrap(), 100);
    // Not so if that was switched off.
    drop(bench.open(&options));
    let store = bench.open(&options.clone().close_on_drop(false));
    store.put(&100_u32.to_be_bytes(), "tiny").unwrap();
    drop(store);
    let refused = fsync.open(bench.path(), None).err();
    assert!(
        matches!(refused, Some(StoreError::DataInPool { .. })),
        "{refused:?}"
    );
    check(&bench.open(&options), 101);
}

/// Promise: as `sessions_that_end_in_any_way_and_order_leave_a_walkable_log`.
#[test]
fn a_store_dropped_by_a_panic_is_left_to_the_next_opening() {
    let bench = Bench::new();
    let options = tiny(Durability::DOUBLE).close_on_drop(true);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let store = bench.open(&options);
        fill(&store, 100);
        std::panic::resume_unwind(Box::new("the caller's own"));
    }));
    assert!(panicked.is_err());
    check(&bench.open(&options), 100);
}

#[test]
fn an_errors_debug_text_is_its_message() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    let errors = [
        store.put("", "value").unwrap_err(),
        StoreOptions::new().open(bench.path(), None).err().unwrap(),
        tiny(Durability::DOUBLE)
            .open(bench.path(), &bench.pool)
            .err()
            .unwrap(),
        StoreError::from(PoolOptions::new().open("/nowhere").err().unwrap()),
    ];
    for error in errors {
        assert_eq!(format!("{error:?}"), error.to_string());
        // The library has no command line.
        let text = error.to_string();
        assert!(!text.contains("--") && !text.contains("`forebay"), "{text}");
    }
    let pool = PoolOptions::new().open("/nowhere").err().unwrap();
    assert_eq!(format!("{pool:?}"), pool.to_string());
}

#[test]
fn a_key_is_contained_as_long_as_it_has_a_value() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    store.put("boat", "blue").unwrap();
    store.put("large", &vec![7; 100_000]).unwrap();
    let before = store.snapshot().unwrap();
    store.delete("boat").unwrap();
    for _ in 0..2 {
        assert!(store.contains_key("large").unwrap());
        assert!(!store.contains_key("boat").unwrap() && before.contains_key("boat").unwrap());
        assert!(!store.contains_key("").unwrap() && !store.contains_key("car").unwrap());
        // The second time from the tables.
        store.gc().unwrap();
    }
    // The value is not read.
    for file in common::files_in(&bench.path().join("large")) {
        fs::remove_file(file).unwrap();
    }
    assert!(store.contains_key("large").unwrap() && store.get("large").is_err());
}

/// Promise (store): A batch that its store makes takes as much as the store writes as one, and
/// refuses what is beyond where it is added.
#[test]
fn a_batch_of_the_store_is_refused_where_it_grows_and_not_later() {
    for variant in [Durability::DOUBLE, Durability::NoSync] {
        let bench = Bench::new();
        let store = bench.open(&tiny(variant));
        let mut batch = store.batch();
        let mut keys = 0_u32;
        let refused = loop {
            let value = vec![keys as u8; 37 * (keys as usize % 50)];
            match batch.put(&keys.to_be_bytes(), &value) {
                Ok(()) => keys += 1,
                Err(error) => break error,
            }
        };
        let too_large = matches!(refused, StoreError::BatchTooLarge { .. });
        assert!(too_large && keys > 20, "{refused}, {keys}");
        // Bytes are left for less, to the last one.
        while batch.delete("x").is_ok() {}
        assert!(batch.put("x", "").is_err());
        store.write(&batch).unwrap();
        check(&store, keys);
        // A value that gets a file of its own takes little of it.
        batch.clear();
        batch.put("large", &vec![7; 100_000]).unwrap();
        assert!(batch.put("", "value").is_err() && batch.delete("").is_err());
        store.write(&batch).unwrap();
        assert_eq!(store.get("large").unwrap().unwrap().len(), 100_000);
    }
}

/// Promise (store): `stats` says why a write had no room until there is room for it.
#[test]
fn trouble_tells_of_a_full_disk_when_a_write_was_refused() {
    for variant in [Durability::DOUBLE, Durability::Fsync] {
        let bench = Bench::new();
        let disk = Arc::new(QuotaDisk::new(24 << 20));
        let options = tiny(variant).close_on_drop(true);
        let store = options
            .open_on(disk.clone(), None, bench.path(), &bench.pool)
            .unwrap();
        fill(&store, 10);
        assert_eq!(store.stats().trouble, None);
        let large = vec![7; 64 << 20];
        let refused = store.put("large", &large).unwrap_err();
        assert!(refused.to_string().contains("make room"), "{refused}");
        let trouble = store.stats().trouble.unwrap();
        assert!(
            trouble.contains("refused") && trouble.contains("make room"),
            "{trouble}"
        );
        // Small ones have room.
        fill(&store, 20);
        assert!(store.stats().trouble.is_some());
        store.put("large", &large[..100_000]).unwrap();
        assert_eq!(store.stats().trouble, None);
        store.close().unwrap();
    }
}
