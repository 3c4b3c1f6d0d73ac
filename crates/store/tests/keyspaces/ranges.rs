//! Ranges of a keyspace that are deleted by one record.

use crate::{
    common::{Bench, tiny},
    keys,
};
use forebay_store::{Durability, KeyspaceOptions, ScanRange, Store, StoreError};
use std::ops::ControlFlow;

const NAMES: [&str; 3] = ["before", "of it", "behind"];

/// Those with a number that is divisible by five begin with "k", three of five with FF.
fn key(number: u32) -> Vec<u8> {
    let starts: [&[u8]; 5] = [b"k", b"\xff", b"\xff\0", b"\xff\x01\0\0\0\x01", b"\xfe\xff"];
    [
        starts[number as usize % starts.len()],
        &number.to_be_bytes(),
    ]
    .concat()
}

fn count(store: &Store) -> [usize; 4] {
    let of = |name| {
        keys(
            store
                .existing_keyspace(name)
                .unwrap()
                .scan(ScanRange::all())
                .unwrap(),
        )
    };
    let [before, of_it, behind] = NAMES.map(|name| of(name).len());
    let default = keys(store.scan(ScanRange::all()).unwrap()).len();
    [default, before, of_it, behind]
}

/// Promise (store): A range of one keyspace is deleted there alone, whatever bytes its keys begin
/// with, also after a crash and when everything is merged.
#[test]
fn a_deleted_range_is_of_its_keyspace_alone() {
    for variant in [Durability::NoSync, Durability::DOUBLE] {
        let bench = Bench::new();
        let options = tiny(variant).gc(false);
        let store = bench.open(&options);
        let made = NAMES.map(|name| store.keyspace(name, KeyspaceOptions::new()).unwrap());
        for key in (0..200).map(key) {
            store.put(&key, "value").unwrap();
            for keyspace in &made {
                keyspace.put(&key, "value").unwrap();
            }
        }
        let [before, of_it, behind] = &made;
        of_it.delete_range(ScanRange::all()).unwrap();
        assert_eq!(count(&store), [200, 200, 0, 200]);
        of_it.put(b"\xff", "new").unwrap();
        store.delete_range(ScanRange::prefix(b"\xff")).unwrap();
        assert_eq!(count(&store), [80, 200, 1, 200]);
        let mut batch = store.batch();
        batch.put_in(before, "l", "goes").unwrap();
        batch
            .delete_range_in(before, ScanRange::new("l"..))
            .unwrap();
        batch.put_in(before, "m", "stays").unwrap();
        store.write(&batch).unwrap();
        assert_eq!(count(&store), [80, 41, 1, 200]);
        store
            .transaction(|tx| {
                tx.delete_range_in(behind, ScanRange::prefix("k"))?;
                assert_eq!(tx.scan_in(behind, ScanRange::all())?.count(), 160);
                assert!(!tx.contains_key_in(behind, &key(0))?);
                tx.put_in(behind, "k", "new")
            })
            .unwrap();
        let expected = [80, 41, 1, 161];
        assert_eq!(count(&store), expected);
        drop(store);
        let store = bench.open(&options);
        assert_eq!(count(&store), expected);
        store.delete_range(ScanRange::all()).unwrap();
        let expected = [0, 41, 1, 161];
        assert_eq!(count(&store), expected);
        store.compact(|_| ControlFlow::Continue(())).unwrap();
        assert_eq!(count(&store), expected);
        let report = store.verify().unwrap();
        assert_eq!((report.problems, report.keys), (Vec::new(), 203));
    }
}

#[test]
fn a_range_of_a_dropped_keyspace_is_refused() {
    let bench = Bench::new();
    let options = tiny(Durability::DOUBLE).gc(false);
    let store = bench.open(&options);
    let one = store.keyspace("one", KeyspaceOptions::new()).unwrap();
    one.put("key", "value").unwrap();
    one.delete_range(ScanRange::all()).unwrap();
    let mut batch = store.batch();
    batch.delete_range_in(&one, ScanRange::all()).unwrap();
    let mut tx = store.begin().unwrap();
    tx.delete_range_in(&one, ScanRange::all()).unwrap();
    store.drop_keyspace("one").unwrap();
    let refused = [
        one.delete_range(ScanRange::all()),
        store.write(&batch),
        tx.commit(),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(StoreError::KeyspaceDropped { .. })));
    }
    // The first one is replayed, of a keyspace that is no more.
    drop(store);
    let store = bench.open(&options);
    let again = store.keyspace("one", KeyspaceOptions::new()).unwrap();
    again.put("key", "value").unwrap();
    assert!(again.contains_key("key").unwrap());
}
