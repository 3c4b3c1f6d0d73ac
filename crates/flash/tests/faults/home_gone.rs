//! A home that fails, or tears a page: the queue stops before memory fills, loses nothing, and
//! flash repairs what was torn.

use crate::{
    LENGTH, machine, options, read,
    support::{
        model::{PAGE, version_of},
        session,
    },
    write,
};
use forebay_flash::Watermarks;
use std::{ops::ControlFlow, sync::atomic::Ordering::SeqCst};

/// Promise (flash): The cache refuses writers before pages that neither device takes fill the
/// memory.
#[test]
fn writers_are_refused_before_untaken_pages_fill_memory() {
    let (world, cache, file) = machine();
    // The length is known: what is asked of a home from now on is to take pages.
    write(&cache, &file, 0, 1).unwrap();
    world.home_gone.store(true, SeqCst);
    world.flash_gone.store(true, SeqCst);
    let refused = (1..1000).find(|n| write(&cache, &file, (n % 12) as u32, *n).is_err());
    let most = u64::from(options().group_pages * (options().groups_unsynced_max + 1));
    assert!(refused.is_some_and(|n| n <= most + 1), "{refused:?}");
}

/// Promise: as `whatever_fails_before_the_power_does_nothing_synced_is_lost`.
#[test]
fn a_home_that_fails_stops_the_queue_and_loses_nothing() {
    let (world, cache, file) = machine();
    write(&cache, &file, 0, 1).unwrap();
    world.home_gone.store(true, SeqCst);
    let mut last = vec![0; LENGTH];
    last[0] = 1;
    let mut refused = None;
    for n in 2..200u64 {
        match write(&cache, &file, (n % LENGTH as u64) as u32, n) {
            Ok(()) => last[n as usize % LENGTH] = n,
            Err(e) => {
                refused = Some(e.to_string());
                break;
            }
        }
    }
    let refused = refused.unwrap();
    assert!(
        refused.starts_with("t0.ibd: writing pages home"),
        "{refused}"
    );
    world.home_gone.store(false, SeqCst);
    for (page, version) in (0..).zip(&last) {
        assert_eq!(read(&world, &cache, &file, page).unwrap(), *version);
    }
    cache.sync(&file).unwrap();
    let _ = cache.empty(|_| ControlFlow::Continue(())).unwrap();
    for (page, version) in last.iter().enumerate() {
        assert_eq!(
            version_of(&world.home((0, 1), page * PAGE, PAGE)),
            Some(*version)
        );
    }
}

/// Promise (flash): A home write tears no page, without a doublewrite buffer: flash keeps the page
/// until the home's sync returned.
#[test]
fn a_page_that_was_torn_at_home_is_repaired_from_flash() {
    let (world, cache, file) = machine();
    for page in 0..8 {
        write(&cache, &file, page, u64::from(page) + 10).unwrap();
    }
    cache.sync(&file).unwrap();
    // Of the first write home a sector arrives.
    world.home_gone.store(true, SeqCst);
    assert!(cache.flush(|_| ControlFlow::Continue(())).is_err());
    assert_eq!(
        version_of(&world.home((0, 1), 0, PAGE)),
        None,
        "a torn page"
    );
    world.home_gone.store(false, SeqCst);
    drop(cache);
    let cache = session::open(&world, &options()).unwrap();
    assert_eq!(read(&world, &cache, &file, 0).unwrap(), 10);
    let _ = cache.flush(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(version_of(&world.home((0, 1), 0, PAGE)), Some(10));
}

#[test]
fn a_page_lost_while_homes_fail_has_a_slot_kept_for_it() {
    let (world, cache, file) = machine();
    let kept = u64::from(options().second_chances_max) + 1;
    let pages = (cache.stats().slots - kept) as u32;
    for page in 0..pages {
        write(&cache, &file, page, u64::from(page) + 1).unwrap();
    }
    cache.sync(&file).unwrap();
    cache.set_watermarks(Watermarks { low: 0, high: 0 });
    let is_whole = |page| {
        let found = read(&world, &cache, &file, page).unwrap();
        assert_eq!(found, u64::from(page) + 1);
    };
    // Of the pages at the front the first one is to go home, and the others are to have second
    // chances, as often as it is tried.
    world.home_gone.store(true, SeqCst);
    for read in [&[1, 2][..], &[3]] {
        read.iter().for_each(|&page| is_whole(page));
        cache.step().unwrap_err();
    }
    assert!(cache.stats().second_chances >= 2);
    assert_eq!(world.damage(1), 1);
    cache.step().unwrap_err();
    world.home_gone.store(false, SeqCst);
    cache.step().unwrap();
    let lost: Vec<String> = (cache.lost_pages().iter())
        .map(ToString::to_string)
        .collect();
    assert_eq!(lost, ["page 0 of t0.ibd"]);
    (1..pages).for_each(is_whole);
}
