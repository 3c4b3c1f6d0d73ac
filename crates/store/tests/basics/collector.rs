//! The collector and `verify`, beside writers and readers: space is given back, no live value is
//! lost, and what is whole is not reported.

use crate::{
    common::{
        self, Bench,
        hook_disk::{Doing, HookDisk},
        small, tiny, value_log_files,
    },
    key, value,
};
use forebay_store::{Durability, ScanRange, Snapshot};
use std::{
    io,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

/// Promise: as `a_store_does_what_a_map_does`.
#[test]
fn a_collection_frees_space_and_keeps_live_values_over_a_crash() {
    for variant in [Durability::DOUBLE, Durability::NoSync] {
        let bench = Bench::with_segments(256 << 10);
        let options = small(variant).gc(false);
        let store = bench.open(&options);
        for round in 0..20u8 {
            for i in 0..2000 {
                store
                    .put(&key(i), &[&[round][..], &vec![i as u8; 2000]].concat())
                    .unwrap();
            }
        }
        let before = store.stats().value_log_bytes;
        let report = store.gc().unwrap();
        assert!(report.files > 0 && report.reclaimed_bytes > 0, "{report:?}");
        let after = store.stats();
        assert!(after.value_log_bytes < before, "{before} {after:?}");
        drop(store);
        let store = bench.open(&options);
        for i in 0..2000 {
            let expected = [&[19][..], &vec![i as u8; 2000]].concat();
            assert_eq!(store.get(&key(i)).unwrap().unwrap(), expected);
        }
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn writers_readers_scans_and_the_collector_work_at_once() {
    let bench = Bench::with_segments(256 << 10);
    let store = &bench.open(&small(Durability::DOUBLE));
    std::thread::scope(|scope| {
        for writer in 0..3u32 {
            scope.spawn(move || {
                for i in 0..6000 {
                    let number = writer * 1000 + i % 1000;
                    store.put(&key(number), &i.to_le_bytes()).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for i in 0..6000 {
                if let Some(value) = store.get(&key(i % 3000)).unwrap() {
                    assert_eq!(value.len(), 4);
                }
            }
        });
        scope.spawn(|| {
            for _ in 0..30 {
                let keys: Vec<_> = store
                    .scan(ScanRange::all())
                    .unwrap()
                    .map(|pair| pair.unwrap().0)
                    .collect();
                assert!(keys.is_sorted());
            }
        });
        scope.spawn(|| {
            for _ in 0..5 {
                store.gc().unwrap();
            }
        });
    });
    for writer in 0..3 {
        for i in 0..1000 {
            let last = store.get(&key(writer * 1000 + i)).unwrap().unwrap();
            assert_eq!(last, (5000 + i).to_le_bytes());
        }
    }
}

#[test]
fn verify_finds_no_problem_beside_writers_and_the_collector() {
    let bench = Bench::new();
    let options = common::tiny(Durability::DOUBLE).space_amplification_max(1.2);
    let store = &bench.open(&options);
    let done = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..12_000u32 {
                store.put(&key(i % 400), &value(i)).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        while !done.load(std::sync::atomic::Ordering::SeqCst) {
            assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
            store.gc().unwrap();
        }
    });
    let stats = store.stats();
    assert!(stats.gc_files_removed > 0, "{stats:?}");
}

#[test]
fn what_is_in_the_cache_is_still_verified_on_the_disk() {
    let bench = Bench::new();
    let store = bench.open(&small(Durability::DOUBLE));
    store.put(b"key", &[7; 1000]).unwrap();
    store.flush().unwrap();
    for _ in 0..3 {
        assert_eq!(store.get(b"key").unwrap().unwrap(), [7; 1000]);
    }
    let file = common::value_log_files(&bench.path())[0].clone();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[4096 + 300] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert_eq!(store.get(b"key").unwrap().unwrap(), [7; 1000]);
    let report = store.verify().unwrap();
    assert_eq!((report.keys, report.problems.len()), (0, 2), "{report:?}");
}

#[test]
fn a_collected_file_that_goes_while_verify_reads_is_no_problem() {
    let bench = Bench::new();
    // What keeps the collected files, until the first of them is read while it is there.
    let kept: Arc<Mutex<Option<Snapshot>>> = Arc::default();
    let disk = HookDisk::by(&kept, move |doing, kept| match doing {
        Doing::Read(path, ..) if thread::current().name() != Some("forebay-gc") => {
            if let Some(snapshot) = kept.lock().unwrap().take() {
                drop(snapshot);
                let begun = Instant::now();
                while path.exists() && begun.elapsed() < Duration::from_secs(60) {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            // As of one whose descriptor was closed meanwhile.
            match path.exists() {
                true => Ok(()),
                false => Err(io::ErrorKind::NotFound.into()),
            }
        }
        _ => Ok(()),
    });
    let options = tiny(Durability::NoSync);
    let store = options.open_on(disk, None, bench.path(), None).unwrap();
    for round in 0..2u8 {
        for i in 0..100 {
            store.put(&key(i), &[round; 20_000]).unwrap();
        }
    }
    let snapshot = store.snapshot().unwrap();
    assert!(store.gc().unwrap().files > 0);
    let first = value_log_files(&bench.path())[0].clone();
    *kept.lock().unwrap() = Some(snapshot);
    let report = store.verify().unwrap();
    assert!(!first.exists());
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.not_collectable, Vec::<String>::new());
}
