//! The manifest and the directory: a damaged, foreign or newer manifest is told, and what is no
//! store is left exactly as it is.

use crate::{check, closed, common::files_in, quiet, refused};
use forebay_store::{Durability, StoreError};
use std::fs;

/// Promise (store): A store refuses missing, truncated, foreign and damaged files, names the reason
/// and the remedy, and changes nothing.
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
            Durability::DOUBLE,
            |e| matches!(e, StoreError::Damaged { .. }),
            &["MANIFEST", "damaged", "restore it from a copy"],
        );
    }
    fs::write(&path, &text).unwrap();
    check(&bench.open(&quiet(Durability::DOUBLE)));
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
        Durability::DOUBLE,
        |e| matches!(e, StoreError::ValueLog { .. }),
        &["belongs to another store"],
    );
    fs::write(&path, text).unwrap();
    check(&bench.open(&quiet(Durability::DOUBLE)));
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
        Durability::DOUBLE,
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

/// Promise: as `a_damaged_truncated_or_foreign_manifest_is_named`.
#[test]
fn a_store_without_its_manifest_is_never_taken_for_an_empty_one() {
    let bench = closed();
    let path = bench.path().join("MANIFEST");
    let text = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    refused(
        &bench,
        Some(&bench.pool),
        Durability::DOUBLE,
        |e| matches!(e, StoreError::NotAStore { .. }),
        &["no MANIFEST", "vlog"],
    );
    fs::write(&path, text).unwrap();
    check(&bench.open(&quiet(Durability::DOUBLE)));
}

#[test]
fn a_store_copied_without_its_lock_file_is_a_store() {
    let bench = closed();
    fs::remove_file(bench.path().join("LOCK")).unwrap();
    let options = quiet(Durability::Fsync).create_if_missing(false);
    check(&options.open(bench.path(), None).unwrap());
}

/// Promise (store): A store refuses a directory that is no store, cannot be written or is in use,
/// and names the reason and the remedy.
#[test]
fn a_directory_that_is_no_store_stays_exactly_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("thesis.tex"), "\\section{}").unwrap();
    for create in [true, false] {
        let options = quiet(Durability::Fsync).create_if_missing(create);
        let error = options.open(&home, None).err().unwrap();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
        assert!(error.to_string().contains("thesis.tex"), "{error}");
        assert_eq!(files_in(&home), [home.join("thesis.tex")]);
        let file = home.join("thesis.tex");
        let error = options.open(&file, None).err().unwrap();
        assert!(error.to_string().contains("no directory"), "{error}");
    }
    let missing = dir.path().join("missing");
    let options = quiet(Durability::Fsync).create_if_missing(false);
    let error = options.open(&missing, None).err().unwrap();
    assert!(error.to_string().contains("does not exist"), "{error}");
    assert!(!missing.exists());
}
