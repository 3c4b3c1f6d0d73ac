//! Missing, truncated and foreign value-log files are refused by name, and none is written into.

use crate::{check, closed, common::value_log_files, quiet, refused};
use forebay_store::{Durability, StoreError};
use std::fs;

/// Promise: as `a_damaged_truncated_or_foreign_manifest_is_named`.
#[test]
fn a_store_names_a_missing_log_file_and_opens_once_it_is_back() {
    let bench = closed();
    for file in value_log_files(&bench.path()) {
        let away = bench.dir.path().join("away");
        fs::rename(&file, &away).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        refused(
            &bench,
            Some(&bench.pool),
            Durability::DOUBLE,
            |e| matches!(e, StoreError::ValueLog { .. }),
            &[name, "is missing", "put the file back"],
        );
        fs::rename(&away, &file).unwrap();
    }
    check(&bench.open(&quiet(Durability::DOUBLE)));
}

/// Promise: as `a_damaged_truncated_or_foreign_manifest_is_named`.
#[test]
fn a_truncated_value_log_file_is_named_and_left_unwritten() {
    for variant in [Durability::DOUBLE, Durability::Fsync] {
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

/// Promise: as `a_damaged_truncated_or_foreign_manifest_is_named`.
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
            Durability::DOUBLE,
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
    let store = bench.open(&quiet(Durability::DOUBLE));
    check(&store);
    store.gc().unwrap();
    store.close().unwrap();
    for name in strangers {
        assert_eq!(fs::read(bench.path().join(name)).unwrap(), name.as_bytes());
    }
}
