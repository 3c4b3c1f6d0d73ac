//! A value is read as it was written last: in every variant, after a close, a crash and an opening
//! in another one, of any size, in batches.

use crate::{
    common::{Bench, VARIANTS, small},
    key, round_value, value,
};
use forebay_store::{Batch, Durability, ScanRange, Store, StoreError};

#[test]
fn values_are_read_as_put_in_every_variant_after_close_and_drop() {
    for variant in VARIANTS {
        let bench = Bench::new();
        let options = small(variant);
        // Each put of this variant takes a sync.
        let count = if variant == Durability::Fsync {
            200
        } else {
            2000
        };
        let store = bench.open(&options);
        for i in 0..count {
            store.put(&key(i), &value(i)).unwrap();
        }
        for i in (0..count).step_by(3) {
            store.delete(&key(i)).unwrap();
        }
        let check = |store: &Store| {
            for i in 0..count {
                let expected = (i % 3 != 0).then(|| value(i));
                assert_eq!(
                    store.get(&key(i)).unwrap().map(|v| v.into_vec()),
                    expected,
                    "{variant} {i}"
                );
            }
            let scanned: Vec<_> = store
                .scan(ScanRange::all())
                .unwrap()
                .map(|pair| pair.map(|(k, v)| (k, v.into_vec())).unwrap())
                .collect();
            let expected: Vec<_> = (0..count)
                .filter(|i| i % 3 != 0)
                .map(|i| (key(i), value(i)))
                .collect();
            assert!(scanned == expected, "{variant}: {} scanned", scanned.len());
        };
        check(&store);
        drop(store);
        let store = bench.open(&options);
        check(&store);
        store.put(b"after the crash", b"x").unwrap();
        store.close().unwrap();
        let store = bench.open(&options);
        check_contains(&store, b"after the crash");
        store.delete(b"after the crash").unwrap();
        check(&store);
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}

fn check_contains(store: &Store, key: &[u8]) {
    assert!(store.get(key).unwrap().is_some());
}

/// Promise (store): A store of any variant opens with everything that any other variant
/// acknowledged, after a close and after a crash of the process.
#[test]
fn every_variant_opens_what_any_other_left_closed_or_crashed() {
    for (number, first) in VARIANTS.into_iter().enumerate() {
        for second in VARIANTS {
            for closed in [true, false] {
                let bench = Bench::new();
                let store = bench.open(&small(first));
                for i in 0..30 {
                    store.put(&key(i), &value(i)).unwrap();
                }
                if closed {
                    store.close().unwrap();
                } else {
                    drop(store);
                }
                let store = bench.open(&small(second));
                for i in 30..60 {
                    store.put(&key(i), &value(i)).unwrap();
                }
                drop(store);
                let store = bench.open(&small(VARIANTS[(number + 1) % VARIANTS.len()]));
                for i in 0..60 {
                    let got = store.get(&key(i)).unwrap().map(|v| v.into_vec());
                    assert_eq!(
                        got,
                        Some(value(i)),
                        "{first} then {second}, closed {closed}, key {i}"
                    );
                }
            }
        }
    }
}

#[test]
fn empty_to_huge_values_and_keys_of_a_byte_to_64_kib_are_kept() {
    for variant in [Durability::DOUBLE, Durability::Fsync] {
        let bench = Bench::with_segments(256 << 10);
        let options = small(variant);
        let store = bench.open(&options);
        let sizes = [
            0, 1, 100, 4096, 100_000, 131_000, 131_040, 200_000, 600_000, 5_000_000,
        ];
        for (i, &size) in sizes.iter().enumerate() {
            store.put(&key(i as u32), &vec![i as u8 + 1; size]).unwrap();
        }
        for length in [1, 8, 9, 1000, 65_529] {
            store
                .put(&vec![b'k'; length], &length.to_le_bytes())
                .unwrap();
        }
        let check = |store: &Store| {
            for (i, &size) in sizes.iter().enumerate() {
                assert_eq!(
                    store.get(&key(i as u32)).unwrap().unwrap(),
                    vec![i as u8 + 1; size]
                );
            }
            for length in [1usize, 8, 9, 1000, 65_529] {
                assert_eq!(
                    store.get(&vec![b'k'; length]).unwrap().unwrap(),
                    length.to_le_bytes()
                );
            }
        };
        check(&store);
        drop(store);
        let store = bench.open(&options);
        check(&store);
        // A large value that is replaced is collected; the one that is not stays.
        // By this collection, or by the one in the background before it.
        let before = store.stats().large_value_files;
        store.put(&key(9), b"small now").unwrap();
        let report = store.gc().unwrap();
        assert_eq!(store.stats().large_value_files, before - 1, "{report:?}");
        assert_eq!(store.get(&key(9)).unwrap().unwrap(), b"small now");
        assert_eq!(store.get(&key(8)).unwrap().unwrap(), vec![9; 600_000]);
        for (bytes, bad) in [(0, vec![]), (65_536, vec![1; 65_536])] {
            let error = store.put(&bad, b"").unwrap_err();
            assert!(matches!(error, StoreError::BadKey { bytes: b } if b == bytes));
            assert!(store.get(&bad).unwrap().is_none());
        }
    }
}

/// Promise (store): A batch is there whole or not at all.
#[test]
fn a_batch_is_whole_or_nothing_and_a_keys_last_operation_counts() {
    let bench = Bench::new();
    let store = bench.open(&small(Durability::DOUBLE));
    store.put(b"gone", b"x").unwrap();
    let mut batch = Batch::new();
    batch.put(b"a", b"1").unwrap();
    batch.put(b"a", b"2").unwrap();
    batch.delete(b"gone").unwrap();
    batch.put(b"large", &[7; 100_000]).unwrap();
    store.write(&batch).unwrap();
    let mut too_large = Batch::new();
    for i in 0..40 {
        too_large.put(&key(i), &[0; 1000]).unwrap();
    }
    let error = store.write(&too_large).unwrap_err();
    assert!(matches!(error, StoreError::BatchTooLarge { .. }), "{error}");
    store.write(&Batch::new()).unwrap();
    for _ in 0..2 {
        assert_eq!(store.get(b"a").unwrap().unwrap(), b"2");
        assert_eq!(store.get(b"large").unwrap().unwrap(), [7; 100_000]);
        assert!(store.get(b"gone").unwrap().is_none());
        assert!(store.get(&key(0)).unwrap().is_none());
    }
    drop(store);
    let store = bench.open(&small(Durability::DOUBLE));
    assert_eq!(store.get(b"a").unwrap().unwrap(), b"2");
    assert_eq!(store.get(b"large").unwrap().unwrap(), [7; 100_000]);
    assert!(store.get(b"gone").unwrap().is_none());
}

#[test]
fn a_large_values_damaged_header_costs_nothing_after_a_crash() {
    let bench = Bench::new();
    let store = bench.open(&small(Durability::DOUBLE));
    store.put(b"large", &[7; 100_000]).unwrap();
    drop(store);
    let file = bench.path().join("large/0000000000000001.val");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let store = bench.open(&small(Durability::DOUBLE));
    assert_eq!(store.get(b"large").unwrap().unwrap(), [7; 100_000]);
}

#[test]
fn a_value_read_again_and_again_is_always_the_last_written_one() {
    for variant in [Durability::DOUBLE, Durability::NoSync] {
        let bench = Bench::new();
        let store = bench.open(&small(variant));
        let mut buffer = Vec::new();
        for round in 0..4u8 {
            for i in 0..500 {
                store.put(&key(i), &round_value(round, i)).unwrap();
            }
            for _ in 0..3 {
                for i in 0..500 {
                    let expected = round_value(round, i);
                    assert_eq!(store.get(&key(i)).unwrap().unwrap(), expected);
                    let found = store.get_into(&key(i), &mut buffer).unwrap();
                    assert_eq!(found, Some(&expected[..]));
                }
                let scanned = store.scan(ScanRange::all()).unwrap();
                for (i, pair) in (0..).zip(scanned) {
                    let (found, value) = pair.unwrap();
                    assert_eq!(found, key(i));
                    assert_eq!(value.into_vec(), round_value(round, i));
                }
                // What was collected has a new address.
                store.gc().unwrap();
            }
        }
        store.delete(&key(0)).unwrap();
        assert_eq!(store.get(&key(0)).unwrap(), None);
    }
}
