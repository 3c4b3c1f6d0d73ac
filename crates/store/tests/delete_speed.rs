//! The cost of deleting many keys, by one record or one by one, and of a scan right behind it.
//! Prints figures:
//!
//! ```text
//! cargo test --release -p forebay-store --test delete_speed -- --ignored --nocapture
//! ```
//!
//! `KEYS=1000000` for another number of keys than ten million.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::files_in;
use forebay_store::{Durability, ScanRange, Store, StoreOptions};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

fn key(number: u32) -> [u8; 12] {
    let mut key = *b"key:\0\0\0\0\0\0\0\0";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn filled(dir: &std::path::Path, keys: u32) -> Store {
    let options = StoreOptions::new().durability(Durability::NoSync);
    let store = options.open(dir, None).unwrap();
    for number in 0..keys {
        store.put(&key(number), &[7; 8]).unwrap();
    }
    store.put("last", "value").unwrap();
    store
}

/// What a clock of processor time says.
fn processor(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The longest of some scans for the first key in a row, each of which has to find the last one:
/// by the clock, and by the processor.
fn first_key(store: &Store) -> (Duration, Duration) {
    let scan = || {
        let (begun, used) = (Instant::now(), processor(ClockId::ThreadCPUTime));
        let first = store.scan(ScanRange::all()).unwrap().next();
        assert_eq!(first.unwrap().unwrap().0, b"last");
        (begun.elapsed(), processor(ClockId::ThreadCPUTime) - used)
    };
    let times: Vec<_> = (0..5).map(|_| scan()).collect();
    let clock = times.iter().map(|(clock, _)| *clock).max().unwrap();
    (clock, times.iter().map(|(_, used)| *used).max().unwrap())
}

#[test]
#[ignore = "prints figures"]
fn deleting_a_range_costs_one_write_and_so_does_a_scan_behind() {
    let keys = std::env::var("KEYS").map_or(10_000_000, |keys| keys.parse().unwrap());
    for by_range in [false, true] {
        let dir = tempfile::tempdir_in(".").unwrap();
        let store = filled(&dir.path().join("store"), keys);
        let (begun, used) = (Instant::now(), processor(ClockId::ProcessCPUTime));
        match by_range {
            true => store.delete_range(ScanRange::prefix("key:")).unwrap(),
            false => (0..keys).for_each(|number| store.delete(&key(number)).unwrap()),
        }
        let deleted = begun.elapsed();
        let used = processor(ClockId::ProcessCPUTime) - used;
        let stats = store.stats();
        let (scanned, scan_used) = first_key(&store);
        println!(
            "    {} keys in memory; the index has {} entries, {} tombstones, {} deleted ranges",
            stats.memtable_keys,
            stats.index.entries,
            stats.index.tombstones,
            stats.index.deleted_ranges
        );
        let how = if by_range { "by a range" } else { "one by one" };
        println!(
            "{keys} keys deleted {how}: {deleted:?}, {used:?} of processors; the slowest of five \
             scans behind: {scanned:?}, {scan_used:?} of one"
        );
        let begun = Instant::now();
        store
            .compact(|_| std::ops::ControlFlow::Continue(()))
            .unwrap();
        let left = files_in(&dir.path().join("store/index")).len();
        println!(
            "    compacted in {:?}: {left} files of the index",
            begun.elapsed()
        );
    }
}
