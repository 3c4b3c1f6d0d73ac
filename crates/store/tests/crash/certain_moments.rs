//! Cuts at certain moments: when a large value was replaced, behind a killed session, between two
//! value-log files, in a first opening, in one with `resident`; and a pool that lost what the index
//! has.

use crate::{
    common::{
        self, Rng,
        crash_disk::DISK_NOTE,
        hook_disk::{Doing, HookDisk},
        new_disk, new_sim, tiny,
    },
    machine::{Machine, SMALL, cut_now, without_pool},
};
use forebay_pool::PoolOptions;
use forebay_store::{Durability, StoreOptions};
use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// Promise (store): The collector removes nothing before its replacement is as durable as it was.
#[test]
fn a_large_value_stays_until_its_replacement_is_on_the_disk() {
    let work = tempfile::tempdir().unwrap();
    // Nothing is merged into the index, and so nothing synced on that account.
    let options = tiny(Durability::NoSync)
        .memtable_size(4 << 20)
        .chunk_log_size(64 << 20);
    let live = work.path().join("live");
    let (machine, store) = without_pool(&live, &options);
    let large = vec![7; 100_000];
    store.put(b"key", &large).unwrap();
    store.flush().unwrap();
    store.put(b"key", b"small").unwrap();
    // The collector looks around when a quarter as much was written.
    let files = || common::files_in(&live.join("large")).len();
    let begun = Instant::now();
    for i in 0.. {
        if files() == 0 {
            break;
        }
        store.put(&(i as u32).to_be_bytes(), &[7; 1000]).unwrap();
        thread::sleep(Duration::from_millis(1));
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it is never collected"
        );
    }
    for seed in 0..8 {
        let found = work.path().join(format!("found {seed}"));
        cut_now(&machine, seed, &found);
        let store = options.open(&found, None).unwrap();
        let value = store.get(b"key").unwrap().unwrap();
        assert!(value == large || value == b"small");
    }
}

/// Promise (store): Writes that a killed session did not sync are on the disk before a later
/// session acknowledges anything behind it.
#[test]
fn a_killed_sessions_writes_are_synced_before_the_log_goes_on() {
    for bytes in [4032 - 34 - 3, 100, 4032 + 4096 - 34 - 3] {
        let work = tempfile::tempdir().unwrap();
        let live = work.path().join("live");
        let (machine, store) = without_pool(&live, &tiny(Durability::NoSync));
        store.put(b"old", &vec![7; bytes]).unwrap();
        drop(store);
        let store = machine.open(&tiny(Durability::DOUBLE));
        store.put(b"new", b"value").unwrap();
        let images = machine.sim.crash_images();
        for seed in 0..8 {
            let found = work.path().join(format!("found {seed}"));
            cut_now(&machine, seed, &found);
            let machine = Machine::after(&found, images.at(images.points() - 1, || true));
            let store = machine.open(&tiny(Durability::DOUBLE));
            assert_eq!(store.get(b"new").unwrap().unwrap(), b"value");
            assert_eq!(store.get(b"old").unwrap().unwrap(), vec![7; bytes]);
        }
    }
}

#[test]
fn a_first_record_that_arrives_before_a_seal_stops_no_opening() {
    let work = tempfile::tempdir().unwrap();
    let options = tiny(Durability::Fsync).gc(false).memtable_size(4 << 20);
    let (machine, store) = without_pool(&work.path().join("live"), &options);
    // As it is then: whatever the index is told of later is on the disk.
    let (opened, index) = (machine.disk.events(), work.path().join("index"));
    common::copy_dir(&machine.dir.join("index"), &index);
    let mut acknowledged = Vec::new();
    for i in 0..50u32 {
        store.put(&i.to_be_bytes(), &[7; 3500]).unwrap();
        acknowledged.push(machine.disk.events());
    }
    for events in opened..machine.disk.events() {
        for seed in 0..6 {
            let found = work.path().join(format!("found {events} {seed}"));
            fs::create_dir_all(&found).unwrap();
            machine.disk.image(events, &mut Rng(seed), &found);
            common::copy_dir(&index, &found.join("index"));
            let store = options.open(&found, None).unwrap();
            let there = acknowledged.iter().filter(|at| **at <= events);
            for (i, _) in there.enumerate() {
                let value = store.get(&(i as u32).to_be_bytes()).unwrap();
                assert_eq!(value.unwrap(), [7; 3500]);
            }
            drop(store);
            fs::remove_dir_all(&found).unwrap();
        }
    }
}

/// Promise (store): A store refuses a pool that lost records which the index has, and keeps every
/// write that it acknowledges after a `salvage`.
#[test]
fn a_pool_lacking_indexed_records_is_refused_and_reuses_no_lsn() {
    let work = tempfile::tempdir().unwrap();
    let options = tiny(Durability::DOUBLE).gc(false);
    let machine = Machine::new(&work.path().join("live"), SMALL.segment_bytes);
    let store = machine.open(&options);
    store.put(b"first", b"1").unwrap();
    let images = machine.sim.crash_images();
    let early = images.at(images.points() - 1, || true);
    for i in 0..50u32 {
        store.put(&i.to_be_bytes(), &[7; 3000]).unwrap();
    }
    store.gc().unwrap();
    let found = work.path().join("found");
    cut_now(&machine, 0, &found);

    let machine = Machine::after(&found, early);
    let refused = options.open(&found, &machine.pool).err();
    let refused = refused.unwrap().to_string();
    assert!(refused.contains("its index was told of it"), "{refused}");
    let salvage = options.clone().salvage(true);
    let store = machine.open(&salvage);
    assert_eq!(store.get(b"first").unwrap().unwrap(), b"1");
    store.put(b"second", b"2").unwrap();
    let images = machine.sim.crash_images();
    let image = images.at(images.points() - 1, || true);
    for (round, variant) in [Durability::DOUBLE, Durability::Fsync]
        .into_iter()
        .enumerate()
    {
        let found = work.path().join(format!("found {round}"));
        cut_now(&machine, 0, &found);
        let machine = Machine::after(&found, image.clone());
        let options = options.clone().durability(variant);
        for _ in 0..2 {
            let store = machine.open(&options);
            assert_eq!(store.get(b"first").unwrap().unwrap(), b"1");
            assert_eq!(store.get(b"second").unwrap().unwrap(), b"2");
        }
    }
}

/// Promise (store): A power cut between two value-log files costs no acknowledged write, and the
/// next session goes on where the log ended.
#[test]
fn a_file_whose_predecessor_did_not_arrive_is_begun_again() {
    for seed in 0..4 {
        let work = tempfile::tempdir().unwrap();
        // The index stays empty: all of the log is walked at an opening.
        let options = tiny(Durability::NoSync)
            .memtable_size(4 << 20)
            .chunk_log_size(64 << 20);
        let (machine, store) = without_pool(&work.path().join("live"), &options);
        // Up to the moment at which the second file is in the manifest: the first one is not synced
        // yet.
        let two = || common::value_log_files(&machine.dir).len() == 2;
        let mut i = 0u32;
        while !two() {
            store.put(&i.to_be_bytes(), &[i as u8; 20_000]).unwrap();
            i += 1;
        }
        let done = machine.disk.events();
        drop(store);
        // Some of the last operations are undone: the first file's sync among them.
        for back in 1..10 {
            let found = work.path().join(format!("found {back}"));
            fs::create_dir_all(&found).unwrap();
            machine.disk.image(done - back, &mut Rng(seed), &found);
            common::copy_dir(&machine.dir.join("index"), &found.join("index"));
            for round in 0..2u8 {
                let Ok(store) = options.open(&found, None) else {
                    panic!("seed {seed}, {back} operations before the end, round {round}");
                };
                for i in 0..60u32 {
                    store.put(&[round, i as u8], &[i as u8; 20_000]).unwrap();
                }
                drop(store);
            }
            let store = options.open(&found, None).unwrap();
            for round in 0..2u8 {
                for i in 0..60u32 {
                    let value = store.get(&[round, i as u8]).unwrap().unwrap();
                    assert_eq!(value, [i as u8; 20_000]);
                }
            }
            assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        }
    }
}

/// Whatever the opening that was cut had taken in the pool, with other options.
#[test]
fn a_cut_first_opening_costs_a_resident_store_no_room() {
    let work = tempfile::tempdir().unwrap();
    for on_disk in [false, true] {
        let sim = match on_disk {
            true => new_disk(SMALL.segment_bytes),
            false => new_sim(SMALL.segment_bytes),
        };
        let live = work.path().join(format!("live {on_disk}"));
        let machine = Machine::with(&live, sim, SMALL.segment_bytes);
        drop(machine.open(&tiny(Durability::Buffered(4))));
        let images = machine.sim.crash_images();
        for point in 0..images.points() {
            let cut = |number: &u64| *number == DISK_NOTE;
            let events = images.notes_before(point).filter(cut).count();
            let dir = work.path().join(format!("cut {on_disk} {point}"));
            fs::create_dir_all(&dir).unwrap();
            machine.disk.image(events, &mut Rng(1), &dir);
            if dir.join("MANIFEST").exists() {
                // It is empty, from its first moment on.
                common::copy_dir(&live.join("index"), &dir.join("index"));
            }
            let sim = Arc::new(machine.sim.of_its_kind(images.at(point, || true)));
            if PoolOptions::new().open_on("pool", sim.clone()).is_err() {
                // It was not yet made.
                continue;
            }
            let machine = Machine::on(&dir, sim);
            let _store = machine.open(&tiny(Durability::Buffered(12)).resident(true));
            let segments = machine.pool.lanes()[0].segments;
            assert_eq!(segments, 12, "on a disk: {on_disk}, cut at {point}");
        }
    }
}

/// A machine on which a session wrote a segment to a file, and was killed before it could release
/// it from its lane.
fn written_and_not_released(dir: &Path, options: &StoreOptions) -> Machine {
    let machine = Machine::new(dir, SMALL.segment_bytes);
    let failed = Arc::new(AtomicBool::new(false));
    let disk = HookDisk::new({
        let (written, failed) = (AtomicBool::new(false), Arc::clone(&failed));
        let is_file = |path: &Path| path.extension().is_some_and(|e| e == "vlog");
        move |doing| {
            match doing {
                Doing::Write(path, 4096..) if is_file(path) => written.store(true, SeqCst),
                Doing::Sync(path) if is_file(path) && written.load(SeqCst) => {
                    failed.store(true, SeqCst);
                    return Err(io::Error::other("the disk is broken"));
                }
                _ => {}
            }
            Ok(())
        }
    });
    let store = options.open_on(disk, None, dir, &machine.pool).unwrap();
    for i in 0..3u8 {
        store.put(&[i], &[i; 30_000]).unwrap();
    }
    let begun = Instant::now();
    while !failed.load(SeqCst) {
        assert!(begun.elapsed() < Duration::from_secs(60), "no drain");
        thread::sleep(Duration::from_millis(1));
    }
    drop(store);
    Machine::after(dir, machine.sim.image())
}

#[test]
fn a_file_forgotten_by_a_cut_resident_opening_stops_no_other() {
    let work = tempfile::tempdir().unwrap();
    let (live, index) = (work.path().join("live"), work.path().join("index"));
    let options = tiny(Durability::Buffered(12))
        .gc(false)
        .memtable_size(4 << 20)
        .chunk_log_size(64 << 20);
    let resident = options.clone().resident(true);
    let machine = written_and_not_released(&live, &options);
    common::copy_dir(&live.join("index"), &index);
    assert_eq!(common::value_log_files(&live).len(), 1);
    drop(machine.open(&resident));
    assert!(common::value_log_files(&live).is_empty());
    let images = machine.sim.crash_images();
    // The last moment of the pool after each number of operations of the disk.
    let moments: BTreeMap<usize, usize> = (0..images.points())
        .map(|point| {
            let notes = images.notes_before(point);
            (notes.filter(|number| *number == DISK_NOTE).count(), point)
        })
        .collect();
    for (events, point) in moments {
        for seed in 0..4 {
            for options in [&options, &resident] {
                let found = work.path().join(format!("found {events} {seed}"));
                fs::create_dir_all(&found).unwrap();
                machine.disk.image(events, &mut Rng(seed), &found);
                common::copy_dir(&index, &found.join("index"));
                let machine = Machine::after(&found, images.at(point, || true));
                let store = machine.open(options);
                for i in 0..3u8 {
                    assert_eq!(store.get(&[i]).unwrap().unwrap(), [i; 30_000]);
                }
                drop(store);
                fs::remove_dir_all(&found).unwrap();
            }
        }
    }
}
