//! Dropped keyspaces: refused at once, never seen again, and their space comes back uncopied.

use crate::{
    common::{Bench, tiny, value_log_files},
    keys, without_pool,
};
use forebay_pool::PoolOptions;
use forebay_store::{Durability, KeyspaceOptions, ScanRange, Store, StoreError, StoreOptions};
use std::{
    thread,
    time::{Duration, Instant},
};

fn is_dropped<T>(result: Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::KeyspaceDropped { .. }))
}

/// Waits until `is_so`.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{what}: not within a minute"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// Promise (store): After a drop every handle, snapshot, scan, batch and transaction of the
/// keyspace is refused, and one of the same name that is made later is another one.
#[test]
fn nothing_of_a_dropped_keyspace_is_read_or_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = without_pool().open(dir.path().join("store"), None).unwrap();
    let options = KeyspaceOptions::new();
    let one = store.keyspace("one", options).unwrap();
    for i in 0..500u32 {
        one.put(&i.to_be_bytes(), "value").unwrap();
    }
    let snapshot = one.snapshot().unwrap();
    let mut scan = one.scan(ScanRange::all()).unwrap();
    assert!(scan.next().unwrap().is_ok());
    let begun = || one.scan(ScanRange::all()).unwrap();
    let (mut back, mut sought, mut of_keys) = (begun(), begun(), begun());
    assert!(back.next_back().unwrap().is_ok() && back.next().unwrap().is_ok());
    assert!(sought.next().unwrap().is_ok() && of_keys.next_back().unwrap().is_ok());
    let mut batch = store.batch();
    batch.put_in(&one, "key", "value").unwrap();
    batch.put("key", "value").unwrap();
    let mut tx = store.begin().unwrap();
    tx.put_in(&one, "key", "value").unwrap();
    tx.put("key", "value").unwrap();
    store.drop_keyspace("one").unwrap();
    assert!(is_dropped(one.put("key", "value")) && is_dropped(one.delete("key")));
    assert!(is_dropped(one.get("key")) && is_dropped(one.contains_key("key")));
    assert!(is_dropped(one.increment("key", 1)) && is_dropped(one.scan(ScanRange::all())));
    assert!(is_dropped(snapshot.get("key")) && is_dropped(snapshot.scan(ScanRange::all())));
    assert!(
        scan.any(is_dropped),
        "a scan that was begun ends without a word"
    );
    assert!(back.rev().any(is_dropped), "a scan's other end does");
    sought.seek_back(500u32.to_be_bytes());
    assert!(sought.any(is_dropped), "a scan that sought a key does");
    of_keys.seek(u32::MAX.to_be_bytes());
    assert!(of_keys.next_back().is_some_and(is_dropped));
    assert!(is_dropped(snapshot.multi_get(["key"])) && is_dropped(one.multi_get(["key"])));
    assert!(is_dropped(store.write(&batch)) && is_dropped(tx.commit()));
    assert!(!store.contains_key("key").unwrap());
    assert!(matches!(
        store.drop_keyspace("one"),
        Err(StoreError::NoKeyspace { .. })
    ));
    let again = store.keyspace("one", options).unwrap();
    assert!(again.get(&7u32.to_be_bytes()).unwrap().is_none());
    again.put("new", "value").unwrap();
    assert!(is_dropped(one.get("new")));
    assert_eq!(keys(again.scan(ScanRange::all()).unwrap()), [b"new"]);
}

fn fill(store: &Store, name: &str, value: &[u8]) {
    let keyspace = store.keyspace(name, KeyspaceOptions::new()).unwrap();
    for i in 0..4000u32 {
        keyspace.put(&i.to_be_bytes(), value).unwrap();
    }
}

/// Promise (store): A drop gives the space of a keyspace back: index entries, large values, and
/// value-log files that hold nothing else, of which no record is copied.
#[test]
fn a_drops_space_comes_back_without_copies() {
    for variant in [Durability::NoSync, Durability::DOUBLE] {
        let bench = Bench::new();
        let store = bench.open(&tiny(variant).gc(false));
        store.put("kept", "value").unwrap();
        fill(&store, "one", &[7; 2000]);
        let one = store.existing_keyspace("one").unwrap();
        one.put("large", &vec![7; 200_000]).unwrap();
        fill(&store, "behind", &[8; 100]);
        store.gc().unwrap();
        let before = store.stats();
        assert!(before.value_log_bytes > 8 << 20 && before.large_value_files == 1);
        store.drop_keyspace("one").unwrap();
        until("the index has entries", || {
            let stats = store.stats();
            stats.dropped_keyspaces == 0 && stats.index.entries < 4100
        });
        let report = store.gc().unwrap();
        let after = store.stats();
        assert!(after.value_log_bytes < 3 << 20, "{after:?}");
        assert_eq!((after.large_value_files, report.large_values), (0, 1));
        // Some of what was put around it.
        assert!(report.relocated_bytes < 1 << 20, "{report:?}");
        assert!(value_log_files(&bench.path()).len() < 4);
        assert_eq!(store.get("kept").unwrap().unwrap(), "value");
        let behind = store.existing_keyspace("behind").unwrap();
        assert_eq!(behind.scan(ScanRange::all()).unwrap().count(), 4000);
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}

/// Promise (store): The collector gives a dropped keyspace's space back by itself, although nothing
/// is written any more.
#[test]
fn the_collector_sees_a_drop_by_itself() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::NoSync));
    fill(&store, "one", &[7; 2000]);
    let before = store.stats().value_log_bytes;
    store.drop_keyspace("one").unwrap();
    // Four files of garbage are allowed for.
    until("files stay", || {
        store.stats().value_log_bytes < before - (3 << 20)
    });
    assert_eq!(store.stats().gc_relocated_bytes, 0);
}

/// Promise (store): A resident log has a dropped keyspace's room again.
#[test]
fn a_resident_store_has_the_room_of_a_drop() {
    let bench = Bench::with_room(16, 64 << 10);
    let store = bench.open(&tiny(Durability::Buffered(12)).resident(true));
    for round in 0..6 {
        let name = format!("keyspace {round}");
        let keyspace = store.keyspace(&name, KeyspaceOptions::new()).unwrap();
        for i in 0..100u32 {
            let mut batch = store.batch();
            batch
                .put_in(&keyspace, &i.to_be_bytes(), &[7; 2000])
                .unwrap();
            batch.put_in(&keyspace, "last", &i.to_be_bytes()).unwrap();
            store.write(&batch).unwrap();
            keyspace.put(&(i + 1000).to_be_bytes(), &[7; 2000]).unwrap();
        }
        store.drop_keyspace(&name).unwrap();
    }
    assert_eq!(store.verify().unwrap().keys, 0);
}

/// Promise (store): A snapshot of before a drop keeps what it sees of other keyspaces, and costs
/// the space until it goes.
#[test]
fn a_snapshot_of_before_a_drop_reads_other_keyspaces() {
    let dir = tempfile::tempdir().unwrap();
    let store = without_pool().open(dir.path().join("store"), None).unwrap();
    let two = store.keyspace("two", KeyspaceOptions::new()).unwrap();
    for i in 0..2000u32 {
        two.put(&i.to_be_bytes(), &[2; 100]).unwrap();
    }
    fill(&store, "one", &[7; 1000]);
    let before = store.snapshot().unwrap();
    store.drop_keyspace("one").unwrap();
    for i in 0..2000u32 {
        two.put(&i.to_be_bytes(), "new").unwrap();
    }
    store.gc().unwrap();
    let of_two = before.keyspace("two").unwrap();
    for pair in of_two.scan(ScanRange::all()).unwrap() {
        assert_eq!(pair.unwrap().1, [2; 100]);
    }
    assert!(before.keyspace("one").is_err());
    assert_eq!(
        of_two
            .keyspace(None)
            .unwrap()
            .scan(ScanRange::all())
            .unwrap()
            .count(),
        0
    );
    drop((before, of_two));
    store.gc().unwrap();
    let bytes = store.stats().value_log_bytes;
    assert!(bytes < 3 << 20, "{bytes}");
}

#[test]
fn writers_beside_drops_are_refused_and_lose_nothing_else() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    thread::scope(|scope| {
        for thread in 0..2u32 {
            let store = &store;
            scope.spawn(move || {
                for i in 0..3000u32 {
                    let keyspace = store.keyspace("one", KeyspaceOptions::new());
                    let put = keyspace.and_then(|one| one.put(&i.to_be_bytes(), &[7; 200]));
                    assert!(put.is_ok() || is_dropped(put));
                    store
                        .put(&[thread.to_be_bytes(), i.to_be_bytes()].concat(), "kept")
                        .unwrap();
                }
            });
        }
        for _ in 0..40 {
            match store.drop_keyspace("one") {
                Ok(()) | Err(StoreError::NoKeyspace { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            thread::sleep(Duration::from_millis(3));
        }
    });
    let _ = store.drop_keyspace("one");
    assert_eq!(store.scan(ScanRange::all()).unwrap().count(), 6000);
    store.gc().unwrap();
    let report = store.verify().unwrap();
    assert_eq!((report.problems, report.keys), (Vec::new(), 6000));
    until("entries of dropped keyspaces stay", || {
        store.stats().dropped_keyspaces == 0
    });
}

/// Promise (store): Whatever was written before a drop of a keyspace is durable with it: who has
/// moved its keys elsewhere keeps them.
#[test]
fn what_was_moved_out_of_a_dropped_keyspace_is_durable() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let pool = PoolOptions::new().on_disk(true).size(4 << 20);
    let pool = pool.segment_size(64 << 10).lanes(4);
    let pool = pool.create(dir.path().join("pool")).unwrap();
    let options = StoreOptions::new().durability(Durability::DOUBLE);
    let options = options.commit_puts(false);
    let path = dir.path().join("store");
    let store = options.open(&path, &pool).unwrap();
    let old = store.keyspace("old", KeyspaceOptions::new()).unwrap();
    old.put("boat", "alice").unwrap();
    store.commit().unwrap();
    // As another machine would find it after a power cut now.
    let moved = || {
        let reader = options.open_read_only(&path, None).unwrap();
        let is_dropped = reader.keyspaces().is_empty();
        (is_dropped, reader.contains_key("boat").unwrap())
    };
    store
        .put("boat", &old.get("boat").unwrap().unwrap())
        .unwrap();
    assert_eq!(moved(), (false, false));
    store.drop_keyspace("old").unwrap();
    assert_eq!(moved(), (true, true));
}

/// Promise (store): A transaction that has read a keyspace which was dropped since is refused,
/// wherever it writes.
#[test]
fn a_transaction_comes_before_a_drop_of_what_it_read_or_never() {
    let dir = tempfile::tempdir().unwrap();
    let store = without_pool().open(dir.path().join("store"), None).unwrap();
    for by_scan in [false, true] {
        let one = store.keyspace("one", KeyspaceOptions::new()).unwrap();
        one.put("boat", "alice").unwrap();
        let mut tx = store.begin().unwrap();
        match by_scan {
            true => assert_eq!(tx.scan_in(&one, ScanRange::all()).unwrap().count(), 1),
            false => assert!(tx.get_in(&one, "boat").unwrap().is_some()),
        }
        tx.put("paint", "blue").unwrap();
        store.drop_keyspace("one").unwrap();
        assert!(is_dropped(tx.commit()), "by_scan {by_scan}");
        assert!(!store.contains_key("paint").unwrap());
    }
}
