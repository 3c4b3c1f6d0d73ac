//! Bugs of other caches on flash, each as a test by the name of what must hold instead.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{Cache, FlashError, ReadOutcome, WritePolicy, layout};
use std::{ops::ControlFlow, sync::Arc, thread, time::Duration};
use support::{
    Rng,
    devices::World,
    machine::{GROUP, Machine, options},
    model::{PAGE, page_of},
    session::{self, blank_pool, new_contents},
};

/// Until a thread waits that was just started.
const A_WHILE: Duration = Duration::from_millis(200);

/// True if the cache has none of the file's first pages.
fn has_none(cache: &Cache, pages: u32) -> bool {
    let file = session::register(cache, (0, 1)).unwrap();
    (0..pages).all(|page| {
        let read = cache.read(&file, page, &mut vec![0; PAGE]).unwrap();
        matches!(read, ReadOutcome::Miss(_))
    })
}

/// dm-cache: after a crash all of a clean cache was taken for dirty, and flushing it took hours.
///
/// Promise (flash): After a crash exactly those pages are dirty that were, unlike in some releases
/// of dm-cache, dm-writecache, bcache, lvmcache and Open CAS.
#[test]
fn after_a_kill_dirty_pages_alone_are_dirty_and_flushed() {
    let machine = Machine::new(200, &options());
    for n in 0..150u32 {
        machine.write(n, u64::from(n) + 1);
    }
    let _ = machine.cache.flush(|_| ControlFlow::Continue(())).unwrap();
    for n in [3u32, 77, 140] {
        machine.write(n, 1000 + u64::from(n));
    }
    machine.sync();
    drop((machine.cache, machine.file));
    let machine = Machine::open(machine.world, &options());
    let stats = machine.cache.stats();
    assert_eq!((stats.pages, stats.dirty_pages), (150, 3));
    let named: Vec<u32> = (machine.cache.newer_than_home().iter())
        .map(|page| page.page)
        .collect();
    assert_eq!(named, [3, 77, 140]);
    let flushed = machine.cache.flush(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!((flushed.pages, machine.cache.stats().home_pages), (3, 3));
}

/// dm-writecache (Linux aa9509209c5a): the disk was flushed, and only then the writes that were
/// under way were waited for: the superblock that counted on them was durable before they were.
///
/// Promise (flash): A write that is under way in another thread is durable before it is recorded.
#[test]
fn another_threads_write_is_durable_before_it_is_recorded() {
    let (machine, flash, _) = Machine::held(60, &options());
    for page in 1..GROUP {
        machine.write(page, u64::from(page));
    }
    let synced = thread::scope(|scope| {
        flash.under_way.shut();
        // Who fills a group writes it.
        let fills = scope.spawn(|| machine.write(GROUP, u64::from(GROUP)));
        flash.under_way.wait();
        let syncs = scope.spawn(|| {
            machine.sync();
            machine.world.points() - 1
        });
        // One that does not wait for the write has returned by then.
        thread::sleep(A_WHILE);
        flash.under_way.open();
        assert!(fills.join().unwrap());
        syncs.join().unwrap()
    });
    let points: Vec<usize> = (synced..machine.world.points()).collect();
    for seed in 0..10 {
        machine.world.cut(&points, &mut Rng(seed), |found, _, _| {
            let found = Machine::open(World::new(found), &options());
            for page in 1..=GROUP {
                assert_eq!(found.read(page), u64::from(page));
            }
        });
    }
}

/// bcache (Linux df4ad5324215): when a cache that was to be detached had been written back it was
/// clean, and for a moment not detached. After a power cut it served what it had of a block that
/// had been written past it in that moment.
///
/// Promise (flash): A page that goes around a cache which is being emptied is not older again.
#[test]
fn pages_past_an_emptied_cache_get_no_older_by_a_power_cut() {
    let (machine, _, home) = Machine::held(60, &options());
    for page in 0..3 * GROUP {
        machine.write(page, u64::from(page) + 1);
    }
    let _ = machine.cache.flush(|_| ControlFlow::Continue(())).unwrap();
    for page in 0..GROUP {
        machine.write(page, u64::from(page) + 100);
    }
    machine.sync();
    machine.cache.set_policy(WritePolicy::Off);
    let write = |page, version| {
        machine.write(page, version);
        machine.sync();
        (machine.world.points() - 1, page, version)
    };
    // Of the one the cache has a clean version, of the other a newer one than home.
    let mut acknowledged = vec![write(GROUP, 200), write(0, 201)];
    thread::scope(|scope| {
        home.syncs.shut();
        let empties = scope.spawn(|| while machine.cache.step().unwrap().more {});
        // The last group is written home.
        home.syncs.wait();
        let writes = scope.spawn(|| write(1, 202));
        thread::sleep(A_WHILE);
        home.syncs.open();
        empties.join().unwrap();
        acknowledged.push(writes.join().unwrap());
    });
    machine.cache.step().unwrap();
    assert_eq!(machine.cache.stats().slots_used, 0);
    acknowledged.push(write(2, 203));
    for (from, page, version) in acknowledged {
        let points: Vec<usize> = (from..machine.world.points()).collect();
        machine
            .world
            .cut(&points, &mut Rng(version), |found, _, _| {
                let found = Machine::open(World::new(found), &options());
                assert_eq!((found.read(page), found.home(page)), (version, version));
            });
    }
}

/// bcache and lvmcache: a cache that was made, or made larger, over old blocks served what lay
/// there.
///
/// Promise (flash): A cache reads nothing that lay in its slots before, and no page of a cache that
/// was there before.
#[test]
fn what_lies_in_slots_from_before_is_never_read() {
    let mut contents = new_contents(40, 2);
    let slots = contents.flash.len() - 40 * PAGE;
    contents.flash[..slots].fill(0);
    // Pages of another life, whole and plausible.
    for slot in 0..40 {
        contents.flash[slots + slot * PAGE..][..PAGE].copy_from_slice(&page_of(7000 + slot as u64));
    }
    contents.pool = blank_pool();
    let world = World::new(contents);
    drop(session::create(&world, 2).unwrap());
    let cache = session::open(&world, &options()).unwrap();
    assert!(has_none(&cache, 40));
    let file = session::register(&cache, (0, 1)).unwrap();
    let _ = cache.enqueue(&file, 5, &page_of(1)).unwrap();
    cache.sync(&file).unwrap();
    drop((cache, file));
    let cache = session::open(&world, &options()).unwrap();
    assert_eq!(cache.stats().pages, 1);
}

/// OpenCAS (ocf 617): a cache that was made anew where another one was, and whose making a power
/// cut ended, was loaded with the pages of the other one.
///
/// Promise: as `what_lies_in_slots_from_before_is_never_read`.
#[test]
fn a_new_cache_has_no_page_of_its_predecessor_after_any_cut() {
    let mut machine = Machine::new(40, &options());
    for page in 0..2 * GROUP {
        machine.write(page, u64::from(page) + 1);
    }
    machine.sync();
    // Each opening writes a checkpoint: both name these pages.
    for _ in 0..2 {
        machine = Machine::open(World::new(machine.world.live()), &options());
    }
    let mut left = machine.world.live();
    let create = |world: &Arc<World>| session::create_as(617, world, 2);
    let refused = create(&World::new(left.clone())).err().unwrap();
    assert!(matches!(refused, FlashError::NotBlank { .. }), "{refused}");
    // So its headers are made zero before, and its lane goes.
    left.flash[..layout::CHECKPOINTS as usize].fill(0);
    left.pool = blank_pool();
    let world = World::new(left);
    drop(create(&world).unwrap());
    let points: Vec<usize> = (0..world.points()).collect();
    for seed in 0..5 {
        world.cut(&points, &mut Rng(seed), |found, _, _| {
            let world = World::new(found);
            match session::open(&world, &options()) {
                Ok(_) => {}
                Err(FlashError::NotACache { .. }) => drop(create(&world).unwrap()),
                Err(e) => panic!("{e}"),
            }
            let cache = session::open(&world, &options()).unwrap();
            assert!(has_none(&cache, 2 * GROUP));
        });
    }
}
