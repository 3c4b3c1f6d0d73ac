//! A sync of a home that fails, and what others do beside it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{Cache, CachedFile, Enqueued, FlashError, WritePolicy};
use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};
use support::{
    Rng,
    devices::World,
    held_devices::HeldHome,
    machine::{GROUP, Machine, leaving, options},
    model::page_of,
    session,
};

/// Until a thread waits that was just started.
const A_WHILE: Duration = Duration::from_millis(200);

/// Brings pages home.
type GoHome = fn(&Cache) -> Result<(), FlashError>;
/// Syncs a home.
type SyncHome = fn(&Machine) -> Result<(), FlashError>;

/// Does `go_home` in a thread of its own, and so many times when a group is written home and not
/// synced `sync`, which fails.
fn beside_syncs_that_fail(
    times: usize,
    go_home: GoHome,
    sync: SyncHome,
    policy: WritePolicy,
) -> (Machine, Result<(), FlashError>) {
    let (machine, _, home) = Machine::held(60, &leaving());
    machine.cache.set_policy(policy);
    for page in 0..GROUP {
        machine.write(page, u64::from(page) + 1);
    }
    if policy == WritePolicy::Back {
        machine.cache.sync_pages().unwrap();
    }
    let went = thread::scope(|scope| {
        home.syncs.shut();
        let going = scope.spawn(|| go_home(&machine.cache));
        for _ in 0..times {
            home.syncs.wait();
            let world = &machine.world;
            let next = world.operations.load(SeqCst) + 1;
            world.fail_at.store(next, SeqCst);
            sync(&machine).unwrap_err();
            home.syncs.shut();
        }
        home.syncs.open();
        going.join().unwrap()
    });
    (machine, went)
}

/// Promise (flash): A failed sync of flash or of a home is never followed by one that only claims
/// success.
/// Promise: as `reads_of_a_file_whose_home_cannot_be_synced_try_it_once`.
#[test]
fn pages_are_not_home_if_another_threads_sync_of_it_failed() {
    let steps = |cache: &Cache| cache.step().map(drop);
    let flushes = |cache: &Cache| cache.flush(|_| ControlFlow::Continue(())).map(drop);
    let settles = |machine: &Machine| machine.cache.sync(&machine.file);
    let asks = |machine: &Machine| machine.cache.durable_bytes(&machine.file).map(drop);
    let ways: [(GoHome, SyncHome); 3] = [(steps, settles), (flushes, settles), (steps, asks)];
    let arounds: (GoHome, SyncHome) = (Cache::sync_pages, asks);
    let ways = ways.map(|way| (way, WritePolicy::Back));
    for ((go_home, sync), policy) in ways.into_iter().chain([(arounds, WritePolicy::Around)]) {
        let (machine, went) = beside_syncs_that_fail(1, go_home, sync, policy);
        went.unwrap();
        let batches = machine.cache.stats().home_batches;
        assert_eq!(batches, 2, "they are written once more");
        let last = [machine.world.points() - 1];
        for seed in 0..5 {
            machine.world.cut(&last, &mut Rng(seed), |found, _, _| {
                let found = Machine::open(World::new(found), &options());
                for page in 0..GROUP {
                    assert_eq!(found.read(page), u64::from(page) + 1);
                }
            });
        }
    }
}

/// Promise: as `pages_are_not_home_if_another_threads_sync_of_it_failed`.
#[test]
fn pages_stay_on_flash_while_syncs_of_their_home_fail() {
    let steps = |cache: &Cache| cache.step().map(drop);
    let asks = |machine: &Machine| machine.cache.durable_bytes(&machine.file).map(drop);
    let (machine, went) = beside_syncs_that_fail(3, steps, asks, WritePolicy::Back);
    let e = went.expect_err("the syncs that failed were theirs, too");
    assert!(matches!(e, FlashError::Home { .. }), "{e}");
    assert_eq!(machine.cache.stats().dirty_pages, u64::from(GROUP));
    machine.cache.step().unwrap();
    assert_eq!(machine.cache.stats().dirty_pages, 0);
}

/// A file with a page that is written past the cache, and another one, both of which have a page
/// that leaves flash with the next step. When it has synced the first one, which fails if that is
/// to, it waits at `home.synced`, which is shut.
fn beside_a_page_past_the_cache() -> (Machine, Arc<HeldHome>, Arc<CachedFile>) {
    let (machine, _, home) = Machine::held(60, &leaving());
    let other = session::register(&machine.cache, (1, 1)).unwrap();
    machine.write(0, 1);
    let _ = machine.cache.enqueue(&other, 0, &page_of(2)).unwrap();
    machine.cache.sync_pages().unwrap();
    let past = machine.cache.enqueue(&machine.file, 1000, &page_of(7));
    assert!(matches!(past, Ok(Enqueued::Past(_))));
    drop(past);
    (machine, home, other)
}

/// The operation that is so many after the last one fails.
fn fail_after(machine: &Machine, others: u64) {
    let world = &machine.world;
    let next = world.operations.load(SeqCst) + 1;
    world.fail_at.store(next + others, SeqCst);
}

/// Promise: as `pages_are_not_home_if_another_threads_sync_of_it_failed`.
#[test]
fn no_false_success_follows_a_failed_background_sync_of_a_home() {
    // The group is read, two pages are written home, and two homes synced: one of them fails.
    for failing in [3, 4] {
        let (machine, ..) = beside_a_page_past_the_cache();
        fail_after(&machine, failing);
        let e = machine.cache.step().unwrap_err();
        assert!(
            matches!(
                &e,
                FlashError::Home {
                    doing: "syncing it",
                    ..
                }
            ),
            "{e}"
        );
        let e = machine.cache.sync(&machine.file).unwrap_err();
        assert!(matches!(e, FlashError::SyncFailed { .. }), "{e}");
    }
}

/// Promise: as `pages_are_not_home_if_another_threads_sync_of_it_failed`.
#[test]
fn a_sync_that_ends_before_a_known_failure_is_no_success() {
    let (machine, home, _) = beside_a_page_past_the_cache();
    fail_after(&machine, 3);
    thread::scope(|scope| {
        home.synced.shut();
        let steps = scope.spawn(|| machine.cache.step());
        home.synced.wait();
        // Of the file it has failed, and of the other one it goes on.
        home.synced.shut();
        home.synced.wait();
        let syncs = scope.spawn(|| machine.cache.sync(&machine.file));
        thread::sleep(A_WHILE);
        home.synced.open();
        steps.join().unwrap().unwrap_err();
        let e = syncs.join().unwrap().unwrap_err();
        assert!(matches!(e, FlashError::SyncFailed { .. }), "{e}");
    });
}
