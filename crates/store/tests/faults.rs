//! Failing disks: nothing acknowledged is lost, errors say what to do, and nothing hangs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, tiny};
use forebay_store::{
    Options, Store, StoreError, Variant,
    disk::{
        RealDisk,
        faulty::{Fault, FaultyDisk, Plan},
    },
};
use std::sync::Arc;

fn faulty(plan: &Arc<Plan>) -> Arc<FaultyDisk> {
    Arc::new(FaultyDisk::new(
        Arc::new(RealDisk::default()),
        Arc::clone(plan),
    ))
}

fn quiet(variant: Variant) -> Options {
    Options {
        gc: false,
        ..tiny(variant)
    }
}

fn get(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|value| value.into_vec())
}

#[test]
fn a_write_after_one_that_could_not_begin_a_new_file_is_not_lost() {
    for variant in [Variant::Fsync, Variant::NoSync] {
        let bench = Bench::new();
        let plan = Arc::new(Plan::default());
        let store =
            Store::open_on(faulty(&plan), None, &bench.path(), None, &quiet(variant)).unwrap();
        // Two of these fill a segment but for a little; sixteen segments fill a file.
        let large = vec![7; 30_000];
        for i in 0..40u32 {
            if i == 32 {
                // Whatever is done after the segment's end was written fails.
                plan.strike(2, Fault::Gone);
                let error = store.put(&i.to_be_bytes(), &large).unwrap_err();
                assert!(matches!(error, StoreError::Io { .. }), "{error}");
                plan.heal();
                // This one would still fit into the segment.
                store.put(b"small", b"kept").unwrap();
            }
            store.put(&i.to_be_bytes(), &large).unwrap();
        }
        drop(store);
        let store = bench.open(&quiet(variant));
        for i in 0..40u32 {
            assert_eq!(
                get(&store, &i.to_be_bytes()).unwrap(),
                large,
                "{variant} {i}"
            );
        }
        let problems = store.verify().unwrap().problems;
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(get(&store, b"small").unwrap(), b"kept", "{variant}");
    }
}

#[test]
fn once_a_sync_failed_no_later_one_claims_that_all_is_durable() {
    let bench = Bench::new();
    let plan = Arc::new(Plan::default());
    let options = quiet(Variant::NoSync);
    let store = Store::open_on(faulty(&plan), None, &bench.path(), None, &options).unwrap();
    store.put(b"key", b"value").unwrap();
    plan.strike(1, Fault::Error);
    assert!(store.flush().is_err());
    plan.heal();
    // The kernel reports a failed sync once and has forgotten it the next time.
    for _ in 0..2 {
        let error = store.flush().unwrap_err();
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
        assert!(error.to_string().contains("Reopen"), "{error}");
    }
    assert!(store.put(b"other", b"value").is_err());
    assert!(store.close().is_err());
}
