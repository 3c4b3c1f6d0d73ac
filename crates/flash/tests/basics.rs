//! What comes in, and what stays.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{Contents, Enqueued, Options, Read};
use std::ops::ControlFlow;
use support::{
    machine::{GROUP, Machine, options},
    model::{PAGE, page_of},
};

#[test]
fn scattered_pages_go_to_flash_a_group_at_a_time_one_behind_the_other() {
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
fn a_sync_sends_the_group_out_that_is_not_full_and_a_second_one_does_nothing() {
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

#[test]
fn when_every_page_is_read_the_queue_still_moves_and_nothing_is_lost() {
    for chances in [0, 1, 4, 7] {
        let options = Options {
            second_chances_max: chances,
            ..options()
        };
        let machine = Machine::new(40, &options);
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
    for (contents, expected) in [(Contents::Dirty, false), (Contents::All, true)] {
        let options = Options {
            contents,
            ..options()
        };
        let machine = Machine::new(40, &options);
        for page in 0..200 {
            assert_eq!(machine.read(page), 0);
        }
        assert_eq!(machine.hits(199), expected);
        let stats = machine.cache.stats();
        assert_eq!((stats.admitted > 0, stats.home_pages), (expected, 0));
    }
}

#[test]
fn a_scan_goes_past_the_cache_and_scattered_reads_beside_it_do_not() {
    let options = Options {
        contents: Contents::All,
        bypass_reads: 4,
        ..options()
    };
    let machine = Machine::new(60, &options);
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
fn a_row_of_writes_goes_past_the_cache_if_asked_for_but_not_over_a_newer_page() {
    let options = Options {
        bypass_writes: 4,
        ..options()
    };
    let machine = Machine::new(60, &options);
    machine.write(20, 1);
    let cached: Vec<u32> = (10..30).filter(|n| machine.write(*n, 2)).collect();
    assert_eq!(cached, [10, 11, 12, 20]);
}

#[test]
fn a_page_that_was_read_at_home_before_it_was_written_does_not_come_in() {
    let options = Options {
        contents: Contents::All,
        bypass_writes: 4,
        ..options()
    };
    let machine = Machine::new(60, &options);
    let (cache, file) = (&machine.cache, &machine.file);
    machine.sync();
    let miss = |page| match cache.read(file, page, &mut vec![0; PAGE]).unwrap() {
        Read::Miss(ticket) => ticket,
        Read::Hit => panic!("page {page} is there"),
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
