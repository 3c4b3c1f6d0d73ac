//! A manifest of an earlier moment: it is refused, and no later file is unlinked on its word.

use crate::{
    check,
    common::{
        Bench, contents, copy_dir,
        hook_disk::{Doing, HookDisk},
        value_log_files,
    },
    manifest, put, quiet, refused, replace, session,
};
use forebay_store::{Durability, StoreError};
use std::{fs, io};

/// With the manifest of an earlier moment a store is refused, and unchanged: with today's it opens,
/// and has `keys`.
fn refused_with_manifest(bench: &Bench, variant: Durability, older: &[u8], keys: u32) {
    let newer = fs::read(manifest(bench)).unwrap();
    assert!(value_log_files(&bench.path()).len() > 4);
    fs::write(manifest(bench), older).unwrap();
    refused(
        bench,
        variant,
        &["MANIFEST", "salvage", "Nothing was changed"],
    );
    fs::write(manifest(bench), newer).unwrap();
    check(&bench.open(&quiet(variant)), 0..keys, 1);
}

/// Promise (store): A store with an older MANIFEST, value log, index or pool beside newer parts is
/// refused unchanged, or opens with everything that the older moment had.
/// Promise: as `a_running_stores_old_manifest_is_refused_and_unlinks_nothing`.
#[test]
fn an_earlier_closes_manifest_is_refused_and_unlinks_nothing() {
    for variant in [Durability::Fsync, Durability::NoSync, Durability::DOUBLE] {
        let bench = Bench::new();
        session(&bench, &quiet(variant), 0..5);
        let older = fs::read(manifest(&bench)).unwrap();
        session(&bench, &quiet(variant), 5..300);
        refused_with_manifest(&bench, variant, &older, 300);
    }
}

/// Promise: as `an_earlier_closes_manifest_is_refused_and_unlinks_nothing`.
#[test]
fn an_earlier_closes_manifest_is_refused_for_a_grown_last_file() {
    // With the index of the later moment, and with that of the earlier one.
    for index_too in [false, true] {
        for variant in [Durability::Fsync, Durability::DOUBLE] {
            let bench = Bench::new();
            session(&bench, &quiet(variant), 0..5);
            let earlier = bench.dir.path().join("earlier");
            copy_dir(&bench.path(), &earlier);
            session(&bench, &quiet(variant), 5..10);
            let later = bench.dir.path().join("later");
            copy_dir(&bench.path(), &later);
            assert_eq!(value_log_files(&bench.path()).len(), 1);
            fs::copy(earlier.join("MANIFEST"), manifest(&bench)).unwrap();
            if index_too {
                replace(&earlier, &bench.path(), "index");
            }
            refused(&bench, variant, &["MANIFEST", "salvage"]);
            fs::copy(later.join("MANIFEST"), manifest(&bench)).unwrap();
            replace(&later, &bench.path(), "index");
            check(&bench.open(&quiet(variant)), 0..10, 1);
        }
    }
}

/// Promise (store): A store unlinks a file that holds log only if the manifest says that it was
/// collected.
/// Promise: as `an_earlier_closes_manifest_is_refused_and_unlinks_nothing`.
#[test]
fn a_running_stores_old_manifest_is_refused_and_unlinks_nothing() {
    for variant in [Durability::Fsync, Durability::NoSync, Durability::DOUBLE] {
        let bench = Bench::new();
        let store = bench.open(&quiet(variant));
        put(&store, 0..5, 1);
        let older = fs::read(manifest(&bench)).unwrap();
        put(&store, 5..300, 1);
        drop(store);
        refused_with_manifest(&bench, variant, &older, 300);
    }
}

#[test]
fn an_old_manifest_passes_over_no_file_that_cannot_be_opened() {
    let bench = Bench::new();
    // Neither the index nor the log's end tells that the manifest is older.
    let options = quiet(Durability::Fsync)
        .memtable_size(4 << 20)
        .chunk_log_size(64 << 20);
    let store = bench.open(&options);
    put(&store, 0..5, 1);
    let older = fs::read(manifest(&bench)).unwrap();
    put(&store, 5..300, 1);
    drop(store);
    let newer = fs::read(manifest(&bench)).unwrap();
    fs::write(manifest(&bench), older).unwrap();
    let before = contents(&bench.path());
    let later = value_log_files(&bench.path()).split_off(1);
    let disk = HookDisk::new(move |doing| match doing {
        Doing::Open(path) if later.iter().any(|later| later == path) => {
            Err(io::Error::other("the disk is broken"))
        }
        _ => Ok(()),
    });
    let opened = options.open_on(disk, None, bench.path(), None);
    let error = opened.err().expect("it is opened");
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert!(contents(&bench.path()) == before);
    fs::write(manifest(&bench), newer).unwrap();
    check(&bench.open(&options), 0..300, 1);
}
