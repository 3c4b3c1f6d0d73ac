//! Measurement of what puts wait for while copies are made, not a check: `cargo test --release -p
//! forebay-store --test copying_pauses -- --ignored --nocapture`, with `SECONDS` (of each kind,
//! default 10), `ROUNDS` (of all kinds in turns, default 5) and `DIR` (a directory on the disk to
//! be measured, default the present one).
//!
//! Two threads put values of 1 KB, in a store of 400 MB, with a pool on a disk and an emulated one.
//! Copies are made again and again, each into a new directory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Rng;
use forebay_pool::PoolOptions;
use forebay_store::{ReadOnlyStore, Store, StoreOptions};
use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const KEYS: u64 = 400_000;
const VALUE: [u8; 1000] = [7; 1000];

/// What goes on beside the puts.
const KINDS: [&str; 4] = ["nothing", "checkpoints", "backups", "backups by a reader"];

fn setting(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// The times of all puts of a kind, in nanoseconds.
#[derive(Default)]
struct PutTimes {
    all: Vec<u64>,
    copies: u64,
}

impl PutTimes {
    fn row(&mut self, pool: &str, kind: &str) {
        self.all.sort_unstable();
        let at = |part: f64| {
            let place = (self.all.len() as f64 * part) as usize;
            self.all[place.min(self.all.len() - 1)] as f64 / 1e6
        };
        println!(
            "{pool:>9} | {kind:>19} | {:>7} copies | {:>9} puts | median {:>8.3} ms | p99.9 {:>8.3} ms | longest {:>8.3} ms",
            self.copies,
            self.all.len(),
            at(0.5),
            at(0.999),
            at(1.0),
        );
    }
}

/// Puts for so long, with copies beside.
fn put_beside(
    store: &Store,
    reader: &ReadOnlyStore,
    kind: &str,
    dir: &Path,
    seconds: u64,
    times: &mut PutTimes,
) {
    let (over, seed) = (
        AtomicBool::new(false),
        AtomicU64::new(times.all.len() as u64),
    );
    let copies = dir.join("copies");
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut random = Rng(seed.fetch_add(1, Relaxed) + 1);
                    let mut took = Vec::new();
                    while !over.load(Relaxed) {
                        let key = random.below(KEYS).to_be_bytes();
                        let begun = Instant::now();
                        store.put(&key, &VALUE).unwrap();
                        took.push(u64::try_from(begun.elapsed().as_nanos()).unwrap());
                    }
                    took
                })
            })
            .collect();
        let begun = Instant::now();
        for number in 0.. {
            if begun.elapsed() >= Duration::from_secs(seconds) {
                break;
            }
            match kind {
                "checkpoints" => drop(store.checkpoint(copies.join(number.to_string())).unwrap()),
                "backups" => drop(store.backup(&copies, |_| ()).unwrap()),
                "backups by a reader" => drop(reader.backup(&copies, |_| ()).unwrap()),
                _ => {
                    thread::sleep(Duration::from_millis(100));
                    continue;
                }
            }
            times.copies += 1;
        }
        over.store(true, Relaxed);
        for writer in writers {
            times.all.extend(writer.join().unwrap());
        }
    });
    let _ = fs::remove_dir_all(copies);
}

#[test]
#[ignore = "a measurement; see the head of the file"]
fn longest_put_beside_checkpoints_and_backups() {
    let (seconds, rounds) = (setting("SECONDS", 10), setting("ROUNDS", 5));
    let place = env::var_os("DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
    for (name, on_disk) in [("disk", true), ("emulated", false)] {
        let dir = tempfile::tempdir_in(&place).unwrap();
        let pool = PoolOptions::new().on_disk(on_disk).emulated(!on_disk);
        let pool = pool
            .size(256 << 20)
            .create(dir.path().join("pool"))
            .unwrap();
        let (path, options) = (dir.path().join("store"), StoreOptions::new());
        let store = options.open(&path, &pool).unwrap();
        let mut batch = store.batch();
        for key in 0..KEYS {
            batch.put(&key.to_be_bytes(), &VALUE).unwrap();
            if batch.len() == 500 {
                store.write(&batch).unwrap();
                batch.clear();
            }
        }
        let reader = options.open_read_only(&path, &pool).unwrap();
        let mut times: [PutTimes; KINDS.len()] = Default::default();
        for _ in 0..rounds {
            for (kind, times) in KINDS.iter().zip(&mut times) {
                put_beside(&store, &reader, kind, dir.path(), seconds, times);
            }
        }
        for (kind, times) in KINDS.iter().zip(&mut times) {
            times.row(name, kind);
        }
        store.close().unwrap();
    }
}
