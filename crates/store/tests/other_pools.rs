//! Pools of another moment than the store's directory: restored from a copy, or left over from a
//! session before. Each is refused with nothing changed, and a session that was only cut is not
//! taken for one.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    contents,
    hook_disk::{Doing, HookDisk},
    new_sim, tiny,
};
use forebay_pool::{Pool, PoolOptions, media::SimMedia};
use forebay_store::{Durability, Store, StoreError, StoreOptions, disk::RealDisk};
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};
use tempfile::TempDir;

const SEGMENT: u64 = 64 << 10;

fn options(variant: Durability) -> StoreOptions {
    tiny(variant).gc(false)
}

/// A new pool, and the memory that it lies in.
fn new_pool() -> (Arc<SimMedia>, Pool) {
    let media = new_sim(SEGMENT);
    media.stop_recording();
    let pool = common::format(Arc::clone(&media), SEGMENT);
    (media, pool)
}

/// A pool with these contents.
fn pool_of(image: Vec<u8>) -> Pool {
    let media = SimMedia::from_image(image);
    media.stop_recording();
    PoolOptions::new()
        .open_on("a copy", Arc::new(media))
        .unwrap()
}

fn directory() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    (dir, path)
}

fn put(store: &Store, keys: std::ops::Range<u32>) {
    for i in keys {
        store.put(&i.to_be_bytes(), &value(i)).unwrap();
    }
}

fn check(store: &Store, keys: std::ops::Range<u32>) {
    for i in keys {
        let found = store.get(&i.to_be_bytes()).unwrap();
        assert!(found.expect("a key is gone") == value(i), "key {i}");
    }
}

fn value(i: u32) -> Vec<u8> {
    vec![i as u8; 20_000]
}

/// An opening with the pool is refused, in words that name it as older, and changes neither the
/// directory nor the pool.
fn refused(path: &Path, options: &StoreOptions, image: &[u8]) -> StoreError {
    let before = contents(path);
    let media = Arc::new(SimMedia::from_image(image.to_vec()));
    media.stop_recording();
    let pool = PoolOptions::new().open_on("a copy", media.clone()).unwrap();
    let error = options.open(path, &pool).err().expect("it is opened");
    let text = error.to_string();
    assert!(matches!(error, StoreError::NotOneMoment { .. }), "{text}");
    assert!(text.contains("the pool is older"), "{text}");
    assert!(text.contains("Nothing was changed"), "{text}");
    assert!(contents(path) == before, "the directory was changed");
    assert!(media.image() == image, "the pool was changed");
    error
}

/// Promise (store): A store refuses, unchanged, a pool that lacks the records that the MANIFEST
/// expects there, and a lane that is older than sessions without a pool.
#[test]
fn a_pool_from_before_a_stores_first_write_is_refused_unchanged() {
    // With something in the files, and with nothing.
    for flushed in [0, 40] {
        let (media, pool) = new_pool();
        let before = media.image();
        let (_dir, path) = directory();
        let store = options(Durability::DOUBLE).open(&path, &pool).unwrap();
        put(&store, 0..flushed);
        store.flush().unwrap();
        put(&store, flushed..flushed + 2);
        drop(store);
        for variant in [Durability::DOUBLE, Durability::Fsync] {
            refused(&path, &options(variant), &before);
        }
        let store = options(Durability::DOUBLE).open(&path, &pool).unwrap();
        check(&store, 0..flushed + 2);
        drop(store);
        // Given up, it costs what is in no file.
        let salvage = options(Durability::DOUBLE).salvage(true);
        let store = salvage.open(&path, &pool_of(before)).unwrap();
        check(&store, 0..flushed);
        let said = store.stats().given_up.join("\n");
        assert!(said.contains("nothing of this store"), "{said}");
    }
}

/// Promise: as `a_pool_from_before_a_stores_first_write_is_refused_unchanged`.
#[test]
fn a_lane_older_than_poolless_sessions_is_refused_unchanged() {
    let (media, pool) = new_pool();
    let (_dir, path) = directory();
    let store = options(Durability::DOUBLE).open(&path, &pool).unwrap();
    put(&store, 0..3);
    let older = media.image();
    store.close().unwrap();
    let fsync = options(Durability::Fsync);
    let store = fsync.open(&path, None).unwrap();
    put(&store, 3..6);
    drop(store);
    // One more session, which writes nothing.
    drop(fsync.open(&path, None).unwrap());
    for variant in [Durability::DOUBLE, Durability::Fsync] {
        refused(&path, &options(variant), &older);
    }
    // Given up, it costs nothing.
    let salvage = options(Durability::DOUBLE).salvage(true);
    let store = salvage.open(&path, &pool_of(older)).unwrap();
    check(&store, 0..6);
    put(&store, 6..40);
    store.close().unwrap();
    check(&fsync.open(&path, None).unwrap(), 0..40);
}

#[test]
fn a_salvage_writes_no_older_lane_of_another_pool_to_the_files() {
    let (media, first) = new_pool();
    let (_dir, path) = directory();
    let store = options(Durability::DOUBLE).open(&path, &first).unwrap();
    put(&store, 0..3);
    let older = media.image();
    store.close().unwrap();
    let (_, second) = new_pool();
    let store = options(Durability::DOUBLE).open(&path, &second).unwrap();
    put(&store, 3..30);
    store.flush().unwrap();
    drop(store);
    // The second pool is gone for good.
    let salvage = options(Durability::DOUBLE).salvage(true);
    let store = salvage.open(&path, &pool_of(older)).unwrap();
    check(&store, 0..30);
    put(&store, 30..60);
    store.close().unwrap();
    let store = options(Durability::Fsync).open(&path, None).unwrap();
    check(&store, 0..60);
}

/// A disk whose `n`-th rename fails from the moment at which `left` is set to `n`, and all behind
/// it.
fn disk_that_fails_at(left: &Arc<AtomicUsize>) -> Arc<HookDisk> {
    let left = Arc::clone(left);
    HookDisk::new(move |doing| match doing {
        Doing::Rename(_) => {
            let now = left.fetch_update(SeqCst, SeqCst, |n| Some(n.saturating_sub(1)));
            match now {
                Ok(0) => Err(io::Error::from_raw_os_error(5)),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    })
}

/// Promise (store): A store opens after a close or an opening that was cut: it does not take its
/// pool for one of another moment.
#[test]
fn a_close_cut_at_any_note_is_not_taken_for_an_older_pool() {
    let variants = [Durability::DOUBLE, Durability::Fsync];
    for (notes, next) in (0..3).flat_map(|notes| variants.map(|next| (notes, next))) {
        let (media, pool) = new_pool();
        let (_dir, path) = directory();
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let store = options(Durability::DOUBLE)
            .open_on(disk_that_fails_at(&left), None, &path, &pool)
            .unwrap();
        put(&store, 0..5);
        store.flush().unwrap();
        left.store(notes, SeqCst);
        assert_eq!(store.close().is_ok(), notes == 2, "{notes} notes");
        drop(pool);
        let store = options(next).open(&path, &pool_of(media.image()));
        check(&store.unwrap(), 0..5);
    }
}

/// Promise: as `a_close_cut_at_any_note_is_not_taken_for_an_older_pool`.
#[test]
fn a_lane_half_emptied_by_a_cut_opening_is_no_older_pool() {
    for notes in 0.. {
        let (_, pool) = new_pool();
        let (_dir, path) = directory();
        let store = options(Durability::DOUBLE).open(&path, &pool).unwrap();
        put(&store, 0..5);
        drop(store);
        let left = Arc::new(AtomicUsize::new(notes));
        let fsync = options(Durability::Fsync);
        let opened = fsync.open_on(disk_that_fails_at(&left), None, &path, &pool);
        let is_done = opened.is_ok();
        drop(opened);
        let again = Arc::new(RealDisk::default());
        let store = fsync.open_on(again, None, &path, &pool).unwrap();
        check(&store, 0..5);
        if is_done {
            assert!(notes > 1, "{notes}");
            break;
        }
    }
}
