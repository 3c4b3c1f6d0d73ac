//! Stores that are read beside the process that has them open, beside what a killed one left, and
//! on a read-only file system.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, VARIANTS, contents, tiny, within};
use forebay_pool::PoolOptions;
use forebay_store::{Durability, ReadOnlyStore, ScanRange, Store, StoreError, StoreOptions};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
    time::Duration,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(i: u32) -> Vec<u8> {
    format!("key {i:04}").into_bytes()
}

/// Every way to open a store, resident ones too.
fn ways() -> impl Iterator<Item = StoreOptions> {
    let resident = tiny(Durability::Buffered(24)).resident(true);
    VARIANTS.into_iter().map(tiny).chain([resident])
}

fn all(reader: &ReadOnlyStore) -> Model {
    let pairs = reader.scan(ScanRange::all()).unwrap().map(Result::unwrap);
    pairs.map(|(key, value)| (key, value.into_vec())).collect()
}

/// Puts, deletes and batches, in the store and in the map.
fn write(store: &Store, model: &mut Model, round: u8) {
    for i in 0..300 {
        let value = vec![round; 100 + i as usize * 7 % 900];
        store.put(&key(i), &value).unwrap();
        model.insert(key(i), value);
    }
    for i in (0..300).step_by(7) {
        store.delete(&key(i)).unwrap();
        model.remove(&key(i));
    }
    let mut batch = store.batch();
    for i in 300..310 {
        batch.put(&key(i), &[round]).unwrap();
        model.insert(key(i), vec![round]);
    }
    store.write(&batch).unwrap();
    store.put("large", &[round; 70_000]).unwrap();
    model.insert(b"large".to_vec(), vec![round; 70_000]);
}

/// Promise (store): A reader beside the owner has everything that was acknowledged before its look,
/// and nothing later; a refresh brings the rest.
#[test]
fn a_reader_beside_the_owner_is_as_of_its_look() {
    for options in ways() {
        let bench = Bench::with_room(48, 64 << 10);
        let store = bench.open(&options);
        let mut model = Model::new();
        let reader = options.open_read_only(bench.path(), &bench.pool).unwrap();
        assert_eq!(all(&reader), model);
        for round in 1..6 {
            let (before, seen) = (model.clone(), reader.snapshot().unwrap());
            write(&store, &mut model, round);
            if round.is_multiple_of(2) {
                // Into the index, and most of what was before is garbage.
                store.gc().unwrap();
            }
            assert_eq!(
                seen.scan(ScanRange::all().keys_only()).unwrap().count(),
                before.len()
            );
            reader.refresh().unwrap();
            assert!(all(&reader) == model, "{options:?}");
            assert_eq!(reader.get("large").unwrap().unwrap(), [round; 70_000]);
            assert!(!reader.contains_key(&key(0)).unwrap());
            // The old one goes on, though files of it may be gone from the directory.
            let old = seen.get(&key(1)).unwrap().map(|value| value.into_vec());
            assert_eq!(old.as_ref(), before.get(&key(1)));
        }
        store.close().unwrap();
        reader.refresh().unwrap();
        assert!(all(&reader) == model, "{options:?}");
        assert!(reader.prefix("key 030").unwrap().count() == 10);
        assert!(reader.stats().log_tail > 0);
    }
}

/// Has a reader look again and again beside a writer. Each look must have a beginning of what was
/// written: key n mod 50 gets n.
fn look_beside_a_writer(store: &Store, reader: impl Fn() -> ReadOnlyStore, looks: u32) {
    const KEYS: u64 = 50;
    // On from what an earlier call wrote.
    let number = |value: &[u8]| u64::from_be_bytes(value[..8].try_into().unwrap());
    let pairs = store.scan(ScanRange::all()).unwrap();
    let before = pairs
        .map(|pair| number(&pair.unwrap().1))
        .max()
        .unwrap_or(0);
    let (acknowledged, done) = (AtomicU64::new(before), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in before + 1.. {
                if done.load(Relaxed) {
                    break;
                }
                let value = [&n.to_be_bytes()[..], &vec![7; (n % 1500) as usize]].concat();
                store.put(&(n % KEYS).to_be_bytes(), &value).unwrap();
                acknowledged.store(n, Release);
                if n.is_multiple_of(3000) {
                    store.gc().unwrap();
                }
            }
        });
        let reader = reader();
        for _ in 0..looks {
            let before = acknowledged.load(Acquire);
            reader.refresh().unwrap();
            let mut found = Vec::new();
            for pair in reader.scan(ScanRange::all()).unwrap() {
                let (key, value) = pair.unwrap();
                let n = number(&value);
                assert_eq!(key, (n % KEYS).to_be_bytes());
                found.push(n);
            }
            let last = found.iter().max().copied().unwrap_or(0);
            assert!(last >= before, "{last} of {before} acknowledged");
            found.sort_unstable();
            let expected: Vec<u64> = (last.saturating_sub(KEYS - 1).max(1)..=last).collect();
            assert_eq!(found, expected, "no beginning of what was written");
        }
        done.store(true, Relaxed);
    });
}

/// Promise (store): What a reader sees is the log up to one place, while the owner writes, drains,
/// ingests and collects.
#[test]
fn each_look_beside_a_writer_is_of_one_moment() {
    for options in ways() {
        within(Duration::from_secs(120), "looking", move || {
            let bench = Bench::with_room(48, 64 << 10);
            let options = options.space_amplification_max(1.2);
            let store = bench.open(&options);
            let open = || options.open_read_only(bench.path(), &bench.pool).unwrap();
            look_beside_a_writer(&store, open, 40);
        });
    }
}

/// Promise: as `each_look_beside_a_writer_is_of_one_moment`.
#[test]
fn looks_find_a_pool_on_a_disk_by_the_manifest() {
    within(Duration::from_secs(120), "looking", || {
        let dir = tempfile::tempdir_in(".").unwrap();
        let pool = PoolOptions::new()
            .on_disk(true)
            .size(4 << 20)
            .segment_size(64 << 10)
            .lanes(4);
        let pool = pool.create(dir.path().join("pool")).unwrap();
        let options = tiny(Durability::DOUBLE);
        let path = dir.path().join("store");
        let store = options.open(&path, &pool).unwrap();
        look_beside_a_writer(&store, || options.open_read_only(&path, None).unwrap(), 15);
        // The owner's own pool is given: nothing is read over what it has in memory.
        look_beside_a_writer(&store, || options.open_read_only(&path, &pool).unwrap(), 5);
    });
}

/// Promise (store): A reader beside what a killed process left has everything that was
/// acknowledged, changes nothing, and keeps no owner out.
#[test]
fn a_reader_beside_a_killed_owner_changes_nothing() {
    for options in ways() {
        let bench = Bench::with_room(48, 64 << 10);
        let store = bench.open(&options);
        let mut model = Model::new();
        write(&store, &mut model, 1);
        write(&store, &mut model, 2);
        // Not closed: as a killed one.
        drop(store);
        let before = contents(&bench.path());
        let readers: Vec<_> = (0..3)
            .map(|_| options.open_read_only(bench.path(), &bench.pool).unwrap())
            .collect();
        readers
            .iter()
            .for_each(|reader| assert!(all(reader) == model));
        assert!(contents(&bench.path()) == before, "{options:?}");
        let store = bench.open(&options);
        write(&store, &mut model, 3);
        for reader in &readers {
            reader.refresh().unwrap();
            assert!(all(reader) == model, "{options:?}");
        }
    }
}

#[test]
fn a_pool_that_cannot_be_read_is_named() {
    let bench = Bench::new();
    let options = tiny(Durability::DOUBLE);
    let store = bench.open(&options);
    store.put("key", "value").unwrap();
    drop(store);
    let refused = options.open_read_only(bench.path(), None).err().unwrap();
    assert!(
        matches!(refused, StoreError::DataInPool { .. }),
        "{refused}"
    );
    let other = common::new_pool(64 << 10);
    let refused = options.open_read_only(bench.path(), &other).err().unwrap();
    assert!(refused.to_string().contains("is another"), "{refused}");
    let nowhere = bench.dir.path().join("nowhere");
    let refused = options.open_read_only(&nowhere, None).err().unwrap();
    assert!(matches!(refused, StoreError::NotAStore { .. }), "{refused}");
    assert!(!nowhere.exists());
}

/// Promise (store): A reader serves no older value for an acknowledged one that is damaged.
#[test]
fn a_damaged_record_is_no_end_of_the_log_to_a_reader() {
    let bench = Bench::new();
    let options = tiny(Durability::Fsync);
    let store = options.open(bench.path(), None).unwrap();
    for i in 0..20 {
        store.put(&key(i), &[b'a'; 1000]).unwrap();
    }
    store.put("key 0003", "its last value").unwrap();
    store.put("behind", "it").unwrap();
    // Not closed: the log's end is looked for.
    drop(store);
    let file = common::value_log_files(&bench.path()).pop().unwrap();
    let whole = std::fs::read(&file).unwrap();
    let is_it = |bytes: &[u8]| bytes == b"its last value";
    let at = whole.windows(14).position(is_it).unwrap();
    let mut damaged = whole.clone();
    damaged[at] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    for refused in [
        options.open_read_only(bench.path(), None).err().unwrap(),
        options.open(bench.path(), None).err().unwrap(),
    ] {
        let is_damage = matches!(refused, StoreError::Damaged { .. });
        assert!(
            is_damage && refused.to_string().contains("acknowledged"),
            "{refused}"
        );
    }
    std::fs::write(&file, whole).unwrap();
    let reader = options.open_read_only(bench.path(), None).unwrap();
    assert_eq!(reader.get("key 0003").unwrap().unwrap(), "its last value");
}

/// Promise (store): A reader refuses parts that are not of one moment, as an opening does.
#[test]
fn a_reader_refuses_an_index_that_is_newer_than_the_log() {
    let bench = Bench::new();
    let options = tiny(Durability::Fsync).close_on_drop(true);
    let write = |path: &Path| {
        let store = options.open(path, None).unwrap();
        (0..300).for_each(|i| store.put(&key(i), &[7; 1000]).unwrap());
        store.close().unwrap();
    };
    let (new, old) = (bench.path(), bench.dir.path().join("old"));
    write(&new);
    common::copy_dir(&new, &old);
    write(&new);
    std::fs::remove_dir_all(old.join("index")).unwrap();
    common::copy_dir(&new.join("index"), &old.join("index"));
    for refused in [
        options.open_read_only(&old, None).err().unwrap(),
        options.open(&old, None).err().unwrap(),
    ] {
        assert!(
            matches!(refused, StoreError::NotOneMoment { .. }),
            "{refused}"
        );
    }
}

/// Promise (store): A refresh does not go over to another store that has come to the same place.
#[test]
fn a_refresh_finds_another_store_in_the_directory() {
    let bench = Bench::new();
    let options = tiny(Durability::Fsync);
    let put = |value: &str| {
        let store = options.open(bench.path(), None).unwrap();
        store.put("key", value).unwrap();
        store.close().unwrap();
    };
    put("one");
    let reader = options.open_read_only(bench.path(), None).unwrap();
    std::fs::rename(bench.path(), bench.dir.path().join("away")).unwrap();
    put("another");
    let refused = reader.refresh().unwrap_err();
    assert!(matches!(refused, StoreError::Replaced { .. }), "{refused}");
    assert_eq!(reader.get("key").unwrap().unwrap(), "one");
}

/// Promise (store): When a refresh has returned, all threads read what was acknowledged before it,
/// however many refresh.
#[test]
fn no_refresh_brings_an_earlier_look_back() {
    within(Duration::from_secs(60), "refreshing", || {
        let bench = Bench::new();
        let options = tiny(Durability::NoSync);
        let store = options.open(bench.path(), None).unwrap();
        store.increment("count", 1).unwrap();
        let reader = options.open_read_only(bench.path(), None).unwrap();
        let count = || {
            let bytes = reader.get("count").unwrap().unwrap();
            i64::from_le_bytes(bytes[..].try_into().unwrap())
        };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..150 {
                        let before = store.increment("count", 1).unwrap();
                        reader.refresh().unwrap();
                        let seen = count();
                        assert!(seen >= before, "{seen} after {before}");
                    }
                });
            }
        });
    });
}

/// Promise (store): A value that the owner removed meanwhile is not called damaged.
#[test]
fn a_large_value_that_is_gone_asks_for_a_refresh() {
    let bench = Bench::new();
    let options = tiny(Durability::NoSync);
    let store = bench.open(&options);
    store.put("large", &[1; 100_000]).unwrap();
    let reader = options.open_read_only(bench.path(), None).unwrap();
    store.put("large", &[2; 100_000]).unwrap();
    store.gc().unwrap();
    let gone = reader.get("large").err().unwrap();
    assert!(matches!(gone, StoreError::Outdated { .. }), "{gone}");
    reader.refresh().unwrap();
    assert_eq!(reader.get("large").unwrap().unwrap(), [2; 100_000]);
}

const ON_READ_ONLY: &str = "FOREBAY_STORE_READ_ONLY_TEST";

#[test]
#[ignore = "on the read-only file system; run by the test below"]
fn child() {
    let Some(dir) = std::env::var_os(ON_READ_ONLY).map(PathBuf::from) else {
        return;
    };
    let refused = std::fs::write(dir.join("file"), "").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let options = tiny(Durability::Fsync);
    let refused = options.open(&dir, None).err().unwrap().to_string();
    assert!(refused.contains("open_read_only"), "{refused}");
    let reader = options.open_read_only(&dir, None).unwrap();
    assert_eq!(reader.get("key").unwrap().unwrap(), "value");
    assert_eq!(reader.get("large").unwrap().unwrap().len(), 100_000);
    println!("read it");
}

/// Promise (store): A closed store is read on a read-only file system.
#[test]
fn a_store_on_a_read_only_file_system_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path: &Path = dir.path();
    let store = tiny(Durability::Fsync).open(path, None).unwrap();
    store.put("key", "value").unwrap();
    store.put("large", &[1; 100_000]).unwrap();
    store.close().unwrap();
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
    let ran = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(path)
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "child"])
        .env(ON_READ_ONLY, path)
        .output()
        .unwrap();
    let (said, complained) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    if complained.contains("unshare failed") || complained.contains("permission denied") {
        println!("skipped: no mount may be made here: {complained}");
        return;
    }
    assert!(
        ran.status.success() && said.contains("read it"),
        "{said}{complained}"
    );
}
