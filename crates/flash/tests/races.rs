//! Races with another thread, most of them in the one moment that counts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{Cache, FlashError, WritePolicy};
use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::Duration,
};
use support::{
    Rng,
    devices::World,
    held_devices::HeldFlash,
    machine::{GROUP, Machine, leaving, options},
    model::PAGE,
    session::bytes_for,
};

/// Until a thread waits that was just started.
const A_WHILE: Duration = Duration::from_millis(200);

/// Does `other` in a thread of its own while a resize has everything durable, and its new
/// checkpoint is not: it waits for the resize.
fn beside_a_resize(
    machine: &Machine,
    flash: &HeldFlash,
    other: impl FnOnce(&Cache) -> Result<(), FlashError> + Send,
) {
    thread::scope(|scope| {
        flash.writes.shut();
        let go = |_| ControlFlow::Continue(());
        let resize = scope.spawn(move || machine.cache.resize(bytes_for(200), go));
        flash.writes.wait();
        let other = scope.spawn(|| other(&machine.cache));
        thread::sleep(A_WHILE);
        flash.writes.open();
        assert!(resize.join().unwrap().unwrap().complete);
        other.join().unwrap().unwrap();
    });
}

/// Promise (flash): A flush that a resize comes between misses no page.
#[test]
fn a_flush_that_waits_for_a_resize_brings_all_pages_home() {
    let (machine, flash, _) = Machine::held(60, &options());
    for page in 0..3 * GROUP {
        machine.write(page, u64::from(page) + 1);
    }
    machine.sync();
    beside_a_resize(&machine, &flash, |cache| {
        cache.flush(|_| ControlFlow::Continue(())).map(drop)
    });
    assert_eq!(machine.cache.newer_than_home(), []);
    for page in 0..3 * GROUP {
        assert_eq!(machine.home(page), u64::from(page) + 1);
    }
}

/// Promise: as `emptying_a_cache_in_use_fails_or_leaves_all_pages_at_home`.
#[test]
fn a_released_file_has_every_page_whatever_came_between() {
    let (machine, flash, _) = Machine::held(60, &options());
    for page in 0..3 * GROUP {
        machine.write(page, u64::from(page) + 1);
    }
    machine.sync();
    beside_a_resize(&machine, &flash, |cache| cache.let_go(&machine.file));
    assert_eq!(machine.cache.stats().pages, 0);
    for page in 0..3 * GROUP {
        assert_eq!(machine.home(page), u64::from(page) + 1);
    }
}

#[test]
fn a_file_with_a_page_that_cannot_be_read_is_not_let_go_of() {
    let machine = Machine::new(60, &options());
    machine.write(3, 33);
    machine.write(4, 44);
    machine.sync();
    assert_eq!(machine.world.damage(33), 1);
    let e = machine.cache.let_go(&machine.file).unwrap_err();
    assert!(
        matches!(&e, FlashError::DamagedPages { count: 1, first } if first.page == 3),
        "{e}"
    );
    let dirty = machine.cache.stats().dirty_pages;
    assert_eq!((machine.home(4), dirty), (44, 1));
    machine.write(3, 34);
    machine.cache.let_go(&machine.file).unwrap();
    assert_eq!(machine.home(3), 34);
}

/// Promise: as `at_home_no_version_of_a_page_comes_after_a_newer_one`.
#[test]
fn a_page_leaving_flash_does_not_overwrite_a_newer_one_at_home() {
    let (machine, flash, home) = Machine::held(60, &leaving());
    machine.fill(GROUP);
    machine.cache.set_policy(WritePolicy::Around);
    // Of a page that leaves, the newer version has to be durable first: with it goes what else is
    // in memory by then.
    machine.write(1, 100);
    thread::scope(|scope| {
        flash.reads.shut();
        home.writes.shut();
        let step = scope.spawn(|| machine.cache.step().unwrap());
        flash.reads.wait();
        machine.write(2, 101);
        flash.reads.open();
        home.writes.wait();
        machine.write(2, 102);
        home.writes.open();
        step.join().unwrap();
    });
    let of_page_2 = |(offset, version)| (offset == 2 * PAGE).then_some(version);
    let writes: Vec<u64> = (machine.world.home_writes().into_iter())
        .filter_map(of_page_2)
        .collect();
    assert!(writes.is_sorted() && writes.contains(&101), "{writes:?}");
    let found = Machine::open(World::new(machine.world.live()), &leaving());
    assert_eq!(found.read(2), 101);
}

/// Promise: as `pages_are_not_home_if_another_threads_sync_of_it_failed`.
#[test]
fn a_checkpoint_fails_if_another_thread_failed_its_sync() {
    let (machine, flash, _) = Machine::held(200, &options());
    // One of the lane's segments is full.
    for version in 1..=80u32 {
        machine.write(version % 7, u64::from(version));
        machine.sync();
    }
    let (before, whole) = (machine.cache.stats(), machine.world.points());
    thread::scope(|scope| {
        flash.writes.shut();
        let step = scope.spawn(|| machine.cache.step().unwrap());
        flash.writes.wait();
        machine.write(8, 800);
        let world = &machine.world;
        // The group is written, and the sync fails: it goes home.
        world
            .fail_at
            .store(world.operations.load(SeqCst) + 2, SeqCst);
        machine.sync();
        flash.writes.open();
        step.join().unwrap();
    });
    let after = machine.cache.stats();
    assert_eq!(after.flash_syncs - before.flash_syncs, 2);
    let points: Vec<usize> = (whole..machine.world.points()).collect();
    for seed in 0..10 {
        machine.world.cut(&points, &mut Rng(seed), |found, _, _| {
            let found = Machine::open(World::new(found), &options());
            for version in 74..=80u32 {
                assert_eq!(found.read(version % 7), u64::from(version));
            }
        });
    }
}

/// Promise (flash): A page that went home while flash failed to give it is read at home.
#[test]
fn a_page_that_went_home_while_flash_failed_is_read_there() {
    for gone in [false, true] {
        let (machine, flash, _) = Machine::held(60, &options());
        machine.write(3, 33);
        machine.sync();
        let read = thread::scope(|scope| {
            flash.reads.shut();
            let read = scope.spawn(|| machine.read(3));
            flash.reads.wait();
            let _ = machine.cache.flush(|_| ControlFlow::Continue(())).unwrap();
            assert_eq!(machine.world.damage(33), 1);
            machine.world.flash_gone.store(gone, SeqCst);
            flash.reads.open();
            read.join().unwrap()
        });
        assert_eq!(read, 33);
    }
}

#[test]
fn a_page_whose_slot_a_resize_overwrites_is_read_at_home() {
    let mut written_over = 0;
    for page in (60..100).step_by(5) {
        let (machine, flash, _) = Machine::held(200, &options());
        machine.fill(100);
        let go = |_| ControlFlow::Continue(());
        let read = thread::scope(|scope| {
            flash.reads.shut();
            let read = scope.spawn(|| machine.read(page));
            flash.reads.wait();
            flash.writes.shut();
            let resize = scope.spawn(|| machine.cache.resize(bytes_for(70), go));
            // A checkpoint is written, and no header says so yet.
            flash.writes.wait();
            flash.reads.open();
            let read = read.join();
            flash.writes.open();
            assert!(resize.join().unwrap().unwrap().complete);
            read.unwrap()
        });
        assert_eq!(read, u64::from(page) + 1);
        written_over += machine.cache.stats().damaged;
    }
    assert!(written_over > 0, "each page was read before");
}

/// Promise: as `pages_are_not_home_if_another_threads_sync_of_it_failed`.
#[test]
fn a_group_written_before_a_failed_length_change_is_rewritten() {
    let machine = Machine::new(60, &options());
    for page in 0..GROUP {
        machine.write(page, u64::from(page) + 1);
    }
    let world = &machine.world;
    world
        .fail_at
        .store(world.operations.load(SeqCst) + 1, SeqCst);
    let go = |_| ControlFlow::Continue(());
    let e = machine.cache.resize(bytes_for(200), go).unwrap_err();
    assert!(matches!(e, FlashError::Flash { .. }), "{e}");
    assert_eq!(machine.cache.flash_trouble(), None, "it takes pages");
    machine.cache.sync_pages().unwrap();
    let synced = world.points() - 1;
    machine.write(20, 21);
    machine.cache.sync_pages().unwrap();
    let points: Vec<usize> = (synced..world.points()).collect();
    for seed in 0..5 {
        world.cut(&points, &mut Rng(seed), |found, _, _| {
            let found = Machine::open(World::new(found), &options());
            for page in 0..GROUP {
                assert_eq!(found.read(page), u64::from(page) + 1);
            }
        });
    }
}

/// At no moment in particular, many times.
///
/// Promise (flash): After `empty` the files have all pages, and after `let_go` a file has all of
/// its own.
#[test]
fn emptying_a_cache_in_use_fails_or_leaves_all_pages_at_home() {
    let machine = Machine::new(100, &options());
    machine.world.sim.stop_recording();
    let done = AtomicBool::new(false);
    let mut refused = 0;
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut version = 0;
            while !done.load(SeqCst) {
                version += 1;
                machine.write((version % 50) as u32, version);
                if version % 5 == 0 {
                    machine.sync();
                }
            }
            version
        });
        for n in 0..60 {
            let policy = [WritePolicy::Off, WritePolicy::Back][n % 2];
            machine.cache.set_policy(policy);
            match machine.cache.empty(|_| ControlFlow::Continue(())) {
                Ok(emptied) => assert!(emptied.complete && emptied.lost.is_empty()),
                Err(FlashError::StillWritten(_)) => refused += 1,
                Err(e) => panic!("{e}"),
            }
        }
        done.store(true, SeqCst);
        writer.join().unwrap()
    });
    println!("{refused} of 60 found pages that came meanwhile; {written} were written");
    let _ = machine.cache.empty(|_| ControlFlow::Continue(())).unwrap();
    for version in written.saturating_sub(49).max(1)..=written {
        assert_eq!(machine.home((version % 50) as u32), version);
    }
}
