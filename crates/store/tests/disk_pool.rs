//! A store whose pool lies on a disk: real files, threads, commits by hand, a disk that fails.
//! Power cuts: `crash/`; kills: `kill.rs`.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{new_disk, tiny, within};
use forebay_pool::{Pool, PoolOptions, failpoint, media::SimMedia};
use forebay_store::{Batch, Durability, Store, StoreError, StoreOptions};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};
use tempfile::TempDir;

const _: () = assert!(failpoint::BUILT_IN, "built without `failpoints`");

fn new_pool() -> (TempDir, Pool) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = PoolOptions::new().size(4 << 20).segment_size(64 << 10);
    let pool = options.on_disk(true).create(dir.path().join("pool"));
    (dir, pool.unwrap())
}

/// The pool as another process finds it: nothing of this one's memory is in it.
fn reopened(dir: &TempDir) -> Pool {
    PoolOptions::new().open(dir.path().join("pool")).unwrap()
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// How many numbers from 0 on have their value; fails if a later one has.
fn prefix(store: &Store, count: u32) -> u32 {
    let has = |number: u32| {
        let value = store.get(&key(number)).unwrap();
        assert!(value.as_deref().is_none_or(|v| v == [number as u8; 500]));
        value.is_some()
    };
    let first = (0..count).find(|number| !has(*number)).unwrap_or(count);
    assert!(
        (first..count).all(|number| !has(number)),
        "a gap at {first}"
    );
    first
}

fn put(store: &Store, number: u32) -> Result<(), StoreError> {
    store.put(&key(number), &[number as u8; 500])
}

/// Promise: as `every_write_committed_to_a_disk_survives_two_power_cuts`.
#[test]
fn returned_puts_survive_a_crash_in_every_buffered_variant() {
    for variant in [
        Durability::SINGLE,
        Durability::DOUBLE,
        Durability::Buffered(5),
    ] {
        let (dir, pool) = new_pool();
        let options = tiny(variant);
        let path = dir.path().join("store");
        let mut done = 0;
        for _ in 0..3 {
            let pool = reopened(&dir);
            let store = options.open(&path, &pool).unwrap();
            assert_eq!(prefix(&store, done + 10), done);
            for number in done..done + 150 {
                put(&store, number).unwrap();
            }
            done += 150;
            assert!(store.stats().survives.contains("if the disk keeps"));
        }
        let store = options.open(&path, &pool).unwrap();
        assert_eq!(prefix(&store, done), done);
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        store.close().unwrap();
        // The pool is not needed any more.
        let store = tiny(Durability::Fsync).open(&path, None).unwrap();
        assert_eq!(prefix(&store, done), done);
    }
}

/// Promise (store): A crash with `commit_puts(false)` leaves everything that was committed and, of
/// each writer's later operations, the first few or none.
#[test]
fn a_crash_leaves_committed_puts_and_a_stretch_behind_them() {
    let (dir, pool) = new_pool();
    let path = dir.path().join("store");
    let options = tiny(Durability::Buffered(8)).commit_puts(false);
    let store = options.open(&path, &pool).unwrap();
    assert!(store.stats().survives.contains("once it is committed"));
    for number in 0..20 {
        put(&store, number).unwrap();
    }
    store.commit().unwrap();
    let mut batch = Batch::new();
    for number in 20..25 {
        batch.put(&key(number), &[number as u8; 500]).unwrap();
    }
    store.write(&batch).unwrap();
    drop(store);
    drop(pool);
    let pool = reopened(&dir);
    let store = options.open(&path, &pool).unwrap();
    assert_eq!(prefix(&store, 25), 20, "nothing that was not committed");
    // So many that segments fill, which are committed on their way to the files.
    for number in 20..400 {
        put(&store, number).unwrap();
    }
    let begun = store.stats().log_tail - (100 << 10);
    within(Duration::from_secs(60), "draining", {
        let store = Arc::new(store);
        move || {
            while store.stats().log_drained < begun {
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    drop(pool);
    let pool = reopened(&dir);
    let store = options.open(&path, &pool).unwrap();
    let found = prefix(&store, 400);
    assert!(found >= 100, "{found}");
    for number in found..400 {
        put(&store, number).unwrap();
    }
    store.flush().unwrap();
    drop(store);
    drop(pool);
    let pool = reopened(&dir);
    let store = options.open(&path, &pool).unwrap();
    assert_eq!(prefix(&store, 400), 400);
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// Promise (store): A close makes every put durable, also with `commit_puts(false)`.
#[test]
fn what_was_put_without_a_commit_is_there_after_a_close() {
    let (dir, pool) = new_pool();
    let path = dir.path().join("store");
    let options = tiny(Durability::Buffered(8));
    let store = options
        .clone()
        .commit_puts(false)
        .open(&path, &pool)
        .unwrap();
    for number in 0..50 {
        put(&store, number).unwrap();
    }
    store.close().unwrap();
    drop(pool);
    let store = options.open(&path, &reopened(&dir)).unwrap();
    assert_eq!(prefix(&store, 50), 50);
}

#[test]
fn threads_share_their_commits_and_each_finds_what_it_put() {
    const THREADS: u32 = 8;
    const EACH: u32 = 40;
    let (dir, pool) = new_pool();
    let path = dir.path().join("store");
    let store = tiny(Durability::DOUBLE).open(&path, &pool).unwrap();
    let begin = store.stats().log_tail;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for number in 0..EACH {
                    put(store, thread * EACH + number).unwrap();
                }
            });
        }
    });
    // Each commit ends a page of the log.
    let pages = (store.stats().log_tail - begin) / 4096;
    assert!(pages < u64::from(THREADS * EACH), "{pages} pages");
    drop(store);
    drop(pool);
    let store = tiny(Durability::DOUBLE)
        .open(&path, &reopened(&dir))
        .unwrap();
    assert_eq!(prefix(&store, THREADS * EACH), THREADS * EACH);
}

#[test]
fn what_commits_leave_empty_is_garbage_and_is_collected() {
    const PUTS: u32 = 3000;
    let dir = tempfile::tempdir().unwrap();
    let sim = new_disk(64 << 10);
    sim.stop_recording();
    let pool = common::format(sim, 64 << 10);
    let options = tiny(Durability::DOUBLE).gc(false);
    let store = options.open(dir.path(), &pool).unwrap();
    for number in 0..PUTS {
        put(&store, number).unwrap();
    }
    store.flush().unwrap();
    let before = store.stats().value_log_bytes;
    assert!(before > u64::from(PUTS) * 4096, "a page each: {before}");
    store.gc().unwrap();
    store.flush().unwrap();
    let after = store.stats().value_log_bytes;
    assert!(after < before / 3, "{before} bytes before, {after} after");
    assert_eq!(prefix(&store, PUTS), PUTS);
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// A store on a simulated disk that fails after so many writes: how many puts it took, and the
/// disk.
fn until_it_fails(writes: u64, options: &StoreOptions, path: &Path) -> (u32, Arc<SimMedia>) {
    let sim = new_disk(64 << 10);
    let pool = common::format(Arc::clone(&sim), 64 << 10);
    let store = options.open(path, &pool).unwrap();
    sim.fail_after(writes);
    let mut done = 0;
    let large = vec![7; 40_000];
    let error = loop {
        match put(&store, done) {
            Ok(()) => done += 1,
            Err(error) => break error,
        }
        if done % 50 == 0
            && let Err(error) = store.put(b"large", &large)
        {
            break error;
        }
        assert!(done < 10_000, "it does not fail");
    };
    let told = |error: &StoreError| {
        let why = error.to_string();
        assert!(why.contains("Input/output error"), "{why}");
    };
    told(&error);
    // From now on nothing is taken, and what is there is read.
    let refused = put(&store, 20_000).unwrap_err();
    assert!(
        matches!(
            refused,
            StoreError::ReadOnly { .. } | StoreError::IndexStalled { .. }
        ),
        "{refused}"
    );
    assert!(store.commit().is_err());
    assert!(
        store
            .stats()
            .trouble
            .unwrap()
            .contains("Input/output error")
    );
    for number in 0..done {
        assert!(store.get(&key(number)).unwrap().is_some());
    }
    told(&store.close().unwrap_err());
    (done, sim)
}

/// Promise (store): A store whose pool's disk fails says so, refuses later puts and goes on
/// reading, and its next opening has everything acknowledged.
/// Promise: as `a_pool_file_on_a_failing_disk_keeps_what_was_acknowledged`.
#[test]
fn a_store_whose_pools_disk_fails_loses_nothing_and_says_why() {
    within(Duration::from_secs(240), "failing disks", || {
        let options = tiny(Durability::Buffered(6));
        for writes in (1..30).chain((30..300).step_by(37)) {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let path = dir.path().join("store");
            let (done, sim) = until_it_fails(writes, &options, &path);
            for arrived in [false, true] {
                let images = sim.crash_images();
                let image = images.at(images.points() - 1, || arrived);
                let copy = dir.path().join(format!("copy {arrived}"));
                common::copy_dir(&path, &copy);
                let sim = Arc::new(SimMedia::disk(image));
                let pool = PoolOptions::new().open_on("test pool", sim).unwrap();
                let store = options.open(&copy, &pool).unwrap();
                let found = prefix(&store, done + 2);
                assert!(found >= done, "{writes} writes: {found} of {done}");
                assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
                put(&store, found).unwrap();
            }
        }
    });
}

const CHILD: &str = "FOREBAY_STORE_DISK_TEST";

#[test]
#[ignore = "the process whose disk fails; run by the test below"]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else {
        return;
    };
    let dir = PathBuf::from(dir);
    let pool = PoolOptions::new().open(dir.join("pool")).unwrap();
    let store = tiny(Durability::DOUBLE)
        .open(dir.join("store"), &pool)
        .unwrap();
    for number in 0..30 {
        put(&store, number).unwrap();
    }
    std::fs::write(dir.join("disk-write"), "5").unwrap();
    let error = put(&store, 30).unwrap_err();
    assert!(matches!(error, StoreError::NotCommitted { .. }), "{error}");
    assert_eq!(
        store.get(&key(29)).unwrap().as_deref(),
        Some(&[29; 500][..])
    );
    assert!(store.close().is_err());
}

/// Promise (store): A pool's disk that fails at any write costs nothing that a store acknowledged.
#[test]
fn a_pool_file_on_a_failing_disk_keeps_what_was_acknowledged() {
    let (dir, pool) = new_pool();
    drop(pool);
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "child"])
        .env(CHILD, dir.path())
        .env("FOREBAY_TEST_FAULTS", dir.path())
        .status()
        .unwrap();
    assert!(status.success());
    let pool = reopened(&dir);
    let store = tiny(Durability::DOUBLE)
        .open(dir.path().join("store"), &pool)
        .unwrap();
    assert_eq!(prefix(&store, 31), 30);
    assert!(store.stats().trouble.is_none());
    put(&store, 30).unwrap();
}

#[test]
fn a_resident_store_on_a_disk_keeps_its_puts_over_crashes() {
    let (dir, pool) = new_pool();
    drop(pool);
    let path = dir.path().join("store");
    let options = tiny(Durability::Buffered(32)).resident(true);
    for done in (0..600).step_by(150) {
        let pool = reopened(&dir);
        let store = options.open(&path, &pool).unwrap();
        assert!(store.is_resident());
        assert_eq!(prefix(&store, done + 10), done);
        for number in done..done + 150 {
            put(&store, number).unwrap();
        }
        assert!(store.stats().survives.contains("if the disk keeps"));
    }
    let store = options.open(&path, &reopened(&dir)).unwrap();
    assert_eq!(prefix(&store, 600), 600);
    store.close().unwrap();
    let vlog = path.join("vlog");
    assert_eq!(std::fs::read_dir(vlog).unwrap().count(), 0);
    // In turn with a store that drains.
    let pool = reopened(&dir);
    let store = tiny(Durability::DOUBLE).open(&path, &pool).unwrap();
    assert_eq!(prefix(&store, 600), 600);
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn commits_beside_a_collection_leave_a_resident_store_room() {
    let (dir, pool) = new_pool();
    let path = dir.path().join("store");
    // Few segments, most of them live: the collector copies without end, and each commit meanwhile
    // ends a page.
    let options = tiny(Durability::Buffered(12))
        .resident(true)
        .commit_puts(false);
    let store = Arc::new(options.open(&path, &pool).unwrap());
    let live = 450;
    let over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let (store, over) = (&store, &over);
        scope.spawn(move || {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                store.commit().unwrap();
            }
        });
        for round in 0..20 {
            // One in four is put once, and copied whenever its segment is the oldest.
            for number in (0..live).filter(|number| round == 0 || number % 4 > 0) {
                put(store, number).unwrap();
            }
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(store.stats().gc_relocated_bytes > 0);
    assert_eq!(prefix(&store, live), live);
    store.commit().unwrap();
    drop(store);
    drop(pool);
    let store = options.open(&path, &reopened(&dir)).unwrap();
    assert_eq!(prefix(&store, live), live);
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_resident_store_on_a_disk_needs_a_segment_more() {
    let (dir, pool) = new_pool();
    let options = |buffers| tiny(Durability::Buffered(buffers)).resident(true);
    let path = dir.path().join("store");
    let why = options(4)
        .open(&path, &pool)
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(why.contains("N from 5 to 64"), "{why}");
    assert!(!path.exists());
    put(&options(5).open(&path, &pool).unwrap(), 1).unwrap();
}
