//! Missing, damaged and foreign files, the wrong pool, no room, no rights: a clear error with the remedy, nothing changed,
//! nothing lost.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, contents, files_in, new_pool, tiny, value_log_files};
use forebay_pool::Pool;
use forebay_store::{Store, StoreError, StoreOptions, Variant};
use std::{
    fs::{self, OpenOptions},
    io::ErrorKind,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

/// Nothing in the background, and an index that takes in little before it is asked to.
fn quiet(variant: Variant) -> StoreOptions {
    tiny(variant)
        .gc(false)
        .memtable_size(4 << 20)
        .chunk_log_size(64 << 20)
}

fn key(i: u32) -> Vec<u8> {
    format!("key {i:04}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    vec![i as u8; 20_000]
}

/// Keys of a [`filled`] store: enough for three value-log files.
const KEYS: u32 = 130;

fn fill(store: &Store) {
    for i in 0..KEYS {
        store.put(&key(i), &value(i)).unwrap();
    }
    store.put(b"large", &[9; 100_000]).unwrap();
}

fn check(store: &Store) {
    for i in 0..KEYS {
        assert_eq!(store.get(&key(i)).unwrap().unwrap(), value(i), "key {i}");
    }
    assert_eq!(store.get(b"large").unwrap().unwrap(), [9; 100_000]);
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// A store with three value-log files that was closed.
fn closed() -> Bench {
    let bench = Bench::new();
    let store = bench.open(&quiet(Variant::DOUBLE));
    fill(&store);
    store.close().unwrap();
    assert_eq!(value_log_files(&bench.path()).len(), 3);
    bench
}

/// Opening fails with an error that `is` as it should be and `says` what to do, and changes nothing.
fn refused(
    bench: &Bench,
    pool: Option<&Pool>,
    variant: Variant,
    is: fn(&StoreError) -> bool,
    says: &[&str],
) {
    let before = contents(&bench.path());
    for create in [true, false] {
        let options = quiet(variant).create_if_missing(create);
        let error = options
            .open(bench.path(), pool)
            .err()
            .expect("it is opened");
        let text = error.to_string();
        assert!(is(&error), "{error:?}");
        for words in says {
            assert!(text.contains(words), "{words:?} is not in: {text}");
        }
        assert!(
            contents(&bench.path()) == before,
            "something was changed: {text}"
        );
    }
}

#[test]
fn a_missing_value_log_file_is_named_and_the_store_opens_once_it_is_back() {
    let bench = closed();
    for file in value_log_files(&bench.path()) {
        let away = bench.dir.path().join("away");
        fs::rename(&file, &away).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        refused(
            &bench,
            Some(&bench.pool),
            Variant::DOUBLE,
            |e| matches!(e, StoreError::ValueLog { .. }),
            &[name, "is missing", "put the file back"],
        );
        fs::rename(&away, &file).unwrap();
    }
    check(&bench.open(&quiet(Variant::DOUBLE)));
}

#[test]
fn a_truncated_value_log_file_is_named_and_nothing_is_written_into_it() {
    for variant in [Variant::DOUBLE, Variant::Fsync] {
        let bench = closed();
        for file in value_log_files(&bench.path()) {
            let bytes = fs::read(&file).unwrap();
            // A log ends within a page; less than that cannot be told from its end.
            let used = bytes.iter().rposition(|&b| b != 0).unwrap();
            for length in [0, 100, 4096, used - 3 * 4096] {
                fs::write(&file, &bytes[..length]).unwrap();
                let name = file.file_name().unwrap().to_str().unwrap();
                refused(
                    &bench,
                    Some(&bench.pool),
                    variant,
                    |e| matches!(e, StoreError::ValueLog { .. }),
                    &[name, "is truncated", "put the file back"],
                );
            }
            fs::write(&file, &bytes).unwrap();
        }
        check(&bench.open(&quiet(variant)));
    }
}

#[test]
fn a_foreign_value_log_file_is_not_taken_for_ours_nor_touched() {
    let (bench, other) = (closed(), closed());
    let ours = value_log_files(&bench.path());
    let theirs = value_log_files(&other.path());
    let bytes = fs::read(&ours[1]).unwrap();
    let foreign = [
        (fs::read(&theirs[1]).unwrap(), "belongs to another store"),
        (fs::read(&ours[0]).unwrap(), "starts at log address"),
        (vec![0; bytes.len()], "no value-log file"),
        (vec![b'x'; bytes.len()], "no value-log file"),
    ];
    for (content, says) in foreign {
        fs::write(&ours[1], content).unwrap();
        refused(
            &bench,
            Some(&bench.pool),
            Variant::DOUBLE,
            |e| matches!(e, StoreError::ValueLog { .. }),
            &[says, "put the file back"],
        );
    }
    fs::write(&ours[1], bytes).unwrap();
    // Files that only look like ours are left alone, wherever they lie.
    let strangers = [
        "vlog/notes.txt",
        "vlog/00000000ffff0000.vlog",
        "vlog/12.vlog",
        "large/abc.val",
        "large/fff.txt",
        "index/notes.txt",
    ];
    for name in strangers {
        fs::write(bench.path().join(name), name).unwrap();
    }
    let store = bench.open(&quiet(Variant::DOUBLE));
    check(&store);
    store.gc().unwrap();
    store.close().unwrap();
    for name in strangers {
        assert_eq!(fs::read(bench.path().join(name)).unwrap(), name.as_bytes());
    }
}

#[test]
fn a_damaged_truncated_or_foreign_manifest_is_named() {
    let bench = closed();
    let path = bench.path().join("MANIFEST");
    let text = fs::read(&path).unwrap();
    let mut flipped = text.clone();
    flipped[40] ^= 1;
    let damaged: [&[u8]; 5] = [&flipped, &text[..text.len() / 2], b"", b"\xff\xfe", b"{}\n"];
    for content in damaged {
        fs::write(&path, content).unwrap();
        refused(
            &bench,
            Some(&bench.pool),
            Variant::DOUBLE,
            |e| matches!(e, StoreError::Damaged { .. }),
            &["MANIFEST", "damaged", "restore it from a copy"],
        );
    }
    fs::write(&path, &text).unwrap();
    check(&bench.open(&quiet(Variant::DOUBLE)));
}

#[test]
fn the_manifest_of_another_store_does_not_open_this_ones_files() {
    let (bench, other) = (closed(), closed());
    let path = bench.path().join("MANIFEST");
    let text = fs::read(&path).unwrap();
    fs::copy(other.path().join("MANIFEST"), &path).unwrap();
    refused(
        &bench,
        Some(&bench.pool),
        Variant::DOUBLE,
        |e| matches!(e, StoreError::ValueLog { .. }),
        &["belongs to another store"],
    );
    fs::write(&path, text).unwrap();
    check(&bench.open(&quiet(Variant::DOUBLE)));
}

#[test]
fn a_store_of_a_newer_format_is_told_from_a_damaged_one() {
    let bench = closed();
    let path = bench.path().join("MANIFEST");
    let json = "{\"format_version\": 2, \"shape\": \"unknown\"}";
    let crc = forebay_pool::crc32c([json.as_bytes()]);
    fs::write(&path, format!("{json}\ncrc32c {crc:08x}\n")).unwrap();
    refused(
        &bench,
        Some(&bench.pool),
        Variant::DOUBLE,
        |e| {
            matches!(
                e,
                StoreError::Version {
                    found: 2,
                    known: 1,
                    ..
                }
            )
        },
        &["format version 2", "newer one"],
    );
}

#[test]
fn a_store_without_its_manifest_is_never_taken_for_an_empty_one() {
    let bench = closed();
    let path = bench.path().join("MANIFEST");
    let text = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    refused(
        &bench,
        Some(&bench.pool),
        Variant::DOUBLE,
        |e| matches!(e, StoreError::NotAStore { .. }),
        &["no MANIFEST", "vlog"],
    );
    fs::write(&path, text).unwrap();
    check(&bench.open(&quiet(Variant::DOUBLE)));
}

#[test]
fn a_store_copied_without_its_lock_file_is_a_store() {
    let bench = closed();
    fs::remove_file(bench.path().join("LOCK")).unwrap();
    let options = quiet(Variant::Fsync).create_if_missing(false);
    check(&options.open(bench.path(), None).unwrap());
}

#[test]
fn a_directory_that_is_no_store_stays_exactly_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("thesis.tex"), "\\section{}").unwrap();
    for create in [true, false] {
        let options = quiet(Variant::Fsync).create_if_missing(create);
        let error = options.open(&home, None).err().unwrap();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
        assert!(error.to_string().contains("thesis.tex"), "{error}");
        assert_eq!(files_in(&home), [home.join("thesis.tex")]);
        let file = home.join("thesis.tex");
        let error = options.open(&file, None).err().unwrap();
        assert!(error.to_string().contains("no directory"), "{error}");
    }
    let missing = dir.path().join("missing");
    let options = quiet(Variant::Fsync).create_if_missing(false);
    let error = options.open(&missing, None).err().unwrap();
    assert!(error.to_string().contains("does not exist"), "{error}");
    assert!(!missing.exists());
}

/// A store that was not closed: some of its data is in its pool only.
fn crashed() -> Bench {
    let bench = Bench::new();
    let store = bench.open(&quiet(Variant::Buffered(4)));
    fill(&store);
    drop(store);
    bench
}

#[test]
fn a_store_whose_data_is_in_its_pool_opens_with_that_pool_only_and_then_has_all_of_it() {
    for variant in [Variant::DOUBLE, Variant::Fsync] {
        let bench = crashed();
        let uuid = bench.pool.uuid().to_string();
        let other = new_pool(64 << 10);
        let in_pool: fn(&StoreError) -> bool = |e| matches!(e, StoreError::DataInPool { .. });
        if variant == Variant::Fsync {
            let says = ["no pool was given", "Open it with that pool", &uuid];
            refused(&bench, None, variant, in_pool, &says);
        }
        let given = other.uuid().to_string();
        let says = ["was given", "Open it with that pool", &uuid, &given];
        refused(&bench, Some(&other), variant, in_pool, &says);
        check(&bench.open(&quiet(variant)));
    }
}

#[test]
fn a_buffered_variant_without_a_pool_is_refused_with_the_choices() {
    let bench = closed();
    refused(
        &bench,
        None,
        Variant::DOUBLE,
        |e| matches!(e, StoreError::PoolNeeded { .. }),
        &["double", "--pool", "fsync"],
    );
}

#[test]
fn with_salvage_a_store_opens_without_a_pool_that_is_gone_and_goes_on() {
    let bench = crashed();
    let salvage = quiet(Variant::Fsync).salvage(true);
    let store = salvage.open(bench.path(), None).unwrap();
    let kept = (0..KEYS).take_while(|&i| store.get(&key(i)).is_ok_and(|v| v.is_some()));
    let kept = kept.count() as u32;
    // What was drained before the crash is there, and only that.
    assert!((KEYS / 2..KEYS).contains(&kept), "{kept}");
    for i in 0..kept {
        assert_eq!(store.get(&key(i)).unwrap().unwrap(), value(i));
    }
    store.put(b"goes on", b"value").unwrap();
    drop(store);
    let store = quiet(Variant::Fsync).open(bench.path(), None).unwrap();
    assert_eq!(store.get(b"goes on").unwrap().unwrap(), b"value");
    for i in 0..kept {
        assert_eq!(store.get(&key(i)).unwrap().unwrap(), value(i));
    }
}

#[test]
fn an_earlier_copy_of_the_directory_loses_nothing_that_is_in_the_pool() {
    let bench = Bench::new();
    let store = bench.open(&quiet(Variant::DOUBLE));
    store.put(b"first", b"1").unwrap();
    store.close().unwrap();
    let copy = bench.dir.path().join("copy");
    common::copy_dir(&bench.path(), &copy);
    let store = bench.open(&quiet(Variant::DOUBLE));
    store.put(b"second", b"2").unwrap();
    drop(store);
    let store = quiet(Variant::DOUBLE).open(&copy, &bench.pool).unwrap();
    assert_eq!(store.get(b"first").unwrap().unwrap(), b"1");
    assert_eq!(store.get(b"second").unwrap().unwrap(), b"2");
}

#[test]
fn a_store_or_its_lane_that_is_in_use_is_refused_until_it_is_free() {
    let bench = closed();
    let store = bench.open(&quiet(Variant::DOUBLE));
    let error = quiet(Variant::DOUBLE)
        .open(bench.path(), &bench.pool)
        .err()
        .unwrap();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("stop that process"), "{error}");
    // The same store's lane, by way of a copy of its directory.
    let copy = bench.dir.path().join("copy");
    common::copy_dir(&bench.path(), &copy);
    let before = contents(&copy);
    let error = quiet(Variant::DOUBLE)
        .open(&copy, &bench.pool)
        .err()
        .unwrap();
    assert!(matches!(error, StoreError::Pool(_)), "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
    assert!(contents(&copy) == before);
    check(&store);
    drop(store);
    check(&bench.open(&quiet(Variant::DOUBLE)));
}

#[test]
fn a_lock_that_goes_to_a_process_that_is_being_started_does_not_keep_the_store_closed() {
    let bench = closed();
    let lock = OpenOptions::new()
        .write(true)
        .open(bench.path().join("LOCK"))
        .unwrap();
    lock.try_lock().unwrap();
    // It has the lock for a while, as a fork of its owner has until it executes its program.
    let mut started = Command::new("sleep")
        .arg("0.05")
        .stdin(lock)
        .spawn()
        .unwrap();
    check(&bench.open(&quiet(Variant::DOUBLE)));
    assert!(started.wait().unwrap().success());
}

const CHILD: &str = "STORE_OF_THE_PARENT";

#[test]
fn a_store_that_another_process_has_open_is_refused() {
    let bench = closed();
    let store = quiet(Variant::Fsync).open(bench.path(), None).unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "in_another_process"])
        .env(CHILD, bench.path())
        .status()
        .unwrap();
    assert!(status.success());
    check(&store);
}

#[test]
#[ignore = "run by a_store_that_another_process_has_open_is_refused"]
fn in_another_process() {
    let Some(path) = std::env::var_os(CHILD) else {
        return;
    };
    let path = PathBuf::from(path);
    let before = contents(&path);
    let error = quiet(Variant::Fsync).open(&path, None).err().unwrap();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(contents(&path) == before);
}

/// Runs `test` with `chattr +i` on the path; not at all where that is not possible.
fn immutable(path: &Path, test: impl FnOnce()) {
    let chattr = |flag: &str| {
        Command::new("chattr")
            .arg("-R")
            .arg(flag)
            .arg(path)
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if chattr("+i") {
        test();
        assert!(chattr("-i"));
    } else {
        eprintln!("skipped: chattr +i is not possible here");
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_with_the_reason() {
    let bench = closed();
    immutable(&bench.path(), || {
        let error = quiet(Variant::Fsync)
            .open(bench.path(), None)
            .err()
            .unwrap();
        let StoreError::Io { source, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(source.kind(), ErrorKind::PermissionDenied);
        assert!(
            error.to_string().contains("make the directory writable"),
            "{error}"
        );
    });
    check(&bench.open(&quiet(Variant::Fsync)));
    // Where no store can be made, none is begun.
    let file = bench.dir.path().join("a file");
    fs::write(&file, "").unwrap();
    let error = quiet(Variant::Fsync)
        .open(file.join("store"), None)
        .err()
        .unwrap();
    assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
    assert!(error.to_string().contains("a file stands where"), "{error}");
}

/// A file system of its own with so much room, if this process may mount one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, bytes: u64) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(at)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then(|| Self(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn on_a_full_disk_writes_are_refused_with_the_reason_and_go_on_when_there_is_room() {
    let bench = Bench::new();
    let Some(disk) = SmallDisk::mount(&bench.dir.path().join("disk"), 6 << 20) else {
        eprintln!(
            "skipped: no file system can be mounted here (tests/faults.rs fills a disk otherwise)"
        );
        return;
    };
    for variant in [Variant::DOUBLE, Variant::Fsync] {
        let path = disk.0.join(variant.to_string());
        let ballast = disk.0.join("ballast");
        fs::write(&ballast, vec![1; 3 << 20]).unwrap();
        let store = quiet(variant).open(&path, &bench.pool).unwrap();
        let mut written = 0;
        let error = loop {
            match store.put(&key(written), &value(written)) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        match &error {
            StoreError::Stalled { .. } => assert!(variant == Variant::DOUBLE, "{error}"),
            StoreError::Io { source, .. } => assert_eq!(source.kind(), ErrorKind::StorageFull),
            other => panic!("{other:?}"),
        }
        assert!(error.to_string().contains("make room"), "{error}");
        let large = store.put(b"large", &[9; 4 << 20]).unwrap_err();
        assert!(large.to_string().contains("make room"), "{large}");
        for i in 0..written {
            assert_eq!(store.get(&key(i)).unwrap().unwrap(), value(i));
        }
        fs::remove_file(&ballast).unwrap();
        let begun = std::time::Instant::now();
        while store.put(b"goes on", b"value").is_err() {
            assert!(begun.elapsed().as_secs() < 30);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        store.close().unwrap();
        let store = quiet(Variant::Fsync).open(&path, None).unwrap();
        for i in 0..written {
            assert_eq!(store.get(&key(i)).unwrap().unwrap(), value(i));
        }
        assert_eq!(store.get(b"goes on").unwrap().unwrap(), b"value");
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        drop(store);
        fs::remove_dir_all(&path).unwrap();
    }
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn a_flipped_bit_in_a_record_is_told_by_the_get_of_its_key_and_by_verify_and_by_nothing_else() {
    let bench = closed();
    let file = &value_log_files(&bench.path())[0];
    let bytes = fs::read(file).unwrap();
    let at = bytes.windows(1000).position(|w| w == [40; 1000]).unwrap();
    flip(file, at as u64 + 500);
    let store = bench.open(&quiet(Variant::DOUBLE));
    let error = store.get(&key(40)).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    let name = file.file_name().unwrap().to_str().unwrap();
    for says in [name, "log address", "checksum", "restore it from a copy"] {
        assert!(error.to_string().contains(says), "{error}");
    }
    for i in (0..KEYS).filter(|&i| i != 40) {
        assert_eq!(store.get(&key(i)).unwrap().unwrap(), value(i));
    }
    let problems = store.verify().unwrap().problems;
    assert!(problems.iter().any(|p| p.contains(name)), "{problems:?}");
    // Collection does not throw away what stands behind the damage.
    for i in 0..39 {
        store.delete(&key(i)).unwrap();
    }
    let aside = store.gc().unwrap().set_aside;
    assert!(
        aside.len() == 1 && aside[0].file.contains(name),
        "{aside:?}"
    );
    for i in 41..KEYS {
        assert_eq!(store.get(&key(i)).unwrap().unwrap(), value(i));
    }
    // A new value for the key, and all is well but for verify.
    store.put(&key(40), b"new").unwrap();
    assert_eq!(store.get(&key(40)).unwrap().unwrap(), b"new");
}

#[test]
fn a_flipped_bit_in_the_part_of_the_log_that_is_replayed_keeps_the_store_from_opening() {
    // In a file that has another one behind it, and in the last one.
    for (file, damaged) in [(0, 50), (2, KEYS - 3)] {
        for variant in [Variant::Fsync, Variant::NoSync] {
            let bench = Bench::new();
            let store = quiet(variant).open(bench.path(), None).unwrap();
            fill(&store);
            drop(store);
            let path = &value_log_files(&bench.path())[file];
            let bytes = fs::read(path).unwrap();
            let at = bytes
                .windows(1000)
                .position(|w| w == [damaged as u8; 1000])
                .unwrap();
            if (file, variant) == (2, Variant::NoSync) {
                // Nothing proves that this record had been on the disk: the log ends before it.
                flip(path, at as u64 + 500);
                let store = bench.open(&quiet(variant));
                assert_eq!(
                    store.get(&key(damaged - 1)).unwrap().unwrap(),
                    value(damaged - 1)
                );
                assert!(store.get(&key(damaged)).unwrap().is_none());
                continue;
            }
            // The last record of the first file is before the second file's, which prove that it was whole.
            let last = bytes
                .windows(1000)
                .rposition(|w| w.iter().all(|&b| b == w[0] && b != 0));
            for at in [at, last.filter(|_| file == 0).unwrap_or(at)] {
                flip(path, at as u64 + 500);
                refused(
                    &bench,
                    Some(&bench.pool),
                    Variant::DOUBLE,
                    |e| matches!(e, StoreError::Damaged { .. }),
                    &["had been acknowledged", "restore it from a copy"],
                );
                flip(path, at as u64 + 500);
            }
            check(&bench.open(&quiet(Variant::DOUBLE)));
        }
    }
}

#[test]
fn a_damaged_or_missing_large_value_is_told_by_its_get_and_by_verify() {
    let bench = closed();
    let file = files_in(&bench.path().join("large")).remove(0);
    let bytes = fs::read(&file).unwrap();
    let mut flipped = bytes.clone();
    flipped[5000] ^= 1;
    let cases: [(Option<&[u8]>, &str); 3] = [
        (Some(&flipped), "checksum"),
        (Some(&bytes[..5000]), "shorter"),
        (None, "missing"),
    ];
    for (content, says) in cases {
        match content {
            Some(content) => fs::write(&file, content).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let store = bench.open(&quiet(Variant::DOUBLE));
        let error = store.get(b"large").unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
        let name = file.file_name().unwrap().to_str().unwrap();
        for says in [says, name, "restore it from a copy"] {
            assert!(error.to_string().contains(says), "{error}");
        }
        let problems = store.verify().unwrap().problems;
        assert!(
            problems.len() == 1 && problems[0].contains(name),
            "{problems:?}"
        );
        store.close().unwrap();
        fs::write(&file, &bytes).unwrap();
    }
    check(&bench.open(&quiet(Variant::DOUBLE)));
}

#[test]
fn a_damaged_index_table_is_told_and_the_store_reads_all_once_it_is_restored() {
    let bench = closed();
    let table = files_in(&bench.path().join("index"))
        .into_iter()
        .find(|path| path.extension().is_some_and(|e| e == "table"))
        .unwrap();
    let bytes = fs::read(&table).unwrap();
    let name = table.file_name().unwrap().to_str().unwrap();
    for at in (0..bytes.len()).step_by(bytes.len() / 40) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        fs::write(&table, flipped).unwrap();
        match quiet(Variant::Fsync).open(bench.path(), None) {
            Err(error) => assert!(error.to_string().contains(name), "{error}"),
            Ok(store) => {
                for i in 0..KEYS {
                    if let Ok(found) = store.get(&key(i)) {
                        assert_eq!(found.unwrap(), value(i));
                    }
                }
                let problems = store.verify().unwrap().problems;
                assert!(
                    problems.iter().any(|p| p.contains(name)),
                    "byte {at}: {problems:?}"
                );
            }
        }
        fs::write(&table, &bytes).unwrap();
    }
    check(&bench.open(&quiet(Variant::Fsync)));
}

#[test]
fn a_missing_truncated_or_foreign_index_table_is_refused_by_name() {
    let bench = closed();
    let is_table = |path: &PathBuf| path.extension().is_some_and(|e| e == "table");
    for table in files_in(&bench.path().join("index"))
        .into_iter()
        .filter(is_table)
    {
        let name = table.file_name().unwrap().to_str().unwrap();
        let bytes = fs::read(&table).unwrap();
        let bad = [
            None,
            Some(&bytes[..0]),
            Some(&bytes[..bytes.len() / 2]),
            Some(b"foreign"),
        ];
        for content in bad {
            match content {
                Some(content) => fs::write(&table, content).unwrap(),
                None => fs::remove_file(&table).unwrap(),
            }
            refused(
                &bench,
                None,
                Variant::Fsync,
                |e| matches!(e, StoreError::Index(_)),
                &["index", name, "damaged"],
            );
        }
        fs::write(&table, bytes).unwrap();
    }
    check(&bench.open(&quiet(Variant::Fsync)));
}

#[test]
fn a_damaged_or_missing_index_manifest_is_refused_and_no_empty_index_is_made() {
    let bench = closed();
    let path = bench.path().join("index/MANIFEST");
    let bytes = fs::read(&path).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 2;
    for content in [
        Some(&flipped[..]),
        Some(&bytes[..bytes.len() / 2]),
        Some(b""),
        None,
    ] {
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        refused(
            &bench,
            Some(&bench.pool),
            Variant::DOUBLE,
            |e| matches!(e, StoreError::Index(_)),
            &["index", "damaged"],
        );
    }
    fs::write(&path, bytes).unwrap();
    check(&bench.open(&quiet(Variant::DOUBLE)));
}
