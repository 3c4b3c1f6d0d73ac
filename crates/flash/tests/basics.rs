//! Pages that come in, and pages that stay.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{AdmissionPolicy, CacheOptions, Enqueued, ReadOutcome};
use std::{ops::ControlFlow, sync::atomic::Ordering::SeqCst};
use support::{
    machine::{GROUP, Machine, options},
    model::{PAGE, page_of, version_of},
};

#[test]
fn scattered_pages_go_to_flash_in_consecutive_groups() {
    let machine = Machine::new(100, &options());
    let before = machine.world.flash_writes().len();
    for n in 0..3 * GROUP {
        assert!(machine.write(n * 311 % 1000, u64::from(n) + 1));
    }
    let writes = machine.world.flash_writes().split_off(before);
    let group = GROUP as usize * PAGE;
    assert_eq!(writes.len(), 3);
    for (n, (offset, bytes)) in writes.iter().enumerate() {
        assert_eq!((*offset, *bytes), (writes[0].0 + n * group, group));
    }
    assert_eq!(machine.cache.stats().flash_syncs, 1, "the opening's");
}

#[test]
fn a_sync_writes_a_partial_group_and_a_second_sync_nothing() {
    let machine = Machine::new(100, &options());
    let before = machine.world.flash_writes().len();
    machine.write(5, 1);
    machine.write(6, 2);
    assert_eq!(machine.world.flash_writes().len(), before);
    machine.sync();
    let writes = machine.world.flash_writes();
    assert_eq!((writes.len(), writes[before].1), (before + 1, 2 * PAGE));
    let syncs = machine.cache.stats().flash_syncs;
    machine.sync();
    assert_eq!(machine.cache.stats().flash_syncs, syncs);
    assert_eq!((machine.home(5), machine.read(5)), (0, 1));
}

#[test]
fn of_many_versions_of_a_page_one_goes_home() {
    let machine = Machine::new(40, &options());
    for version in 1..=500 {
        machine.write(7, version);
    }
    let stats = machine.cache.stats();
    assert_eq!(
        (stats.home_pages, stats.pages, stats.dirty_pages),
        (0, 1, 1)
    );
    assert!(stats.slots_used > 1);
    assert!(stats.dropped_versions > 400, "{stats:?}");
    let _ = machine.cache.empty(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(
        (machine.home(7), machine.cache.stats().home_pages),
        (500, 1)
    );
}

#[test]
fn what_leaves_the_queue_goes_home_in_sorted_batches() {
    let machine = Machine::new(40, &options());
    for n in 0..200u32 {
        machine.write(n * 311 % 1000, u64::from(n) + 1);
    }
    let stats = machine.cache.stats();
    assert!(stats.home_pages >= 160, "{stats:?}");
    // The simulated home asserts their order.
    assert!(stats.home_pages / stats.home_batches >= 4, "{stats:?}");
    for n in 0..200u32 {
        assert_eq!(machine.read(n * 311 % 1000), u64::from(n) + 1);
    }
}

#[test]
fn a_page_that_is_read_stays_while_the_queue_turns() {
    let machine = Machine::new(40, &options());
    machine.write(999, 1);
    for n in 0..400u32 {
        machine.write(n, u64::from(n) + 2);
        assert!(machine.hits(999), "after {n}");
    }
    let stats = machine.cache.stats();
    assert!(stats.second_chances >= 8, "{stats:?}");
    assert_eq!(stats.home_pages + stats.dirty_pages, 401);
    assert!(!machine.hits(100));
}

/// Promise (flash): The queue moves on, whatever is read.
#[test]
fn the_queue_moves_and_loses_nothing_though_all_pages_are_read() {
    for chances in [0, 1, 4, 7] {
        let machine = Machine::with(40, |options| options.second_chances_max = chances);
        for n in 0..300u32 {
            machine.write(n, u64::from(n) + 1);
            for page in 0..=n {
                let _ = machine.hits(page);
            }
        }
        assert_eq!(machine.cache.stats().second_chances > 0, chances > 0);
        for n in 0..300u32 {
            assert_eq!(machine.read(n), u64::from(n) + 1);
        }
    }
}

#[test]
fn clean_pages_come_in_if_they_are_wanted_and_never_go_home() {
    for (contents, expected) in [
        (AdmissionPolicy::Dirty, false),
        (AdmissionPolicy::All, true),
    ] {
        let machine = Machine::with(40, |options| options.contents = contents);
        for page in 0..200 {
            assert_eq!(machine.read(page), 0);
        }
        assert_eq!(machine.hits(199), expected);
        let stats = machine.cache.stats();
        assert_eq!((stats.admitted > 0, stats.home_pages), (expected, 0));
    }
}

/// Promise (flash): A home that cannot be synced keeps no page of another home on flash.
#[test]
fn reads_of_a_file_whose_home_cannot_be_synced_try_it_once() {
    let machine = Machine::with(40, |options| options.contents = AdmissionPolicy::All);
    machine.world.home_gone.store(true, SeqCst);
    let before = machine.world.operations.load(SeqCst);
    let admitted = |page| {
        let mut bytes = vec![0; PAGE];
        let ReadOutcome::Miss(ticket) =
            machine.cache.read(&machine.file, page, &mut bytes).unwrap()
        else {
            panic!("page {page} is in the cache");
        };
        machine.cache.admit(&machine.file, page, &bytes, ticket)
    };
    admitted(0).unwrap_err();
    assert!((1..10).all(|page| !admitted(page).unwrap()));
    assert_eq!(machine.world.operations.load(SeqCst) - before, 1);
}

#[test]
fn a_scan_bypasses_the_cache_and_scattered_reads_do_not() {
    let machine = Machine::with(60, |options| {
        options.contents = AdmissionPolicy::All;
        options.bypass_reads = 4;
    });
    for n in 0..100 {
        machine.read(n);
        if n % 10 == 0 {
            machine.read(900 - n * 3);
        }
    }
    assert!(machine.hits(2) && !machine.hits(50) && machine.hits(900));
    assert!(machine.cache.stats().bypassed >= 95);
}

#[test]
fn sequential_writes_bypass_the_cache_but_not_a_newer_page() {
    let machine = Machine::with(60, |options| options.bypass_writes = 4);
    machine.write(20, 1);
    let cached: Vec<u32> = (10..30).filter(|n| machine.write(*n, 2)).collect();
    assert_eq!(cached, [10, 11, 12, 20]);
}

/// Promise (flash): A page that is read at home counts as clean only if it is durable there.
#[test]
fn a_page_read_at_home_before_it_was_written_is_not_cached() {
    let machine = Machine::with(60, |options| {
        options.contents = AdmissionPolicy::All;
        options.bypass_writes = 4;
    });
    let (cache, file) = (&machine.cache, &machine.file);
    machine.sync();
    let miss = |page| match cache.read(file, page, &mut vec![0; PAGE]).unwrap() {
        ReadOutcome::Miss(ticket) => ticket,
        ReadOutcome::Hit => panic!("page {page} is there"),
    };
    // Written, gone home, and forgotten by the cache since the reader looked.
    let ticket = miss(7);
    machine.write(7, 1);
    let _ = cache.empty(|_| ControlFlow::Continue(())).unwrap();
    assert!(!cache.admit(file, 7, &page_of(0), ticket).unwrap());
    // Being written past the cache, before and after the write itself.
    assert!(machine.write(5, 1) && machine.write(6, 1));
    let before = miss(8);
    // The fourth page of a row goes past.
    assert!(machine.write(7, 2));
    let Enqueued::Past(writing) = cache.enqueue(file, 8, &page_of(2)).unwrap() else {
        panic!("it went to the cache");
    };
    let during = miss(8);
    assert!(!cache.admit(file, 8, &page_of(0), before).unwrap());
    assert!(!cache.admit(file, 8, &page_of(0), during).unwrap());
    machine.world.write_past((0, 1), 8 * PAGE, &page_of(2));
    drop(writing);
    assert!(!cache.admit(file, 8, &page_of(0), during).unwrap());
    // Not durable at home: a crash could take it away there and leave it here.
    assert!(!cache.admit(file, 8, &page_of(2), miss(8)).unwrap());
    machine.sync();
    assert!(cache.admit(file, 8, &page_of(2), miss(8)).unwrap());
}

/// A machine that takes whatever is read for a scan, and reads by which it was read at home.
fn scanned(slots: u64) -> Machine {
    let options = CacheOptions {
        bypass_reads: 1,
        ..options()
    };
    Machine::new(slots, &options)
}

/// Reads a page, if it was read ahead: its version, and how many bytes were read at home for it.
fn ahead(machine: &Machine, page: u32) -> (Option<u64>, usize) {
    let mut bytes = vec![0; PAGE];
    let ReadOutcome::Miss(ticket) = machine.cache.read(&machine.file, page, &mut bytes).unwrap()
    else {
        panic!("page {page} is on flash");
    };
    let mut read = 0;
    let home = &mut |to: &mut [u8], offset| {
        let done = machine.world.read_home((0, 1), to, offset);
        read = to.len();
        done
    };
    let is_there = (machine.cache).read_ahead(&machine.file, page, &ticket, &mut bytes, home);
    (is_there.then(|| version_of(&bytes).unwrap()), read)
}

#[test]
fn a_scan_reads_home_in_blocks_and_cached_pages_from_flash() {
    let machine = scanned(200);
    for page in [70, 90] {
        assert!(machine.write(page, 7));
    }
    assert_eq!(ahead(&machine, 64), (Some(0), 64 * PAGE));
    for page in (65..128).filter(|page| ![70, 90].contains(page)) {
        assert_eq!(ahead(&machine, page), (Some(0), 0));
    }
    assert_eq!((machine.read(70), machine.read(90)), (7, 7));
    // Each is given once: who asks again may have waited for long.
    assert_eq!(ahead(&machine, 65), (None, 0));
    // Seen late in a block: what lies before it was read already.
    assert_eq!(ahead(&machine, 160), (Some(0), 32 * PAGE));
}

/// Promise (flash): A page that was read ahead of a scan is served only as long as the file and the
/// cache have the same.
#[test]
fn a_page_read_ahead_does_not_count_once_it_has_changed() {
    let machine = scanned(200);
    let (cache, file) = (&machine.cache, &machine.file);
    machine.write(4, 1);
    machine.sync();
    assert!(ahead(&machine, 0).0.is_some());
    // Written before and after it, gone home, and forgotten by the cache.
    machine.write(5, 1);
    machine.sync();
    let _ = cache.empty(|_| ControlFlow::Continue(())).unwrap();
    for page in [4, 5] {
        assert_eq!((machine.home(page), ahead(&machine, page).0), (1, None));
    }
    assert_eq!(ahead(&machine, 6).0, Some(0));
    // Punched, of which no page was in the cache.
    cache.forget_pages(file, 7, 7).unwrap();
    machine.world.write_past((0, 1), 8 * PAGE, &page_of(9));
    assert_eq!(ahead(&machine, 8), (Some(9), 64 * PAGE));
}

#[test]
fn read_ahead_skips_ends_of_files_and_mostly_cached_blocks() {
    let machine = scanned(200);
    // 1000 pages: the last block has 40.
    assert_eq!(ahead(&machine, 960), (Some(0), 64 * PAGE));
    assert_eq!(ahead(&machine, 998), (Some(0), 0));
    assert_eq!(ahead(&machine, 1000), (None, 0));
    for page in 136..180 {
        machine.write(page, 1);
    }
    assert_eq!(ahead(&machine, 130), (None, 0));
}
