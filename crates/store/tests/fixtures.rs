//! A store of each format version opens for ever.
//!
//! `fixtures/closed.v1` is a store that was closed; `fixtures/crashed.v1` is one that was not, with
//! its pool file beside it that holds its last writes. Both have keyspaces, values that expire or
//! are compressed, and deleted ranges. They are packed: per file a line `file PATH LENGTH`, then
//! per run of bytes that are not zero a line `run OFFSET BYTES` and the bytes; all else is zeros.
//! They are made once per format version, with `cargo test -p forebay-store --test fixtures --
//! --ignored`, and never again once that version is released: a fixture made by today's program
//! says nothing about yesterday's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{contents, files_in, sized, value_log_files};
use forebay_pool::{Pool, PoolOptions};
use forebay_store::{
    Batch, Compression, Durability, KeyspaceOptions, ScanRange, Store, StoreError, StoreOptions,
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tempfile::TempDir;

const CLOSED: &str = "closed.v1";
const CRASHED: &str = "crashed.v1";
/// A run goes on over fewer zeros than this.
const GAP: usize = 64;
const POOL: &str = "pool";
const STORE: &str = "store";
const LAST_KEY: &[u8] = b"last key";
const LAST_VALUE: &[u8] = b"acknowledged and still in the pool";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// Offset and bytes of each run.
fn runs(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        match spans.last_mut() {
            Some((_, end)) if at - *end < GAP => *end = at + 1,
            _ => spans.push((at, at + 1)),
        }
    }
    spans
        .into_iter()
        .map(|(start, end)| (start, &bytes[start..end]))
        .collect()
}

fn pack(dir: &Path) -> Vec<u8> {
    let mut packed = Vec::new();
    for (path, bytes) in contents(dir) {
        let name = path.strip_prefix(dir).unwrap().display().to_string();
        packed.extend(format!("file {name} {}\n", bytes.len()).bytes());
        for (offset, run) in runs(&bytes) {
            packed.extend(format!("run {offset} {}\n", run.len()).bytes());
            packed.extend(run);
        }
    }
    packed
}

fn unpack(mut packed: &[u8], dir: &Path) {
    let mut file = None;
    while !packed.is_empty() {
        let line_end = packed.iter().position(|&byte| byte == b'\n').unwrap();
        let line = str::from_utf8(&packed[..line_end]).unwrap();
        packed = &packed[line_end + 1..];
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["file", name, length] => {
                let path = dir.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let made = File::create_new(&path).unwrap();
                made.set_len(length.parse().unwrap()).unwrap();
                file = Some(made);
            }
            ["run", offset, bytes] => {
                let (run, rest) = packed.split_at(bytes.parse().unwrap());
                let file = file.as_ref().unwrap();
                file.write_all_at(run, offset.parse().unwrap()).unwrap();
                packed = rest;
            }
            _ => panic!("a line {line:?} in a fixture"),
        }
    }
}

fn unpacked(name: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    unpack(&fs::read(fixture(name)).unwrap(), dir.path());
    dir
}

fn options(variant: Durability) -> StoreOptions {
    sized(variant, 64 << 10, 64 << 10).gc(false)
}

fn key(i: u32) -> Vec<u8> {
    format!("key {i:04}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    let text = format!("value {i} ");
    text.bytes().cycle().take((i as usize * 31) % 600).collect()
}

fn large() -> Vec<u8> {
    (0..34_000u32).map(|i| (i % 251) as u8 + 1).collect()
}

fn new_pool(path: &Path) -> Pool {
    let options = PoolOptions::new()
        .size(9 * (64 << 10))
        .segment_size(64 << 10)
        .lanes(4)
        .emulated(true);
    options.create(path).unwrap()
}

/// The first part of what both fixtures hold: puts, and overwritten ones.
fn fill(store: &Store) {
    for i in 0..200 {
        store.put(&key(i), b"old").unwrap();
    }
    for i in 0..200 {
        store.put(&key(i), &value(i)).unwrap();
    }
}

/// The second: deletes, a large value, an empty one, a key with the mark, and a batch.
fn fill_on(store: &Store) {
    for i in (0..200).step_by(7) {
        store.delete(&key(i)).unwrap();
    }
    store.put(b"large", &large()).unwrap();
    store.put(b"empty", b"").unwrap();
    store.put(b"\xff\x01", b"begins as marked keys").unwrap();
    store.put(b"long ago", b"here").unwrap();
    let mut batch = Batch::new();
    batch.put(b"batch a", b"1").unwrap();
    batch.put(b"batch b", &[2; 500]).unwrap();
    batch.put(b"batch a", b"3").unwrap();
    batch.delete(b"long ago").unwrap();
    batch.put(&key(7), b"back again").unwrap();
    store.write(&batch).unwrap();
}

fn expected() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all: BTreeMap<_, _> = (0..200)
        .filter(|i| i % 7 != 0)
        .map(|i| (key(i), value(i)))
        .collect();
    all.insert(b"large".to_vec(), large());
    all.insert(b"empty".to_vec(), Vec::new());
    all.insert(b"\xff\x01".to_vec(), b"begins as marked keys".to_vec());
    all.insert(b"batch a".to_vec(), b"3".to_vec());
    all.insert(b"batch b".to_vec(), vec![2; 500]);
    all.insert(key(7), b"back again".to_vec());
    all
}

/// The store holds exactly this, by every way to look.
fn check(store: &Store, expected: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let scanned: BTreeMap<_, _> = store
        .scan(ScanRange::all())
        .unwrap()
        .map(|pair| pair.map(|(key, value)| (key, value.into_vec())).unwrap())
        .collect();
    assert!(scanned == *expected, "{} keys scanned", scanned.len());
    for (key, value) in expected {
        let found = store.get(key).unwrap().unwrap();
        assert!(*found == value[..], "{}", key.escape_ascii());
    }
    for gone in [&key(0)[..], &key(14), b"long ago"] {
        assert!(store.get(gone).unwrap().is_none());
    }
    let report = store.verify().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

/// When the stores were written, by their clock, and how long some values are there.
const WRITTEN: u64 = 1_000_000_000;
const TTL: u64 = 1_000_000;

fn clock_at(milliseconds: u64) -> &'static AtomicU64 {
    Box::leak(Box::new(AtomicU64::new(milliseconds)))
}

/// The keyspaces, and how they were made.
fn keyspaces() -> [(&'static str, KeyspaceOptions); 3] {
    let plain = KeyspaceOptions::new();
    let ttl = plain.ttl(Duration::from_millis(TTL));
    [
        ("owners", plain),
        ("pages", plain.compression(Compression::Zstd(3))),
        ("sessions", ttl.compression(Compression::Lz4)),
    ]
}

/// What is put in each of them, by its name: short, compressed, and in a file of its own.
fn in_keyspace(name: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let row = |i: u32| format!("{name} has number {i}, which is blue; ").into_bytes();
    let mut all: BTreeMap<_, _> = (0..40)
        .map(|i| (key(i), row(i).repeat(1 + i as usize % 20)))
        .collect();
    all.insert(
        b"\xff\0".to_vec(),
        b"a key that begins as others do".to_vec(),
    );
    all.insert(b"large".to_vec(), row(7).repeat(1200));
    all
}

/// The third: keyspaces, and deleted ranges.
fn fill_keyspaces(store: &Store, clock: &AtomicU64) {
    for (name, options) in keyspaces() {
        let keyspace = store.keyspace(name, options).unwrap();
        clock.store(WRITTEN - 2 * TTL, Relaxed);
        keyspace.put("early", "expired where values do").unwrap();
        clock.store(WRITTEN, Relaxed);
        keyspace
            .put("key 0010x", "is deleted with its range")
            .unwrap();
        keyspace.delete_range(ScanRange::prefix("key 001")).unwrap();
        let mut batch = store.batch();
        for (i, (key, value)) in in_keyspace(name).iter().enumerate() {
            match i % 3 {
                0 => batch.put_in(&keyspace, key, value).unwrap(),
                _ => keyspace.put(key, value).unwrap(),
            }
        }
        store.write(&batch).unwrap();
    }
    store.put("range 1", "is deleted").unwrap();
    store.delete_range(ScanRange::prefix("range")).unwrap();
    let gone = store.keyspace("gone", KeyspaceOptions::new()).unwrap();
    gone.put("key", "is dropped").unwrap();
    store.drop_keyspace("gone").unwrap();
}

/// The keyspaces hold what was put there, until it expires.
#[cfg(all(feature = "lz4", feature = "zstd"))]
fn check_keyspaces(store: &Store, is_over: bool) {
    let names: Vec<_> = store.keyspaces().into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["owners", "pages", "sessions"]);
    for (name, options) in keyspaces() {
        let keyspace = store.keyspace(name, options).unwrap();
        let mut expected = in_keyspace(name);
        match keyspace.ttl() {
            None => drop(expected.insert(b"early".to_vec(), b"expired where values do".to_vec())),
            Some(_) if is_over => expected.clear(),
            Some(_) => {}
        }
        let found = keyspace.scan(ScanRange::all()).unwrap();
        let found = found.map(|pair| pair.map(|(key, value)| (key, value.into_vec())));
        let found: BTreeMap<_, _> = found.map(Result::unwrap).collect();
        assert!(found == expected, "{name}: {} keys", found.len());
        for (key, value) in expected {
            assert!(keyspace.get(&key).unwrap().unwrap() == value);
        }
        assert!(keyspace.get("key 0010x").unwrap().is_none());
    }
    assert!(store.get("range 1").unwrap().is_none());
}

/// All is there, and the store can be worked with.
#[cfg(all(feature = "lz4", feature = "zstd"))]
fn check_usable(dir: &Path, pool: Option<&Pool>, variant: Durability, last: bool) {
    let mut expected = expected();
    if last {
        expected.insert(LAST_KEY.to_vec(), LAST_VALUE.to_vec());
    }
    let clock = clock_at(WRITTEN);
    let store = options(variant).clock(clock).open(dir, pool).unwrap();
    check(&store, &expected);
    check_keyspaces(&store, false);
    store.put(b"new", b"written by this program").unwrap();
    expected.insert(b"new".to_vec(), b"written by this program".to_vec());
    store.gc().unwrap();
    check(&store, &expected);
    check_keyspaces(&store, false);
    store.close().unwrap();
    let fsync = options(Durability::Fsync).clock(clock);
    let store = fsync.open(dir, None).unwrap();
    clock.store(WRITTEN + TTL, Relaxed);
    check(&store, &expected);
    check_keyspaces(&store, true);
}

/// Promise (store): Every later version opens a store of format version 1, with its keyspaces, and
/// its values that expire or are compressed.
#[test]
#[cfg(all(feature = "lz4", feature = "zstd"))]
fn a_closed_version_1_store_opens_with_no_pool_or_a_new_one() {
    for variant in [Durability::Fsync, Durability::NoSync, Durability::DOUBLE] {
        let dir = unpacked(CLOSED);
        let pool = new_pool(&dir.path().join("new pool"));
        check_usable(&dir.path().join(STORE), Some(&pool), variant, false);
    }
}

/// Promise: as `a_closed_version_1_store_opens_with_no_pool_or_a_new_one`.
#[test]
#[cfg(all(feature = "lz4", feature = "zstd"))]
fn a_crashed_version_1_store_opens_with_its_pool_in_any_variant() {
    for variant in [
        Durability::DOUBLE,
        Durability::SINGLE,
        Durability::Fsync,
        Durability::NoSync,
    ] {
        let dir = unpacked(CRASHED);
        let pool = PoolOptions::new().emulated(true);
        let pool = pool.open(dir.path().join(POOL)).unwrap();
        check_usable(&dir.path().join(STORE), Some(&pool), variant, true);
    }
}

/// In a build without LZ4: `cargo test -p forebay-store --no-default-features --test fixtures`.
#[test]
#[cfg(not(feature = "lz4"))]
fn what_is_not_built_in_is_named_and_all_else_goes_on() {
    let dir = unpacked(CLOSED);
    let path = dir.path().join(STORE);
    let options = options(Durability::Fsync).clock(clock_at(WRITTEN));
    let store = options.open(&path, None).unwrap();
    let is_told = |said: &str| {
        let is_so = said.contains("cargo feature lz4") && said.contains("nothing is damaged");
        assert!(is_so && !said.contains("checksum"), "{said}");
    };
    let look = || {
        let mut refused = 0;
        for (key, value) in expected() {
            match store.get(&key) {
                Ok(found) => assert!(found.unwrap() == value),
                Err(error) => {
                    assert!(matches!(error, StoreError::NotBuiltIn { .. }));
                    is_told(&error.to_string());
                    refused += 1;
                }
            }
        }
        refused
    };
    // Not the short ones.
    let refused = look();
    assert!((10..expected().len()).contains(&refused), "{refused}");
    let scanned = store.scan(ScanRange::all()).unwrap();
    is_told(
        &scanned
            .map(Result::err)
            .find_map(|it| it)
            .unwrap()
            .to_string(),
    );
    let problems = store.verify().unwrap().problems;
    assert!(problems.len() >= refused);
    problems.iter().for_each(|problem| is_told(problem));
    // It is copied, as it is.
    store.gc().unwrap();
    store
        .compact(|_| std::ops::ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(look(), refused);
    let (name, sessions) = &keyspaces()[2];
    let error = store.keyspace(name, *sessions).err().unwrap().to_string();
    assert!(error.contains("cargo feature lz4"), "{error}");
    // What is written now is read without.
    let sessions = store.existing_keyspace(name).unwrap();
    sessions.put("new", &[7; 1000]).unwrap();
    assert_eq!(*sessions.get("new").unwrap().unwrap(), [7; 1000]);
    assert!(
        options
            .compression(Compression::Lz4)
            .open(&path, None)
            .is_err()
    );
}

#[test]
fn a_crashed_store_of_format_version_1_asks_for_its_pool() {
    let dir = unpacked(CRASHED);
    let error = options(Durability::Fsync)
        .open(dir.path().join(STORE), None)
        .err()
        .unwrap();
    assert!(matches!(error, StoreError::DataInPool { .. }), "{error}");
}

/// True if a value-log file of the store holds these bytes.
fn in_the_files(store: &Path, bytes: &[u8]) -> bool {
    value_log_files(store).iter().any(|file| {
        let log = fs::read(file).unwrap();
        log.windows(bytes.len()).any(|window| window == bytes)
    })
}

#[test]
fn the_crashed_fixture_has_its_last_writes_in_the_pool_only() {
    let dir = unpacked(CRASHED);
    assert!(!in_the_files(&dir.path().join(STORE), LAST_VALUE));
    let pool = fs::read(dir.path().join(POOL)).unwrap();
    assert!(pool.windows(LAST_VALUE.len()).any(|w| w == LAST_VALUE));
}

#[test]
#[ignore = "writes the fixtures; for a new format version only, under new names"]
fn write_the_fixtures() {
    let clock = clock_at(WRITTEN);
    let by = |compression| {
        let options = options(Durability::DOUBLE).clock(clock);
        options.compression(compression)
    };
    for (name, closed) in [(CLOSED, true), (CRASHED, false)] {
        assert!(!fixture(name).exists(), "{name} is there and stays");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(STORE);
        let pool_path = dir.path().join(POOL);
        let pool = new_pool(&pool_path);
        let store = by(Compression::Lz4).open(&path, &pool).unwrap();
        fill(&store);
        if closed {
            fill_on(&store);
            fill_keyspaces(&store, clock);
            check(&store, &expected());
            store.close().unwrap();
        } else {
            store.close().unwrap();
            let store = by(Compression::Zstd(3)).open(&path, &pool).unwrap();
            fill_on(&store);
            fill_keyspaces(&store, clock);
            // As a killed process leaves it: nothing is drained, merged or noted any more.
            store.put(LAST_KEY, LAST_VALUE).unwrap();
            drop(store);
            assert!(!in_the_files(&path, LAST_VALUE));
        }
        drop(pool);
        assert!(files_in(&path.join("index")).len() > 1, "no table");
        if closed {
            fs::remove_file(&pool_path).unwrap();
        }
        let packed = pack(dir.path());
        assert!(packed.len() < 150 << 10, "{} bytes", packed.len());
        fs::write(fixture(name), packed).unwrap();
    }
}
