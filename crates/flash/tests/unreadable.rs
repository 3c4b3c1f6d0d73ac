//! Sectors of flash that cannot be read: a dirty page on one is named and set aside, what is at
//! home is never served for it, and the others go on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{CacheOptions, FlashError, WritePolicy, layout};
use std::{ops::ControlFlow, sync::atomic::Ordering::SeqCst};
use support::{
    machine::{GROUP, Machine, options},
    model::{PAGE, page_of},
    session,
};

const SLOTS: u64 = 64;

/// From now on the pages that hold this version cannot be read.
fn break_sector(machine: &Machine, version: u64) {
    let wanted = page_of(version);
    let flash = machine.world.live().flash;
    let data = flash.len() - SLOTS as usize * PAGE;
    let slots = flash[data..].chunks_exact(PAGE).enumerate();
    let places = slots.filter(|(_, slot)| *slot == wanted);
    let offsets: Vec<usize> = places.map(|(slot, _)| data + slot * PAGE + 512).collect();
    assert_eq!(offsets.len(), 1, "version {version}");
    machine.world.unreadable.lock().unwrap().extend(offsets);
}

/// Lets the whole queue turn, twice.
fn turn(machine: &Machine, version: u64) {
    for n in 0..2 * SLOTS {
        machine.write(200 + (n % 50) as u32, version + n);
    }
    machine.sync();
}

fn read_error(machine: &Machine, page: u32) -> FlashError {
    session::read(&machine.world, &machine.cache, &machine.file, page).unwrap_err()
}

/// Promise: as `a_damaged_dirty_page_is_named_until_it_is_written_again`.
#[test]
fn an_unreadable_dirty_page_is_set_aside_and_the_queue_goes_on() {
    for second_chances_max in [0, 4] {
        let options = CacheOptions {
            second_chances_max,
            ..options()
        };
        let machine = Machine::new(SLOTS, &options);
        machine.fill(GROUP);
        break_sector(&machine, 4);
        turn(&machine, 1000);
        let lost: Vec<String> = (machine.cache.lost_pages().iter())
            .map(ToString::to_string)
            .collect();
        assert_eq!(lost, ["page 3 of t0.ibd"]);
        // Its slot is another page's by now, and the sector was written: it stays lost, and is not
        // what home has.
        machine.world.unreadable.lock().unwrap().clear();
        let e = read_error(&machine, 3);
        assert!(matches!(e, FlashError::DamagedPage { .. }), "{e}");
        assert_eq!(machine.home(3), 0, "nothing went home for it");
        for page in [0, 1, 2, 4, 5, 6, 7] {
            assert_eq!(machine.read(page), u64::from(page) + 1);
        }
        // Nor is it forgotten by a restart.
        let Machine { world, cache, file } = machine;
        drop((cache, file));
        let machine = Machine::open(world, &options);
        let e = read_error(&machine, 3);
        assert!(matches!(e, FlashError::DamagedPage { .. }), "{e}");
        machine.write(3, 5000);
        machine.sync();
        assert_eq!(machine.read(3), 5000);
        assert!(machine.cache.lost_pages().is_empty());
        let _ = machine.cache.empty(|_| ControlFlow::Continue(())).unwrap();
        assert_eq!(machine.home(3), 5000);
    }
}

/// Promise: as `a_damaged_dirty_page_is_named_until_it_is_written_again`.
#[test]
fn while_flash_gives_nothing_at_all_no_page_is_given_up() {
    let machine = Machine::new(SLOTS, &options());
    machine.fill(GROUP);
    machine.cache.set_policy(WritePolicy::Off);
    machine.world.flash_gone.store(true, SeqCst);
    for _ in 0..3 {
        let e = machine.cache.step().unwrap_err();
        assert!(matches!(e, FlashError::UnreadablePage { .. }), "{e}");
    }
    machine.world.flash_gone.store(false, SeqCst);
    while machine.cache.step().unwrap().more {}
    assert!(machine.cache.lost_pages().is_empty());
    for page in 0..GROUP {
        assert_eq!(machine.home(page), u64::from(page) + 1);
    }
}

#[test]
fn a_cache_opens_by_the_header_and_checkpoint_it_can_read() {
    let region = (layout::CHECKPOINT_HEADER + 4096) as usize;
    let regions = [0, 1].map(|at| layout::CHECKPOINTS as usize + at * region);
    for header in layout::HEADERS {
        let machine = Machine::new(SLOTS, &options());
        machine.write(3, 33);
        machine.sync();
        let Machine { world, cache, file } = machine;
        // Made, and opened: the newest one is the second.
        assert_eq!(cache.stats().checkpoints, 1);
        drop((cache, file));
        let older = regions[1];
        *world.unreadable.lock().unwrap() = [header as usize, older].into();
        let machine = Machine::open(world, &options());
        assert_eq!(machine.read(3), 33);
    }
}
