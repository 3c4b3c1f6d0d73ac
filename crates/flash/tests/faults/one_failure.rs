//! Whichever operation of a device fails once, nothing is lost that was synced, and everything goes
//! on.

use crate::{
    LENGTH, machine, options, read,
    support::{devices::World, session},
    write,
};
use forebay_flash::{Cache, CachedFile};
use std::{ops::ControlFlow, sync::atomic::Ordering::SeqCst};

/// Some of everything: 30 writes, syncs, reads and a flush.
fn workload(world: &World, cache: &Cache, file: &CachedFile) -> (Vec<u64>, Vec<u64>) {
    let (mut newest, mut synced) = (vec![0; LENGTH], vec![0; LENGTH]);
    for n in 1..=120u64 {
        let page = (n * 7 % LENGTH as u64) as u32;
        if write(cache, file, page, n).is_ok() {
            newest[page as usize] = n;
        }
        if n % 8 == 0 && cache.sync(file).is_ok() {
            synced.clone_from(&newest);
        }
        if n % 5 == 0 {
            let page = (n % LENGTH as u64) as u32;
            if let Ok(found) = read(world, cache, file, page) {
                assert_eq!(found, newest[page as usize], "page {page} after {n}");
            }
        }
        if n == 60 {
            let _ = cache.flush(|_| ControlFlow::Continue(()));
        }
        let _ = cache.step();
    }
    (newest, synced)
}

/// Promise: as `whatever_fails_before_the_power_does_nothing_synced_is_lost`.
#[test]
fn nothing_is_lost_and_all_goes_on_whichever_operation_fails() {
    let (world, cache, file) = machine();
    let before = world.operations.load(SeqCst);
    workload(&world, &cache, &file);
    let operations = world.operations.load(SeqCst) - before;
    assert!(operations > 100);
    for at in 1..=operations {
        let (world, cache, file) = machine();
        world.fail_at.store(before + at, SeqCst);
        let (newest, synced) = workload(&world, &cache, &file);
        for (page, newest) in (0..).zip(&newest) {
            assert_eq!(
                read(&world, &cache, &file, page).unwrap(),
                *newest,
                "operation {at}"
            );
        }
        // A kill, not a power cut: what was written may be there, what was synced must be.
        drop(cache);
        let cache = session::open(&world, &options()).unwrap();
        for (page, synced) in (0..).zip(&synced) {
            let found = read(&world, &cache, &file, page).unwrap();
            assert!(
                found >= *synced,
                "page {page} is {found}, synced was {synced}; operation {at}"
            );
        }
    }
}
