//! What other caches on flash have got wrong, each as a test by the name of what must hold instead.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{Contents, FlashError, Options, Read, WritePolicy};
use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};
use support::{
    Rng,
    devices::World,
    machine::{GROUP, Machine, options},
    model::{PAGE, page_of},
    session::{self, blank_pool, new_contents},
};

/// dm-cache: after a crash all of a clean cache was taken for dirty, and flushing it took hours.
#[test]
fn after_a_kill_what_was_dirty_is_dirty_and_nothing_else_and_a_flush_writes_no_more() {
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

/// dm-writecache: what was flushed in which order let an older block come after a newer one.
#[test]
fn at_home_no_version_of_a_page_comes_after_a_newer_one() {
    for policy in [
        WritePolicy::Back,
        WritePolicy::Through,
        WritePolicy::Around,
        WritePolicy::Off,
    ] {
        let machine = Machine::new(
            60,
            &Options {
                policy,
                ..options()
            },
        );
        let mut rng = Rng(11);
        for version in 1..=1500u64 {
            machine.write(rng.below(90) as u32, version);
            match rng.below(12) {
                0 => machine.sync(),
                1 => drop(machine.cache.step().unwrap()),
                2 => drop(machine.cache.flush(|_| ControlFlow::Break(())).unwrap()),
                3 => drop(machine.read(rng.below(90) as u32)),
                _ => {}
            }
        }
        let _ = machine.cache.flush(|_| ControlFlow::Continue(())).unwrap();
        let writes = machine.world.home_writes();
        assert!(writes.len() > 200, "{policy:?}");
        for page in 0..90 {
            let of =
                |(offset, version): &(usize, u64)| (*offset == page * PAGE).then_some(*version);
            let versions: Vec<u64> = writes.iter().filter_map(of).collect();
            assert!(
                versions.is_sorted(),
                "page {page}, {policy:?}: {versions:?}"
            );
        }
    }
}

/// bcache: a device that was detached while it was written to lost what came in meanwhile.
#[test]
fn a_cache_that_is_emptied_while_pages_are_written_says_so_or_has_them_all_at_home() {
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

/// bcache and lvmcache: a cache that was made, or made larger, over old blocks served what lay there.
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
    let file = session::register(&cache, (0, 1)).unwrap();
    let is_miss = |page| {
        let read = cache.read(&file, page, &mut vec![0; PAGE]).unwrap();
        matches!(read, Read::Miss(_))
    };
    assert!((0..40).all(is_miss));
    let _ = cache.enqueue(&file, 5, &page_of(1)).unwrap();
    cache.sync(&file).unwrap();
    drop((cache, file));
    let cache = session::open(&world, &options()).unwrap();
    assert_eq!(cache.stats().pages, 1);
}

/// A clean page that waits in memory beside its newer version was recorded before that one, and a crash in between brought it back though home was newer.
#[test]
fn what_goes_home_around_flash_is_not_older_again_whenever_the_power_fails() {
    let options = Options {
        contents: Contents::All,
        groups_unsynced_max: 8,
        ..options()
    };
    let machine = Machine::new(60, &options);
    // Something is recorded before, so what goes home is recorded, too.
    machine.write(50, 1);
    machine.sync();
    assert_eq!(machine.read(0), 0);
    for page in 1..=2 * GROUP {
        machine.write(page, u64::from(page));
    }
    machine.cache.set_policy(WritePolicy::Around);
    machine.write(0, 100);
    machine.sync();
    let points: Vec<usize> = (0..machine.world.points()).collect();
    machine.world.cut(&points, &mut Rng(3), |found, _, _| {
        let found = Machine::open(World::new(found), &options);
        let version = found.read(0);
        assert_eq!(found.home(0), version, "the cache has another one");
    });
}
