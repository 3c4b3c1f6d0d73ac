//! Failures are told: no sync claims success after one that failed, callers hear of a thread that
//! panicked, and a refused value leaves no file.

use crate::{
    common::{
        Bench, files_in,
        hook_disk::{Doing, HookDisk},
        within,
    },
    faulty, get, half_a_segment, io_error, is_value_log, quiet,
};
use forebay_store::{
    Batch, Durability, StoreError,
    disk::faulty::{Fault, FaultPlan},
};
use std::{
    fs, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// Promise (store): A failed sync is never followed by one that claims success.
#[test]
fn once_a_sync_failed_no_later_one_claims_that_all_is_durable() {
    let bench = Bench::new();
    let plan = Arc::new(FaultPlan::default());
    let options = quiet(Durability::NoSync);
    let store = options
        .open_on(faulty(&plan), None, bench.path(), None)
        .unwrap();
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

/// Promise (store): A store starts a background thread again that panicked, and tells the threads
/// that wait for it.
#[test]
fn a_panicked_thread_is_restarted_and_nothing_is_lost_or_hangs() {
    let bench = Bench::new();
    let panics = Arc::new(AtomicBool::new(true));
    let disk = HookDisk::by(&panics, move |doing, panics| match doing {
        Doing::Write(path, offset) if is_value_log(path) && offset > 0 => {
            assert!(!panics.load(SeqCst), "a panic that the test wants");
            Ok(())
        }
        _ => Ok(()),
    });
    let options = quiet(Durability::DOUBLE);
    let store = options
        .open_on(disk, None, bench.path(), &bench.pool)
        .unwrap();
    within(Duration::from_secs(60), "writing", move || {
        let value = [7; 1000];
        let mut done = 0;
        let error = (0..1000u32)
            .find_map(|i| {
                done = i;
                store.put(&i.to_be_bytes(), &value).err()
            })
            .expect("the pool is full and no thread drains it");
        assert!(matches!(error, StoreError::Stalled { .. }), "{error}");
        assert!(error.to_string().contains("panicked"), "{error}");
        panics.store(false, SeqCst);
        while store.put(b"goes on", &value).is_err() {
            thread::sleep(Duration::from_millis(10));
        }
        for i in 0..done {
            assert_eq!(get(&store, &i.to_be_bytes()).unwrap(), value);
        }
        store.close().unwrap();
    });
}

#[test]
fn a_large_value_whose_write_was_refused_leaves_no_file_behind() {
    let bench = Bench::new();
    let broken = Arc::new(AtomicBool::new(true));
    let disk = HookDisk::by(&broken, move |doing, broken| match doing {
        Doing::Write(path, _) if is_value_log(path) && broken.load(SeqCst) => Err(io_error()),
        _ => Ok(()),
    });
    let options = quiet(Durability::DOUBLE);
    let store = options
        .open_on(disk, None, bench.path(), &bench.pool)
        .unwrap();
    while store.put(b"fills the pool", &half_a_segment()).is_ok() {}
    while store.put(b"fills the pool", b"to its last line").is_ok() {}
    let mut batch = Batch::new();
    batch.put(b"a", &[7; 100_000]).unwrap();
    batch.put(b"b", &[7; 100_000]).unwrap();
    for _ in 0..3 {
        let error = store.put(b"large", &[7; 100_000]).unwrap_err();
        assert!(matches!(error, StoreError::Stalled { .. }), "{error}");
        assert!(store.write(&batch).is_err());
    }
    assert_eq!(files_in(&bench.path().join("large")), [] as [PathBuf; 0]);
    assert_eq!(store.stats().large_value_bytes, 0);
    broken.store(false, SeqCst);
    while store.write(&batch).is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(get(&store, b"b").unwrap(), [7; 100_000]);
}

/// What was allocated may need blocks all the same: a file system notes in one of its own that an
/// allocated one was written.
///
/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn a_write_into_a_file_that_has_its_place_gets_the_reserve() {
    for variant in [Durability::DOUBLE, Durability::Fsync, Durability::NoSync] {
        let bench = Bench::new();
        let reserve = bench.path().join("RESERVE");
        let kept = move || fs::metadata(&reserve).map_or(0, |file| file.len());
        let full_above = Arc::new(AtomicU64::new(u64::MAX));
        let disk = HookDisk::new({
            let (full_above, kept) = (Arc::clone(&full_above), kept.clone());
            move |doing| match doing {
                Doing::Write(path, offset)
                    if is_value_log(path) && offset > 0 && kept() >= full_above.load(SeqCst) =>
                {
                    Err(io::ErrorKind::StorageFull.into())
                }
                _ => Ok(()),
            }
        });
        let options = quiet(variant);
        let store = options
            .open_on(disk, None, bench.path(), &bench.pool)
            .unwrap();
        store.put(b"one", &half_a_segment()).unwrap();
        store.flush().unwrap();
        assert!(kept() > 0, "{variant}: a reserve is kept");
        full_above.store(kept(), SeqCst);
        within(
            Duration::from_secs(30),
            "a write and its drain",
            move || {
                store.put(b"two", b"value").unwrap();
                store.flush().unwrap();
                assert_eq!(get(&store, b"two").unwrap(), b"value");
            },
        );
        assert!(kept() < full_above.load(SeqCst), "{variant}");
    }
}
