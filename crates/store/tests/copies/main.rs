//! Copies and restores of a store's directory that were not taken at one moment: each is refused
//! with nothing changed, or opens with everything that was acknowledged by the older moment; and
//! nothing is ever unlinked or cut that the rest of the copy would have needed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod crafted;
mod earlier_parts;
mod given_up;
mod manifests;
mod mixtures;

use common::{Bench, contents, copy_dir, tiny};
use forebay_store::{Durability, Store, StoreError, StoreOptions};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Nothing in the background but drains and the index.
fn quiet(variant: Durability) -> StoreOptions {
    tiny(variant).gc(false)
}

fn put(store: &Store, keys: std::ops::Range<u32>, fill: u8) {
    for i in keys {
        store
            .put(&i.to_be_bytes(), &vec![fill ^ i as u8; 20_000])
            .unwrap();
    }
}

fn check(store: &Store, keys: std::ops::Range<u32>, fill: u8) {
    for i in keys {
        let value = store.get(&i.to_be_bytes()).unwrap();
        assert!(value.unwrap() == vec![fill ^ i as u8; 20_000], "key {i}");
    }
}

/// A whole session that puts these keys.
fn session(bench: &Bench, options: &StoreOptions, keys: std::ops::Range<u32>) {
    let store = bench.open(options);
    put(&store, keys, 1);
    store.close().unwrap();
}

/// The value-log files with their bytes.
fn value_log(bench: &Bench) -> Vec<(PathBuf, Vec<u8>)> {
    contents(&bench.path().join("vlog"))
}

/// Opening is refused with words on each of `says`, and changes nothing.
fn refused(bench: &Bench, variant: Durability, says: &[&str]) -> StoreError {
    let before = contents(&bench.path());
    let pool = matches!(variant, Durability::Buffered(_)).then_some(&bench.pool);
    let error = quiet(variant)
        .open(bench.path(), pool)
        .err()
        .expect("it is opened");
    let text = error.to_string();
    for words in says {
        assert!(text.contains(words), "{words:?} is not in: {text}");
    }
    let after = contents(&bench.path());
    assert!(after == before, "something was changed: {text}");
    error
}

fn manifest(bench: &Bench) -> PathBuf {
    bench.path().join("MANIFEST")
}

/// Puts `part` of the directory `from` in the place of `to`'s.
fn replace(from: &Path, to: &Path, part: &str) {
    let (from, to) = (from.join(part), to.join(part));
    if from.is_dir() {
        let _ = fs::remove_dir_all(&to);
        copy_dir(&from, &to);
    } else {
        fs::copy(&from, &to).unwrap();
    }
}
