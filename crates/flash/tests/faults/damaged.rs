//! Pages and checkpoints that are damaged on flash: a clean page is read at home, a dirty one is
//! named and never served, and nothing older takes the place of either.

use crate::{
    LENGTH, SLOTS, machine, options, read,
    support::{
        devices::World,
        model::{PAGE, version_of},
        session::{self, new_contents},
    },
    turn, write,
};
use forebay_flash::{CacheOptions, FlashError, WritePolicy, layout};
use std::ops::ControlFlow;

/// Promise (flash): A page that is damaged on flash is never served, and is read at home if home
/// has the same.
#[test]
fn a_damaged_clean_page_is_read_at_home() {
    let (world, cache, file) = machine();
    write(&cache, &file, 3, 33).unwrap();
    let _ = cache.flush(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(world.damage(33), 1);
    assert_eq!(read(&world, &cache, &file, 3).unwrap(), 33);
    assert_eq!(cache.stats().damaged, 1);
    // It was read at home and came in anew.
    assert_eq!(read(&world, &cache, &file, 3).unwrap(), 33);
    assert_eq!(cache.stats().damaged, 1);
    let mut version = 100;
    turn(&cache, &file, 2 * SLOTS, &mut version);
    assert_eq!(read(&world, &cache, &file, 3).unwrap(), 33);
}

/// Promise (flash): A damaged page whose only copy was on flash is named by every read, whatever
/// the queue and restarts do, until it is written again or given up.
#[test]
fn a_damaged_dirty_page_is_named_until_it_is_written_again() {
    let (world, cache, file) = machine();
    write(&cache, &file, 3, 32).unwrap();
    write(&cache, &file, 3, 33).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(world.damage(33), 1);
    let named = |e: FlashError| {
        assert!(
            e.to_string().starts_with("page 3 of t0.ibd is damaged"),
            "{e}"
        )
    };
    named(read(&world, &cache, &file, 3).unwrap_err());
    // The queue turns, and it is not forgotten; nor by a kill.
    let mut version = 100;
    turn(&cache, &file, 3 * SLOTS, &mut version);
    named(read(&world, &cache, &file, 3).unwrap_err());
    assert_eq!(cache.stats().lost_pages, 1);
    assert_eq!(
        version_of(&world.home((0, 1), 3 * PAGE, PAGE)),
        Some(0),
        "nothing went home"
    );
    drop(cache);
    let cache = session::open(&world, &options()).unwrap();
    named(read(&world, &cache, &file, 3).unwrap_err());
    let e = cache.empty(|_| ControlFlow::Continue(())).unwrap_err();
    assert!(
        e.to_string().contains("beginning with page 3 of t0.ibd"),
        "{e}"
    );
    turn(&cache, &file, 3 * SLOTS, &mut version);
    // Written again, it is whole.
    write(&cache, &file, 3, 34).unwrap();
    cache.sync(&file).unwrap();
    assert_eq!(read(&world, &cache, &file, 3).unwrap(), 34);
    let _ = cache.empty(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(version_of(&world.home((0, 1), 3 * PAGE, PAGE)), Some(34));
}

/// Promise: as `a_damaged_dirty_page_is_named_until_it_is_written_again`.
#[test]
fn a_lost_page_can_be_given_up_and_the_cache_emptied() {
    let (world, cache, file) = machine();
    write(&cache, &file, 3, 33).unwrap();
    cache.sync(&file).unwrap();
    world.damage(33);
    cache.set_policy(WritePolicy::Off);
    let mut steps = 0;
    while cache.step().unwrap().more {
        steps += 1;
        assert!(steps < 100, "a lost page turns the queue for ever");
    }
    assert!(cache.empty(|_| ControlFlow::Continue(())).is_err());
    cache.forget_pages(&file, 3, 3).unwrap();
    let _ = cache.empty(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(cache.stats().slots_used, 0);
    assert_eq!(read(&world, &cache, &file, 3).unwrap(), 0);
}

/// Promise: as `a_damaged_dirty_page_is_named_until_it_is_written_again`.
#[test]
fn the_queue_goes_on_or_reports_and_never_hangs_on_lost_pages() {
    for (second_chances_max, count) in [(2, 12), (0, 12), (2, 33), (0, 36)] {
        let options = CacheOptions {
            second_chances_max,
            ..options()
        };
        let world = World::new(new_contents(SLOTS, 2));
        world.set_length((0, 1), LENGTH * PAGE);
        let cache = session::open(&world, &options).unwrap();
        let file = session::register(&cache, (0, 1)).unwrap();
        for page in 0..count {
            write(&cache, &file, page, u64::from(page) + 1).unwrap();
        }
        cache.sync(&file).unwrap();
        for page in 0..count {
            assert_eq!(world.damage(u64::from(page) + 1), 1);
        }
        let refused = (0..300).find_map(|n| write(&cache, &file, 40 + n % 8, 1000).err());
        let says = refused.map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(says.is_empty(), count == 12, "{says}");
        assert!(
            count == 12 || says.contains("pages are damaged in the flash cache"),
            "{says}"
        );
        while cache.step().unwrap().more {}
        cache.forget_pages(&file, 0, 39).unwrap();
        write(&cache, &file, 47, 2000).unwrap();
        assert_eq!(read(&world, &cache, &file, 47).unwrap(), 2000);
        assert_eq!(cache.stats().lost_pages, 0);
    }
}

/// Promise (flash): An older checkpoint never stands in for a damaged one whose records are gone.
#[test]
fn a_damaged_checkpoint_is_refused_and_no_older_one_used() {
    let (world, cache, file) = machine();
    let mut version = 0;
    turn(&cache, &file, 20 * SLOTS, &mut version);
    assert!(cache.stats().checkpoints > 2);
    let newest = cache.stats().checkpoints;
    drop(cache);
    let made_and_opened = 2;
    let region = (newest - 1 + made_and_opened) % 2;
    let bytes = (layout::CHECKPOINT_HEADER + 4096) as usize;
    let at = layout::CHECKPOINTS as usize + region as usize * bytes;
    world.change_flash(|flash| flash[at + 30] ^= 1);
    let Err(e) = session::open(&world, &options()) else {
        panic!("opened");
    };
    assert!(matches!(e, FlashError::Damaged { .. }), "{e}");
}
