//! A flipped bit in a record, or a damaged large value, costs its own key and no other, and is
//! never taken for the end of an acknowledged log.

use crate::{
    KEYS, check, closed,
    common::{Bench, files_in, value_log_files},
    fill, key, quiet, refused, value,
};
use forebay_store::{Durability, StoreError};
use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
};

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

/// Promise (store): Damage to a record, a large value or an index table costs no other key, and the
/// collector never removes it.
/// Promise (store): Every read of a damaged record, large value or index table reports the damage,
/// and so does `verify`.
#[test]
fn a_flipped_bit_in_a_record_is_told_only_by_its_get_and_verify() {
    let bench = closed();
    let file = &value_log_files(&bench.path())[0];
    let bytes = fs::read(file).unwrap();
    let at = bytes.windows(1000).position(|w| w == [40; 1000]).unwrap();
    flip(file, at as u64 + 500);
    let store = bench.open(&quiet(Durability::DOUBLE));
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

/// Promise (store): An opening refuses damage to an acknowledged record that it has to replay,
/// wherever anything proves that the record was acknowledged.
#[test]
fn a_store_with_a_flipped_bit_in_its_replayed_log_is_refused() {
    // In a file that has another one behind it, and in the last one.
    for (file, damaged) in [(0, 50), (2, KEYS - 3)] {
        for variant in [Durability::Fsync, Durability::NoSync] {
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
            if (file, variant) == (2, Durability::NoSync) {
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
            // The last record of the first file is before the second file's, which prove that it
            // was whole.
            let last = bytes
                .windows(1000)
                .rposition(|w| w.iter().all(|&b| b == w[0] && b != 0));
            for at in [at, last.filter(|_| file == 0).unwrap_or(at)] {
                flip(path, at as u64 + 500);
                refused(
                    &bench,
                    Some(&bench.pool),
                    Durability::DOUBLE,
                    |e| matches!(e, StoreError::Damaged { .. }),
                    &["had been acknowledged", "restore it from a copy"],
                );
                flip(path, at as u64 + 500);
            }
            check(&bench.open(&quiet(Durability::DOUBLE)));
        }
    }
}

/// Promise: as `a_flipped_bit_in_a_record_is_told_only_by_its_get_and_verify`.
#[test]
fn a_damaged_or_missing_large_value_is_told_by_get_and_verify() {
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
        let store = bench.open(&quiet(Durability::DOUBLE));
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
    check(&bench.open(&quiet(Durability::DOUBLE)));
}
