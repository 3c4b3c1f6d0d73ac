//! The cursor beside an ordered map; a store by its name: made, found, destroyed.
#![allow(clippy::unwrap_used, reason = "tests")]

use forebay_bindings::{BindingError, BindingOptions, BoundStore, PoolKind, StoreCursor, destroy};
use forebay_pool::PoolOptions;
use forebay_store::{Durability, KeyspaceOptions, StoreError, StoreOptions};
use proptest::prelude::*;
use std::{collections::BTreeMap, fs, path::Path};

fn options() -> BindingOptions {
    BindingOptions::default()
        .create_if_missing(true)
        .pool_kind(PoolKind::Emulated)
        .pool_bytes(4 << 20)
}

fn open(dir: &Path) -> BoundStore {
    BoundStore::open(&options(), dir).unwrap()
}

#[derive(Clone, Debug)]
enum Move {
    First,
    Last,
    Seek(Vec<u8>),
    SeekForPrev(Vec<u8>),
    Next,
    Prev,
}

/// Some begin with the byte by which the store tells keyspaces.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0, 1, 2, 0xff]);
    prop::collection::vec(byte, 1..3)
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        1 => key().prop_map(Move::Seek),
        1 => key().prop_map(Move::SeekForPrev),
        5 => Just(Move::Next),
        5 => Just(Move::Prev),
    ];
    prop::collection::vec(one, 1..60)
}

/// Where a cursor over `map` is after the move, by its key.
fn moved(map: &BTreeMap<Vec<u8>, u8>, at: Option<Vec<u8>>, to: &Move) -> Option<Vec<u8>> {
    let found = match to {
        Move::First => map.keys().next(),
        Move::Last => map.keys().next_back(),
        Move::Seek(key) => map.range(key.clone()..).next().map(|(key, _)| key),
        Move::SeekForPrev(key) => map.range(..=key.clone()).next_back().map(|(key, _)| key),
        Move::Next => map
            .keys()
            .find(|key| Some(*key) > at.as_ref() && at.is_some()),
        Move::Prev => map.keys().rfind(|key| Some(*key) < at.as_ref()),
    };
    found.cloned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A cursor that turns, seeks and leaves both ends is where one over an ordered map is.
    #[test]
    fn a_cursor_moves_as_one_over_a_map_does(
        keys in prop::collection::btree_map(key(), any::<u8>(), 0..12),
        moves in moves(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        for (key, value) in &keys {
            store.put_as(key, &[*value], true).unwrap();
        }
        let beside = store.keyspace("beside", KeyspaceOptions::new()).unwrap();
        beside.put("not seen", "value").unwrap();
        let mut cursor = StoreCursor::new(store.snapshot().unwrap());
        // Nothing that is written later is seen.
        store.put_as(&[1, 1, 1], b"later", false).unwrap();
        let mut at = None;
        for to in &moves {
            match to {
                Move::First => cursor.seek_to_first(),
                Move::Last => cursor.seek_to_last(),
                Move::Seek(key) => cursor.seek(key),
                Move::SeekForPrev(key) => cursor.seek_for_prev(key),
                Move::Next => cursor.next(),
                Move::Prev => cursor.prev(),
            }
            at = moved(&keys, at, to);
            let found = cursor.get().map(|(key, value)| (key.to_vec(), value.to_vec()));
            let expected = at.clone().map(|key| (key.clone(), vec![keys[&key]]));
            prop_assert_eq!(found, expected, "after {:?}", to);
        }
        prop_assert!(cursor.trouble().is_none());
    }
}

#[test]
fn a_store_and_its_pool_are_in_the_directory_of_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("above/store");
    let refused = BoundStore::open(&options().create_if_missing(false), &name);
    assert!(matches!(
        refused,
        Err(BindingError::Store(StoreError::NotAStore { .. }))
    ));
    assert!(!name.exists());
    let store = open(&name);
    store.put_as(b"boat", b"blue", true).unwrap();
    // As a crash leaves it: what was put is in the pool.
    let options = options().with_store(|options| options.close_on_drop(false));
    drop(store);
    let store = BoundStore::open(&options, &name).unwrap();
    store.put_as(b"ark", b"brown", true).unwrap();
    drop(store);
    assert!(name.join("pool").is_file() && name.join("data/MANIFEST").is_file());
    let refused = BoundStore::open(&options.clone().error_if_exists(true), &name);
    assert!(matches!(refused, Err(BindingError::StoreExists { .. })));

    let away = dir.path().join("away");
    fs::rename(name.join("pool"), &away).unwrap();
    let refused = BoundStore::open(&options, &name);
    assert!(matches!(
        refused,
        Err(BindingError::Store(StoreError::DataInPool { .. }))
    ));
    assert!(
        !name.join("pool").exists(),
        "a new pool is in the place of the old one"
    );
    fs::rename(&away, name.join("pool")).unwrap();
    let store = BoundStore::open(&options, &name).unwrap();
    assert_eq!(store.get(b"ark").unwrap().as_deref(), Some(&b"brown"[..]));
    assert_eq!(store.get(b"boat").unwrap().as_deref(), Some(&b"blue"[..]));
    store.close().unwrap();
    destroy(&options, &name).unwrap();
    assert!(!name.exists());
    destroy(&options, &name).unwrap();
}

#[test]
fn a_store_that_rust_made_is_opened_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (name, path) = (dir.path().join("store"), dir.path().join("shared"));
    let pool = PoolOptions::new().size(4 << 20).segment_size(1 << 16);
    let pool = pool.emulated(true).create(&path).unwrap();
    let neighbour = dir.path().join("neighbour");
    let neighbour = StoreOptions::new().open(neighbour, &pool).unwrap();
    let store = StoreOptions::new().open(&name, &pool).unwrap();
    store.put("boat", "blue").unwrap();
    store.close().unwrap();

    let options = options().pool(Some(path.clone()));
    let store = BoundStore::open(&options, &name).unwrap();
    assert_eq!(store.get(b"boat").unwrap().as_deref(), Some(&b"blue"[..]));
    let in_use = destroy(&options, &name);
    assert!(matches!(
        in_use,
        Err(BindingError::Store(StoreError::InUse { .. }))
    ));
    store.close().unwrap();
    // As a store with compressed values has it.
    fs::create_dir(name.join("dict")).unwrap();
    fs::write(name.join("dict/00000001.dict"), "dictionary").unwrap();
    destroy(&options, &name).unwrap();
    assert!(!name.exists() && path.exists());
    neighbour.put("ark", "brown").unwrap();
    neighbour.close().unwrap();
}

#[test]
fn a_directory_with_other_things_in_it_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("letters"), "dear").unwrap();
    let refused = BoundStore::open(&options(), dir.path()).map(drop);
    let Err(BindingError::Store(error @ StoreError::NotAStore { .. })) = refused else {
        panic!("{refused:?}");
    };
    assert!(error.to_string().contains("letters"), "{error}");
    destroy(&options(), dir.path()).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn without_a_pool_none_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let options = options().durability(Durability::Fsync);
    let store = BoundStore::open(&options, dir.path()).unwrap();
    store.put_as(b"boat", b"blue", true).unwrap();
    store.close().unwrap();
    assert!(!dir.path().join("pool").exists());
}

/// Promise (store): On a pool on a disk, a synced write of a binding is committed when it returns.
#[test]
fn a_synced_write_is_committed() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let options = options().pool_kind(PoolKind::Disk).pool_bytes(16 << 20);
    let store = BoundStore::open(&options, dir.path()).unwrap();
    let has = |key: &str| {
        let data = dir.path().join("data");
        let reader = StoreOptions::new().open_read_only(data, None).unwrap();
        reader.contains_key(key).unwrap()
    };
    store.put_as(b"a", b"1", false).unwrap();
    assert!(!has("a"));
    store.put_as(b"b", b"1", true).unwrap();
    assert!(has("a") && has("b"));
    store.delete_as(b"a", true).unwrap();
    assert!(!has("a"));
    let mut batch = store.batch();
    batch.put("c", "1").unwrap();
    store.write_as(&batch, true).unwrap();
    assert!(has("c"));
    store.close().unwrap();
}
