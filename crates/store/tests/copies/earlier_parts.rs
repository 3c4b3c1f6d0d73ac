//! One part of an earlier moment: a pool, an index or a value-log file that is older than the rest
//! is refused, and nothing is written over.

use crate::{
    check,
    common::{self, Bench, contents, copy_dir, new_sim},
    put, quiet, refused, replace, value_log,
};
use forebay_pool::{Pool, PoolOptions, media::SimMedia};
use forebay_store::Durability;
use std::{fs, sync::Arc};

/// A pool with these contents.
fn pool_of(image: Vec<u8>) -> Pool {
    let media = SimMedia::from_image(image);
    media.stop_recording();
    PoolOptions::new()
        .open_on("test pool", Arc::new(media))
        .unwrap()
}

/// Promise: as `an_earlier_closes_manifest_is_refused_and_unlinks_nothing`.
#[test]
fn an_earlier_moments_pool_is_refused_and_the_files_stay() {
    // Taken from the running session, and from the session before; with an index that knows more,
    // and with one that knows nothing.
    for (sessions, memtable_bytes) in [(1, 64 << 10), (1, 16 << 20), (2, 64 << 10), (2, 16 << 20)] {
        let media = new_sim(64 << 10);
        media.stop_recording();
        let pool = common::format(Arc::clone(&media), 64 << 10);
        let bench = Bench {
            dir: tempfile::tempdir().unwrap(),
            pool,
        };
        let options = quiet(Durability::DOUBLE)
            .memtable_size(memtable_bytes)
            .chunk_log_size(64 << 20);
        let mut store = bench.open(&options);
        put(&store, 0..3, 1);
        let earlier = media.image();
        if sessions == 2 {
            drop(store);
            store = bench.open(&options);
        }
        put(&store, 3..40, 1);
        store.flush().unwrap();
        put(&store, 40..42, 1);
        drop(store);
        let later = media.image();
        let before = contents(&bench.path());
        // However often it is tried.
        for _ in 0..4 {
            let error = options
                .open(bench.path(), &pool_of(earlier.clone()))
                .err()
                .expect("it is opened");
            assert!(contents(&bench.path()) == before, "{error}");
        }
        let earlier = pool_of(earlier);
        for _ in 0..4 {
            let error = options.open(bench.path(), &earlier).err();
            let error = error.expect("it is opened at last");
            assert!(error.to_string().contains("older"), "{error}");
            assert!(contents(&bench.path()) == before, "{error}");
        }
        let aside = bench.dir.path().join("aside");
        copy_dir(&bench.path(), &aside);
        // Given up, it costs what is in no file, and nothing else.
        let salvage = options.clone().salvage(true);
        let store = salvage.open(&aside, &earlier).unwrap();
        check(&store, 0..40, 1);
        assert!(!store.stats().given_up.is_empty());
        drop(store);
        check(
            &options.open(bench.path(), &pool_of(later)).unwrap(),
            0..42,
            1,
        );
    }
}

/// Promise (store): An older index brings no deleted key back.
#[test]
fn an_index_of_an_earlier_moment_brings_no_deleted_key_back() {
    let bench = Bench::new();
    let options = quiet(Durability::Fsync);
    let store = bench.open(&options);
    put(&store, 0..100, 1);
    store.gc().unwrap();
    let earlier = bench.dir.path().join("earlier");
    copy_dir(&bench.path().join("index"), &earlier.join("index"));
    // The deletes lie in a file that is collected, and only the index knows of them then.
    for i in 0..20u32 {
        store.delete(&i.to_be_bytes()).unwrap();
    }
    put(&store, 1000..1100, 1);
    put(&store, 1000..1100, 2);
    let report = store.gc().unwrap();
    assert!(report.files > 0);
    drop(store);
    let later = bench.dir.path().join("later");
    copy_dir(&bench.path().join("index"), &later.join("index"));
    replace(&earlier, &bench.path(), "index");
    refused(&bench, Durability::Fsync, &["index", "older", "deleted"]);
    replace(&later, &bench.path(), "index");
    let store = bench.open(&options);
    assert!(store.get(&7u32.to_be_bytes()).unwrap().is_none());
    check(&store, 20..100, 1);
    check(&store, 1000..1100, 2);
}

/// Promise: as `an_earlier_closes_manifest_is_refused_and_unlinks_nothing`.
#[test]
fn a_copy_with_a_last_file_from_before_its_writes_is_refused() {
    for (variant, closed) in [
        (Durability::Fsync, true),
        (Durability::Fsync, false),
        (Durability::NoSync, true),
        (Durability::DOUBLE, true),
    ] {
        let bench = Bench::new();
        let store = bench.open(&quiet(variant));
        put(&store, 0..5, 1);
        store.flush().unwrap();
        let earlier = value_log(&bench);
        put(&store, 5..20, 1);
        // All of it is in the index, which knows what the file should have.
        store.gc().unwrap();
        match closed {
            true => store.close().unwrap(),
            false => drop(store),
        }
        let later = value_log(&bench);
        assert_eq!(earlier.len(), later.len());
        for (path, bytes) in &earlier {
            fs::write(path, bytes).unwrap();
        }
        refused(
            &bench,
            variant,
            &["has nothing from log address", "copied while"],
        );
        for (path, bytes) in &later {
            fs::write(path, bytes).unwrap();
        }
        check(&bench.open(&quiet(variant)), 0..20, 1);
    }
}
