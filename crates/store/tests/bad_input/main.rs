//! Missing, damaged and foreign files, the wrong pool, no room, no rights: a clear error with the
//! remedy, nothing changed, nothing lost.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod directory;
mod flipped_bits;
mod in_use;
mod index;
mod no_room;
mod pools;
mod value_log;

use common::{Bench, contents, tiny, value_log_files};
use forebay_pool::Pool;
use forebay_store::{Durability, Store, StoreError, StoreOptions};

/// Nothing in the background, and an index that takes in little before it is asked to.
fn quiet(variant: Durability) -> StoreOptions {
    tiny(variant)
        .gc(false)
        .memtable_size(4 << 20)
        .chunk_log_size(64 << 20)
}

fn key(i: u32) -> Vec<u8> {
    format!("key {i:04}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    vec![i as u8; 20_000]
}

/// Keys of a [`filled`] store: enough for three value-log files.
const KEYS: u32 = 130;

fn fill(store: &Store) {
    for i in 0..KEYS {
        store.put(&key(i), &value(i)).unwrap();
    }
    store.put(b"large", &[9; 100_000]).unwrap();
}

fn check(store: &Store) {
    for i in 0..KEYS {
        assert_eq!(store.get(&key(i)).unwrap().unwrap(), value(i), "key {i}");
    }
    assert_eq!(store.get(b"large").unwrap().unwrap(), [9; 100_000]);
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// A store with three value-log files that was closed.
fn closed() -> Bench {
    let bench = Bench::new();
    let store = bench.open(&quiet(Durability::DOUBLE));
    fill(&store);
    store.close().unwrap();
    assert_eq!(value_log_files(&bench.path()).len(), 3);
    bench
}

/// Opening fails with an error that `is` as it should be and `says` what to do, and changes
/// nothing.
fn refused(
    bench: &Bench,
    pool: Option<&Pool>,
    variant: Durability,
    is: fn(&StoreError) -> bool,
    says: &[&str],
) {
    let before = contents(&bench.path());
    for create in [true, false] {
        let options = quiet(variant).create_if_missing(create);
        let error = options
            .open(bench.path(), pool)
            .err()
            .expect("it is opened");
        let text = error.to_string();
        assert!(is(&error), "{error:?}");
        for words in says {
            assert!(text.contains(words), "{words:?} is not in: {text}");
        }
        assert!(
            contents(&bench.path()) == before,
            "something was changed: {text}"
        );
    }
}
