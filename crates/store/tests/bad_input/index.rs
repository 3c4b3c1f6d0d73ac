//! Damaged, missing and foreign parts of the index are refused by name, or told by the reads that
//! meet them; no empty index takes their place.

use crate::{KEYS, check, closed, common::files_in, key, quiet, refused, value};
use forebay_store::{Durability, StoreError};
use std::{fs, path::PathBuf};

/// Promise: as `a_flipped_bit_in_a_record_is_told_only_by_its_get_and_verify`.
#[test]
fn a_damaged_index_table_is_told_and_all_is_read_once_restored() {
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
        match quiet(Durability::Fsync).open(bench.path(), None) {
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
    check(&bench.open(&quiet(Durability::Fsync)));
}

/// Promise: as `a_damaged_truncated_or_foreign_manifest_is_named`.
#[test]
fn a_missing_truncated_or_foreign_table_is_refused_by_name() {
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
                Durability::Fsync,
                |e| matches!(e, StoreError::Index(_)),
                &["index", name, "damaged"],
            );
        }
        fs::write(&table, bytes).unwrap();
    }
    check(&bench.open(&quiet(Durability::Fsync)));
}

/// Promise: as `a_damaged_truncated_or_foreign_manifest_is_named`.
#[test]
fn a_damaged_or_missing_index_manifest_is_refused_not_replaced() {
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
            Durability::DOUBLE,
            |e| matches!(e, StoreError::Index(_)),
            &["index", "damaged"],
        );
    }
    fs::write(&path, bytes).unwrap();
    check(&bench.open(&quiet(Durability::DOUBLE)));
}
