//! Dictionaries of small values: they are found wherever a value needs them, and what is lost with
//! a damaged one is told.
#![cfg(feature = "zstd")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Bench, Rng, VARIANTS, copy_dir,
    crash_disk::{CrashDisk, DISK_NOTE},
    files_in, format, new_sim, tiny, value_log_files,
};
use forebay_pool::{PoolOptions, media::SimMedia};
use forebay_store::{
    Compression, Durability, Keyspace, KeyspaceOptions, ScanRange, Store, StoreError, StoreOptions,
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const BY: Compression = Compression::ZstdDictionary(3);

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

/// A row of a table, of which there are several kinds: some 75 bytes, of which most are its fields'
/// names, the same in all rows of the kind.
fn row(kind: u32, i: u32) -> Vec<u8> {
    let (mut names, mut values) = (Rng(u64::from(kind) + 1), Rng(u64::from(i) << 8));
    let field = |_| {
        let letter = |_| char::from(b'a' + names.below(26) as u8);
        let name: String = (0..8).map(letter).collect();
        format!("\"{name}\":{},", values.below(1000))
    };
    (0..5).map(field).collect::<String>().into_bytes()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Puts rows of a kind, round after round over `keys`, until the store has so many dictionaries;
/// and then once more.
fn train(store: &Store, put: impl Fn(u32, &[u8]), kind: u32, keys: u32, dictionaries: u64) {
    let mut round = 0;
    until("no dictionary was made", || {
        for i in 0..keys {
            put(i, &row(kind, i + round));
        }
        round += 1;
        store.stats().dictionaries >= dictionaries
    });
    for i in 0..keys {
        put(i, &row(kind, i));
    }
}

fn in_store(store: &Store) -> impl Fn(u32, &[u8]) {
    |i, row| store.put(&key(i), row).unwrap()
}

fn in_keyspace<'s>(keyspace: &'s Keyspace<'_>) -> impl Fn(u32, &[u8]) + 's {
    |i, row| keyspace.put(&key(i), row).unwrap()
}

/// By every way to look.
fn check(store: &Store, kind: u32, keys: u32) {
    let (mut buffer, mut scan) = (Vec::new(), store.scan(ScanRange::all()).unwrap());
    for i in 0..keys {
        let expected = row(kind, i);
        assert_eq!(*store.get(&key(i)).unwrap().unwrap(), *expected);
        let read = store.get_into(&key(i), &mut buffer).unwrap();
        assert_eq!(read, Some(&expected[..]));
        assert_eq!(scan.next().unwrap().unwrap().1, expected);
    }
    let found = store.multi_get([key(0), key(keys - 1)]).unwrap();
    assert_eq!(found[1].as_deref(), Some(&row(kind, keys - 1)[..]));
    let report = store.verify().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.keys, u64::from(keys));
}

fn dictionary_files(store: &Path) -> Vec<PathBuf> {
    files_in(&store.join("dict"))
}

/// Promise (store): A value that was compressed with a dictionary is read as it was put, by every
/// way of reading, after a crash, a close and a collection, whichever dictionary is in use by then.
#[test]
fn values_are_read_with_the_dictionary_they_were_written_with() {
    for variant in VARIANTS {
        let bench = Bench::with_room(48, 64 << 10);
        let options = tiny(variant).gc(false);
        let with = options.clone().compression(BY);
        let store = bench.open(&with);
        train(&store, in_store(&store), 0, 300, 1);
        let gained = store.stats().compression;
        assert!(gained.with_dictionary >= 300, "{gained:?}");
        check(&store, 0, 300);
        // As a crash leaves it, and with another kind of values, for a while without.
        drop(store);
        let store = bench.open(&options);
        check(&store, 0, 300);
        assert_eq!(store.stats().dictionaries, 1);
        store.close().unwrap();
        let store = bench.open(&with);
        store.put(&key(0), &row(0, 0)).unwrap();
        assert_eq!(store.stats().compression.with_dictionary, 1);
        let before = store.snapshot().unwrap();
        // Those below stay, as they were written.
        let put = |i: u32, row: &[u8]| store.put(&key(1000 + i), row).unwrap();
        train(&store, put, 1, 300, 2);
        store.gc().unwrap();
        for i in 0..300 {
            assert_eq!(*before.get(&key(i)).unwrap().unwrap(), *row(0, i));
            assert_eq!(*store.get(&key(1000 + i)).unwrap().unwrap(), *row(1, i));
        }
        store.delete_range(ScanRange::new(key(1000)..)).unwrap();
        check(&store, 0, 300);
        drop((before, store));
        check(&bench.open(&options), 0, 300);
        assert_eq!(dictionary_files(&bench.path()).len(), 2);
    }
}

/// Promise (store): The collector copies values with an old dictionary as they are stored, and they
/// are read after it.
#[test]
fn the_collector_moves_values_of_an_old_dictionary() {
    let bench = Bench::new();
    let options = tiny(Durability::NoSync).gc(false).compression(BY);
    let store = options.open(bench.path(), None).unwrap();
    train(&store, in_store(&store), 0, 300, 1);
    // One in ten stays, in files that are collected.
    for round in 0..60 {
        for i in (0..3000).filter(|i| i % 10 != 0 || *i >= 300) {
            store.put(&key(i), &row(1, i + round)).unwrap();
        }
    }
    until("no second dictionary", || store.stats().dictionaries >= 2);
    let first = value_log_files(&bench.path()).remove(0);
    store.flush().unwrap();
    let report = store.gc().unwrap();
    assert!(report.relocated >= 30 && report.files > 0, "{report:?}");
    assert!(!first.exists());
    for i in (0..300).step_by(10) {
        assert_eq!(*store.get(&key(i)).unwrap().unwrap(), *row(0, i));
    }
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// Promise (store): A checkpoint, a backup and a reader in another process have the dictionaries of
/// what they have, and need nothing else of the store.
#[test]
fn copies_and_readers_have_the_dictionaries() {
    let bench = Bench::new();
    let options = tiny(Durability::DOUBLE).compression(BY);
    let store = bench.open(&options);
    train(&store, in_store(&store), 0, 300, 1);
    let work = bench.dir.path();
    let [checkpoint, backups, beside] = ["checkpoint", "backups", "beside"].map(|it| work.join(it));
    store.checkpoint(&checkpoint).unwrap();
    store.backup(&backups, |_| ()).unwrap();
    let reader = options.open_read_only(bench.path(), &bench.pool).unwrap();
    // A second dictionary comes, and later copies have both.
    train(&store, in_store(&store), 1, 300, 2);
    store.put("new", &row(1, 7)).unwrap();
    let incremental = store.backup(&backups, |_| ()).unwrap();
    assert!(incremental.files > incremental.copied_files);
    for i in 0..300 {
        let found = reader.get(&key(i)).unwrap().unwrap();
        assert_eq!(*found, *row(0, i));
    }
    reader.backup(&beside, |_| ()).unwrap();
    assert_eq!(*reader.get("new").unwrap().unwrap(), *row(1, 7));
    drop((store, reader));
    fs::remove_dir_all(bench.path()).unwrap();
    let fsync = tiny(Durability::Fsync);
    for (copy, dictionaries, kind) in [
        (checkpoint, 1, 0),
        (backups.join("000001"), 1, 0),
        (backups.join("000002"), 2, 1),
        (beside.join("000001"), 2, 1),
    ] {
        // Elsewhere, and without the pool.
        let elsewhere = tempfile::tempdir().unwrap();
        let path = elsewhere.path().join("store");
        copy_dir(&copy, &path);
        assert_eq!(dictionary_files(&path).len(), dictionaries);
        let store = fsync.open(&path, None).unwrap();
        store.delete("new").unwrap();
        check(&store, kind, 300);
        // It goes on with the dictionary that it has.
        drop(store);
        let store = fsync.clone().compression(BY).open(&path, None).unwrap();
        store.put(&key(0), &row(kind, 0)).unwrap();
        assert_eq!(store.stats().compression.with_dictionary, 1);
    }
}

/// Damages the file in the middle.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 4;
    fs::write(path, bytes).unwrap();
}

/// Promise (store): A damaged or missing dictionary is reported with its file and keyspace by each
/// read that needs it, by `verify` and a backup; all else is read, and the store goes on.
#[test]
fn a_damaged_dictionary_is_reported_and_costs_no_other_value() {
    let damages: [fn(&Path); 3] = [
        flip,
        |path| fs::remove_file(path).unwrap(),
        |path| fs::write(path, fs::read(path).unwrap().split_off(9)).unwrap(),
    ];
    for damage in damages {
        let bench = Bench::new();
        let options = tiny(Durability::NoSync).gc(false);
        let store = options.open(bench.path(), None).unwrap();
        let with = KeyspaceOptions::new().compression(BY);
        let [boats, sails] = ["boats", "sails"].map(|it| store.keyspace(it, with).unwrap());
        train(&store, in_keyspace(&boats), 0, 300, 1);
        let [first] = &dictionary_files(&bench.path())[..] else {
            panic!("one dictionary");
        };
        train(&store, in_keyspace(&sails), 1, 300, 2);
        store.put("plain", "value").unwrap();
        boats.put("plain", "value").unwrap();
        store.close().unwrap();
        damage(first);
        let store = options.open(bench.path(), None).unwrap();
        let trouble = store.stats().trouble.unwrap();
        assert!(trouble.contains("00000001.dict"), "{trouble}");
        let [boats, sails] = ["boats", "sails"].map(|it| store.existing_keyspace(it).unwrap());
        let reported = |error: Option<StoreError>| {
            let said = error.expect("no error").to_string();
            assert!(said.contains("keyspace \"boats\""), "{said}");
            assert!(
                said.contains("dict/00000001.dict") && said.contains("restore it"),
                "{said}"
            );
        };
        for i in [0, 299] {
            reported(boats.get(&key(i)).err());
            reported(boats.get_into(&key(i), &mut Vec::new()).err());
            reported(boats.multi_get([key(i)]).err());
            reported(boats.update(&key(i), |_| None).err());
        }
        reported(boats.scan(ScanRange::all()).unwrap().find_map(Result::err));
        assert!(boats.contains_key(&key(0)).unwrap());
        let all_else = || {
            assert_eq!(*boats.get("plain").unwrap().unwrap(), *b"value");
            assert_eq!(*store.get("plain").unwrap().unwrap(), *b"value");
            for i in 0..300 {
                assert_eq!(*sails.get(&key(i)).unwrap().unwrap(), *row(1, i));
            }
        };
        all_else();
        let problems = store.verify().unwrap().problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("00000001.dict"), "{problems:?}");
        let backups = bench.dir.path().join("backups");
        let refused = store.backup(&backups, |_| ()).err().unwrap().to_string();
        assert!(refused.contains("00000001.dict"), "{refused}");
        // What is collected meanwhile is not lost, and new values get a dictionary of their own.
        store.gc().unwrap();
        train(
            &store,
            |i, row| boats.put(&key(i + 1000), row).unwrap(),
            0,
            300,
            3,
        );
        assert_eq!(*boats.get(&key(1007)).unwrap().unwrap(), *row(0, 7));
        reported(boats.get(&key(0)).err());
        boats.put(&key(0), "new").unwrap();
        assert_eq!(*boats.get(&key(0)).unwrap().unwrap(), *b"new");
        all_else();
    }
}

/// Promise (store): Another store's dictionary in the place of one is reported, and none is mixed
/// up with one that has its number in a copy that went on.
#[test]
fn a_dictionary_of_another_store_or_copy_is_not_used() {
    let bench = Bench::new();
    let options = tiny(Durability::NoSync).gc(false).compression(BY);
    let store = options.open(bench.path(), None).unwrap();
    let (copy, other) = (
        bench.dir.path().join("copy"),
        bench.dir.path().join("other"),
    );
    store.put("key", "value").unwrap();
    store.checkpoint(&copy).unwrap();
    train(&store, in_store(&store), 0, 300, 1);
    store.close().unwrap();
    for path in [&copy, &other] {
        let store = options.open(path, None).unwrap();
        train(&store, in_store(&store), 1, 300, 1);
        store.close().unwrap();
        let file = dictionary_files(path).remove(0);
        assert!(file.ends_with("00000001.dict"));
        let own = dictionary_files(&bench.path()).remove(0);
        let kept = fs::read(&own).unwrap();
        fs::copy(&file, &own).unwrap();
        let store = options.open(bench.path(), None).unwrap();
        let refused = store.get(&key(7)).err().unwrap().to_string();
        assert!(refused.contains("00000001.dict is damaged"), "{refused}");
        drop(store);
        // Put back, nothing was lost.
        fs::write(&own, kept).unwrap();
        let store = options.open(bench.path(), None).unwrap();
        store.delete("key").unwrap();
        check(&store, 0, 300);
        store.put("key", "value").unwrap();
        store.close().unwrap();
    }
}

/// Promise (store): A dropped keyspace's dictionaries go with it, also if a crash came between.
#[test]
fn a_dropped_keyspaces_dictionaries_go_with_it() {
    let bench = Bench::new();
    let options = tiny(Durability::DOUBLE);
    let store = bench.open(&options);
    let with = KeyspaceOptions::new().compression(BY);
    let boats = store.keyspace("boats", with).unwrap();
    train(&store, in_keyspace(&boats), 0, 300, 1);
    let file = dictionary_files(&bench.path()).remove(0);
    let kept = fs::read(&file).unwrap();
    let reader = options.open_read_only(bench.path(), &bench.pool).unwrap();
    let snapshot = reader.snapshot().unwrap();
    store.drop_keyspace("boats").unwrap();
    assert!(matches!(
        boats.get(&key(1)),
        Err(StoreError::KeyspaceDropped { .. })
    ));
    assert_eq!((file.exists(), store.stats().dictionaries), (false, 0));
    // It looked before, and is told to look again.
    let outdated = snapshot.keyspace("boats").unwrap().get(&key(1));
    assert!(
        matches!(outdated, Err(StoreError::Outdated { .. })),
        "{outdated:?}"
    );
    drop((snapshot, reader, store));
    // As a crash right behind the manifest's change leaves it.
    fs::write(&file, kept).unwrap();
    let store = bench.open(&options);
    assert!(!file.exists());
    // Its number is not given again.
    let boats = store.keyspace("boats", with).unwrap();
    train(&store, in_keyspace(&boats), 1, 300, 1);
    assert!(dictionary_files(&bench.path())[0].ends_with("00000002.dict"));
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// Promise: as `a_dropped_keyspaces_dictionaries_go_with_it`.
#[test]
fn a_drop_while_a_dictionary_is_made_leaves_nothing_of_it() {
    let bench = Bench::new();
    let options = tiny(Durability::NoSync);
    let store = options.open(bench.path(), None).unwrap();
    let with = KeyspaceOptions::new().compression(BY);
    let mut made = 0;
    for round in 0..12 {
        let boats = store.keyspace("boats", with).unwrap();
        for i in 0..300 {
            boats.put(&key(i), &row(round, i)).unwrap();
        }
        thread::sleep(Duration::from_millis(u64::from(round) * 40));
        made += store.stats().dictionaries;
        store.drop_keyspace("boats").unwrap();
        assert_eq!(store.stats().dictionaries, 0);
    }
    assert!(made > 0);
    until("a file stays", || {
        dictionary_files(&bench.path()).is_empty()
    });
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// Promise (store): A keyspace has eight dictionaries at most, and goes on with the last.
#[test]
fn a_keyspace_has_a_bounded_number_of_dictionaries() {
    let bench = Bench::new();
    let options = tiny(Durability::NoSync).compression(BY);
    let store = options.open(bench.path(), None).unwrap();
    let put = |kind: u32, i: u32, row: &[u8]| store.put(&key(kind * 1000 + i), row).unwrap();
    for kind in 0..8 {
        train(
            &store,
            |i, row| put(kind, i, row),
            kind,
            300,
            u64::from(kind) + 1,
        );
    }
    for round in 0..20 {
        for kind in 8..10 {
            (0..300).for_each(|i| put(kind, i, &row(kind, i + round)));
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(store.stats().dictionaries, 8);
    assert_eq!(dictionary_files(&bench.path()).len(), 8);
    for kind in 0..8 {
        assert_eq!(
            *store.get(&key(kind * 1000 + 7)).unwrap().unwrap(),
            *row(kind, 7)
        );
    }
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

fn options_of(store: &StoreOptions) -> StoreOptions {
    store.clone().close_on_drop(false)
}

/// Promise (store): Values that are too small to be compressed alone are with a dictionary, alone,
/// in a batch and in a transaction, and such that expire.
#[test]
fn tiny_values_in_batches_and_transactions_have_the_dictionary() {
    let bench = Bench::new();
    let options = options_of(&tiny(Durability::DOUBLE));
    let store = bench.open(&options);
    let hour = Duration::from_secs(3600);
    let with = KeyspaceOptions::new().compression(BY).ttl(hour);
    let states = store.keyspace("states", with).unwrap();
    // 40 bytes.
    let state = |i: u32| format!("{{\"state\":\"waiting for approval {:06}\"}}", i % 1000);
    train(
        &store,
        |i, _| states.put(&key(i), &state(i)).unwrap(),
        0,
        300,
        1,
    );
    let before = states.compression_stats();
    let mut batch = store.batch();
    for i in 1000..1100 {
        batch.put_in(&states, &key(i), &state(i)).unwrap();
    }
    store.write(&batch).unwrap();
    let mut tx = store.begin().unwrap();
    for i in 1100..1200 {
        tx.put_in(&states, &key(i), &state(i)).unwrap();
    }
    tx.commit().unwrap();
    let gained = states.compression_stats();
    assert_eq!(gained.with_dictionary - before.with_dictionary, 200);
    let stored = gained.stored_bytes - before.stored_bytes;
    assert!(
        stored * 3 < 2 * (gained.raw_bytes - before.raw_bytes),
        "{gained:?}"
    );
    drop(store);
    let store = bench.open(&options);
    let states = store.existing_keyspace("states").unwrap();
    for i in (0..300).chain(1000..1200) {
        assert_eq!(
            *states.get(&key(i)).unwrap().unwrap(),
            *state(i).into_bytes()
        );
    }
}

/// Notes: that many rows are acknowledged, from this on; and the sample of a dictionary is full.
const ACKNOWLEDGED: u64 = 1 << 32;
const SAMPLED: u64 = 1 << 33;

/// Puts rows, acknowledged one by one on the clock of `sim`, until some have a dictionary.
fn put_until_some_have_one(store: &Store, sim: &SimMedia) -> u32 {
    let (mut rows, mut left) = (0, 12);
    let begun = Instant::now();
    while left > 0 {
        store.put(&key(rows), &row(0, rows)).unwrap();
        rows += 1;
        sim.note(ACKNOWLEDGED | u64::from(rows));
        if rows == 150 {
            sim.note(SAMPLED);
        }
        match store.stats().compression.with_dictionary {
            0 if rows > 150 => thread::sleep(Duration::from_millis(5)),
            0 => {}
            _ => left -= 1,
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no dictionary");
    }
    rows
}

/// Promise (store): After a power cut at any step of the making of a dictionary every acknowledged
/// value is there, and none needs a dictionary that is not.
#[test]
fn a_power_cut_while_a_dictionary_is_made_loses_no_value() {
    for variant in [Durability::Fsync, Durability::SINGLE, Durability::DOUBLE] {
        let work = common::in_memory();
        let [live, index] = ["live", "index"].map(|it| work.path().join(it));
        fs::create_dir_all(&live).unwrap();
        let sim = new_sim(64 << 10);
        let pool = format(Arc::clone(&sim), 64 << 10);
        let pool = matches!(variant, Durability::Buffered(_)).then_some(&pool);
        let disk = CrashDisk::new(&live, Arc::clone(&sim));
        // Nothing is merged into the index, which is as it was copied.
        let options = tiny(variant).gc(false).memtable_size(8 << 20);
        let options = options.chunk_log_size(64 << 20).compression(BY);
        let store = options.open_on(Arc::new(disk.clone()), None, &live, pool);
        let store = store.unwrap();
        copy_dir(&live.join("index"), &index);
        put_until_some_have_one(&store, &sim);
        drop(store);
        let images = sim.crash_images();
        let notes: Vec<u64> = images.notes_before(images.points() - 1).collect();
        let sampled = notes.iter().position(|note| *note == SAMPLED).unwrap();
        let disk_steps = (sampled..notes.len()).filter(|&at| notes[at] == DISK_NOTE);
        // Of the many that are puts', some.
        let steps: Vec<usize> = disk_steps.collect();
        let some = steps.iter().step_by((steps.len() / 60).max(1));
        let mut found = [0, 0];
        for (seed, &at) in (1..).zip(some.clone().chain(some)) {
            // The point right behind that step.
            let behind = |&point: &usize| images.notes_before(point).nth(at).is_some();
            let (mut low, mut high) = (0, images.points() - 1);
            while low < high {
                let middle = usize::midpoint(low, high);
                match behind(&middle) {
                    true => high = middle,
                    false => low = middle + 1,
                }
            }
            let rng = &mut Rng(seed);
            let dir = work.path().join("found");
            fs::create_dir_all(&dir).unwrap();
            let before = &notes[..=at];
            let events = before.iter().filter(|note| **note == DISK_NOTE).count();
            disk.image(events, rng, &dir);
            copy_dir(&index, &dir.join("index"));
            let arrived = [0, u64::MAX, u64::MAX / 2][seed as usize % 3];
            let image = images.at(low, || rng.next() <= arrived);
            let sim = Arc::new(sim.of_its_kind(image));
            sim.stop_recording();
            let pool = PoolOptions::new().open_on("test pool", sim).unwrap();
            let when = format!("{variant}, cut behind note {at}, seed {seed}");
            let store = options.open(&dir, &pool);
            let store = store.unwrap_or_else(|error| panic!("{when}: {error}"));
            let is_acknowledged = |note: &&u64| **note & ACKNOWLEDGED != 0 && **note < SAMPLED;
            let acknowledged = before.iter().filter(is_acknowledged).count();
            let rows = store.scan(ScanRange::all()).unwrap().count();
            assert!(
                (acknowledged..=acknowledged + 1).contains(&rows),
                "{when}: {rows}"
            );
            for i in 0..rows as u32 {
                let value = store
                    .get(&key(i))
                    .unwrap_or_else(|error| panic!("{when}: {error}"));
                assert_eq!(*value.unwrap(), *row(0, i), "{when}");
            }
            assert_eq!(
                store.verify().unwrap().problems,
                Vec::<String>::new(),
                "{when}"
            );
            found[usize::from(store.stats().dictionaries > 0)] += 1;
            drop(store);
            fs::remove_dir_all(&dir).unwrap();
        }
        assert!(found[0] > 0 && found[1] > 0, "{variant}: {found:?}");
    }
}
