//! Keys, values and batches of sizes around every limit: each is taken whole by every way of
//! writing it, or refused with nothing done.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, tiny};
use forebay_store::{Batch, Durability, KEY_BYTES_MAX, Store, StoreError, StoreOptions};
use std::ops::RangeInclusive;

const SEGMENT: usize = 64 << 10;
/// So many bytes around a limit are tried.
const AROUND: usize = 80;

fn around(limit: usize) -> RangeInclusive<usize> {
    limit.saturating_sub(AROUND)..=limit + AROUND
}

fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at ^ bytes) as u8).collect()
}

/// Opens a store on `bench` in these ways, one after the other, and has `test` look at each.
fn opened_anew(bench: &Bench, options: &StoreOptions, test: impl Fn(&Store)) {
    for closes in [true, false] {
        let store = bench.open(options);
        test(&store);
        store.gc().unwrap();
        test(&store);
        if closes {
            store.close().unwrap();
        }
    }
    let store = bench.open(options);
    test(&store);
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

const VARIANTS: [Durability; 2] = [Durability::DOUBLE, Durability::NoSync];

/// Promise (store): A store takes a key, a value or a batch of any size whole, by every way of
/// writing it, or refuses it with nothing done.
#[test]
fn a_value_of_any_size_is_taken_by_put_and_by_batch() {
    for variant in VARIANTS {
        let bench = Bench::with_segments(SEGMENT as u64);
        let options = tiny(variant);
        let store = bench.open(&options);
        let sizes = || around(SEGMENT / 2).chain(around(SEGMENT)).chain(0..=70);
        let key = |way: &str, bytes: usize| format!("{way} {bytes}").into_bytes();
        let ways = ["put", "batch", "with others"];
        for bytes in sizes() {
            let [put, alone, among] = ways.map(|way| key(way, bytes));
            store.put(&put, &value(bytes)).unwrap();
            let mut batch = Batch::new();
            batch.put(&alone, &value(bytes)).unwrap();
            store
                .write(&batch)
                .unwrap_or_else(|e| panic!("{bytes}: {e}"));
            let mut batch = Batch::new();
            batch.put(b"before", b"of the batch").unwrap();
            batch.put(&among, &value(bytes)).unwrap();
            batch.delete(b"nothing").unwrap();
            match store.write(&batch) {
                Ok(()) => {}
                // Together they are more than a record has; alone it is none too large.
                Err(StoreError::BatchTooLarge {
                    bytes: b,
                    bytes_max,
                }) => {
                    assert!(b > bytes_max && b < bytes_max + 100, "{bytes}: {b}");
                    assert!(store.get(&among).unwrap().is_none());
                    store.put(&among, &value(bytes)).unwrap();
                }
                Err(e) => panic!("{bytes}: {e}"),
            }
        }
        drop(store);
        opened_anew(&bench, &options, |store| {
            for (way, bytes) in ways.iter().flat_map(|way| sizes().map(move |b| (way, b))) {
                let found = store.get(&key(way, bytes)).unwrap().unwrap();
                assert!(*found == value(bytes)[..], "{way} {bytes}");
            }
        });
    }
}

/// Promise: as `a_value_of_any_size_is_taken_by_put_and_by_batch`.
#[test]
fn a_batch_of_any_size_is_taken_whole_or_refused_whole() {
    for variant in VARIANTS {
        let bench = Bench::with_segments(SEGMENT as u64);
        let options = tiny(variant);
        let store = bench.open(&options);
        let key = |bytes: usize, i: usize| format!("{bytes}/{i}").into_bytes();
        let mut taken = Vec::new();
        for bytes in around(SEGMENT / 2 - 8 * 20) {
            let mut batch = Batch::new();
            (0..8).for_each(|i| {
                batch
                    .put(&key(bytes, i), &value(bytes / 8 + (i * bytes) % 3))
                    .unwrap()
            });
            match store.write(&batch) {
                Ok(()) => taken.push(bytes),
                Err(StoreError::BatchTooLarge { .. }) => {
                    let found = (0..8).find(|i| store.get(&key(bytes, *i)).unwrap().is_some());
                    assert_eq!(found, None, "{bytes}");
                }
                Err(e) => panic!("{bytes}: {e}"),
            }
        }
        assert!(!taken.is_empty() && taken.len() < 2 * AROUND + 1);
        drop(store);
        opened_anew(&bench, &options, |store| {
            for (bytes, i) in taken.iter().flat_map(|b| (0..8).map(move |i| (*b, i))) {
                let found = store.get(&key(bytes, i)).unwrap().unwrap();
                assert_eq!(*found, value(bytes / 8 + (i * bytes) % 3));
            }
        });
    }
}

/// Promise: as `a_value_of_any_size_is_taken_by_put_and_by_batch`.
#[test]
fn a_key_of_any_size_is_put_and_deleted_or_refused_by_length() {
    for (variant, segment) in [
        (Durability::DOUBLE, SEGMENT),
        (Durability::NoSync, SEGMENT),
        (Durability::NoSync, 4 * SEGMENT),
    ] {
        let bench = Bench::with_segments(segment as u64);
        let options = tiny(variant).segment_size(segment as u64);
        let store = bench.open(&options);
        let lengths = (1..=3)
            .chain(around(segment / 2).step_by(3))
            .chain(around(KEY_BYTES_MAX).step_by(9));
        let mut kept = Vec::new();
        for bytes in lengths {
            let key = vec![b'k'; bytes];
            for length in [0, 30, segment / 2] {
                let (put, deleted) = (store.put(&key, &value(length)), store.delete(&key));
                let is_refusal = |e: &StoreError| match e {
                    StoreError::BadKey { bytes: b } => *b == bytes && bytes > KEY_BYTES_MAX,
                    StoreError::BatchTooLarge {
                        bytes: b,
                        bytes_max,
                    } => b > bytes_max,
                    _ => false,
                };
                assert!(
                    put.as_ref().err().is_none_or(is_refusal),
                    "{bytes}: {put:?}"
                );
                assert!(deleted.as_ref().err().is_none_or(is_refusal), "{bytes}");
                // What can be put can be deleted.
                assert!(put.is_err() || deleted.is_ok(), "{bytes}");
                assert!(store.get(&key).unwrap().is_none(), "{bytes}");
            }
            if store.put(&key, &value(30)).is_ok() {
                kept.push(bytes);
            }
        }
        assert!(kept.len() >= 10);
        drop(store);
        opened_anew(&bench, &options, |store| {
            for &bytes in &kept {
                let found = store.get(&vec![b'k'; bytes]).unwrap();
                assert_eq!(found.as_deref(), Some(&value(30)[..]), "{bytes}");
            }
        });
    }
}

/// Promise: as `a_value_of_any_size_is_taken_by_put_and_by_batch`.
#[test]
fn one_value_around_half_of_a_default_segment_is_taken_by_batch() {
    let bench = Bench::new();
    let options = StoreOptions::new()
        .close_on_drop(false)
        .durability(Durability::NoSync);
    let store = options.open(bench.path(), None).unwrap();
    for bytes in (4_194_250..4_194_280).chain([4_194_303, 4_194_304, 4_194_305]) {
        let mut batch = Batch::new();
        batch.put(b"key", &value(bytes)).unwrap();
        store
            .write(&batch)
            .unwrap_or_else(|e| panic!("{bytes}: {e}"));
        assert!(*store.get(b"key").unwrap().unwrap() == value(bytes)[..]);
    }
}
