//! Batches and transactions over several keyspaces.

use crate::{
    common::{Bench, tiny},
    without_pool,
};
use forebay_store::{Durability, KeyspaceOptions, ScanRange, StoreError};

/// Promise (store): A batch with keys of several keyspaces is there as a whole after a crash, or
/// not at all.
#[test]
fn a_batch_over_keyspaces_is_whole_after_a_crash() {
    for variant in [Durability::DOUBLE, Durability::Fsync] {
        let bench = Bench::new();
        let options = tiny(variant);
        let store = bench.open(&options);
        let one = store.keyspace("one", KeyspaceOptions::new()).unwrap();
        let two = store.keyspace("two", KeyspaceOptions::new()).unwrap();
        for i in 0..50u32 {
            let mut batch = store.batch();
            batch.put(&i.to_be_bytes(), "default").unwrap();
            batch.put_in(&one, &i.to_be_bytes(), &vec![1; 100]).unwrap();
            batch
                .put_in(&two, &i.to_be_bytes(), &vec![2; 40_000])
                .unwrap();
            if i > 0 {
                batch.delete_in(&one, &(i - 1).to_be_bytes()).unwrap();
            }
            assert_eq!(batch.len(), 3 + usize::from(i > 0));
            store.write(&batch).unwrap();
        }
        drop(store);
        let store = bench.open(&options);
        let one = store.existing_keyspace("one").unwrap();
        let two = store.existing_keyspace("two").unwrap();
        for i in 0..50u32 {
            let key = i.to_be_bytes();
            assert_eq!(store.get(&key).unwrap().unwrap(), "default");
            assert_eq!(one.contains_key(&key).unwrap(), i == 49);
            assert_eq!(two.get(&key).unwrap().unwrap(), [2; 40_000]);
        }
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}

/// Promise (store): A transaction reads and writes several keyspaces as one, and a conflict names
/// the key as its writer does.
#[test]
fn a_transaction_over_keyspaces_meets_conflicts_in_each() {
    let dir = tempfile::tempdir().unwrap();
    let store = without_pool().open(dir.path().join("store"), None).unwrap();
    let one = store.keyspace("one", KeyspaceOptions::new()).unwrap();
    one.put("key", "1").unwrap();
    store.put("key", "0").unwrap();
    let met = |reads: &dyn Fn(&forebay_store::Transaction<'_>), write: &dyn Fn()| {
        let mut tx = store.begin().unwrap();
        reads(&tx);
        tx.put_in(&one, "done", "so").unwrap();
        assert!(tx.contains_key_in(&one, "done").unwrap() && !tx.contains_key("done").unwrap());
        write();
        match tx.commit() {
            Ok(()) => None,
            Err(StoreError::Conflict { key }) => Some(key),
            Err(other) => panic!("{other}"),
        }
    };
    let read_one: &dyn Fn(&forebay_store::Transaction<'_>) = &|tx| {
        assert!(tx.get_in(&one, "key").unwrap().is_some());
    };
    let scan_one: &dyn Fn(&forebay_store::Transaction<'_>) = &|tx| {
        assert!(tx.scan_in(&one, ScanRange::all()).unwrap().count() > 0);
    };
    for read in [read_one, scan_one] {
        // The same key of another keyspace is another key.
        assert_eq!(met(read, &|| store.put("key", "other").unwrap()), None);
        let conflict = met(read, &|| {
            one.increment("key", 0).map(drop).unwrap_or_default()
        });
        assert_eq!(conflict, None, "it is no counter, and stays");
        let mut next = 0;
        let mut conflict = || {
            next += 1;
            let value = format!("other {next} {:?}", std::ptr::from_ref(read));
            met(read, &|| one.put("key", &value).unwrap())
        };
        assert_eq!(conflict().unwrap(), b"key");
    }
    let phantom = met(scan_one, &|| one.put("phantom", "new").unwrap());
    assert_eq!(phantom.unwrap(), b"phantom");
    let default: &dyn Fn(&forebay_store::Transaction<'_>) = &|tx| {
        assert_eq!(tx.scan(ScanRange::all()).unwrap().count(), 1);
    };
    assert_eq!(met(default, &|| one.put("another", "new").unwrap()), None);
    let escaped = met(default, &|| store.put(b"\xff\x01", "new").unwrap());
    assert_eq!(escaped.unwrap(), b"\xff\x01");
}

#[test]
fn a_keyspace_of_another_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| without_pool().open(dir.path().join(name), None).unwrap();
    let (store, other) = (open("store"), open("other"));
    let one = store.keyspace("one", KeyspaceOptions::new()).unwrap();
    let others = other.keyspace("one", KeyspaceOptions::new()).unwrap();
    let bad = |error: StoreError| {
        assert!(matches!(error, StoreError::BadKeyspace { .. }), "{error}");
    };
    let mut batch = other.batch();
    batch.put_in(&one, "key", "value").unwrap();
    bad(batch.put_in(&others, "key", "value").unwrap_err());
    bad(other.write(&batch).unwrap_err());
    store.write(&batch).unwrap();
    assert!(one.contains_key("key").unwrap() && !others.contains_key("key").unwrap());
    batch.clear();
    batch.put_in(&others, "key", "value").unwrap();
    other.write(&batch).unwrap();
    let mut tx = store.begin().unwrap();
    bad(tx.put_in(&others, "key", "value").unwrap_err());
    bad(tx.get_in(&others, "key").unwrap_err());
}

/// Promise (store): A batch with a keyspace's keys is written to that very store: neither to a copy
/// of it, nor to what is opened in its place later.
#[test]
fn a_batch_is_not_written_to_a_copy_of_its_store() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    store.put("key", "value").unwrap();
    let path = bench.dir.path().join("copy");
    store.checkpoint(&path).unwrap();
    let copy = tiny(Durability::Fsync).open(&path, None).unwrap();
    // They have the same number.
    let boats = store.keyspace("boats", KeyspaceOptions::new()).unwrap();
    let others = copy.keyspace("others", KeyspaceOptions::new()).unwrap();
    let mut batch = store.batch();
    batch.put_in(&boats, "ark", "brown").unwrap();
    let bad = |refused: StoreError| {
        assert!(
            matches!(refused, StoreError::BadKeyspace { .. }),
            "{refused}"
        );
    };
    bad(copy.write(&batch).unwrap_err());
    bad(batch.put_in(&others, "ark", "brown").unwrap_err());
    assert!(!others.contains_key("ark").unwrap());
    store.write(&batch).unwrap();
    assert!(boats.contains_key("ark").unwrap());
    store.close().unwrap();
    let store = bench.open(&tiny(Durability::DOUBLE));
    bad(store.write(&batch).unwrap_err());
}
