//! Scans give exactly their range; a snapshot sees one moment, whatever is done beside it, and only
//! so many are kept.

use crate::{
    common::{Bench, small},
    key, round_value, value,
};
use forebay_store::{Batch, Durability, ScanRange, StoreError};

#[test]
fn a_scan_gives_exactly_its_range_in_both_directions() {
    let bench = Bench::new();
    let store = bench.open(&small(Durability::DOUBLE));
    for i in 0..3000 {
        store.put(&key(i), &i.to_le_bytes()).unwrap();
    }
    let keys = |range: ScanRange| -> Vec<Vec<u8>> {
        store
            .scan(range)
            .unwrap()
            .map(|pair| pair.unwrap().0)
            .collect()
    };
    let expected = |range: std::ops::Range<u32>| -> Vec<Vec<u8>> { range.map(key).collect() };
    use std::ops::Bound::{Excluded, Included};
    assert_eq!(keys(ScanRange::prefix(b"key 0012")), expected(1200..1300));
    assert_eq!(keys(ScanRange::new(key(10)..key(20))), expected(10..20));
    assert_eq!(
        keys(ScanRange::new((Excluded(key(10)), Included(key(20))))),
        expected(11..21)
    );
    assert_eq!(
        keys(ScanRange::new((Excluded(key(20)), Included(key(10))))),
        expected(0..0)
    );
    let given =
        |scan: forebay_store::Scan| -> Vec<_> { scan.map(|pair| pair.unwrap().0).collect() };
    let now = store.snapshot().unwrap();
    for scan in [
        store.prefix("key 0012"),
        store.range("key 0012".."key 0013"),
        now.prefix(b"key 0012"),
        now.range("key 0012"..="key 0012\u{7f}"),
    ] {
        assert_eq!(given(scan.unwrap()), expected(1200..1300));
    }
    let mut reversed = keys(ScanRange::new(..key(700)).reversed());
    reversed.reverse();
    assert_eq!(reversed, expected(0..700));
    let pair = store
        .scan(ScanRange::prefix(key(5)).keys_only())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert!(pair.1.is_empty());
}

/// Promise (store): A snapshot stays the same, whatever the store writes, deletes, collects or
/// merges.
#[test]
fn a_snapshot_stays_over_writes_deletes_collections_and_merges() {
    let bench = Bench::new();
    let store = bench.open(&small(Durability::DOUBLE));
    for i in 0..4000 {
        store.put(&key(i), &value(i)).unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    for round in 0..3 {
        for i in 0..4000 {
            if i % 5 == 0 {
                store.delete(&key(i)).unwrap();
            } else {
                store.put(&key(i), &round_value(round, i)).unwrap();
            }
        }
        store.gc().unwrap();
    }
    let seen: Vec<_> = snapshot
        .scan(ScanRange::all())
        .unwrap()
        .map(|pair| pair.map(|(k, v)| (k, v.into_vec())).unwrap())
        .collect();
    assert!(seen == (0..4000).map(|i| (key(i), value(i))).collect::<Vec<_>>());
    for i in (0..4000).step_by(77) {
        assert_eq!(snapshot.get(&key(i)).unwrap().unwrap(), value(i));
    }
    drop(snapshot);
    let report = store.gc().unwrap();
    let stats = store.stats();
    assert!(stats.value_log_bytes < 48 << 20, "{report:?} {stats:?}");
    for i in 0..4000 {
        let expected = (i % 5 != 0).then(|| round_value(2, i));
        assert_eq!(store.get(&key(i)).unwrap().map(|v| v.into_vec()), expected);
    }
}

/// Promise (store): A snapshot that is taken beside writers has all of each batch or nothing of it,
/// and never changes.
#[test]
fn a_snapshot_beside_writers_has_whole_batches_only_and_stays() {
    const KEYS: u32 = 300;
    let bench = Bench::new();
    let store = &bench.open(&small(Durability::DOUBLE));
    let write = |round: u32| {
        let mut batch = Batch::new();
        (0..KEYS).for_each(|i| batch.put(&key(i), &round.to_le_bytes()).unwrap());
        batch
            .put(&[&b"only "[..], &round.to_le_bytes()].concat(), b"")
            .unwrap();
        store.write(&batch).unwrap();
    };
    write(0);
    let done = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            (1..400).for_each(write);
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        let mut held = Vec::new();
        let mut rounds = Vec::new();
        while !done.load(std::sync::atomic::Ordering::SeqCst) || held.len() < 20 {
            let snapshot = store.snapshot().unwrap();
            let value = |i: u32| snapshot.get(&key(i)).unwrap().unwrap().into_vec();
            let round = value(0);
            rounds.push(round.clone());
            held.push((snapshot.clone(), round));
            for (snapshot, round) in held.iter().rev().take(20) {
                let mut scan = snapshot.prefix("key ").unwrap();
                assert!(scan.all(|pair| pair.unwrap().1 == *round));
                let only = snapshot
                    .scan(ScanRange::prefix(b"only ").keys_only())
                    .unwrap();
                let round = u32::from_le_bytes(round[..].try_into().unwrap());
                assert_eq!(only.count() as u32, round + 1);
            }
            if held.len() > 100 {
                held.drain(..50);
            }
        }
    });
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// Promise (store): A store refuses more snapshots than it keeps.
#[test]
fn snapshots_past_the_limit_are_refused_and_equal_ones_are_one() {
    let bench = Bench::new();
    let store = bench.open(&small(Durability::DOUBLE));
    store.put(b"key", b"0").unwrap();
    let same: Vec<_> = (0..5000).map(|_| store.snapshot().unwrap()).collect();
    let mut held = Vec::new();
    let refused = loop {
        match store.snapshot() {
            Ok(snapshot) => held.push(snapshot),
            Err(error) => break error,
        }
        store.put(b"key", &held.len().to_le_bytes()).unwrap();
    };
    assert!(matches!(refused, StoreError::TooManySnapshots { open } if open == held.len()));
    let scan = store.scan(ScanRange::all());
    assert!(matches!(
        scan.err(),
        Some(StoreError::TooManySnapshots { .. })
    ));
    assert!(same[0].get(b"key").unwrap().unwrap() == *b"0");
    held.truncate(500);
    store.put(b"more", b"").unwrap();
    assert_eq!(store.scan(ScanRange::all()).unwrap().count(), 2);
    let value = held[7].get(b"key").unwrap().unwrap();
    assert_eq!(*value, 7usize.to_le_bytes());
}
