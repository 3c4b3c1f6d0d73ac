//! A store that is damaged, incomplete, in use or not one is refused with what was found, unchanged, and opens again once
//! that is put right.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{contents, copy_dir, files_in, value_log_files};
use forebay_pool::{CreateOptions, Pool, PoolErrorKind, crc32c};
use forebay_store::{Batch, Options, ScanRange, Store, StoreError, Variant};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

const KEYS: u32 = 1000;
const MARKED: &[u8] = b"marked";
const MARK: &[u8] = b"a value that stands in one place of the log only";

/// A directory with a store and emulated pool files in it.
struct Place {
    dir: TempDir,
}

impl Place {
    /// A store that was written with the variant, and closed or not.
    fn new(variant: Variant, closed: bool) -> Self {
        let place = Self::empty();
        let pool = place.new_pool("pool");
        let store = open(&place.store(), Some(&pool), variant).unwrap();
        fill(&store);
        if closed {
            store.close().unwrap();
        }
        place
    }

    fn closed() -> Self {
        Self::new(Variant::DOUBLE, true)
    }

    fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir }
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn new_pool(&self, name: &str) -> Pool {
        let options = CreateOptions {
            bytes: 17 * (64 << 10),
            segment_bytes: 64 << 10,
            lanes: 4,
            emulated: true,
        };
        Pool::create(&self.dir.path().join(name), options).unwrap()
    }

    /// The pool that the store was written with, opened anew.
    fn pool(&self) -> Pool {
        Pool::open(&self.dir.path().join("pool"), true).unwrap()
    }

    /// The error with which the store is refused, which changes nothing in it and says these words.
    fn refused(&self, pool: Option<&Pool>, variant: Variant, words: &[&str]) -> StoreError {
        let before = files(&self.store());
        let error = open(&self.store(), pool, variant).err().unwrap();
        let changed = files(&self.store()) != before;
        assert!(!changed, "refused, but changed: {error}");
        says(&error, words);
        error
    }

    /// All is there.
    fn check(&self, pool: Option<&Pool>, variant: Variant) {
        let store = open(&self.store(), pool, variant).unwrap();
        check(&store);
        store.close().unwrap();
    }

    fn vlog(&self) -> Vec<PathBuf> {
        value_log_files(&self.store())
    }

    fn tables(&self) -> Vec<PathBuf> {
        let mut tables = files_in(&self.store().join("index"));
        tables.retain(|path| path.extension().is_some_and(|e| e == "table"));
        assert!(!tables.is_empty());
        tables
    }

    fn manifest(&self) -> PathBuf {
        self.store().join("MANIFEST")
    }
}

fn open(dir: &Path, pool: Option<&Pool>, variant: Variant) -> Result<Store, StoreError> {
    Store::open(dir, pool, &options(variant))
}

fn options(variant: Variant) -> Options {
    Options {
        variant,
        file_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        memtable_bytes: 64 << 10,
        chunk_log_bytes: 128 << 10,
        cache_bytes: 1 << 20,
        gc: false,
        ..Options::default()
    }
}

/// Every file but the lock, which has no contents and is all that a refused opening may leave.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = contents(dir);
    files.retain(|(path, _)| *path != dir.join("LOCK"));
    files
}

fn says(error: &dyn std::error::Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not said: {text}");
    }
}

fn key(i: u32) -> Vec<u8> {
    format!("key {i:06}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    vec![(i % 251) as u8; (i as usize * 37) % 6000]
}

fn large() -> Vec<u8> {
    (0..100_000u32).map(|i| (i % 253) as u8).collect()
}

fn fill(store: &Store) {
    for i in 0..KEYS {
        store.put(&key(i), &value(i)).unwrap();
        if i == KEYS / 4 {
            store.put(MARKED, MARK).unwrap();
        }
    }
    for i in (0..KEYS).step_by(5) {
        store.delete(&key(i)).unwrap();
    }
    store.put(b"large", &large()).unwrap();
    let mut batch = Batch::new();
    batch.put(b"batch", b"whole");
    batch.delete(&key(1));
    store.write(&batch).unwrap();
}

fn expected() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all: BTreeMap<_, _> = (2..KEYS)
        .filter(|i| i % 5 != 0)
        .map(|i| (key(i), value(i)))
        .collect();
    all.insert(MARKED.to_vec(), MARK.to_vec());
    all.insert(b"large".to_vec(), large());
    all.insert(b"batch".to_vec(), b"whole".to_vec());
    all
}

fn check(store: &Store) {
    let found: BTreeMap<_, _> = store
        .scan(ScanRange::all())
        .unwrap()
        .map(|pair| pair.map(|(key, value)| (key, value.into_vec())).unwrap())
        .collect();
    assert!(found == expected(), "{} keys found", found.len());
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// Everything but one key can be read.
fn check_others(store: &Store, damaged: &[u8]) {
    for (key, value) in expected() {
        if key != damaged {
            assert!(*store.get(&key).unwrap().unwrap() == value[..]);
        }
    }
}

/// Changes a file's bytes, and gives back what it had.
fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let good = fs::read(path).unwrap();
    let mut bad = good.clone();
    change(&mut bad);
    fs::write(path, bad).unwrap();
    good
}

fn position(bytes: &[u8], of: &[u8]) -> Option<usize> {
    bytes.windows(of.len()).position(|window| window == of)
}

/// Closed and crashed stores, and how they are opened: what is wrong with files must be found in all.
const LEFT: [(Variant, bool); 4] = [
    (Variant::DOUBLE, true),
    (Variant::DOUBLE, false),
    (Variant::Fsync, true),
    (Variant::Fsync, false),
];

#[test]
fn a_missing_value_log_file_is_named_and_the_store_opens_when_it_is_back() {
    for (variant, closed) in LEFT {
        let place = Place::new(variant, closed);
        let away = place.dir.path().join("away");
        assert!(place.vlog().len() >= 2);
        for file in place.vlog() {
            fs::rename(&file, &away).unwrap();
            let name = file.file_name().unwrap().to_str().unwrap();
            let words = [
                name,
                "is missing",
                "nothing was changed",
                "put the file back",
            ];
            let error = place.refused(Some(&place.pool()), variant, &words);
            assert!(matches!(error, StoreError::ValueLog { .. }));
            fs::rename(&away, &file).unwrap();
        }
        place.check(Some(&place.pool()), variant);
    }
}

#[test]
fn a_truncated_value_log_file_is_named_and_the_store_opens_when_it_is_whole_again() {
    for (variant, closed) in LEFT {
        // What was not closed and is in the files only may end anywhere: its last file is another matter.
        let last_too = closed || variant == Variant::DOUBLE;
        let place = Place::new(variant, closed);
        let files = place.vlog();
        let checked = files.len() - usize::from(!last_too);
        for file in &files[..checked] {
            for length in [0, 100, 4096, 4096 + (64 << 10)] {
                let good = change(file, |bytes| bytes.truncate(length));
                let name = file.file_name().unwrap().to_str().unwrap();
                let has = format!("it has {length} bytes");
                let words = [name, "is truncated", &has, "put the file back"];
                let error = place.refused(Some(&place.pool()), variant, &words);
                assert!(matches!(error, StoreError::ValueLog { .. }));
                fs::write(file, good).unwrap();
            }
        }
        place.check(Some(&place.pool()), variant);
    }
}

#[test]
fn another_stores_value_log_file_is_recognized() {
    let (place, other) = (Place::closed(), Place::closed());
    for (mine, foreign) in place.vlog().iter().zip(other.vlog()) {
        let foreign = fs::read(foreign).unwrap();
        let good = change(mine, |bytes| *bytes = foreign);
        let words = ["belongs to another store", "put the file back"];
        let error = place.refused(Some(&place.pool()), Variant::DOUBLE, &words);
        assert!(matches!(error, StoreError::ValueLog { .. }));
        fs::write(mine, good).unwrap();
    }
    place.check(None, Variant::Fsync);
}

#[test]
fn a_value_log_file_in_anothers_place_or_without_its_header_is_recognized() {
    let place = Place::closed();
    let files = place.vlog();
    let first = fs::read(&files[0]).unwrap();
    let swapped: [(&str, Vec<u8>); 3] = [
        ("starts at log address", first),
        ("no value-log file", vec![b'x'; 2 << 20]),
        ("no value-log file", vec![0; 2 << 20]),
    ];
    for (word, bytes) in swapped {
        let good = change(&files[1], |old| *old = bytes);
        let words = [word, "put the file back"];
        let error = place.refused(None, Variant::Fsync, &words);
        assert!(matches!(error, StoreError::ValueLog { .. }));
        fs::write(&files[1], good).unwrap();
    }
    place.check(None, Variant::Fsync);
}

#[test]
fn a_corrupt_or_truncated_manifest_is_refused_wherever_it_is_damaged() {
    let place = Place::closed();
    let length = fs::read(place.manifest()).unwrap().len();
    let words = ["MANIFEST", "is damaged", "restore it from a copy"];
    // The last byte is the line's end, which nothing hangs on.
    for at in (0..length - 1).step_by(7) {
        let good = change(&place.manifest(), |bytes| bytes[at] ^= 0x41);
        let error = place.refused(Some(&place.pool()), Variant::DOUBLE, &words);
        assert!(matches!(error, StoreError::Damaged { .. }));
        let _ = change(&place.manifest(), |bytes| *bytes = good[..at].to_vec());
        let error = place.refused(None, Variant::Fsync, &words);
        assert!(matches!(error, StoreError::Damaged { .. }));
        fs::write(place.manifest(), good).unwrap();
    }
    let good = change(&place.manifest(), |bytes| bytes[5] = 0xFF);
    place.refused(None, Variant::Fsync, &["it is not text"]);
    fs::write(place.manifest(), good).unwrap();
    place.check(None, Variant::Fsync);
}

#[test]
fn a_store_that_lost_its_manifest_is_not_taken_for_an_empty_directory() {
    let place = Place::closed();
    let away = place.dir.path().join("away");
    fs::rename(place.manifest(), &away).unwrap();
    let words = [
        "holds no store",
        "no MANIFEST, but",
        "vlog",
        "give the directory",
    ];
    let error = place.refused(None, Variant::Fsync, &words);
    assert!(matches!(error, StoreError::NotAStore { .. }));
    fs::rename(&away, place.manifest()).unwrap();
    place.check(None, Variant::Fsync);
}

#[test]
fn a_manifest_of_another_version_is_told_from_a_damaged_one() {
    let place = Place::closed();
    for version in [0, 2, 77] {
        let good = change(&place.manifest(), |bytes| {
            let text = str::from_utf8(bytes).unwrap();
            let (json, _) = text.trim_end().rsplit_once('\n').unwrap();
            let stated = format!("\"format_version\": {version}");
            let json = json.replace("\"format_version\": 1", &stated);
            assert!(json.contains(&stated));
            *bytes = format!("{json}\ncrc32c {:08x}\n", crc32c([json.as_bytes()])).into_bytes();
        });
        let has = format!("format version {version}");
        let words = [&has, "knows 1", "Use the program that made it"];
        let error = place.refused(None, Variant::Fsync, &words);
        assert!(matches!(error, StoreError::Version { found, known: 1, .. } if found == version));
        fs::write(place.manifest(), good).unwrap();
    }
    place.check(None, Variant::Fsync);
}

#[test]
fn a_store_that_was_not_closed_opens_with_its_own_pool_only() {
    let place = Place::new(Variant::DOUBLE, false);
    let uuid = place.pool().superblock().uuid.to_string();
    let other = place.new_pool("other pool");
    let other_bytes = || fs::read(other.path()).unwrap();
    let untouched = other_bytes();
    let words = ["was not closed", &uuid, "Open it with that pool", "salvage"];
    for variant in [Variant::Fsync, Variant::NoSync] {
        let error = place.refused(
            None,
            variant,
            &[&words[..], &["no pool was given"]].concat(),
        );
        assert!(matches!(error, StoreError::DataInPool { .. }));
    }
    let given = format!("(uuid {}) was given", other.superblock().uuid);
    for variant in [Variant::Fsync, Variant::DOUBLE] {
        let words = [&words[..], &["other pool", &given]].concat();
        let error = place.refused(Some(&other), variant, &words);
        assert!(matches!(error, StoreError::DataInPool { .. }));
    }
    assert!(other_bytes() == untouched, "the other pool was changed");
    place.check(Some(&place.pool()), Variant::DOUBLE);
    place.check(Some(&other), Variant::DOUBLE);
    place.check(None, Variant::Fsync);
}

#[test]
fn a_buffered_variant_without_a_pool_is_refused_before_anything_is_made() {
    let place = Place::closed();
    for variant in [Variant::SINGLE, Variant::DOUBLE, Variant::Buffered(8)] {
        let name = variant.to_string();
        let words = [&name, "none was given", "--pool", "fsync"];
        let error = place.refused(None, variant, &words);
        assert!(matches!(error, StoreError::PoolNeeded { .. }));
        let new = place.dir.path().join("new");
        let error = open(&new, None, variant).err().unwrap();
        assert!(matches!(error, StoreError::PoolNeeded { .. }));
        assert!(!new.exists());
    }
    place.check(None, Variant::Fsync);
}

#[test]
fn a_store_in_use_is_refused_and_its_user_goes_on() {
    for variant in [Variant::DOUBLE, Variant::Fsync] {
        let place = Place::new(variant, true);
        let pool = place.pool();
        let store = open(&place.store(), Some(&pool), variant).unwrap();
        let words = ["is in use", "stop that process first"];
        for second in [Variant::DOUBLE, Variant::Fsync] {
            let error = place.refused(Some(&pool), second, &words);
            assert!(matches!(error, StoreError::InUse { .. }));
        }
        store.put(b"still", b"open").unwrap();
        store.delete(b"still").unwrap();
        check(&store);
        store.close().unwrap();
        place.check(Some(&pool), variant);
    }
}

#[test]
fn a_lane_in_use_by_an_opening_of_a_copy_is_refused_and_its_user_goes_on() {
    let place = Place::closed();
    let store = open(&place.store(), Some(&place.pool()), Variant::DOUBLE).unwrap();
    let copy = Place::empty();
    copy_dir(&place.store(), &copy.store());
    // The file is opened a second time, as another process would.
    let pool = place.pool();
    let words = ["is in use", "stop that process", "store"];
    for variant in [Variant::DOUBLE, Variant::Fsync] {
        let error = copy.refused(Some(&pool), variant, &words);
        let StoreError::Pool(refused) = &error else {
            panic!("{error}");
        };
        assert!(matches!(refused.kind, PoolErrorKind::InUse { .. }));
    }
    store.put(b"still", b"open").unwrap();
    store.delete(b"still").unwrap();
    check(&store);
    store.close().unwrap();
    place.check(Some(&pool), Variant::DOUBLE);
}

#[test]
fn a_directory_of_other_files_is_left_alone() {
    let place = Place::empty();
    fs::create_dir(place.store()).unwrap();
    fs::write(place.store().join("letter.txt"), "dear reader").unwrap();
    let words = [
        "holds no store",
        "letter.txt",
        "give the directory of a store",
    ];
    let error = place.refused(None, Variant::Fsync, &words);
    assert!(matches!(error, StoreError::NotAStore { .. }));
    assert_eq!(files_in(&place.store()).len(), 1, "a lock was made");
    fs::remove_file(place.store().join("letter.txt")).unwrap();
    let store = open(&place.store(), None, Variant::Fsync).unwrap();
    fill(&store);
    check(&store);
}

#[test]
fn no_store_is_made_where_none_is_to_be_created() {
    let place = Place::empty();
    let options = Options {
        create: false,
        ..options(Variant::Fsync)
    };
    let error = Store::open(&place.store(), None, &options).err().unwrap();
    assert!(matches!(error, StoreError::NotAStore { .. }));
    says(&error, &["does not exist", "let one be created"]);
    assert!(!place.store().exists());
    fs::create_dir(place.store()).unwrap();
    let error = Store::open(&place.store(), None, &options).err().unwrap();
    assert!(matches!(error, StoreError::NotAStore { .. }));
    says(&error, &["it has no MANIFEST", "let one be created"]);
    assert!(files(&place.store()).is_empty());
}

#[test]
fn a_file_in_the_place_of_the_directory_is_refused_and_kept() {
    let place = Place::empty();
    fs::write(place.store(), "a file").unwrap();
    for create in [true, false] {
        let options = Options {
            create,
            ..options(Variant::Fsync)
        };
        let error = Store::open(&place.store(), None, &options).err().unwrap();
        assert!(matches!(error, StoreError::NotAStore { .. }));
        says(
            &error,
            &["it is no directory", "give the directory of a store"],
        );
    }
    let below = place.store().join("below");
    let error = open(&below, None, Variant::Fsync).err().unwrap();
    says(&error, &["a file stands where a directory is needed"]);
    assert_eq!(fs::read(place.store()).unwrap(), b"a file");
}

/// With one byte of `path` flipped, at what `at` finds, one key is damaged and no other, until it is flipped back.
fn one_key_is_damaged(place: &Place, path: &Path, at: usize, damaged: &[u8]) {
    let flip = |bytes: &mut Vec<u8>| bytes[at] ^= 0x10;
    change(path, flip);
    let bad = fs::read(path).unwrap();
    let store = open(&place.store(), None, Variant::Fsync).unwrap();
    for _ in 0..2 {
        let error = store.get(damaged).err().unwrap();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        let name = path.file_name().unwrap().to_str().unwrap();
        says(&error, &[name, "is damaged", "forebay store verify"]);
        check_others(&store, damaged);
        let report = store.verify().unwrap();
        assert_eq!(report.keys, expected().len() as u64 - 1);
        let named = |problem: &String| problem.contains(name);
        assert!(report.problems.iter().any(named), "{report:?}");
    }
    assert!(
        store
            .scan(ScanRange::all())
            .unwrap()
            .any(|pair| pair.is_err())
    );
    store.close().unwrap();
    let now = fs::read(path).unwrap();
    assert!(now[..now.len().min(bad.len())] == bad[..now.len().min(bad.len())]);
    change(path, flip);
    place.check(None, Variant::Fsync);
}

#[test]
fn a_flipped_byte_in_a_value_log_record_costs_that_key_only_and_is_reported() {
    let place = Place::closed();
    let found = place
        .vlog()
        .into_iter()
        .find_map(|path| Some((position(&fs::read(&path).unwrap(), MARK)?, path)));
    let (at, path) = found.unwrap();
    one_key_is_damaged(&place, &path, at + 5, MARKED);
}

#[test]
fn a_flipped_byte_in_a_large_value_costs_that_key_only_and_is_reported() {
    let place = Place::closed();
    let large_files = files_in(&place.store().join("large"));
    let length = fs::read(&large_files[0]).unwrap().len();
    for at in [20, 70, 50_000, length - 1] {
        one_key_is_damaged(&place, &large_files[0], at, b"large");
    }
}

#[test]
fn a_missing_truncated_or_foreign_index_table_is_refused_by_name() {
    let place = Place::closed();
    for table in place.tables() {
        let name = table.file_name().unwrap().to_str().unwrap();
        let good = fs::read(&table).unwrap();
        fs::remove_file(&table).unwrap();
        let error = place.refused(None, Variant::Fsync, &["index", name]);
        assert!(matches!(error, StoreError::Index(_)));
        for bad in [&good[..0], &good[..good.len() / 2], &b"foreign"[..]] {
            fs::write(&table, bad).unwrap();
            let error = place.refused(None, Variant::Fsync, &["index", name, "damaged"]);
            assert!(matches!(error, StoreError::Index(_)));
        }
        fs::write(&table, good).unwrap();
    }
    place.check(None, Variant::Fsync);
}

#[test]
fn a_flipped_byte_in_an_index_table_is_refused_or_reported_and_never_gives_a_wrong_value() {
    let place = Place::closed();
    let good_store = place.dir.path().join("good");
    copy_dir(&place.store(), &good_store);
    let table = place.tables().remove(0);
    let name = table.file_name().unwrap().to_str().unwrap().to_owned();
    let length = fs::read(&table).unwrap().len();
    for at in (0..length).step_by(length / 30) {
        change(&table, |bytes| bytes[at] ^= 0x10);
        let before = files(&place.store());
        match open(&place.store(), None, Variant::Fsync) {
            Err(error) => {
                assert!(matches!(error, StoreError::Index(_)), "{error}");
                says(&error, &["index", &name, "damaged"]);
                assert!(files(&place.store()) == before, "byte {at}: {error}");
            }
            Ok(store) => {
                let report = store.verify().unwrap();
                let named = |problem: &String| problem.contains(&name);
                assert!(report.problems.iter().any(named), "byte {at}: {report:?}");
                for (key, value) in expected() {
                    match store.get(&key) {
                        Ok(found) => assert!(*found.unwrap() == value[..], "byte {at}"),
                        Err(error) => says(&error, &["index", "damaged"]),
                    }
                }
            }
        }
        fs::remove_dir_all(place.store()).unwrap();
        copy_dir(&good_store, &place.store());
    }
    place.check(None, Variant::Fsync);
}

#[test]
fn a_damaged_or_missing_index_manifest_is_refused_and_no_empty_index_is_made() {
    let place = Place::closed();
    let manifest = place.store().join("index/MANIFEST");
    let length = fs::read(&manifest).unwrap().len();
    for at in (0..length).step_by(5) {
        let good = change(&manifest, |bytes| bytes[at] ^= 2);
        let words = ["index/MANIFEST", "reading the manifest", "damaged"];
        let error = place.refused(Some(&place.pool()), Variant::DOUBLE, &words);
        assert!(matches!(error, StoreError::Index(_)));
        fs::write(&manifest, &good[..at]).unwrap();
        place.refused(None, Variant::Fsync, &words);
        fs::write(&manifest, good).unwrap();
    }
    let good = fs::read(&manifest).unwrap();
    fs::remove_file(&manifest).unwrap();
    let error = place.refused(None, Variant::Fsync, &["index"]);
    assert!(matches!(error, StoreError::Index(_)));
    fs::write(&manifest, good).unwrap();
    place.check(None, Variant::Fsync);
}
