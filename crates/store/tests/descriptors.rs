//! The files that a store has open: a bound, whatever it holds.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, tiny, value_log_files};
use forebay_store::{Durability, ScanRange, Store, StoreOptions};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

const KEYS: u32 = 1500;
const VALUE: usize = 40_000;

/// With as many open files as the process may have.
fn unlimited() -> StoreOptions {
    tiny(Durability::NoSync).cache_size(64 << 10)
}

fn options() -> StoreOptions {
    unlimited().open_files(16)
}

fn fill(store: &Store, round: u8) {
    for i in 0..KEYS {
        store
            .put(&i.to_be_bytes(), &vec![round ^ i as u8; VALUE - 20_000])
            .unwrap();
    }
    for i in 0..40 {
        store
            .put(format!("large {i}").as_bytes(), &[round; VALUE])
            .unwrap();
    }
}

fn check(store: &Store, round: u8) {
    for i in 0..KEYS {
        let value = store.get(&i.to_be_bytes()).unwrap().unwrap();
        assert!(
            value[..] == vec![round ^ i as u8; VALUE - 20_000],
            "key {i}"
        );
    }
    for i in 0..40 {
        let value = store.get(format!("large {i}").as_bytes()).unwrap().unwrap();
        assert!(value[..] == [round; VALUE], "large {i}");
    }
}

/// Files in `dir` that this process has open.
fn open_in(dir: &Path) -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let path = |link: fs::DirEntry| fs::read_link(link.path()).ok();
    links
        .filter_map(|link| path(link.ok()?))
        .filter(|path| path.starts_with(dir))
        .count()
}

/// Promise (store): A store has no more value-log files and large values open than its options
/// allow, and finds every value whatever is closed and collected meanwhile.
#[test]
fn a_store_has_no_more_files_open_than_its_options_allow() {
    let bench = Bench::new();
    let path = bench.path();
    let store = options().open(&path, None).unwrap();
    fill(&store, 1);
    fill(&store, 2);
    check(&store, 2);
    assert!(value_log_files(&path).len() > 25);
    // Those being written, twice: by way of the page cache and past it; the LOCK; a file that is
    // being made; and the RESERVE, while it is made larger.
    let allowed = 16 + 4 + 3;
    let open = open_in(&path);
    assert!(open <= allowed, "{open} files are open");
    store.close().unwrap();
    let store = options().open(&path, None).unwrap();
    check(&store, 2);
    assert!(open_in(&path) <= allowed);
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// Promise: as `a_store_has_no_more_files_open_than_its_options_allow`.
#[test]
fn readers_find_values_of_files_closed_and_collected_meanwhile() {
    let bench = Bench::new();
    let options = options().space_amplification_max(1.1);
    let store = &options.open(bench.path(), None).unwrap();
    fill(store, 0);
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..3u32 {
            scope.spawn(move || {
                let mut i = reader * 400;
                while !done.load(SeqCst) {
                    i = (i * 13 + 7) % KEYS;
                    let value = store.get(&i.to_be_bytes()).unwrap().unwrap();
                    assert_eq!(value.len(), VALUE - 20_000);
                    assert!(value.iter().all(|&b| b == value[0]));
                }
            });
        }
        scope.spawn(move || {
            while !done.load(SeqCst) {
                assert!(
                    store
                        .scan(ScanRange::all())
                        .unwrap()
                        .all(|pair| pair.is_ok())
                );
            }
        });
        for round in 1..4 {
            fill(store, round);
            store.gc().unwrap();
        }
        done.store(true, SeqCst);
    });
    assert!(store.stats().gc_files_removed > 10);
    check(store, 3);
}

const STORE: &str = "STORE_OF_FEW_DESCRIPTORS";

/// Promise: as `a_store_has_no_more_files_open_than_its_options_allow`.
#[test]
fn a_store_of_many_files_needs_only_few_descriptors() {
    let bench = Bench::new();
    let program = env::current_exe().unwrap();
    // The test's program has some of its own.
    let output = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 48; exec \"$0\" --ignored --exact with_few_descriptors",
        ])
        .arg(program)
        .env(STORE, bench.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(value_log_files(&bench.path()).len() > 48);
}

#[test]
#[ignore = "run by a_store_of_many_files_needs_only_few_descriptors"]
fn with_few_descriptors() {
    let Some(path) = env::var_os(STORE).map(PathBuf::from) else {
        return;
    };
    let options = unlimited().gc(false);
    let store = options.open(&path, None).unwrap();
    fill(&store, 1);
    fill(&store, 2);
    check(&store, 2);
    store.close().unwrap();
    let store = options.open(&path, None).unwrap();
    check(&store, 2);
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    store.close().unwrap();
}
