//! The cache's promise, at every point in time at which the power can fail: every page whose sync
//! had returned reads back its newest synced version or a later one, whole; what was cut off or
//! dropped never comes back.
//!
//! `FOREBAY_SEED=n` repeats a failure.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::FlashError;
use std::{
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
};
use support::{
    Rng,
    devices::{Contents, World},
    model::{FILES, Model, PAGE, PAGES},
    session::{Session, create, judge, new_contents, open, options},
    with_seeds,
};

/// How a chain of sessions runs.
#[derive(Clone, Copy, Default)]
struct Plan {
    /// One operation of a device in so many fails; 0 for none.
    fail_one_in: u64,
    /// Crash points that are judged in each session; 0 for all.
    points: u64,
    past: bool,
    resizes: bool,
    /// Each file has a thread of its own.
    threads: bool,
    flash_lies: bool,
    home_lies: bool,
}

/// Runs a session on `contents`: the machine afterwards.
fn session(
    contents: Contents,
    model: &Model,
    version: &mut u64,
    rng: &mut Rng,
    plan: Plan,
) -> Arc<World> {
    let world = World::new(contents);
    world.flash_lies.store(plan.flash_lies, SeqCst);
    world.home_lies.store(plan.home_lies, SeqCst);
    let cache = open(&world, &options(rng)).expect("the cache opens");
    world.fail_one_in(plan.fail_one_in, rng.next());
    let session = |rng: &mut Rng, version: u64, only| Session {
        world: &world,
        cache: &cache,
        model: model.clone(),
        rng: Rng(rng.next()),
        version,
        past: plan.past,
        resizes: plan.resizes,
        only,
    };
    if plan.threads {
        thread::scope(|scope| {
            for inode in 0..FILES {
                let session = session(rng, *version + inode * 1000, Some(inode));
                scope.spawn(move || operate(session, 20, plan));
            }
        });
        *version += FILES * 1000;
    } else {
        let count = 20 + rng.below(80);
        *version = operate(session(rng, *version, None), count, plan);
    }
    drop(cache);
    world.fail_one_in(0, 0);
    world
}

/// So many operations: the last version that was written.
fn operate(mut session: Session<'_>, count: u64, plan: Plan) -> u64 {
    for _ in 0..count {
        if let Err(e) = session.operate() {
            let injected = plan.fail_one_in > 0;
            let emptying = matches!(e, FlashError::StillWritten(_));
            assert!(injected || emptying, "{e}");
        }
    }
    session.version
}

/// Recovers `contents` and judges every page by what was promised.
fn recover(contents: &Contents, model: &Model, rng: &mut Rng) -> Result<Model, String> {
    let world = World::new(contents.clone());
    let mut model = model.clone();
    let cache = open(&world, &options(rng)).map_err(|e| e.to_string())?;
    judge(&world, &cache, &mut model)?;
    if rng.chance(4) {
        // Everything home, and then the files are all there is.
        let emptied = cache.empty(|_| ControlFlow::Continue(()));
        let _ = emptied.map_err(|e| e.to_string())?;
        for (inode, page) in (0..FILES).flat_map(|i| (0..PAGES).map(move |p| (i, p))) {
            let bytes = world.home(model.file(inode), page as usize * PAGE, PAGE);
            model.found(inode, page, &bytes)?;
        }
    }
    Ok(model)
}

/// Three sessions, each after a power cut of the one before.
fn chain(rng: &mut Rng, plan: Plan) -> Result<(), String> {
    let mut contents = new_contents(24 + rng.below(30), 1 + rng.below(3) as u16);
    let mut model = Model::default();
    let mut version = 0;
    for _ in 0..3 {
        let world = session(contents.clone(), &model, &mut version, rng, plan);
        let all = world.points();
        let mut points: Vec<usize> = match plan.points {
            0 => (0..all).collect(),
            some => (0..some).map(|_| rng.below(all as u64) as usize).collect(),
        };
        points.sort_unstable();
        let goes_on = points[rng.below(points.len() as u64) as usize];
        let mut next = None;
        let mut failed = None;
        let mut number = 0;
        world.cut(&points.clone(), rng, |found, events, rng| {
            let point = points[number];
            number += 1;
            let mut known = model.clone();
            known.learn_all(events);
            match recover(&found, &known, rng) {
                Err(what) => {
                    failed.get_or_insert(format!("cut at {point} of {all}: {what}"));
                }
                // Read once more by the next session: what was found stays so.
                Ok(judged) if point == goes_on => next = Some((found, judged)),
                Ok(_) => {}
            }
        });
        if let Some(failed) = failed {
            return Err(failed);
        }
        (contents, model) = next.expect("one of the points goes on");
    }
    Ok(())
}

/// Promise (flash): A page that was cut off or dropped never comes back once `forget_pages` or
/// `drop_file` returned.
/// Promise: as `at_every_single_point_of_a_session_the_power_may_fail`.
/// Promise: as `what_threads_were_promised_survives_any_power_cut`.
/// Promise: as `a_page_that_was_torn_at_home_is_repaired_from_flash`.
/// Promise: as `torn_pages_are_whole_at_home_before_their_copies_go`.
/// Promise: as `a_page_read_ahead_does_not_count_once_it_has_changed`.
/// Promise: as `emptying_a_cache_in_use_fails_or_leaves_all_pages_at_home`.
#[test]
fn every_synced_page_is_there_whole_after_any_power_cut() {
    let plan = Plan {
        points: 6,
        ..Plan::default()
    };
    with_seeds(1500, |rng| chain(rng, plan).unwrap());
}

/// Promise (flash): Synced pages are there again after a power cut of the next session, and after
/// one in the middle of the recovery.
#[test]
fn at_every_single_point_of_a_session_the_power_may_fail() {
    with_seeds(6, |rng| chain(rng, Plan::default()).unwrap());
}

/// Promise (flash): When `Cache::sync` returns, every page that was enqueued before reads back
/// whole after a power cut, as it was or newer.
/// Promise: as `pages_go_home_before_a_sync_returns_while_flash_is_no_gain`.
#[test]
fn what_threads_were_promised_survives_any_power_cut() {
    let plan = Plan {
        points: 6,
        past: true,
        threads: true,
        ..Plan::default()
    };
    with_seeds(600, |rng| chain(rng, plan).unwrap());
}

/// Promise (flash): A page that goes past the cache is not undone by an older one in it.
/// Promise: as `a_kill_while_flash_takes_no_page_loses_and_tears_nothing`.
/// Promise: as `pages_go_home_before_a_sync_returns_while_flash_is_no_gain`.
#[test]
fn pages_past_the_cache_are_as_safe_as_their_writer_makes_them() {
    let plan = Plan {
        points: 6,
        past: true,
        ..Plan::default()
    };
    with_seeds(1000, |rng| chain(rng, plan).unwrap());
}

/// Promise: as `a_cache_of_another_size_has_what_it_had_and_goes_on`.
#[test]
fn every_synced_page_survives_power_cuts_between_resizes() {
    with_seeds(1000, |rng| {
        let plan = Plan {
            points: 6,
            resizes: true,
            past: rng.chance(2),
            threads: rng.chance(3),
            fail_one_in: [0, 10 + rng.below(40)][rng.below(2) as usize],
            ..Plan::default()
        };
        chain(rng, plan).unwrap();
    });
}

/// Promise (flash): An operation that fails on either device, once or for a while, loses nothing
/// that was synced, before a power cut or without one.
/// Promise: as `a_kill_while_flash_takes_no_page_loses_and_tears_nothing`.
/// Promise: as `pages_go_home_before_a_sync_returns_while_flash_is_no_gain`.
#[test]
fn whatever_fails_before_the_power_does_nothing_synced_is_lost() {
    with_seeds(1000, |rng| {
        let plan = Plan {
            points: 6,
            fail_one_in: 5 + rng.below(40),
            past: true,
            threads: rng.chance(4),
            ..Plan::default()
        };
        chain(rng, plan).unwrap();
    });
}

/// Promise (flash): A power cut while a cache is made leaves blank flash or a cache.
#[test]
fn a_power_cut_during_creation_leaves_blank_flash_or_a_cache() {
    with_seeds(20, |rng| {
        let made = new_contents(24, 2);
        let mut blank = made.clone();
        blank.flash.fill(0);
        blank.pool = support::session::blank_pool();
        let world = World::new(blank);
        drop(create(&world, 2).unwrap());
        let points: Vec<usize> = (0..world.points()).collect();
        world.cut(&points, rng, |found, _, rng| {
            let world = World::new(found);
            match open(&world, &options(rng)) {
                Ok(_) => {}
                Err(FlashError::NotACache { .. }) => drop(create(&world, 2).unwrap()),
                Err(e) => panic!("{e}"),
            }
            let cache = open(&world, &options(rng)).unwrap();
            judge(&world, &cache, &mut Model::default()).unwrap();
        });
    });
}

/// Runs chains until one shows a loss: how many it took.
fn until_loss(plan: Plan, chains_max: u64) -> Option<u64> {
    (0..chains_max).find(|seed| {
        let run = || chain(&mut Rng(*seed), plan);
        !matches!(catch_unwind(AssertUnwindSafe(run)), Ok(Ok(())))
    })
}

/// Promise (flash): The crash tests see the loss of a flash or a home that says that it has synced
/// and has not.
#[test]
fn control_metadata_before_the_flash_is_synced_loses_pages() {
    let plan = Plan {
        points: 6,
        flash_lies: true,
        ..Plan::default()
    };
    assert!(until_loss(plan, 100).is_some(), "the test sees no loss");
}

/// Promise: as `control_metadata_before_the_flash_is_synced_loses_pages`.
#[test]
fn control_reusing_a_slot_before_its_homes_sync_loses_pages() {
    let plan = Plan {
        points: 6,
        home_lies: true,
        ..Plan::default()
    };
    assert!(until_loss(plan, 100).is_some(), "the test sees no loss");
}
