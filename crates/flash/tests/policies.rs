//! Policies, watermarks, flushes, files: what goes home and when, and what a cache has when it is
//! opened again.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{
    AdmissionPolicy, Cache, CacheOptions, FlashError, FlushProgress, ReadOutcome, Watermarks,
    WritePolicy,
};
use std::{
    ops::ControlFlow,
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};
use support::{
    devices::World,
    machine::{GROUP, Machine, options},
    model::{PAGE, page_of},
    session::{self, new_contents},
};

#[test]
fn groups_leave_a_few_at_a_time_and_share_their_homes_syncs() {
    let options = CacheOptions {
        watermarks: Watermarks { low: 10, high: 50 },
        ..options()
    };
    for (slots, groups) in [(400, 4), (200, 3), (60, 1)] {
        let machine = Machine::new(slots, &options);
        for page in 0..slots as u32 * 3 / 4 {
            assert!(machine.write(page, 1));
        }
        machine.sync();
        let before = machine.cache.stats();
        let step = machine.cache.step().unwrap();
        let after = machine.cache.stats();
        let pages = groups * u64::from(GROUP);
        assert_eq!(step.freed, pages);
        assert_eq!(after.home_pages - before.home_pages, pages);
        assert_eq!(after.home_batches - before.home_batches, 1);
        assert_eq!(after.home_syncs - before.home_syncs, 1);
    }
}

#[test]
fn each_write_policy_does_what_it_says_and_may_be_switched() {
    let machine = Machine::new(60, &options());
    machine.write(1, 1);
    machine.sync();
    assert_eq!((machine.home(1), machine.hits(1)), (0, true));
    machine.cache.set_policy(WritePolicy::Through);
    machine.write(2, 2);
    machine.sync();
    assert_eq!((machine.home(2), machine.hits(2)), (2, true));
    assert_eq!(
        machine.cache.stats().dirty_pages,
        0,
        "what was dirty went home with it"
    );
    machine.cache.set_policy(WritePolicy::Back);
    machine.write(3, 3);
    machine.sync();
    machine.write(4, 4);
    machine.sync();
    machine.cache.set_policy(WritePolicy::Around);
    let flash_bytes = machine.cache.stats().flash_bytes;
    machine.write(3, 4);
    machine.write(2, 5);
    machine.sync();
    assert_eq!((machine.home(3), machine.home(2)), (4, 5));
    assert_eq!((machine.read(3), machine.read(2)), (4, 5));
    assert!(
        !machine.hits(3) && !machine.hits(2),
        "what is written leaves the cache"
    );
    assert!(machine.hits(4), "what it has it serves");
    assert_eq!(machine.cache.stats().flash_bytes, flash_bytes);
    machine.cache.set_policy(WritePolicy::Off);
    machine.write(9, 6);
    machine.sync();
    while machine.cache.step().unwrap().more {}
    let stats = machine.cache.stats();
    assert_eq!((stats.slots_used, stats.dirty_pages), (0, 0));
    assert_eq!((machine.home(9), machine.home(4)), (6, 4));
    machine.cache.set_policy(WritePolicy::Back);
    machine.write(9, 7);
    machine.sync();
    assert_eq!((machine.home(9), machine.hits(9)), (6, true));
}

/// Promise (flash-run): Policy *adaptive* may judge flash anew at any time: every synced page is
/// durable on flash or at home, and none is torn.
#[test]
fn pages_go_home_before_a_sync_returns_while_flash_is_no_gain() {
    let machine = Machine::new(60, &options());
    machine.cache.set_policy(WritePolicy::Adaptive);
    machine.write(1, 1);
    machine.sync();
    assert_eq!((machine.home(1), machine.hits(1)), (0, true));
    machine.cache.assume_flash_pays(false);
    let flash_bytes = machine.cache.stats().flash_bytes;
    machine.write(1, 2);
    machine.write(2, 3);
    machine.sync();
    assert_eq!((machine.home(1), machine.home(2)), (2, 3));
    assert_eq!(machine.cache.stats().flash_bytes, flash_bytes);
    let begun = Instant::now();
    while machine.cache.stats().slots_used > 0 {
        // A group at a time, with time between.
        let _ = machine.cache.step().unwrap();
        assert!(begun.elapsed().as_secs() < 600, "pages stay on flash");
    }
    assert_eq!((machine.read(1), machine.read(2)), (2, 3));
    machine.cache.assume_flash_pays(true);
    machine.write(1, 4);
    machine.sync();
    assert_eq!((machine.home(1), machine.hits(1)), (2, true));
}

#[test]
fn slow_reads_of_flash_lead_around_it_and_faster_ones_back() {
    let machine = Machine::new(60, &options());
    machine.cache.set_policy(WritePolicy::Adaptive);
    // What flash does not have says nothing of how fast it is.
    (900..940).for_each(|n| _ = machine.write(n, 1));
    machine.sync();
    // Homes as fast as a simulated flash: a microsecond or so. Then slow ones.
    for (took, pays) in [(Duration::ZERO, false), (Duration::from_millis(50), true)] {
        let begun = Instant::now();
        let mut page = vec![0; PAGE];
        while machine.cache.flash_pays_for_reads() != pays {
            for n in 0..20 {
                let read = machine.cache.read(&machine.file, n * 37 % 900, &mut page);
                if let ReadOutcome::Miss(ticket) = read.unwrap() {
                    machine.cache.read_at_home(&ticket, took);
                }
            }
            machine.cache.step().unwrap();
            assert!(begun.elapsed().as_secs() < 600, "nothing changes");
        }
    }
}

#[test]
fn flash_that_only_writes_faster_takes_writes_and_no_reads() {
    let machine = Machine::new(100, &options());
    machine.cache.set_policy(WritePolicy::Adaptive);
    machine.cache.set_contents(AdmissionPolicy::All);
    let takes = |home, flash| {
        machine.world.home_sync_ms.store(home, SeqCst);
        machine.world.flash_sync_ms.store(flash, SeqCst);
    };
    let mut page = vec![0; PAGE];
    let mut n = 0u32;
    let mut work = || {
        n += 1;
        // Of the pages that fill the queue a third is not written again before it leaves.
        machine.write((n.wrapping_mul(0x9E37_79B1) >> 12) % 100, u64::from(n));
        if n.is_multiple_of(4 * GROUP) {
            machine.sync();
        }
        let wanted = n * 37 % 900;
        let read = machine.cache.read(&machine.file, wanted, &mut page);
        if let ReadOutcome::Miss(ticket) = read.unwrap() {
            machine.cache.read_at_home(&ticket, Duration::ZERO);
            let pays = machine.cache.flash_pays_for_reads();
            let came = machine.cache.admit(&machine.file, wanted, &page, ticket);
            assert!(pays || !came.unwrap());
        }
        let _ = machine.cache.step().unwrap();
    };
    takes(10, 0);
    let begun = Instant::now();
    let mut until = |reached: &dyn Fn(&Cache) -> bool| {
        while !reached(&machine.cache) {
            work();
            assert!(begun.elapsed().as_secs() < 600, "nothing changes");
        }
    };
    until(&|cache| !cache.flash_pays_for_reads());
    assert!(machine.cache.flash_pays());
    let around = |cache: &Cache| cache.stats().around_pages;
    let before = around(&machine.cache);
    until(&|cache| around(cache) > before + 32);
    assert!(machine.cache.flash_pays());
    let before = machine.cache.stats().enqueued;
    takes(0, 10);
    until(&|cache| !cache.flash_pays());
    assert!(machine.cache.stats().enqueued > before);
}

#[test]
fn a_trial_commit_that_fails_goes_the_usual_way() {
    let machine = Machine::new(100, &options());
    machine.cache.set_policy(WritePolicy::Adaptive);
    let around = || machine.cache.stats().around_pages;
    let sync_the_other_way = |page| {
        machine.write(page, 7);
        machine.cache.assume_a_trial_is_due();
        machine.sync();
    };
    sync_the_other_way(1);
    assert_eq!((machine.home(1), around()), (7, 1));
    machine.world.home_gone.store(true, SeqCst);
    sync_the_other_way(2);
    machine.world.home_gone.store(false, SeqCst);
    assert_eq!((machine.home(2), machine.hits(2)), (0, true));
    machine.cache.assume_flash_pays(false);
    sync_the_other_way(3);
    assert_eq!((machine.home(3), machine.hits(3)), (0, true));
    machine.world.flash_gone.store(true, SeqCst);
    sync_the_other_way(4);
    assert_eq!((machine.home(4), around()), (7, 2));
}

/// Promise: as `pages_go_home_before_a_sync_returns_while_flash_is_no_gain`.
#[test]
fn a_page_written_twice_goes_home_once_in_its_last_version() {
    let machine = Machine::new(60, &options());
    machine.cache.set_policy(WritePolicy::Around);
    for n in 0..2 * GROUP {
        machine.write(n % 3, u64::from(n) + 1);
    }
    let batches = machine.cache.stats().home_batches;
    machine.sync();
    let stats = machine.cache.stats();
    assert_eq!(stats.home_batches - batches, 1, "{stats:?}");
    for page in 0..3 {
        let last = (0..2 * GROUP).rev().find(|n| n % 3 == page).unwrap();
        assert_eq!(machine.home(page), u64::from(last) + 1);
        assert_eq!(machine.read(page), u64::from(last) + 1);
    }
}

#[test]
fn steps_begin_at_the_high_watermark_and_end_at_the_low_one() {
    let machine = Machine::with(100, |options| {
        options.watermarks = Watermarks { low: 30, high: 60 }
    });
    let slots = machine.cache.stats().slots as u32;
    for n in 0..slots * 6 / 10 {
        machine.write(n, 1);
        assert_eq!(machine.cache.step().unwrap().freed, 0);
    }
    for n in 0..4 {
        machine.write(900 + n, 1);
    }
    let mut steps = 0;
    while machine.cache.step().unwrap().more {
        steps += 1;
    }
    let used = machine.cache.stats().slots_used as u32;
    assert!(steps >= 2 && used <= slots * 3 / 10 && used + GROUP > slots * 3 / 10);
    assert_eq!(machine.cache.step().unwrap().freed, 0);
}

/// Promise (flash): A flush that is stopped or killed goes on where it was.
#[test]
fn a_stopped_flush_goes_on_where_it_was_even_after_a_kill() {
    let machine = Machine::new(100, &options());
    for n in 0..60u32 {
        machine.write(n * 311 % 1000, u64::from(n) + 1);
    }
    let mut seen = Vec::new();
    let flushed = machine.cache.flush(|progress| {
        seen.push(progress);
        if seen.len() == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let flushed = flushed.unwrap();
    assert_eq!((flushed.pages, flushed.complete), (24, false));
    assert_eq!(seen[2], FlushProgress { done: 24, of: 60 });
    drop((machine.cache, machine.file));
    let machine = Machine::open(machine.world, &options());
    assert_eq!(machine.cache.stats().dirty_pages, 36);
    assert_eq!(machine.cache.newer_than_home().len(), 36);
    let flushed = machine.cache.flush(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!((flushed.pages, flushed.complete), (36, true));
    for n in 0..60u32 {
        let page = n * 311 % 1000;
        assert!(machine.hits(page));
        assert_eq!(machine.home(page), u64::from(n) + 1);
    }
    // Nothing is dirty: nothing is read or written.
    let before = machine.cache.stats();
    let _ = machine.cache.flush(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(machine.cache.stats(), before);
}

#[test]
fn a_cache_opens_warm_and_reads_no_page_for_it() {
    let machine = Machine::new(100, &options());
    for n in 0..60u32 {
        machine.write(n, u64::from(n) + 1);
    }
    machine.sync();
    drop((machine.cache, machine.file));
    // No page on flash is what it was: an opening that looked would see it.
    let world = machine.world;
    let slots = |flash: &mut Vec<u8>| {
        let data = flash.len() - 100 * PAGE;
        flash[data..].iter_mut().for_each(|byte| *byte ^= 0xFF);
    };
    world.change_flash(slots);
    let machine = Machine::open(world, &options());
    assert_eq!(machine.cache.stats().dirty_pages, 60);
    machine.world.change_flash(slots);
    for n in 0..60u32 {
        assert!(machine.hits(n));
        assert_eq!(machine.read(n), u64::from(n) + 1);
    }
}

/// Promise (flash): Pages of a dropped file do not come back in a file that has its inode, or its
/// very identity.
#[test]
fn a_dropped_files_pages_are_not_its_successors() {
    let machine = Machine::new(60, &options());
    machine.write(1, 1);
    machine.sync();
    let (cache, file) = (&machine.cache, &machine.file);
    let number = file.id().number;
    assert_eq!(
        session::register(cache, (0, 1)).unwrap().id().number,
        number
    );
    cache.drop_file(file).unwrap();
    cache.drop_file(file).unwrap();
    let e = cache.enqueue(file, 1, &page_of(2)).err().unwrap();
    assert!(matches!(e, FlashError::NoSuchFile(_)), "{e}");
    // Neither one with the same inode, nor one with the very same identity.
    for generation in [2, 1] {
        let next = session::register(cache, (0, generation)).unwrap();
        assert!(next.id().number > number);
        let read = cache.read(&next, 1, &mut vec![0; PAGE]).unwrap();
        assert!(matches!(read, ReadOutcome::Miss(_)));
    }
    assert_eq!(cache.stats().pages, 0);
    drop((machine.cache, machine.file));
    let machine = Machine::open(machine.world, &options());
    assert_eq!(machine.cache.stats().pages, 0, "nor after a restart");
}

/// Promise (flash): A page behind the durable end of its file is written there at once, past the
/// cache.
#[test]
fn a_page_behind_its_files_durable_end_goes_past_the_cache() {
    let machine = Machine::new(60, &options());
    assert!(machine.write(999, 1));
    assert!(!machine.write(1000, 2));
    machine.world.set_length((0, 1), 1001 * PAGE);
    assert!(machine.write(1000, 3));
}

#[test]
fn too_many_files_are_refused_until_one_is_dropped() {
    let machine = Machine::new(60, &options());
    let files: Vec<_> = (1..4)
        .map(|inode| session::register(&machine.cache, (inode, 1)).unwrap())
        .collect();
    let e = session::register(&machine.cache, (9, 1)).unwrap_err();
    assert!(e.to_string().contains("4 files already"), "{e}");
    machine.cache.drop_file(&files[0]).unwrap();
    session::register(&machine.cache, (9, 1)).unwrap();
}

/// Promise (flash): The metadata of any number of pages fits a lane of one segment.
#[test]
fn the_metadata_of_any_number_of_pages_fits_any_lane() {
    for segments in 1..=3 {
        let world = World::new(new_contents(40, segments));
        world.set_length((0, 1), 1000 * PAGE);
        world.sim.stop_recording();
        let machine = Machine::open(world, &options());
        for n in 0..20_000u32 {
            machine.write(n % 1000, u64::from(n) + 1);
            if n % 7 == 0 {
                machine.sync();
            }
        }
        assert!(machine.cache.stats().checkpoints > 20);
        drop((machine.cache, machine.file));
        let machine = Machine::open(machine.world, &options());
        for n in 19_000..20_000u32 {
            assert_eq!(machine.read(n % 1000), u64::from(n) + 1);
        }
    }
}

#[test]
fn second_chances_take_no_more_memory_than_written_pages() {
    let machine = Machine::with(200, |options| options.groups_unsynced_max = 2);
    machine.fill(160);
    let _ = machine.cache.flush(|_| ControlFlow::Continue(())).unwrap();
    assert!((0..160).all(|page| machine.hits(page)));
    machine
        .cache
        .set_watermarks(Watermarks { low: 10, high: 20 });
    let mut steps = 0;
    while machine.cache.step().unwrap().more {
        steps += 1;
        assert!(steps < 200, "the queue turns for ever");
        let unsynced = machine.cache.stats().groups_unsynced;
        assert!(unsynced <= 2, "{unsynced} groups are in memory");
    }
    assert!(machine.cache.stats().second_chances >= 80);
    assert_eq!(machine.cache.stats().home_pages, 160, "only by the flush");
}
