//! Values that expire, by a clock that the test sets.

use crate::{
    TestClock,
    common::{Bench, tiny},
    keys, without_pool,
};
use forebay_store::{Durability, KeyspaceOptions, ScanRange, Store, StoreError};
use std::time::Duration;

const TTL: u64 = 1000;

fn expiring() -> KeyspaceOptions {
    KeyspaceOptions::new().ttl(Duration::from_millis(TTL))
}

/// Promise (store): A value of a keyspace with a time to live is there until that is over, and no
/// longer: for reads, scans, swaps and transactions, small and large, in a batch or alone.
#[test]
fn a_value_is_there_for_its_time_and_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    let clock = TestClock::new();
    let path = dir.path().join("store");
    let store = clock.options(without_pool()).open(&path, None).unwrap();
    let sessions = store.keyspace("sessions", expiring()).unwrap();
    store.put("stays", "value").unwrap();
    sessions.put("a", "value").unwrap();
    sessions.put("large", &vec![7; 100_000]).unwrap();
    let mut batch = store.batch();
    batch.put_in(&sessions, "b", "value").unwrap();
    batch
        .put_in(&sessions, "large in batch", &vec![7; 100_000])
        .unwrap();
    store.write(&batch).unwrap();
    let mut tx = store.begin().unwrap();
    tx.put_in(&sessions, "c", "value").unwrap();
    tx.commit().unwrap();
    let all = ["a", "b", "c", "large", "large in batch"];
    let there = || {
        let scanned = keys(sessions.scan(ScanRange::all()).unwrap());
        let only = ScanRange::all().keys_only().reversed();
        let mut backwards = keys(sessions.scan(only).unwrap());
        backwards.reverse();
        assert_eq!(scanned, backwards);
        let mut from_both = sessions.scan(ScanRange::all()).unwrap();
        let last = from_both.next_back().map(|pair| pair.unwrap().0);
        assert_eq!(last.as_ref(), scanned.last());
        assert_eq!(keys(from_both), scanned[..scanned.len() - 1]);
        let values = sessions.multi_get(all).unwrap();
        let mut buffer = Vec::new();
        for (key, value) in all.into_iter().zip(values) {
            let found = scanned.contains(&key.as_bytes().to_vec());
            assert_eq!(value.is_some(), found);
            assert_eq!(sessions.contains_key(key).unwrap(), found);
            assert_eq!(sessions.get(key).unwrap().is_some(), found);
            assert_eq!(
                sessions.get_into(key, &mut buffer).unwrap().is_some(),
                found
            );
            store
                .transaction(|tx| {
                    assert_eq!(tx.get_in(&sessions, key)?.is_some(), found);
                    assert_eq!(tx.contains_key_in(&sessions, key)?, found);
                    Ok(())
                })
                .unwrap();
        }
        scanned.len()
    };
    assert_eq!(there(), 5);
    clock.pass(TTL - 1);
    assert_eq!(there(), 5);
    sessions.put("b", "again").unwrap();
    clock.pass(1);
    assert_eq!(there(), 1);
    assert!(sessions.compare_and_swap("a", None, Some(b"mine")).unwrap());
    assert_eq!(sessions.increment("c", 4).unwrap(), 4);
    clock.pass(TTL - 1);
    assert_eq!(there(), 2);
    // A value that is put again as it is begins anew.
    sessions
        .update("a", |value| value.map(<[u8]>::to_vec))
        .unwrap();
    clock.pass(1);
    assert_eq!(there(), 1);
    assert_eq!(store.get("stays").unwrap().unwrap(), "value");
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// Promise (store): A snapshot, a scan and a transaction see what had not expired when they began.
/// That a value expires meanwhile is no conflict, until the collector has deleted it.
#[test]
fn a_snapshot_keeps_what_expires_later() {
    let dir = tempfile::tempdir().unwrap();
    let clock = TestClock::new();
    let path = dir.path().join("store");
    let store = clock.options(without_pool()).open(&path, None).unwrap();
    let sessions = store.keyspace("sessions", expiring()).unwrap();
    for i in 0..3000u32 {
        sessions.put(&i.to_be_bytes(), &[7; 500]).unwrap();
    }
    let snapshot = sessions.snapshot().unwrap();
    let mut scan = sessions.scan(ScanRange::all()).unwrap();
    assert!(scan.next().is_some());
    let begin = || {
        let mut tx = store.begin().unwrap();
        assert!(tx.get_in(&sessions, &7u32.to_be_bytes()).unwrap().is_some());
        let read = tx.scan_in(&sessions, ScanRange::all()).unwrap();
        assert_eq!(read.count(), 3000);
        tx.put("done", "so").unwrap();
        tx
    };
    let (tx, late) = (begin(), begin());
    clock.pass(TTL);
    tx.commit().unwrap();
    // Nothing was written since: it shares its moment with the one before.
    assert!(
        sessions
            .snapshot()
            .unwrap()
            .get(&7u32.to_be_bytes())
            .unwrap()
            .is_none()
    );
    let report = store.gc().unwrap();
    assert!(report.files > 0, "{report:?}");
    assert_eq!(
        snapshot.get(&7u32.to_be_bytes()).unwrap().unwrap(),
        [7; 500]
    );
    assert_eq!(snapshot.scan(ScanRange::all()).unwrap().count(), 3000);
    assert_eq!(scan.count(), 2999);
    assert!(matches!(late.commit(), Err(StoreError::Conflict { .. })));
    let mut tx = store.begin().unwrap();
    assert!(tx.get_in(&sessions, &7u32.to_be_bytes()).unwrap().is_none());
    tx.put("done", "so").unwrap();
    sessions.put(&7u32.to_be_bytes(), "new").unwrap();
    assert!(matches!(tx.commit(), Err(StoreError::Conflict { .. })));
}

/// Promise (store): The collector gives expired values' space back, their index entries and large
/// values too, and copies none of them.
#[test]
fn expired_values_space_comes_back() {
    for resident in [false, true] {
        let bench = Bench::with_room(64, 64 << 10);
        let clock = TestClock::new();
        let variant = if resident {
            Durability::Buffered(48)
        } else {
            Durability::DOUBLE
        };
        let options = clock.options(tiny(variant).resident(resident).gc(resident));
        let store = bench.open(&options);
        let sessions = store.keyspace("sessions", expiring()).unwrap();
        let fill = || {
            for i in 0..1000u32 {
                sessions.put(&i.to_be_bytes(), &[7; 1500]).unwrap();
            }
            sessions.put("large", &vec![7; 100_000]).unwrap();
            let mut batch = store.batch();
            batch.put_in(&sessions, "batch", "value").unwrap();
            store.write(&batch).unwrap();
        };
        fill();
        store.put("kept", "value").unwrap();
        clock.pass(TTL);
        let report = store.gc().unwrap();
        // What is copied is what was put beside.
        assert!(report.relocated < 200, "{report:?}");
        store.gc().unwrap();
        let stats = store.stats();
        assert!(stats.value_log_bytes < 2 << 20, "{stats:?}");
        assert_eq!(stats.large_value_files, 0, "{stats:?}");
        // Those of the last file are left.
        crate::dropping::until("entries stay", || {
            let index = store.stats().index;
            index.entries - index.tombstones < 700
        });
        assert_eq!(store.get("kept").unwrap().unwrap(), "value");
        // Again and again there is room.
        for _ in 0..3 {
            fill();
            clock.pass(TTL);
        }
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}

/// Promise (store): A value that the collector dropped as expired never comes back, whatever the
/// clock says later and whatever crash comes between; one that it has not is there again when the
/// clock is set back.
#[test]
fn a_dropped_value_stays_away_when_the_clock_is_set_back() {
    let bench = Bench::new();
    let clock = TestClock::new();
    let options = clock.options(tiny(Durability::DOUBLE).gc(false));
    let store = bench.open(&options);
    let sessions = store.keyspace("sessions", expiring()).unwrap();
    for i in 0..3000u32 {
        sessions.put(&i.to_be_bytes(), &[7; 1000]).unwrap();
    }
    let begun = clock.now();
    clock.pass(TTL);
    assert_eq!(sessions.scan(ScanRange::all()).unwrap().count(), 0);
    clock.set(begun);
    assert_eq!(sessions.scan(ScanRange::all()).unwrap().count(), 3000);
    clock.pass(TTL);
    assert!(store.gc().unwrap().files > 0);
    clock.set(begun);
    let left = sessions.scan(ScanRange::all()).unwrap().count();
    assert!(left < 1500, "{left}");
    drop(store);
    let store = bench.open(&options);
    let sessions = store.existing_keyspace("sessions").unwrap();
    assert_eq!(sessions.scan(ScanRange::all()).unwrap().count(), left);
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// Promise (store): A copy of the collector has the time of its original, and expires with it.
#[test]
fn a_copied_value_expires_with_its_original() {
    let bench = Bench::new();
    let clock = TestClock::new();
    let store = bench.open(&clock.options(tiny(Durability::DOUBLE).gc(false)));
    let sessions = store.keyspace("sessions", expiring()).unwrap();
    for i in 0..2000u32 {
        let key = i.to_be_bytes();
        sessions.put(&key, &[7; 1000]).unwrap();
        if i % 4 > 0 {
            sessions.delete(&key).unwrap();
        }
    }
    clock.pass(TTL / 2);
    assert!(store.gc().unwrap().relocated > 100);
    clock.pass(TTL / 2 - 1);
    assert_eq!(sessions.scan(ScanRange::all()).unwrap().count(), 500);
    clock.pass(1);
    assert_eq!(sessions.scan(ScanRange::all()).unwrap().count(), 0);
}

/// Promise (store): An idle store's collector sees by itself that values have expired.
#[test]
fn the_collector_sees_expired_values_by_itself() {
    let bench = Bench::new();
    let clock = TestClock::new();
    let store = bench.open(&clock.options(tiny(Durability::NoSync)));
    let sessions = store.keyspace("sessions", expiring()).unwrap();
    for i in 0..6000u32 {
        sessions.put(&i.to_be_bytes(), &[7; 2000]).unwrap();
    }
    let before = store.stats().value_log_bytes;
    assert!(before > 10 << 20);
    clock.pass(TTL);
    crate::dropping::until("files stay", || {
        store.stats().value_log_bytes < before - (4 << 20)
    });
    assert_eq!(sessions.scan(ScanRange::all()).unwrap().count(), 0);
}

/// In a store of its own each, of what a transaction depends on: a key, or, if so it is said, the
/// range that it is in.
fn read_both_ways(read: impl Fn(bool, &Store, &TestClock)) {
    for by_scan in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let clock = TestClock::new();
        let options = clock.options(without_pool());
        let store = options.open(dir.path().join("store"), None).unwrap();
        read(by_scan, &store, &clock);
    }
}

/// Promise (store): A put beside a transaction is a conflict for it, also where the clock was set
/// back meanwhile and the value expires before the transaction began.
#[test]
fn a_put_beside_a_transaction_is_met_whatever_the_clock_says() {
    read_both_ways(|by_scan, store, clock| {
        let locks = store.keyspace("locks", expiring()).unwrap();
        // One that was there and has expired, and one that never was.
        locks.put("old", "alice").unwrap();
        clock.pass(TTL);
        for key in ["old", "new"] {
            let mut tx = store.begin().unwrap();
            match by_scan {
                true => assert_eq!(tx.scan_in(&locks, ScanRange::all()).unwrap().count(), 0),
                false => assert!(tx.get_in(&locks, key).unwrap().is_none()),
            }
            tx.put_in(&locks, key, "mine").unwrap();
            let began = clock.now();
            clock.set(began - TTL - TTL / 2);
            locks.put(key, "bob").unwrap();
            assert_eq!(locks.get(key).unwrap().unwrap(), "bob");
            match tx.commit() {
                Err(StoreError::Conflict { key: met }) => assert_eq!(met, key.as_bytes()),
                other => panic!("{key}, by_scan {by_scan}: {other:?}"),
            }
            assert_eq!(locks.get(key).unwrap().unwrap(), "bob");
            clock.set(began);
        }
    });
}

/// Promise (store): A delete of what a transaction has read is a conflict for it, also once the
/// value would have expired.
#[test]
fn a_delete_beside_a_transaction_is_met_when_the_time_is_over() {
    read_both_ways(|by_scan, store, clock| {
        let locks = store.keyspace("locks", expiring()).unwrap();
        locks.put("lock", "alice").unwrap();
        let mut first = store.begin().unwrap();
        match by_scan {
            true => assert_eq!(first.scan_in(&locks, ScanRange::all()).unwrap().count(), 1),
            false => assert!(first.get_in(&locks, "lock").unwrap().is_some()),
        }
        first.put("balance", "1").unwrap();
        // It comes before the first, of which it has seen nothing; and behind it, which has seen
        // the lock. One of them has to go.
        let mut second = store.begin().unwrap();
        assert!(second.get("balance").unwrap().is_none());
        second.delete_in(&locks, "lock").unwrap();
        second.commit().unwrap();
        clock.pass(TTL);
        assert!(matches!(first.commit(), Err(StoreError::Conflict { .. })));
        assert!(!store.contains_key("balance").unwrap());
    });
}
