//! Pages of which copies are kept for their way home around flash, and of which the lane has no
//! room to record all.
//!
//! Promise: as `torn_pages_are_whole_at_home_before_their_copies_go`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{CacheOptions, CachedFile, Enqueued, FlashError, Watermarks, WritePolicy};
use std::{ops::Range, sync::Arc, sync::atomic::Ordering::SeqCst};
use support::{
    Rng,
    devices::World,
    machine::{GROUP, Machine, options},
    model::{PAGE, page_of},
    session,
};

/// Pages of another file, more than a record has room for. With page 5 and those before it they are
/// whole groups.
const OTHERS: Range<u32> = 600..980;
const PAGES: u64 = 384;

fn wide() -> CacheOptions {
    CacheOptions {
        groups_unsynced_max: 120,
        second_chances_max: 0,
        watermarks: Watermarks { low: 0, high: 0 },
        flash_retry_ms: 0,
        bypass_writes: 4,
        ..options()
    }
}

/// So many records are in the lane. Behind them page 5, three others of its file, which make a row
/// with it when it is written again, and pages of another file are in memory, and are to go around
/// flash.
fn around(commits: u64) -> (Machine, Arc<CachedFile>) {
    let machine = Machine::new(600, &wide());
    for version in 1..=commits {
        assert!(machine.write(500, version));
        machine.sync();
    }
    machine.cache.set_policy(WritePolicy::Around);
    for page in [5, 2, 3, 4] {
        assert!(machine.write(page, 1000 + u64::from(page)));
    }
    machine.world.set_length((1, 1), 1000 * PAGE);
    let other = session::register(&machine.cache, (1, 1)).unwrap();
    for page in OTHERS.rev() {
        let bytes = page_of(1000 + u64::from(page));
        let enqueued = machine.cache.enqueue(&other, page, &bytes).unwrap();
        assert!(matches!(enqueued, Enqueued::Cached));
    }
    (machine, other)
}

/// Page 5 is recorded, and the last one is not.
fn is_half_recorded(machine: &Machine, commits: u64) -> bool {
    let is_recorded = |position| machine.cache.is_recorded(position);
    is_recorded(commits) && !is_recorded(commits + PAGES - 1)
}

/// All that is recorded leaves the cache, and page 5 is written past it.
fn write_past(machine: &Machine) {
    let used = || machine.cache.stats().slots_used;
    let is_recorded = |at: &u64| machine.cache.is_recorded(*at);
    let rest = used() - (0..used()).take_while(is_recorded).count() as u64;
    while used() > rest {
        machine.cache.step().unwrap();
    }
    assert!(!machine.hits(5));
    assert_eq!(machine.home(5), 1005);
    assert!(!machine.write(5, 2005), "it is the fourth of a row");
    machine.world.write_past((0, 1), 5 * PAGE, &page_of(2005));
}

/// The copy of a page that had left the queue counted still when the page was written past the
/// cache, since not all pages that it was kept with were recorded. These passed through the empty
/// queue then, which the lane does not hear of, and after a crash the page was what its copy was.
#[test]
fn a_half_recorded_copy_does_not_undo_writes_past_the_cache() {
    let commits = 100;
    let (machine, _) = around(commits);
    machine.world.flash_gone.store(true, SeqCst);
    // All are home. There is no room for what says so, and no checkpoint that would make some.
    let e = machine.cache.sync_pages().unwrap_err();
    assert!(matches!(e, FlashError::Flash { .. }), "{e}");
    machine.world.flash_gone.store(false, SeqCst);
    assert!(is_half_recorded(&machine, commits));
    write_past(&machine);
    machine.sync();
    let found = Machine::open(World::new(machine.world.live()), &wide());
    assert_eq!((found.read(5), found.home(5)), (2005, 2005));
}

/// Copies could not be kept; flash took the pages, and the lane had room for one record of two.
fn not_kept(commits: u64) -> Option<(Machine, Arc<CachedFile>)> {
    let (machine, other) = around(commits);
    let world = &machine.world;
    let next = || world.operations.load(SeqCst) + 1;
    world.fail_at.store(next(), SeqCst);
    machine.cache.sync_pages().unwrap_err();
    machine.cache.set_policy(WritePolicy::Back);
    world.home_gone.store(true, SeqCst);
    // After the groups and a sync comes the checkpoint.
    let checkpoint = next() + PAGES / u64::from(GROUP) + 1;
    world.flash_gone_at.store(checkpoint, SeqCst);
    let _ = machine.cache.sync_pages();
    world.home_gone.store(false, SeqCst);
    world.flash_gone_at.store(0, SeqCst);
    world.flash_gone.store(false, SeqCst);
    is_half_recorded(&machine, commits).then_some((machine, other))
}

/// What fails to keep copies may have kept them.
#[test]
fn a_copy_kept_by_a_failed_call_undoes_no_write_past_the_cache() {
    let mut found = (0..200).step_by(10).filter_map(not_kept);
    let (machine, other) = found.next().unwrap();
    machine.cache.set_policy(WritePolicy::Around);
    write_past(&machine);
    // Nothing is left that others would be kept of instead.
    machine.cache.drop_file(&other).unwrap();
    machine.sync();
    let last = [machine.world.points() - 1];
    for seed in 0..20 {
        machine.world.cut(&last, &mut Rng(seed), |found, _, _| {
            let found = Machine::open(World::new(found), &wide());
            assert_eq!((found.read(5), found.home(5)), (2005, 2005), "{seed}");
        });
    }
}
