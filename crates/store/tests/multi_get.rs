//! Several keys read as of one moment.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, Rng, VARIANTS, tiny, value_log_files};
use forebay_store::{Durability, KeyspaceOptions, StoreError, StoreOptions};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

fn key(n: u64) -> Vec<u8> {
    format!("key {n:05}").into_bytes()
}

/// Promise (store): `multi_get` gives what `get` does of each key, in the order asked for, wherever
/// the values are.
#[test]
fn many_keys_are_read_as_one_after_another_is() {
    let resident = tiny(Durability::Buffered(24)).resident(true);
    for options in VARIANTS.into_iter().map(tiny).chain([resident]) {
        let bench = Bench::with_room(48, 64 << 10);
        let store = bench.open(&options);
        let mut rng = Rng(7);
        let mut model = BTreeMap::new();
        for round in 0..3_u8 {
            // In tables, files and the pool; large ones in files of their own.
            for n in 0..400 {
                let len = if n % 97 == 0 {
                    70_000
                } else {
                    10 + n as usize * 3
                };
                store.put(&key(n * 2), &vec![round; len]).unwrap();
                model.insert(key(n * 2), vec![round; len]);
            }
            for n in (0..400).step_by(9) {
                store.delete(&key(n * 2)).unwrap();
                model.remove(&key(n * 2));
            }
            let before = (store.snapshot().unwrap(), model.clone());
            store.put(&key(0), "later").unwrap();
            model.insert(key(0), b"later".to_vec());
            // Twice the same, none, and ones that are not there.
            let count = [0, 1, 700][usize::from(round)];
            let mut keys: Vec<_> = (0..count).map(|_| key(rng.next() % 900)).collect();
            keys.extend(keys.first().cloned());
            let values = store.multi_get(&keys).unwrap();
            let expected: Vec<_> = keys.iter().map(|key| model.get(key)).collect();
            let found: Vec<_> = values
                .iter()
                .map(|v| v.as_ref().map(|v| v.to_vec()))
                .collect();
            assert!(found.iter().map(Option::as_ref).eq(expected), "{options:?}");
            let values = before.0.multi_get(&keys).unwrap();
            for (key, value) in keys.iter().zip(values) {
                assert!(value.map(|v| v.into_vec()).as_ref() == before.1.get(key));
            }
        }
        let reader = options.open_read_only(bench.path(), &bench.pool).unwrap();
        let values = reader.multi_get((0..800).map(key)).unwrap();
        assert_eq!(values.iter().flatten().count(), model.len());
    }
}

/// Promise (store): What `multi_get` gives is of one moment: of a batch it has all or nothing.
#[test]
fn many_keys_are_of_one_moment_beside_writers() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    let keys: Vec<_> = (0..40).map(key).collect();
    let write = |n: u64| {
        let mut batch = store.batch();
        keys.iter()
            .for_each(|key| batch.put(key, &n.to_le_bytes()).unwrap());
        store.write(&batch).unwrap();
    };
    write(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            (1..).take_while(|_| !done.load(Relaxed)).for_each(write);
        });
        let mut last = 0;
        for _ in 0..2000 {
            let values = store.multi_get(&keys).unwrap();
            let numbers = values
                .iter()
                .map(|value| u64::from_le_bytes(value.as_ref().unwrap()[..].try_into().unwrap()));
            let numbers: Vec<u64> = numbers.collect();
            assert!(numbers.iter().all(|n| *n == numbers[0]), "{numbers:?}");
            assert!(numbers[0] >= last);
            last = numbers[0];
        }
        done.store(true, Relaxed);
    });
}

#[test]
fn a_damaged_value_among_many_is_named_by_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = StoreOptions::new().durability(Durability::NoSync);
    let store = options.open(&path, None).unwrap();
    let owners = store.keyspace("owners", KeyspaceOptions::new()).unwrap();
    for n in 0..10 {
        store.put(&key(n), &[b'a' + n as u8; 5000]).unwrap();
        owners.put(&key(n), &[b'A' + n as u8; 5000]).unwrap();
    }
    let file = value_log_files(&path).pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    for damaged in [b"ddddddddd", b"FFFFFFFFF"] {
        let at = bytes.windows(9).position(|it| it == damaged).unwrap();
        bytes[at + 100] ^= 1;
    }
    std::fs::write(&file, bytes).unwrap();
    let by_all = [
        (3, store.multi_get((0..10).map(key))),
        (5, owners.multi_get((0..10).map(key))),
    ];
    for (damaged, refused) in by_all {
        let refused = refused.unwrap_err();
        let StoreError::OfKey { key: of, source } = &refused else {
            panic!("{refused}");
        };
        assert_eq!(*of, key(damaged));
        assert!(matches!(**source, StoreError::Damaged { .. }), "{refused}");
        let name = format!("\"key {damaged:05}\"");
        assert!(refused.to_string().contains(&name), "{refused}");
    }
    assert!(
        store
            .multi_get([key(0), key(9)])
            .unwrap()
            .iter()
            .all(Option::is_some)
    );
}
