//! Devices that fail and pages that are damaged: nothing is lost that was synced, nothing stale or torn is ever served, and errors name what
//! they are about.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{
    Cache, CachedFile, Contents, Enqueued, FlashError, Options, Read, WritePolicy, layout,
};
use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering::SeqCst},
};
use support::{
    devices::World,
    model::{PAGE, page_of, version_of},
    session::{self, new_contents},
};

const SLOTS: u64 = 40;
/// Pages of the file: more than there are slots.
const LENGTH: usize = 48;

fn options() -> Options {
    Options {
        group_pages: 4,
        second_chances_max: 2,
        contents: Contents::All,
        bypass_reads: 0,
        ..Options::default()
    }
}

fn machine() -> (Arc<World>, Cache, Arc<CachedFile>) {
    let world = World::new(new_contents(SLOTS, 2));
    world.set_length((0, 1), LENGTH * PAGE);
    let cache = session::open(&world, &options()).unwrap();
    let file = session::register(&cache, (0, 1)).unwrap();
    (world, cache, file)
}

fn write(cache: &Cache, file: &CachedFile, page: u32, version: u64) -> Result<(), FlashError> {
    let enqueued = cache.enqueue(file, page, &page_of(version))?;
    assert!(matches!(enqueued, Enqueued::Cached));
    Ok(())
}

/// The version that a reader gets.
fn read(world: &World, cache: &Cache, file: &CachedFile, page: u32) -> Result<u64, FlashError> {
    session::read(world, cache, file, page).map(|bytes| version_of(&bytes).expect("a whole page"))
}

/// Lets so many versions of page 11 come in, synced.
fn turn(cache: &Cache, file: &CachedFile, count: u64, version: &mut u64) {
    for _ in 0..count {
        *version += 1;
        write(cache, file, 11, *version).unwrap();
    }
    cache.sync(file).unwrap();
}

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

#[test]
fn whichever_operation_fails_once_nothing_is_lost_and_all_goes_on() {
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

#[test]
fn while_flash_is_gone_clean_pages_are_read_at_home_and_dirty_ones_are_named() {
    let (world, cache, file) = machine();
    write(&cache, &file, 3, 33).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(read(&world, &cache, &file, 4).unwrap(), 0);
    cache.sync(&file).unwrap();
    assert_eq!(cache.stats().pages, 2, "one dirty, one clean");
    world.flash_gone.store(true, SeqCst);
    let e = read(&world, &cache, &file, 3).unwrap_err();
    assert!(
        e.to_string()
            .starts_with("page 3 of t0.ibd could not be read"),
        "{e}"
    );
    let mut bytes = vec![0; PAGE];
    assert!(matches!(
        cache.read(&file, 4, &mut bytes),
        Ok(Read::Miss(_))
    ));
    write(&cache, &file, 5, 55).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(version_of(&world.home((0, 1), 5 * PAGE, PAGE)), Some(55));
    assert_eq!(read(&world, &cache, &file, 5).unwrap(), 55, "at home");
    let trouble = cache.flash_trouble().unwrap();
    assert!(trouble.contains("flash simulated: "), "{trouble}");
    let flushed = cache.flush(|_| ControlFlow::Continue(())).unwrap();
    let named: Vec<_> = flushed.lost.iter().map(ToString::to_string).collect();
    assert_eq!(
        (flushed.pages, named),
        (0, vec!["page 3 of t0.ibd".to_owned()])
    );
    let e = cache.empty(|_| ControlFlow::Continue(())).unwrap_err();
    assert!(
        matches!(e, FlashError::DamagedPages { count: 1, .. }),
        "{e}"
    );
    assert_eq!(version_of(&world.home((0, 1), 3 * PAGE, PAGE)), Some(0));
    world.flash_gone.store(false, SeqCst);
    write(&cache, &file, 6, 66).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(read(&world, &cache, &file, 3).unwrap(), 33);
    assert_eq!(read(&world, &cache, &file, 5).unwrap(), 55);
    assert_eq!(read(&world, &cache, &file, 6).unwrap(), 66);
}

#[test]
fn flash_that_takes_nothing_is_written_around_and_is_used_again_when_it_takes_something() {
    let options = Options {
        flash_retry_ms: 0,
        ..options()
    };
    let world = World::new(new_contents(SLOTS, 2));
    world.set_length((0, 1), LENGTH * PAGE);
    let cache = session::open(&world, &options).unwrap();
    let file = session::register(&cache, (0, 1)).unwrap();
    write(&cache, &file, 1, 1).unwrap();
    cache.sync(&file).unwrap();
    world.flash_gone.store(true, SeqCst);
    write(&cache, &file, 1, 2).unwrap();
    write(&cache, &file, 2, 3).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(cache.stats().around_pages, 2);
    // A kill: what came around is found at home, not what flash had before it.
    drop((cache, file));
    world.flash_gone.store(false, SeqCst);
    let cache = session::open(&world, &options).unwrap();
    let file = session::register(&cache, (0, 1)).unwrap();
    assert_eq!(cache.stats().dirty_pages, 0);
    assert_eq!(read(&world, &cache, &file, 1).unwrap(), 2);
    assert_eq!(read(&world, &cache, &file, 2).unwrap(), 3);
    assert_eq!(cache.flash_trouble(), None);
    write(&cache, &file, 1, 4).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(version_of(&world.home((0, 1), PAGE, PAGE)), Some(2));
    assert_eq!(read(&world, &cache, &file, 1).unwrap(), 4);
}

#[test]
fn however_long_flash_takes_nothing_writers_go_on_and_their_pages_are_durable() {
    let (world, cache, file) = machine();
    write(&cache, &file, 1, 1).unwrap();
    cache.sync(&file).unwrap();
    let _ = cache.flush(|_| ControlFlow::Continue(())).unwrap();
    world.flash_gone.store(true, SeqCst);
    for n in 2..5000u64 {
        write(&cache, &file, (n % 40) as u32, n).unwrap();
        if n % 3 == 0 {
            cache.sync(&file).unwrap();
        }
        cache.step().unwrap();
    }
    cache.sync(&file).unwrap();
    let check = |cache: &Cache, file: &CachedFile| {
        for n in 4960..5000u64 {
            let page = (n % 40) as u32;
            assert_eq!(read(&world, cache, file, page).unwrap(), n);
        }
    };
    check(&cache, &file);
    drop((cache, file));
    // Opened while flash can be read again, and used: what comes in now is behind all that went around.
    world.flash_gone.store(false, SeqCst);
    let cache = session::open(&world, &options()).unwrap();
    let file = session::register(&cache, (0, 1)).unwrap();
    check(&cache, &file);
    write(&cache, &file, 7, 6000).unwrap();
    cache.sync(&file).unwrap();
    drop((cache, file));
    let cache = session::open(&world, &options()).unwrap();
    let file = session::register(&cache, (0, 1)).unwrap();
    assert_eq!(read(&world, &cache, &file, 7).unwrap(), 6000);
}

#[test]
fn after_pages_went_around_flash_takes_pages_again_in_the_same_session() {
    let options = Options {
        flash_retry_ms: 0,
        ..options()
    };
    let world = World::new(new_contents(SLOTS, 2));
    world.set_length((0, 1), LENGTH * PAGE);
    let cache = session::open(&world, &options).unwrap();
    let file = session::register(&cache, (0, 1)).unwrap();
    for round in 0..6u64 {
        world.flash_gone.store(round % 2 == 0, SeqCst);
        for n in 0..100u64 {
            write(&cache, &file, (n % 40) as u32, round * 100 + n + 1).unwrap();
            if n % 7 == 0 {
                cache.sync(&file).unwrap();
            }
        }
        // Nothing is dirty when flash goes.
        let _ = cache.flush(|_| ControlFlow::Continue(())).unwrap();
    }
    drop((cache, file));
    let cache = session::open(&world, &options).unwrap();
    let file = session::register(&cache, (0, 1)).unwrap();
    for n in 60..100u64 {
        let found = read(&world, &cache, &file, (n % 40) as u32).unwrap();
        assert_eq!(found, 500 + n + 1);
    }
}

#[test]
fn writers_are_refused_before_memory_fills_with_what_neither_device_takes() {
    let (world, cache, file) = machine();
    // The length is known: what is asked of a home from now on is to take pages.
    write(&cache, &file, 0, 1).unwrap();
    world.home_gone.store(true, SeqCst);
    world.flash_gone.store(true, SeqCst);
    let refused = (1..1000).find(|n| write(&cache, &file, (n % 12) as u32, *n).is_err());
    let most = u64::from(options().group_pages * (options().groups_unsynced_max + 1));
    assert!(refused.is_some_and(|n| n <= most + 1), "{refused:?}");
}

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

#[test]
fn a_damaged_clean_page_is_read_at_home() {
    let (world, cache, file) = machine();
    write(&cache, &file, 3, 33).unwrap();
    let _ = cache.flush(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(world.damage(33), 1);
    assert_eq!(read(&world, &cache, &file, 3).unwrap(), 33);
    assert_eq!(cache.stats().damaged, 1);
    // It was read at home and came in anew.
    assert_eq!(read(&world, &cache, &file, 3).unwrap(), 33);
    assert_eq!(cache.stats().damaged, 1);
    let mut version = 100;
    turn(&cache, &file, 2 * SLOTS, &mut version);
    assert_eq!(read(&world, &cache, &file, 3).unwrap(), 33);
}

#[test]
fn a_damaged_dirty_page_is_named_and_never_served_until_it_is_written_again() {
    let (world, cache, file) = machine();
    write(&cache, &file, 3, 32).unwrap();
    write(&cache, &file, 3, 33).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(world.damage(33), 1);
    let named = |e: FlashError| {
        assert!(
            e.to_string().starts_with("page 3 of t0.ibd is damaged"),
            "{e}"
        )
    };
    named(read(&world, &cache, &file, 3).unwrap_err());
    // The queue turns, and it is not forgotten; nor by a kill.
    let mut version = 100;
    turn(&cache, &file, 3 * SLOTS, &mut version);
    named(read(&world, &cache, &file, 3).unwrap_err());
    assert_eq!(cache.stats().lost_pages, 1);
    assert_eq!(
        version_of(&world.home((0, 1), 3 * PAGE, PAGE)),
        Some(0),
        "nothing went home"
    );
    drop(cache);
    let cache = session::open(&world, &options()).unwrap();
    named(read(&world, &cache, &file, 3).unwrap_err());
    let e = cache.empty(|_| ControlFlow::Continue(())).unwrap_err();
    assert!(
        e.to_string().contains("beginning with page 3 of t0.ibd"),
        "{e}"
    );
    turn(&cache, &file, 3 * SLOTS, &mut version);
    // Written again, it is whole.
    write(&cache, &file, 3, 34).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(read(&world, &cache, &file, 3).unwrap(), 34);
    let _ = cache.empty(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(version_of(&world.home((0, 1), 3 * PAGE, PAGE)), Some(34));
}

#[test]
fn a_lost_page_can_be_given_up_and_does_not_keep_the_cache_from_being_emptied() {
    let (world, cache, file) = machine();
    write(&cache, &file, 3, 33).unwrap();
    cache.sync(&file).unwrap();
    world.damage(33);
    cache.set_policy(WritePolicy::Off);
    let mut steps = 0;
    while cache.step().unwrap().more {
        steps += 1;
        assert!(steps < 100, "a lost page turns the queue for ever");
    }
    assert!(cache.empty(|_| ControlFlow::Continue(())).is_err());
    cache.forget_pages(&file, 3, 3).unwrap();
    let _ = cache.empty(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(cache.stats().slots_used, 0);
    assert_eq!(read(&world, &cache, &file, 3).unwrap(), 0);
}

#[test]
fn when_many_pages_are_lost_the_queue_goes_on_or_says_so_and_never_hangs() {
    for (second_chances_max, count) in [(2, 12), (0, 12), (2, 33), (0, 36)] {
        let options = Options {
            second_chances_max,
            ..options()
        };
        let world = World::new(new_contents(SLOTS, 2));
        world.set_length((0, 1), LENGTH * PAGE);
        let cache = session::open(&world, &options).unwrap();
        let file = session::register(&cache, (0, 1)).unwrap();
        for page in 0..count {
            write(&cache, &file, page, u64::from(page) + 1).unwrap();
        }
        cache.sync(&file).unwrap();
        for page in 0..count {
            assert_eq!(world.damage(u64::from(page) + 1), 1);
        }
        let refused = (0..300).find_map(|n| write(&cache, &file, 40 + n % 8, 1000).err());
        let says = refused.map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(says.is_empty(), count == 12, "{says}");
        assert!(
            count == 12 || says.contains("pages are damaged in the flash cache"),
            "{says}"
        );
        while cache.step().unwrap().more {}
        cache.forget_pages(&file, 0, 39).unwrap();
        write(&cache, &file, 47, 2000).unwrap();
        assert_eq!(read(&world, &cache, &file, 47).unwrap(), 2000);
        assert_eq!(cache.stats().lost_pages, 0);
    }
}

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
fn a_damaged_checkpoint_is_refused_and_not_replaced_by_an_older_one() {
    let (world, cache, file) = machine();
    let mut version = 0;
    turn(&cache, &file, 20 * SLOTS, &mut version);
    assert!(cache.stats().checkpoints > 2);
    let newest = cache.stats().checkpoints;
    drop(cache);
    let made_and_opened = 2;
    let region = (newest - 1 + made_and_opened) % 2;
    let bytes = (layout::CHECKPOINT_HEADER + 4096) as usize;
    let at = layout::CHECKPOINTS as usize + region as usize * bytes;
    world.change_flash(|flash| flash[at + 30] ^= 1);
    let Err(e) = session::open(&world, &options()) else {
        panic!("opened");
    };
    assert!(matches!(e, FlashError::Damaged { .. }), "{e}");
}
