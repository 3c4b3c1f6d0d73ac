//! The wrong pool, or none: a store with data in its pool opens with that pool only, unless the
//! user gives it up.

use crate::{
    KEYS, check, closed,
    common::{self, Bench, new_pool},
    fill, key, quiet, refused, value,
};
use forebay_store::{Durability, StoreError};

/// A store that was not closed: some of its data is in its pool only.
fn crashed() -> Bench {
    let bench = Bench::new();
    let store = bench.open(&quiet(Durability::Buffered(4)));
    fill(&store);
    drop(store);
    bench
}

/// Promise (store): A store with acknowledged data in a pool does not open without that pool, and
/// with it has all of that data.
#[test]
fn a_store_with_data_in_its_pool_opens_only_with_it_and_has_all() {
    for variant in [Durability::DOUBLE, Durability::Fsync] {
        let bench = crashed();
        let uuid = bench.pool.uuid().to_string();
        let other = new_pool(64 << 10);
        let in_pool: fn(&StoreError) -> bool = |e| matches!(e, StoreError::DataInPool { .. });
        if variant == Durability::Fsync {
            let says = ["no pool was given", "Open it with that pool", &uuid];
            refused(&bench, None, variant, in_pool, &says);
        }
        let given = other.uuid().to_string();
        let says = ["was given", "Open it with that pool", &uuid, &given];
        refused(&bench, Some(&other), variant, in_pool, &says);
        check(&bench.open(&quiet(variant)));
    }
}

#[test]
fn a_buffered_variant_without_pool_is_refused_with_the_choices() {
    let bench = closed();
    refused(
        &bench,
        None,
        Durability::DOUBLE,
        |e| matches!(e, StoreError::PoolNeeded { .. }),
        &["double", "PoolOptions::on_disk", "Durability::Fsync"],
    );
}

/// Promise (store): A store opens without a pool that is gone, if the user asks for `salvage`, and
/// lacks only that pool's writes.
#[test]
fn a_salvaged_store_opens_without_its_lost_pool_and_goes_on() {
    let bench = crashed();
    let salvage = quiet(Durability::Fsync).salvage(true);
    let store = salvage.open(bench.path(), None).unwrap();
    let kept = (0..KEYS).take_while(|&i| store.get(&key(i)).is_ok_and(|v| v.is_some()));
    let kept = kept.count() as u32;
    // What was drained before the crash is there, and only that.
    assert!((KEYS / 2..KEYS).contains(&kept), "{kept}");
    for i in 0..kept {
        assert_eq!(store.get(&key(i)).unwrap().unwrap(), value(i));
    }
    store.put(b"goes on", b"value").unwrap();
    drop(store);
    let store = quiet(Durability::Fsync).open(bench.path(), None).unwrap();
    assert_eq!(store.get(b"goes on").unwrap().unwrap(), b"value");
    for i in 0..kept {
        assert_eq!(store.get(&key(i)).unwrap().unwrap(), value(i));
    }
}

/// Promise (store): An older copy of a store's directory loses nothing that is in the pool.
#[test]
fn an_earlier_copy_of_a_directory_loses_nothing_in_the_pool() {
    let bench = Bench::new();
    let store = bench.open(&quiet(Durability::DOUBLE));
    store.put(b"first", b"1").unwrap();
    store.close().unwrap();
    let copy = bench.dir.path().join("copy");
    common::copy_dir(&bench.path(), &copy);
    let store = bench.open(&quiet(Durability::DOUBLE));
    store.put(b"second", b"2").unwrap();
    drop(store);
    let store = quiet(Durability::DOUBLE).open(&copy, &bench.pool).unwrap();
    assert_eq!(store.get(b"first").unwrap().unwrap(), b"1");
    assert_eq!(store.get(b"second").unwrap().unwrap(), b"2");
}
