//! Compare-and-swap, merges and counters: one key, without a transaction.

use crate::common::{Bench, VARIANTS, tiny};
use forebay_store::{Durability, StoreError};
use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    thread,
};

const THREADS: u32 = 4;

/// Promise (store): Increments of one key by several threads all count, while the collector moves
/// its value.
#[test]
fn increments_of_several_threads_all_count() {
    for variant in VARIANTS {
        let bench = Bench::new();
        let store = bench.open(&tiny(variant).space_amplification_max(1.1));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let adding: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        for i in 0..200 {
                            store.increment("shared", 1).unwrap();
                            store.increment(&[i as u8 % 5], -3).unwrap();
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    store.gc().unwrap();
                }
            });
            adding.into_iter().for_each(|thread| thread.join().unwrap());
            done.store(true, Relaxed);
        });
        assert_eq!(
            store.increment("shared", 0).unwrap(),
            200 * i64::from(THREADS)
        );
        for key in 0..5u8 {
            let sum = store.increment(&[key], 0).unwrap();
            assert_eq!(sum, -3 * 40 * i64::from(THREADS), "{variant}");
        }
    }
}

/// Promise (store): Of several threads that swap the same value, one does.
#[test]
fn of_several_swaps_one_is_done() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    for round in 0..50u32 {
        let old = (round > 0).then(|| vec![round as u8 - 1; 1000]);
        let swapped = AtomicU32::new(0);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, old, swapped) = (&store, &old, &swapped);
                // Some are large, in files of their own.
                let bytes = if thread.is_multiple_of(2) {
                    1000
                } else {
                    70_000
                };
                let new = vec![round as u8; bytes];
                scope.spawn(move || {
                    let done = store.compare_and_swap("key", old.as_deref(), Some(&new));
                    swapped.fetch_add(u32::from(done.unwrap()), Relaxed);
                });
            }
        });
        assert_eq!(swapped.into_inner(), 1, "{round}");
        store.put("key", &[round as u8; 1000]).unwrap();
    }
    assert!(
        store
            .compare_and_swap("key", Some(&[49; 1000]), None)
            .unwrap()
    );
    assert!(store.compare_and_swap("key", None, None).unwrap());
    assert!(!store.contains_key("key").unwrap());
    store.gc().unwrap();
    assert_eq!(
        store.stats().large_value_files,
        0,
        "of those that came late"
    );
}

#[test]
fn a_merge_sees_the_present_value_and_may_delete_it() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    let add = |word: &'static [u8]| {
        move |old: Option<&[u8]>| Some([old.unwrap_or_default(), word].concat())
    };
    assert_eq!(store.update("key", add(b"one ")).unwrap().unwrap(), b"one ");
    assert_eq!(
        store.update("key", add(b"two")).unwrap().unwrap(),
        b"one two"
    );
    let writes = store.stats().writes;
    store.update("key", |old| old.map(<[u8]>::to_vec)).unwrap();
    assert_eq!(store.stats().writes, writes, "nothing was to be changed");
    assert_eq!(store.update("key", |_| None).unwrap(), None);
    assert!(!store.contains_key("key").unwrap());
}

#[test]
fn a_value_that_is_no_counter_stays_as_it_is() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    let largest = i64::MAX.to_le_bytes();
    for value in [&b"seven b"[..], b"", b"nine byte", &largest] {
        store.put("counter", value).unwrap();
        match store.increment("counter", 1) {
            Err(StoreError::NotACounter { key, .. }) => assert_eq!(key, b"counter"),
            other => panic!("{other:?}"),
        }
        assert_eq!(store.get("counter").unwrap().unwrap(), value);
    }
    assert_eq!(store.increment("counter", -1).unwrap(), i64::MAX - 1);
}
