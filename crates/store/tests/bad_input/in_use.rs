//! A store that is in use, by this process or another, is refused until it is free.

use crate::{
    check, closed,
    common::{self, contents},
    quiet,
};
use forebay_store::{Durability, StoreError};
use std::{fs::OpenOptions, path::PathBuf, process::Command};

/// Promise: as `a_directory_that_is_no_store_stays_exactly_as_it_is`.
#[test]
fn a_store_or_its_lane_in_use_is_refused_until_it_is_free() {
    let bench = closed();
    let store = bench.open(&quiet(Durability::DOUBLE));
    let error = quiet(Durability::DOUBLE)
        .open(bench.path(), &bench.pool)
        .err()
        .unwrap();
    assert!(
        matches!(error, StoreError::InUse { here: true, .. }),
        "{error}"
    );
    let here = "open in this process already; share that Store";
    assert!(error.to_string().contains(here), "{error}");
    // The same store's lane, by way of a copy of its directory.
    let copy = bench.dir.path().join("copy");
    common::copy_dir(&bench.path(), &copy);
    let before = contents(&copy);
    let error = quiet(Durability::DOUBLE)
        .open(&copy, &bench.pool)
        .err()
        .unwrap();
    assert!(matches!(error, StoreError::Pool(_)), "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
    assert!(contents(&copy) == before);
    check(&store);
    drop(store);
    check(&bench.open(&quiet(Durability::DOUBLE)));
}

#[test]
fn a_lock_inherited_by_a_starting_process_keeps_no_store_closed() {
    let bench = closed();
    let lock = OpenOptions::new()
        .write(true)
        .open(bench.path().join("LOCK"))
        .unwrap();
    lock.try_lock().unwrap();
    // It has the lock for a while, as a fork of its owner has until it executes its program.
    let mut started = Command::new("sleep")
        .arg("0.05")
        .stdin(lock)
        .spawn()
        .unwrap();
    check(&bench.open(&quiet(Durability::DOUBLE)));
    assert!(started.wait().unwrap().success());
}

const CHILD: &str = "STORE_OF_THE_PARENT";

/// Promise: as `a_directory_that_is_no_store_stays_exactly_as_it_is`.
#[test]
fn a_store_that_another_process_has_open_is_refused() {
    let bench = closed();
    let store = quiet(Durability::Fsync).open(bench.path(), None).unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "in_use::in_another_process"])
        .env(CHILD, bench.path())
        .status()
        .unwrap();
    assert!(status.success());
    check(&store);
}

#[test]
#[ignore = "run by a_store_that_another_process_has_open_is_refused"]
fn in_another_process() {
    let Some(path) = std::env::var_os(CHILD) else {
        return;
    };
    let path = PathBuf::from(path);
    let before = contents(&path);
    let error = quiet(Durability::Fsync).open(&path, None).err().unwrap();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(contents(&path) == before);
}
