//! Openings that are cut while they empty the lane that the last session left: the next one finds
//! everything, and goes on as after any cut.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Bench, files_in,
    hook_disk::{Doing, HookDisk},
    tiny,
};
use forebay_pool::ClaimOptions;
use forebay_store::{Durability, Store, StoreOptions};
use std::{
    fs, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

fn options(variant: Durability) -> StoreOptions {
    tiny(variant).gc(false)
}

fn put(store: &Store, keys: std::ops::Range<u32>) {
    for i in keys {
        store.put(&i.to_be_bytes(), &[i as u8; 1000]).unwrap();
    }
}

fn check(store: &Store, keys: std::ops::Range<u32>) {
    for i in keys {
        let found = store.get(&i.to_be_bytes()).unwrap();
        assert!(found.expect("a key is gone") == [i as u8; 1000], "key {i}");
    }
}

/// A disk on which so many renames and removals are done, and all that follow fail.
fn disk_that_fails_after(steps: usize) -> Arc<HookDisk> {
    let done = AtomicUsize::new(0);
    HookDisk::new(move |doing| match doing {
        Doing::Rename(_) | Doing::Remove(_) if done.fetch_add(1, SeqCst) >= steps => {
            Err(io::Error::from_raw_os_error(5))
        }
        _ => Ok(()),
    })
}

/// Each time: a session is killed with something in its lane, `meanwhile` is done, an opening
/// without a lane is cut one step later than the time before, and then `then` is done. Until it is
/// not cut at all.
fn cut_at_each_step(meanwhile: impl Fn(&Bench), then: impl Fn(&Bench)) {
    for steps in 0.. {
        let bench = Bench::new();
        let store = bench.open(&options(Durability::DOUBLE));
        put(&store, 0..5);
        drop(store);
        meanwhile(&bench);
        let disk = disk_that_fails_after(steps);
        let opened = options(Durability::Fsync).open_on(disk, None, bench.path(), &bench.pool);
        let is_done = opened.is_ok();
        drop(opened);
        then(&bench);
        if is_done {
            assert!(steps > 2, "{steps}");
            break;
        }
    }
}

/// Each opening that claims the lane gives the session a higher number, and these were cut right
/// then.
fn openings_before(bench: &Bench) {
    let owner = bench.pool.lanes()[0].owner;
    let options = ClaimOptions::new().epoch_above(100);
    drop(bench.pool.claim(owner, &options).unwrap());
}

/// Promise (store): An opening that is cut at any step while it empties a lane costs nothing
/// acknowledged later, and leaves no large value's file for ever.
#[test]
fn writes_after_an_opening_that_was_cut_survive_a_kill() {
    cut_at_each_step(openings_before, |bench| {
        let store = bench.open(&options(Durability::Fsync));
        check(&store, 0..5);
        put(&store, 5..10);
        drop(store);
        check(&bench.open(&options(Durability::Fsync)), 0..10);
    });
}

/// Promise: as `writes_after_an_opening_that_was_cut_survive_a_kill`.
#[test]
fn writes_after_a_cut_openings_pool_was_given_up_survive_a_kill() {
    cut_at_each_step(openings_before, |bench| {
        let salvage = options(Durability::Fsync).salvage(true);
        let store = salvage.open(bench.path(), None).unwrap();
        put(&store, 5..10);
        drop(store);
        let store = options(Durability::Fsync).open(bench.path(), None).unwrap();
        check(&store, 5..10);
    });
}

/// Promise: as `writes_after_an_opening_that_was_cut_survive_a_kill`.
#[test]
fn a_large_value_cut_by_a_power_cut_takes_no_space_for_ever() {
    let large = |bench: &Bench| bench.path().join("large");
    let power_cut = |bench: &Bench| {
        fs::write(large(bench).join("0000000000000007.val"), [0; 100_000]).unwrap();
    };
    cut_at_each_step(power_cut, |bench| {
        drop(bench.open(&options(Durability::Fsync)));
        let store = bench.open(&options(Durability::Fsync));
        store.gc().unwrap();
        assert_eq!(files_in(&large(bench)), [] as [PathBuf; 0]);
    });
}
