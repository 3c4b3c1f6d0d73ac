//! Pages that go around flash: however many versions flash has of them, and whatever fails on the
//! way.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{AdmissionPolicy, CacheOptions, FlashError, Watermarks, WritePolicy};
use std::{ops::ControlFlow, sync::atomic::Ordering::SeqCst};
use support::{
    Rng,
    devices::World,
    machine::{GROUP, Machine, options},
    model::{PAGE, page_of, version_of},
    session::{self, bytes_for},
};

/// Versions of one page, more than a record of the lane has room for.
const VERSIONS: u64 = 300;

/// Promise: as `torn_pages_are_whole_at_home_before_their_copies_go`.
#[test]
fn a_page_of_any_number_of_versions_survives_going_around_flash() {
    let machine = Machine::new(400, &options());
    for version in 1..=VERSIONS {
        machine.write(1, version);
        machine.sync();
    }
    let _ = machine.cache.flush(|_| ControlFlow::Continue(())).unwrap();
    let before = machine.world.points();
    machine.cache.set_policy(WritePolicy::Around);
    machine.write(1, VERSIONS + 1);
    machine.sync();
    assert_eq!(machine.home(1), VERSIONS + 1);
    let points: Vec<usize> = (before..machine.world.points()).collect();
    machine.world.cut(&points, &mut Rng(3), |found, _, _| {
        let found = Machine::open(World::new(found), &options());
        // And once more, from the checkpoint that the first opening has written.
        let found = Machine::open(World::new(found.world.live()), &options());
        assert_eq!(found.cache.stats().dirty_pages, 0, "an older one is back");
        let version = found.read(1);
        assert!(version >= VERSIONS, "it is {version}");
        assert_eq!(found.home(1), version, "the cache has another one");
    });
}

/// A page that is clean on flash is torn on its way home around it.
fn torn() -> Machine {
    let machine = Machine::new(60, &options());
    machine.write(1, 1);
    machine.sync();
    let _ = machine.cache.flush(|_| ControlFlow::Continue(())).unwrap();
    tear(&machine);
    machine
}

/// Page 1 is written around flash, and torn at home.
fn tear(machine: &Machine) {
    machine.cache.set_policy(WritePolicy::Around);
    machine.write(1, 2);
    let world = &machine.world;
    // Copies are kept, and the page is written.
    let operations = world.operations.load(SeqCst);
    world.fail_at.store(operations + 2, SeqCst);
    let e = machine.cache.sync(&machine.file).unwrap_err();
    assert!(matches!(e, FlashError::Home { .. }), "{e}");
    assert_eq!(version_of(&world.home((0, 1), PAGE, PAGE)), None, "torn");
}

#[test]
fn a_lost_page_written_again_and_torn_has_what_was_written() {
    let machine = Machine::new(60, &options());
    machine.write(1, 1);
    machine.sync();
    assert_eq!(machine.world.damage(1), 1);
    machine.cache.set_policy(WritePolicy::Off);
    while machine.cache.step().unwrap().more {}
    assert_eq!(machine.cache.lost_pages().len(), 1);
    tear(&machine);
    let found = Machine::open(World::new(machine.world.live()), &options());
    assert_eq!((found.read(1), found.home(1)), (2, 2));
    assert_eq!(found.cache.lost_pages(), []);
}

/// Promise (flash): A page that is torn on its way home around flash is made whole from its copy,
/// and a copy is given up only once the failed write home is done.
#[test]
fn torn_pages_are_whole_at_home_before_their_copies_go() {
    for lets_go in [false, true] {
        let machine = torn();
        // Another page is changed past the cache, or another file: what was on its way goes home
        // first.
        match lets_go {
            false => machine.cache.forget_pages(&machine.file, 9, 9).unwrap(),
            true => {
                let other = session::register(&machine.cache, (1, 1)).unwrap();
                machine.cache.let_go(&other).unwrap();
            }
        }
        assert_eq!(machine.home(1), 2);
        let found = Machine::open(World::new(machine.world.live()), &options());
        assert_eq!((found.read(1), found.home(1)), (2, 2));
    }
}

/// Promise: as `torn_pages_are_whole_at_home_before_their_copies_go`.
#[test]
fn nothing_passes_the_cache_until_torn_pages_are_mended() {
    let machine = torn();
    machine.world.home_gone.store(true, SeqCst);
    let refused = machine.cache.forget_pages(&machine.file, 9, 9);
    assert!(refused.is_err());
    let found = Machine::open(World::new(machine.world.live()), &options());
    assert_eq!((found.read(1), found.home(1)), (2, 2));
    // A file that goes needs none of them.
    machine.cache.drop_file(&machine.file).unwrap();
}

#[test]
fn an_older_copy_does_not_undo_a_page_written_past_the_cache() {
    let options = CacheOptions {
        policy: WritePolicy::Around,
        bypass_writes: 4,
        ..options()
    };
    let machine = Machine::new(60, &options);
    for page in [5, 2, 3, 4] {
        assert!(machine.write(page, 10 + u64::from(page)));
    }
    machine.sync();
    assert_eq!(
        machine.cache.stats().slots_used,
        0,
        "the lane hears of none"
    );
    // The fourth of a row.
    assert!(!machine.write(5, 25));
    machine.world.write_past((0, 1), 5 * PAGE, &page_of(25));
    machine.sync();
    let found = Machine::open(World::new(machine.world.live()), &options);
    assert_eq!((found.read(5), found.home(5)), (25, 25));
}

#[test]
fn no_page_goes_around_flash_during_a_half_done_resize() {
    let mut half = 0;
    for n in 1..60 {
        let machine = Machine::new(60, &options());
        let world = &machine.world;
        (world.flash_gone_at).store(world.operations.load(SeqCst) + n, SeqCst);
        let go = |_| ControlFlow::Continue(());
        let resized = machine.cache.resize(bytes_for(200), go);
        if !matches!(resized, Err(FlashError::HalfResized { .. })) {
            continue;
        }
        half += 1;
        // Nothing is in the cache, so nothing would have to be recorded.
        machine.write(3, 33);
        let e = machine.cache.sync(&machine.file).unwrap_err();
        assert!(matches!(e, FlashError::HalfResized { .. }), "{e}");
        assert_eq!(machine.home(3), 0);
    }
    assert!(half > 0);
}

/// Pages that are in memory at a time: more than a record has room for.
const AT_ONCE: u32 = 304;

/// A commit of pages of which one record is in the lane, and the checkpoint that would make room
/// for the next one fails: its write, or its sync. Before it came so many others.
fn between_two_records(commits: u64, fails: u64) -> Option<Machine> {
    let machine = Machine::with(600, |options| {
        options.groups_unsynced_max = 120;
        options.second_chances_max = 0;
        options.watermarks = Watermarks { low: 0, high: 0 };
        options.flash_retry_ms = 0;
    });
    for version in 1..=commits {
        machine.write(500, version);
        machine.sync();
    }
    for page in 0..AT_ONCE {
        machine.write(page, 1000 + u64::from(page));
    }
    let world = &machine.world;
    world.home_gone.store(true, SeqCst);
    // Before it the commit syncs flash.
    let first = world.operations.load(SeqCst) + 1;
    world.flash_gone_at.store(first + fails, SeqCst);
    // Where the lane has room for both, it is done.
    let _ = machine.cache.sync_pages();
    world.home_gone.store(false, SeqCst);
    let is_recorded = |position| machine.cache.is_recorded(position);
    let some = is_recorded(commits) && !is_recorded(commits + u64::from(AT_ONCE) - 1);
    some.then_some(machine)
}

fn cut_between_two_records(fails: u64) -> Machine {
    let found = (0..200).step_by(10);
    let mut found = found.filter_map(|commits| between_two_records(commits, fails));
    found.next().unwrap()
}

/// Flash takes pages again.
fn flash_is_back(machine: &Machine) {
    machine.world.flash_gone_at.store(0, SeqCst);
    machine.world.flash_gone.store(false, SeqCst);
}

#[test]
fn pages_of_a_half_recorded_commit_are_not_torn_going_home() {
    let machine = cut_between_two_records(1);
    let before = machine.world.points() - 1;
    // They go home. The lane has no room for what says so.
    machine.cache.sync_pages().unwrap_err();
    let points: Vec<usize> = (before..machine.world.points()).collect();
    machine.world.cut(&points, &mut Rng(5), |found, _, _| {
        let found = Machine::open(World::new(found), &options());
        for page in 0..AT_ONCE {
            let version = found.read(page);
            assert!(
                version == 0 || version == 1000 + u64::from(page),
                "{version}"
            );
        }
    });
    flash_is_back(&machine);
    for page in 0..AT_ONCE {
        assert_eq!(machine.read(page), 1000 + u64::from(page));
    }
}

#[test]
fn a_half_recorded_commit_is_not_redone_over_reused_slots() {
    let machine = cut_between_two_records(2);
    flash_is_back(&machine);
    let used = || machine.cache.stats().slots_used;
    let recorded = (0..)
        .take_while(|&at| machine.cache.is_recorded(at))
        .count() as u64;
    let rest = used() - recorded;
    while used() > rest {
        machine.cache.step().unwrap();
    }
    assert!(
        !machine.cache.is_recorded(recorded),
        "the rest is in memory still"
    );
    let slots = machine.cache.stats().slots;
    let more: Vec<u32> = (600..1000).take((slots - rest) as usize - 10).collect();
    for &page in &more {
        machine.write(page, 2000 + u64::from(page));
    }
    machine.cache.sync_pages().unwrap();
    for &page in &more {
        assert!(machine.hits(page));
        assert_eq!(machine.read(page), 2000 + u64::from(page));
    }
    for page in 0..AT_ONCE {
        assert_eq!(machine.read(page), 1000 + u64::from(page));
    }
}

/// Promise: as `torn_pages_are_whole_at_home_before_their_copies_go`.
#[test]
fn torn_pages_are_made_whole_though_flash_took_some_since() {
    let options = CacheOptions {
        groups_unsynced_max: 120,
        second_chances_max: 0,
        ..options()
    };
    let machine = Machine::new(800, &options);
    let write = |of| (0..AT_ONCE).for_each(|page| _ = machine.write(page, of + u64::from(page)));
    write(1000);
    let _ = machine.cache.flush(|_| ControlFlow::Continue(())).unwrap();
    machine.cache.set_policy(WritePolicy::Around);
    write(2000);
    // Of the pages one of the last is written in part.
    let world = &machine.world;
    let before = world.operations.load(SeqCst);
    world.fail_at.store(before + u64::from(AT_ONCE), SeqCst);
    machine.cache.sync_pages().unwrap_err();
    let is_torn =
        |page: &u32| version_of(&world.home((0, 1), *page as usize * PAGE, PAGE)).is_none();
    assert!((0..AT_ONCE).find(is_torn).unwrap() > AT_ONCE - 20);
    // Of what flash takes one record has no room.
    machine.cache.set_policy(WritePolicy::Back);
    let before = world.points() - 1;
    machine.cache.sync_pages().unwrap();
    let points: Vec<usize> = (before..world.points()).collect();
    world.cut(&points, &mut Rng(5), |found, _, _| {
        let found = Machine::open(World::new(found), &options);
        for page in 0..AT_ONCE {
            let version = found.read(page) - u64::from(page);
            assert!([1000, 2000].contains(&version), "page {page}: {version}");
        }
    });
}

/// A clean page that waits in memory beside its newer version was recorded before that one, and a
/// crash in between brought it back though home was newer.
#[test]
fn a_page_sent_around_flash_never_gets_older_by_a_power_cut() {
    let options = CacheOptions {
        contents: AdmissionPolicy::All,
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

/// Whether it leaves flash or goes around it.
///
/// Promise (flash): A home gets no version of a page after a newer one, whether the page leaves
/// flash or goes around it, and whatever comes in meanwhile.
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
            &CacheOptions {
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
