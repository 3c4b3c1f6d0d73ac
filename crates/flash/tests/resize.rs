//! Another size, with what is in the cache: warm, whole, and whatever it is cut by.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use forebay_flash::{AdmissionPolicy, CacheOptions, FlashError, ResizedCache, layout::CacheHeader};
use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering::SeqCst},
};
use support::{
    Rng,
    devices::{Contents as Devices, World},
    machine::{GROUP, Machine, options},
    session::bytes_for,
};

/// Slots before, and after.
const SIZES: [[u64; 2]; 4] = [[60, 200], [60, 75], [120, 60], [200, 70]];
/// Pages that are written before a resize, so that the queue is in one lap, in two, or full.
const WRITTEN: [u64; 4] = [20, 55, 90, 250];
/// Pages that there are.
const PAGES: u64 = 40;

fn resize(machine: &Machine, slots: u64) -> Result<ResizedCache, FlashError> {
    (machine.cache).resize(bytes_for(slots), |_| ControlFlow::Continue(()))
}

/// A cache with so many writes, one after the other over all pages: the last version of each page.
fn filled(slots: u64, writes: u64, options: &CacheOptions) -> (Machine, Vec<u64>) {
    let machine = Machine::new(slots, options);
    let mut last = vec![0; PAGES as usize];
    for version in 1..=writes {
        let page = version * 7 % PAGES;
        assert!(machine.write(page as u32, version));
        last[page as usize] = version;
    }
    machine.sync();
    (machine, last)
}

fn check(machine: &Machine, last: &[u64], said: &str) {
    for (page, &version) in last.iter().enumerate() {
        assert_eq!(machine.read(page as u32), version, "page {page}, {said}");
    }
}

fn reopened(machine: Machine, options: &CacheOptions) -> Machine {
    let world = World::new(machine.world.live());
    drop((machine.cache, machine.file));
    Machine::open(world, options)
}

/// Promise (flash): A cache that is given another size in use keeps every synced page, and has one
/// of the two sizes, whatever fails, dies or is cut.
#[test]
fn a_cache_of_another_size_has_what_it_had_and_goes_on() {
    for ([before, after], writes) in SIZES.iter().flat_map(|s| WRITTEN.map(|w| (*s, w))) {
        let said = format!("{before} to {after} after {writes}");
        let (machine, mut last) = filled(before, writes, &options());
        let now = machine.cache.stats();
        let resized = resize(&machine, after).unwrap();
        let then = machine.cache.stats();
        assert!(
            resized.complete && resized.slots.abs_diff(after) < 20,
            "{said}"
        );
        assert_eq!(then.slots, resized.slots);
        if after > before {
            assert_eq!(
                (then.pages, then.dirty_pages),
                (now.pages, now.dirty_pages),
                "{said}"
            );
            assert_eq!(resized.pages, 0, "{said}");
        }
        let machine = reopened(machine, &options());
        check(&machine, &last, &said);
        let again = machine.cache.stats();
        assert_eq!(
            (again.pages, again.dirty_pages, again.slots),
            (then.pages, then.dirty_pages, then.slots),
            "{said}"
        );
        // Twice round, and resized again in the middle.
        for version in 1000..1000 + 3 * after {
            let page = version * 11 % PAGES;
            machine.write(page as u32, version);
            last[page as usize] = version;
            if version % 5 == 0 {
                machine.cache.step().unwrap();
            }
            if version == 1000 + after {
                let _ = resize(&machine, before + 30).unwrap();
            }
        }
        machine.sync();
        check(&machine, &last, &said);
        check(&reopened(machine, &options()), &last, &said);
    }
}

#[test]
fn a_shrinking_cache_writes_home_the_lost_slots_pages_only() {
    let machine = Machine::with(200, |options| options.second_chances_max = 0);
    machine.fill(100);
    let resized = resize(&machine, 70).unwrap();
    let stayed = resized.slots.min(100 - resized.pages);
    assert!((30..=50).contains(&resized.pages), "{resized:?}");
    let stats = machine.cache.stats();
    assert_eq!((stats.pages, stats.dirty_pages), (stayed, stayed));
    assert_eq!(machine.world.home_writes().len() as u64, resized.pages);
    assert!(stats.slots_used + u64::from(GROUP) <= stats.slots);
    assert!((0..100).all(|page| machine.read(page) == u64::from(page) + 1));
    // Without those of the oldest group: as many slots are free, so that the queue goes on.
    let stay: Vec<u32> = (0..100).filter(|&page| machine.hits(page)).collect();
    let group = u64::from(GROUP);
    assert_eq!(stay, (GROUP..GROUP + stayed as u32).collect::<Vec<u32>>());
    assert_eq!(stayed + group, stats.slots);
}

/// Promise (flash): A resized cache never reads old bytes in its new slots, and a superseded
/// version does not come back when the version after it goes.
#[test]
fn new_slots_are_used_and_their_old_bytes_never_read() {
    let options = CacheOptions {
        contents: AdmissionPolicy::All,
        ..options()
    };
    let (machine, _) = filled(60, 90, &options);
    let resized = resize(&machine, 300).unwrap();
    assert!(resized.slots > 280);
    let read_before = machine.cache.stats().damaged;
    let mut version = 1000;
    for _ in 0..2 {
        for page in 0..resized.slots as u32 * 3 / 4 {
            version += 1;
            machine.write(page, version);
            while machine.cache.step().unwrap().more {}
        }
        machine.sync();
    }
    // As many as it has room for are in it, and not one was read where it had not been written.
    let in_it = (0..resized.slots as u32 * 3 / 4).filter(|&page| machine.hits(page));
    assert!(in_it.count() as u64 > resized.slots * 2 / 3);
    assert_eq!(machine.cache.stats().damaged, read_before);
}

#[test]
fn a_resize_may_be_stopped_until_its_pages_are_home() {
    for [before, after] in SIZES {
        let (machine, last) = filled(before, 90, &options());
        let slots = machine.cache.stats().slots;
        let flash_bytes = || machine.world.live().flash.len();
        let there = flash_bytes();
        let stop = |_| ControlFlow::Break(());
        let stopped = machine.cache.resize(bytes_for(after), stop).unwrap();
        assert!(!stopped.complete);
        assert_eq!(machine.cache.stats().slots, slots);
        assert_eq!(flash_bytes(), there, "it keeps space of the other size");
        let mut said = Vec::new();
        let resized = machine.cache.resize(bytes_for(after), |progress| {
            said.push((progress.done, progress.of));
            ControlFlow::Continue(())
        });
        assert!(resized.unwrap().complete);
        let (done, of) = *said.last().unwrap();
        assert_eq!((done, said[0].0), (of, 0));
        check(&machine, &last, "resized");
    }
}

/// A resize with everything before it durable, and its machine.
fn begun([before, after]: [u64; 2], writes: u64) -> (Arc<World>, Vec<u64>, u64) {
    let (machine, last) = filled(before, writes, &options());
    let world = World::new(machine.world.live());
    (world, last, after)
}

/// Promise: as `a_cache_of_another_size_has_what_it_had_and_goes_on`.
#[test]
fn a_resize_cut_anywhere_has_either_size_and_is_repeated() {
    for (size, writes) in SIZES.iter().flat_map(|s| WRITTEN.map(|w| (*s, w))) {
        let (world, last, after) = begun(size, writes);
        let machine = Machine::open(world.clone(), &options());
        let slots = [
            machine.cache.stats().slots,
            resize(&machine, after).unwrap().slots,
        ];
        let points: Vec<usize> = (0..world.points()).collect();
        let mut seen = [0; 2];
        for seed in 0..3 {
            world.cut(&points, &mut Rng(seed), |found, _, _| {
                let machine = Machine::open(World::new(found), &options());
                let now = machine.cache.stats().slots;
                let which = slots.iter().position(|s| *s == now);
                seen[which.expect("one of the two sizes")] += 1;
                check(&machine, &last, "cut");
                let again = resize(&machine, after).unwrap();
                assert_eq!((again.slots, again.complete), (slots[1], true));
                let bytes = machine.world.live().flash.len() as u64;
                assert_eq!(bytes, bytes_for(after), "the file has its length");
                check(&machine, &last, "repeated");
                check(&reopened(machine, &options()), &last, "opened");
            });
        }
        assert!(seen[0] > 3 && seen[1] > 3, "{seen:?}");
    }
}

/// How many operations a resize takes.
fn operations_of(size: [u64; 2], writes: u64) -> u64 {
    let (world, _, after) = begun(size, writes);
    let machine = Machine::open(world.clone(), &options());
    let before = world.operations.load(SeqCst);
    let _ = resize(&machine, after).unwrap();
    world.operations.load(SeqCst) - before
}

/// Promise: as `a_cache_of_another_size_has_what_it_had_and_goes_on`.
#[test]
fn a_resize_loses_nothing_whichever_operation_fails() {
    for (size, writes) in SIZES.iter().flat_map(|s| WRITTEN.map(|w| (*s, w))) {
        for n in 1..=operations_of(size, writes) {
            let (world, mut last, after) = begun(size, writes);
            let machine = Machine::open(world.clone(), &options());
            world
                .fail_at
                .store(world.operations.load(SeqCst) + n, SeqCst);
            let said = format!("{size:?} after {writes}, operation {n}");
            let _ = resize(&machine, after);
            check(&machine, &last, &said);
            machine.write(3, 5000);
            machine.sync();
            last[3] = 5000;
            let machine = reopened(machine, &options());
            check(&machine, &last, &said);
            let again = resize(&machine, after).unwrap();
            assert!(again.complete, "{said}");
            check(&reopened(machine, &options()), &last, &said);
        }
    }
}

/// Promise: as `a_cache_of_another_size_has_what_it_had_and_goes_on`.
#[test]
fn synced_pages_survive_flash_that_dies_anywhere_in_a_resize() {
    let mut half = 0;
    for (size, writes) in SIZES.iter().flat_map(|s| WRITTEN.map(|w| (*s, w))) {
        for n in 1..=operations_of(size, writes) {
            let (world, mut last, after) = begun(size, writes);
            let machine = Machine::open(world.clone(), &options());
            (world.flash_gone_at).store(world.operations.load(SeqCst) + n, SeqCst);
            let said = format!("{size:?} after {writes}, flash dies at operation {n}");
            let failed = resize(&machine, after);
            let wrote = machine
                .cache
                .enqueue(&machine.file, 3, &support::model::page_of(5000));
            drop(wrote.unwrap());
            match (machine.cache.sync(&machine.file), &failed) {
                (Ok(()), _) => last[3] = 5000,
                (Err(FlashError::HalfResized { .. }), Err(FlashError::HalfResized { .. })) => {
                    half += 1;
                }
                (Err(e), _) => panic!("{e}, {said}"),
            }
            let machine = reopened(machine, &options());
            let page = machine.read(3);
            assert!(page == last[3] || failed.is_err() && page == 5000, "{said}");
            last[3] = page;
            check(&machine, &last, &said);
        }
    }
    // The one moment in which only the device knows: its header was half written.
    assert!(half > 0);
}

#[test]
fn a_flash_file_keeps_its_length_after_a_torn_resize_header() {
    let (before, writes) = (60, 90);
    let mut half = 0;
    for n in 1..=operations_of([before, 200], writes) {
        let (world, last, after) = begun([before, 200], writes);
        let machine = Machine::open(world.clone(), &options());
        let bytes_before = world.live().flash.len() as u64;
        (world.flash_gone_at).store(world.operations.load(SeqCst) + n, SeqCst);
        if !matches!(resize(&machine, after), Err(FlashError::HalfResized { .. })) {
            continue;
        }
        half += 1;
        // The device is back. Which of the sizes counts, only an open can tell.
        world.flash_gone_at.store(0, SeqCst);
        world.flash_gone.store(false, SeqCst);
        let bytes = world.live().flash.len();
        for wanted in [bytes_before, bytes_for(after)] {
            let again = (machine.cache).resize(wanted, |_| ControlFlow::Continue(()));
            assert!(
                matches!(again, Err(FlashError::HalfResized { .. })),
                "{again:?}"
            );
            assert_eq!(world.live().flash.len(), bytes);
        }
        check(&reopened(machine, &options()), &last, "opened");
    }
    assert!(half > 0);
}

/// The two headers, by the layout that they say.
fn layouts(devices: &Devices) -> [Option<u32>; 2] {
    [0, 4096].map(|at| {
        let header = CacheHeader::decode(&devices.flash[at..at + 4096]).ok();
        header.map(|header| header.geometry.layout())
    })
}

#[test]
fn an_old_header_is_rewritten_and_never_used_after_a_resize() {
    let (machine, mut last) = filled(60, 90, &options());
    let before = machine.world.live();
    let _ = resize(&machine, 150).unwrap();
    let old = |devices: &mut Devices, at: usize| {
        devices.flash[at..at + 4096].copy_from_slice(&before.flash[at..at + 4096]);
    };
    for at in [0, 4096] {
        let mut found = machine.world.live();
        assert_eq!(layouts(&found), [Some(1); 2]);
        old(&mut found, at);
        let opened = Machine::open(World::new(found), &options());
        assert_eq!(layouts(&opened.world.live()), [Some(1); 2], "mended");
        check(&opened, &last, "mended");
    }
    machine.write(3, 5000);
    machine.sync();
    last[3] = 5000;
    let mut found = machine.world.live();
    old(&mut found, 0);
    old(&mut found, 4096);
    let e = support::session::open(&World::new(found), &options())
        .err()
        .unwrap();
    assert!(matches!(e, FlashError::Damaged { .. }), "{e}");
    check(&reopened(machine, &options()), &last, "untouched");
}

#[test]
fn a_page_that_is_lost_keeps_its_slot_from_going() {
    let (machine, last) = filled(120, 100, &options());
    assert!(machine.world.damage(100) > 0);
    let e = resize(&machine, 60).unwrap_err();
    assert!(
        matches!(e, FlashError::DamagedPages { count: 1, .. }),
        "{e}"
    );
    // Its page is the last one that was written, and so in a slot that goes. What is whole is
    // there.
    let lost = (100 * 7 % PAGES) as u32;
    for (page, &version) in last
        .iter()
        .enumerate()
        .filter(|(page, _)| *page != lost as usize)
    {
        assert_eq!(machine.read(page as u32), version);
    }
    machine.write(lost, 9000);
    machine.sync();
    assert!(resize(&machine, 60).unwrap().complete);
    assert_eq!(machine.read(lost), 9000);
}
