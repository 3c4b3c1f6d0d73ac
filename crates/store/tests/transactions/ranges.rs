//! A transaction depends on the part of a range that it went through, on values and not places, and
//! on nothing that it only wrote.

use crate::{
    common::{Bench, VARIANTS, tiny},
    conflict,
};
use forebay_store::{Durability, ScanRange, Store, StoreError, Transaction};

/// Takes so many pairs of the range of all keys.
fn take(tx: &Transaction<'_>, range: ScanRange, pairs: usize) -> Vec<Vec<u8>> {
    let scan = tx.scan(range).unwrap();
    scan.take(pairs).map(|pair| pair.unwrap().0).collect()
}

/// How the commit of a transaction ends that went through two keys of `range`, after `meanwhile`.
fn after(store: &Store, range: ScanRange, meanwhile: &str) -> Result<(), StoreError> {
    let mut tx = store.begin().unwrap();
    take(&tx, range, 2);
    let before = store.get(meanwhile).unwrap();
    store.put(meanwhile, "another").unwrap();
    tx.put("done", "so").unwrap();
    let committed = tx.commit();
    match before {
        Some(value) => store.put(meanwhile, &value).unwrap(),
        None => store.delete(meanwhile).unwrap(),
    }
    store.delete("done").unwrap();
    committed
}

#[test]
fn a_scan_depends_on_what_it_went_through_alone() {
    for variant in VARIANTS {
        let bench = Bench::new();
        let store = bench.open(&tiny(variant));
        for key in ["b", "d", "f", "h"] {
            store.put(key, "value").unwrap();
        }
        let forward = || ScanRange::new("a".."g");
        for key in ["a", "b", "c", "d"] {
            let committed = after(&store, forward(), key);
            assert_eq!(conflict(committed), key.as_bytes());
        }
        for key in ["A", "d ", "e", "f", "g", "h"] {
            after(&store, forward(), key).unwrap();
        }
        let backward = || forward().reversed();
        for key in ["d", "e", "f", "fg"] {
            let committed = after(&store, backward(), key);
            assert_eq!(conflict(committed), key.as_bytes());
        }
        for key in ["a", "b", "c", "g", "h"] {
            after(&store, backward(), key).unwrap();
        }
        // Of its own keys it depends on the place only.
        let mut tx = store.begin().unwrap();
        tx.put("c", "own").unwrap();
        tx.delete("d").unwrap();
        assert_eq!(take(&tx, forward(), 2), [b"b", b"c"]);
        store.put("c", "another").unwrap();
        assert_eq!(conflict(tx.commit()), b"c");
    }
}

#[test]
fn an_end_that_was_seen_is_depended_on() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    store.put("b", "value").unwrap();
    let ends: [(ScanRange, &[u8]); 3] = [
        (ScanRange::prefix("b"), b"bb"),
        (ScanRange::new("a".."c").reversed().keys_only(), b"a"),
        (ScanRange::new("x".."z"), b"y"),
    ];
    for (range, phantom) in ends {
        let mut tx = store.begin().unwrap();
        let mut scan = tx.scan(range).unwrap();
        while scan.next().is_some() {}
        drop(scan);
        tx.put("done", "so").unwrap();
        store.put(phantom, "came").unwrap();
        assert_eq!(conflict(tx.commit()), phantom);
        store.delete(phantom).unwrap();
    }
    // A range that no key can be in, and a scan of which nothing was taken.
    let mut tx = store.begin().unwrap();
    tx.put("done", "so").unwrap();
    assert_eq!(
        take(&tx, ScanRange::new("z".."a"), 1),
        Vec::<Vec<u8>>::new()
    );
    drop(tx.scan(ScanRange::all()).unwrap());
    store.put("b", "another").unwrap();
    tx.commit().unwrap();
}

/// Promise (store): The collector's copies are no conflicts of transactions.
#[test]
fn a_value_that_was_only_moved_is_no_conflict() {
    for variant in VARIANTS {
        let bench = Bench::new();
        let store = bench.open(&tiny(variant).space_amplification_max(1.1));
        let key = |i: u32| format!("key {i:04}").into_bytes();
        for i in 0..400 {
            store.put(&key(i), &[(i % 200) as u8; 3000]).unwrap();
        }
        let mut by_key = store.begin().unwrap();
        let mut by_range = store.begin().unwrap();
        for i in (0..400).step_by(10) {
            assert!(by_key.get(&key(i)).unwrap().is_some());
            assert!(by_range.contains_key(&key(i)).unwrap());
        }
        assert_eq!(
            take(&by_range, ScanRange::prefix("key 0"), usize::MAX).len(),
            400
        );
        // Most of each file is garbage, once: the values are as they were in the end.
        for round in [1, 0] {
            for i in (0..400).filter(|i: &u32| !i.is_multiple_of(10)) {
                store
                    .put(&key(i), &[(i % 200) as u8 + round; 3000])
                    .unwrap();
            }
        }
        let report = store.gc().unwrap();
        assert!(report.relocated > 0, "{variant}: {report:?}");
        by_key.put("by key", "done").unwrap();
        by_key.commit().unwrap();
        by_range.put("by range", "done").unwrap();
        by_range.commit().unwrap();
    }
}

/// Promise (store): A transaction that grows too large says so where it grows, and its other
/// writes can be committed.
#[test]
fn a_transaction_too_large_is_refused_where_it_grows() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    let mut tx = store.begin().unwrap();
    let refused = (0..100u32).find_map(|i| {
        let put = tx.put(&i.to_be_bytes(), &[7; 1000]);
        put.err().map(|error| (i, error))
    });
    let (refused, error) = refused.unwrap();
    assert!(matches!(error, StoreError::BatchTooLarge { .. }), "{error}");
    // In place of one that it has there is room.
    tx.put(&0u32.to_be_bytes(), &[8; 1000]).unwrap();
    // A value that has a file of its own takes little.
    tx.delete(&1u32.to_be_bytes()).unwrap();
    tx.put("large", &[9; 100_000]).unwrap();
    tx.commit().unwrap();
    let found = store.scan(ScanRange::all()).unwrap().count();
    assert_eq!(found, refused as usize);
    assert_eq!(store.get("large").unwrap().unwrap().len(), 100_000);
}

#[test]
fn a_refused_transaction_leaves_no_large_value() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    let mut tx = store.begin().unwrap();
    assert!(tx.get("key").unwrap().is_none());
    tx.put("large", &[9; 100_000]).unwrap();
    store.put("key", "value").unwrap();
    assert_eq!(conflict(tx.commit()), b"key");
    assert_eq!(store.stats().large_value_files, 0);
    assert!(!store.contains_key("large").unwrap());
}

#[test]
fn work_that_fails_or_gives_up_has_written_nothing() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    let failed = store.transaction(|tx| {
        tx.put("key", "value")?;
        tx.put("", "no key")
    });
    assert!(matches!(failed, Err(StoreError::BadKey { bytes: 0 })));
    let given_up = store.transaction(|tx| {
        tx.put("key", "value")?;
        tx.clear();
        Ok("given up")
    });
    assert_eq!(given_up.unwrap(), "given up");
    assert!(!store.contains_key("key").unwrap());
}

/// Promise (store): A transaction that always meets a conflict ends with one after a hundred runs.
#[test]
fn a_transaction_that_never_succeeds_ends() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    let mut runs = 0u32;
    let ended = store.transaction(|tx| {
        runs += 1;
        tx.get("key")?;
        tx.put("done", "so")?;
        store.put("key", &runs.to_le_bytes())
    });
    assert_eq!(conflict(ended), b"key");
    assert_eq!(runs, 100);
    assert!(!store.contains_key("done").unwrap());
}
