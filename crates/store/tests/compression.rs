//! Compressed values: every way of reading gives what was put, whatever the store was written and
//! is opened with.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, Rng, VARIANTS, compressions, tiny};
use forebay_store::{Compression, Durability, ScanRange, Snapshot, Store, StoreOptions, Value};
use std::{collections::BTreeMap, fs, path::Path};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A row as programs keep them: much the same as the others.
fn row(i: u64) -> Vec<u8> {
    let (mut random, mut row) = (Rng(i), String::from("{"));
    for field in ["id", "owner", "colour", "harbour", "length", "built"] {
        row += &format!("\"{field}\": {}, ", random.below(100_000));
    }
    row.into_bytes()
}

fn noise(i: u64, bytes: usize) -> Vec<u8> {
    let mut random = Rng(i);
    (0..bytes).map(|_| random.next() as u8).collect()
}

/// Of every kind and size: none, short ones, rows, text, noise, and those in files of their own,
/// with and without a part that does not become smaller.
fn value(i: u64) -> Vec<u8> {
    match i % 9 {
        0 => Vec::new(),
        1 => noise(i, 20),
        2 => noise(i, 900),
        3 => row(i).repeat(300 + (i as usize % 7) * 50),
        4 => [noise(i, 50_000), vec![7; 50_000]].concat(),
        5 => [vec![7; 1 << 20], noise(i, 1 << 20), vec![8; 100_000]].concat(),
        6 => [row(i), noise(i, 300)].concat(),
        _ => row(i),
    }
}

/// Writes some of each in every way.
fn fill(store: &Store, model: &mut Model, from: u64) {
    let put = |model: &mut Model, key: &str, value: &[u8]| {
        model.insert(key.as_bytes().to_vec(), value.to_vec());
    };
    for i in from..from + 60 {
        let value = value(match i == from + 5 {
            true => 5,
            false => i - u64::from(i % 9 == 5),
        });
        store.put(&format!("put {i}"), &value).unwrap();
        put(model, &format!("put {i}"), &value);
    }
    let mut batch = store.batch();
    for i in 0..18 {
        let (key, value) = (format!("batch {i}"), row(from + i));
        batch.put(&key, &value).unwrap();
        put(model, &key, &value);
    }
    batch.put("batch large", &value(4)).unwrap();
    put(model, "batch large", &value(4));
    batch.delete(&format!("put {from}")).unwrap();
    model.remove(format!("put {from}").as_bytes());
    store.write(&batch).unwrap();
    let swapped = row(from).repeat(2);
    let present = store.get("batch 1").unwrap().unwrap();
    let new = Some(&swapped[..]);
    assert!(
        store
            .compare_and_swap("batch 1", Some(&present), new)
            .unwrap()
    );
    assert!(
        !store
            .compare_and_swap("batch 1", Some(&present), None)
            .unwrap()
    );
    put(model, "batch 1", &swapped);
    let longer = |value: Option<&[u8]>| Some(value.unwrap_or_default().repeat(2));
    let updated = store.update("batch 2", longer).unwrap().unwrap();
    assert_eq!(updated, model[&b"batch 2"[..]].repeat(2));
    put(model, "batch 2", &updated);
    let moved = store.transaction(|tx| {
        let found = tx.get("batch 3")?.unwrap().into_vec();
        let seen = tx.scan(ScanRange::all())?.count();
        tx.put(
            "batch 4",
            &[&found[..], seen.to_string().as_bytes()].concat(),
        )?;
        Ok(tx.get("batch 4")?.unwrap().into_vec())
    });
    put(model, "batch 4", &moved.unwrap());
}

fn pairs(
    found: impl Iterator<Item = Result<(Vec<u8>, Value), forebay_store::StoreError>>,
) -> Model {
    let found = found.map(Result::unwrap);
    found.map(|(key, value)| (key, value.into_vec())).collect()
}

fn in_snapshot(snapshot: &Snapshot, model: &Model) {
    assert!(pairs(snapshot.scan(ScanRange::all()).unwrap()) == *model);
    for (key, value) in model {
        assert!(snapshot.get(key).unwrap().unwrap() == *value);
    }
}

/// By every way to look.
fn check(store: &Store, model: &Model) {
    assert!(pairs(store.scan(ScanRange::all()).unwrap()) == *model);
    assert!(pairs(store.scan(ScanRange::all().reversed()).unwrap()) == *model);
    let mut buffer = Vec::new();
    // Twice: the second time, the cache may have it.
    for _ in 0..2 {
        for (key, value) in model {
            assert!(store.get(key).unwrap().unwrap() == *value);
            let read = store.get_into(key, &mut buffer).unwrap();
            assert!(read == Some(&value[..]), "{}", key.escape_ascii());
        }
    }
    in_snapshot(&store.snapshot().unwrap(), model);
    let report = store.verify().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    let bytes: usize = model.values().map(Vec::len).sum();
    assert_eq!(
        (report.keys, report.value_bytes),
        (model.len() as u64, bytes as u64)
    );
}

/// Promise (store): Every way of reading gives a value as it was put, whichever compression the
/// store was written with and is opened with now.
#[test]
fn values_are_read_as_they_were_put_by_any_compression() {
    for (round, variant) in VARIANTS.into_iter().enumerate() {
        let (bench, mut model) = (Bench::with_room(48, 64 << 10), Model::new());
        let all = compressions();
        for (i, by) in all
            .iter()
            .cycle()
            .skip(round)
            .take(all.len() + 1)
            .enumerate()
        {
            let options = tiny(variant).compression(*by);
            let store = bench.open(&options);
            check(&store, &model);
            let (before, then) = (store.snapshot().unwrap(), model.clone());
            fill(&store, &mut model, 40 * i as u64);
            check(&store, &model);
            in_snapshot(&before, &then);
            drop(before);
            store.gc().unwrap();
            check(&store, &model);
            let reader = options.open_read_only(bench.path(), Some(&bench.pool));
            let reader = reader.unwrap();
            assert!(pairs(reader.scan(ScanRange::all()).unwrap()) == model);
            if i % 2 == 0 {
                store.close().unwrap();
            }
        }
    }
}

/// Promise: as `values_are_read_as_they_were_put_by_any_compression`.
#[test]
fn a_backup_of_compressed_values_is_a_store_of_them() {
    for by in compressions() {
        let (bench, mut model) = (Bench::new(), Model::new());
        let store = bench.open(&tiny(Durability::DOUBLE).compression(by));
        fill(&store, &mut model, 0);
        let backups = bench.dir.path().join("backups");
        store.backup(&backups, |_| ()).unwrap();
        fill(&store, &mut model.clone(), 1000);
        store.backup(&backups, |_| ()).unwrap();
        let copy = tiny(Durability::Fsync).open(backups.join("000001"), None);
        check(&copy.unwrap(), &model);
    }
}

fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries.map(|entry| entry.metadata().unwrap().len()).sum()
}

/// Promise (store): With compression, rows that resemble each other take less than half of the
/// disk, and the collector copies them as they are stored.
#[test]
fn rows_take_less_of_the_disk_and_are_copied_as_stored() {
    for by in compressions() {
        let bench = Bench::new();
        let options = tiny(Durability::NoSync).compression(by).gc(false);
        let store = options.open(bench.path(), None).unwrap();
        // One in three of the first round is live to the end.
        let rows = |round: u64| (0..4000).map(move |i| (i, row(i + round).repeat(8)));
        let is_last = |round: u64, i: u64| round == if i.is_multiple_of(3) { 0 } else { 2 };
        let mut puts = 0;
        for round in 0..3 {
            for (i, row) in rows(round).filter(|(i, _)| round == 0 || !i.is_multiple_of(3)) {
                store.put(&i.to_be_bytes(), &row).unwrap();
                puts += 1;
            }
        }
        let written = store.stats().compression;
        let (log, ratio) = (store.stats().log_tail, written.stored_bytes as f64);
        match by {
            Compression::None => assert_eq!(written.values, 0),
            _ => {
                assert_eq!((written.values, written.kept_raw), (puts, 0));
                assert!(ratio < 0.5 * written.raw_bytes as f64, "{by}: {written:?}");
                assert!(log < written.raw_bytes * 6 / 10, "{by}: {log}");
            }
        }
        drop(store);
        // Opened without: the collector neither compresses nor decompresses.
        let options = tiny(Durability::NoSync).gc(false);
        let store = options.open(bench.path(), None).unwrap();
        let report = store.gc().unwrap();
        assert!(report.relocated > 100, "{report:?}");
        let stored = report.relocated_bytes / report.relocated;
        let raw = row(1).len() as u64 * 8;
        assert_eq!(
            by == Compression::None,
            stored > raw * 6 / 10,
            "{by}: {stored}"
        );
        assert_eq!(store.stats().compression.values, 0);
        for round in [0, 2] {
            for (i, row) in rows(round).filter(|(i, _)| is_last(round, *i)) {
                assert!(store.get(&i.to_be_bytes()).unwrap().unwrap() == row);
            }
        }
        let sampled = store.sample_values().unwrap();
        assert_eq!(
            by == Compression::None,
            sampled.compressed == 0,
            "{sampled:?}"
        );
        assert_eq!(
            by == Compression::None,
            sampled.raw_bytes == sampled.stored_bytes
        );
    }
}

#[test]
fn a_large_value_takes_less_and_a_noisy_one_as_much_as_it_has() {
    for by in compressions() {
        let bench = Bench::new();
        let store = bench.open(&tiny(Durability::DOUBLE).compression(by));
        let large = |bytes: u64| match store.stats() {
            stats if bytes > 0 => stats.large_value_bytes,
            stats => stats.large_value_files,
        };
        store.put("rows", &row(1).repeat(40_000)).unwrap();
        let (raw, rows) = (row(1).len() as u64 * 40_000, large(1));
        assert_eq!(
            by == Compression::None,
            rows > raw / 10,
            "{by}: {rows} of {raw}"
        );
        assert_eq!(rows, bytes_below(&bench.path().join("large")));
        store.put("noise", &noise(1, 300_000)).unwrap();
        assert_eq!(large(1) - rows, 64 + 5 + 300_000);
        assert_eq!(large(1), bytes_below(&bench.path().join("large")));
        store.delete("rows").unwrap();
        store.delete("noise").unwrap();
        store.gc().unwrap();
        assert_eq!((large(1), large(0)), (0, 0));
    }
}

/// A record that was written when segments were larger than today's becomes a large value, and is
/// stored as it was.
#[test]
fn a_compressed_record_too_long_for_todays_segments_goes_on() {
    for by in compressions() {
        let bench = Bench::new();
        let with = |segment: u64| {
            let options = tiny(Durability::NoSync).segment_size(segment).gc(false);
            options.compression(by).open(bench.path(), None).unwrap()
        };
        let value = |i: u64| [noise(i, 60_000), row(i).repeat(900)].concat();
        let store = with(1 << 20);
        for round in 0..2 {
            for i in 0..20 {
                store.put(&[i as u8], &value(i + round)).unwrap();
                store.put(&[i as u8, 1], &noise(i, 30_000)).unwrap();
            }
        }
        drop(store);
        let store = with(64 << 10);
        for i in 0..20u8 {
            store.delete(&[i, 1]).unwrap();
        }
        store.gc().unwrap();
        assert!(store.stats().large_value_files > 0);
        for i in 0..20 {
            assert!(store.get(&[i as u8]).unwrap().unwrap() == value(i + 1));
        }
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        let bytes = store.stats().large_value_bytes / store.stats().large_value_files;
        let raw = value(1).len() as u64;
        let is_raw = bytes > raw * 9 / 10;
        assert_eq!(by == Compression::None, is_raw, "{by}: {bytes} of {raw}");
    }
}

#[test]
fn a_level_out_of_bounds_is_refused_before_a_store_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions::new().durability(Durability::NoSync);
    let options = options.compression(Compression::Zstd(23));
    let refused = options.open(dir.path().join("store"), None).err().unwrap();
    let expected = if cfg!(feature = "zstd") {
        "-7 to 22"
    } else {
        "cargo feature"
    };
    assert!(refused.to_string().contains(expected), "{refused}");
    assert!(!dir.path().join("store").exists());
}
