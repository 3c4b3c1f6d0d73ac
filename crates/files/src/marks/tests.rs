#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::cell::Cell;

/// A directory, and two pools' paths.
fn place() -> (tempfile::TempDir, File, [PathBuf; 2]) {
    let home = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
    let pools = ["a", "b"].map(|name| home.path().join(name));
    for pool in &pools {
        std::fs::write(pool, "").unwrap();
    }
    let directory = File::open(home.path()).unwrap();
    (home, directory, pools)
}

/// Promise: as `a_directory_names_the_pool_with_its_records_until_recovery`.
#[test]
fn a_pool_used_again_while_its_mark_is_taken_out_keeps_the_mark() {
    let (_home, directory, [pool, _]) = place();
    change(&directory, &pool, true).unwrap();
    // A run of the same pool claims its lane, and finds the mark there, between the two looks.
    let looks = Cell::new(0);
    let is_empty = || looks.replace(looks.get() + 1) == 0;
    take_out(&directory, &pool, is_empty).unwrap();
    assert_eq!(
        of_directory(&directory).unwrap(),
        std::slice::from_ref(&pool)
    );
    take_out(&directory, &pool, || true).unwrap();
    assert!(of_directory(&directory).unwrap().is_empty());
}

#[test]
fn a_mark_that_is_there_waits_for_no_lock_of_the_directory() {
    let (home, directory, pools) = place();
    for pool in &pools {
        change(&directory, pool, true).unwrap();
    }
    let other = File::open(home.path()).unwrap();
    assert!(lock(&other));
    let began = std::time::Instant::now();
    for _ in 0..100 {
        change(&directory, &pools[0], true).unwrap();
    }
    // Had the lock been waited for, it would have been 25 seconds.
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(of_directory(&directory).unwrap(), pools);
}
