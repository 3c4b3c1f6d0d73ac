//! Cuts at random moments, twice in a row: what was acknowledged, or committed, is there in any
//! variant.

use crate::{
    common::{Rng, VARIANTS, compression, new_disk, new_sim, oracle::Known, tiny},
    machine::{LARGE, Machine, SMALL},
    session::{WRITERS, record},
};
use forebay_store::{Durability, KeyspaceOptions, StoreOptions};
use std::time::{Duration, Instant};

/// How a session opens the store: the variant, whether what it acknowledges lasts, and all options.
fn options(rng: &mut Rng, collects: bool) -> (Durability, bool, StoreOptions) {
    let resident = rng.chance(4);
    let variant = match resident {
        true => Durability::Buffered(12),
        false => VARIANTS[rng.below(5) as usize],
    };
    let options = tiny(variant)
        .resident(resident)
        .compression(compression(rng.next() % 8))
        // Without, a resident store is full some time.
        .gc(collects || resident)
        .space_amplification_max(1.2)
        .file_size(2 << 20);
    (variant, variant != Durability::NoSync, options)
}

/// As [`options`], for a pool on a disk: one in three does not commit its puts.
fn options_on(on_disk: bool, rng: &mut Rng, collects: bool) -> (Durability, bool, StoreOptions) {
    let (variant, lasts, options) = options(rng, collects);
    let commits = !on_disk || !rng.chance(3);
    let is_buffered = matches!(variant, Durability::Buffered(_));
    (
        variant,
        lasts && (commits || !is_buffered),
        options.commit_puts(commits),
    )
}

/// How writers make keyspaces of their own: some compress, of some values expire, which none here
/// does.
fn keyspaces(rng: &mut Rng) -> KeyspaceOptions {
    let options = KeyspaceOptions::new().compression(compression(rng.next() % 8));
    match rng.chance(2) {
        true => options.ttl(Duration::from_secs(1_000_000)),
        false => options,
    }
}

fn two_crashes(seed: u64, on_disk: bool) {
    println!("CRASH_SEED={seed}");
    let mut rng = Rng(seed);
    let work = tempfile::tempdir().unwrap();
    let scale = if seed.is_multiple_of(4) { LARGE } else { SMALL };
    let (first_variant, first_lasts, first) = options_on(on_disk, &mut rng, true);
    let sim = match on_disk {
        true => new_disk(scale.segment_bytes),
        false => new_sim(scale.segment_bytes),
    };
    let machine = Machine::with(&work.path().join("first"), sim, scale.segment_bytes);
    let known = Known::nothing(WRITERS, keyspaces(&mut rng));
    let place = work.path().join("1");
    let one = record(
        machine,
        (first_lasts, &first),
        &known,
        scale,
        &mut rng,
        &place,
    );
    for cut in 0..4 {
        let (point, copy, known) = one.moment(&mut rng);
        let dir = work.path().join(format!("cut {cut}"));
        let machine = one.cut(point, copy, &mut rng, &dir);
        let (second_variant, second_lasts, second) = options_on(on_disk, &mut rng, cut == 0);
        let when = format!(
            "seed {seed}, {}: {} cut at {point} of {}, then {}",
            if on_disk { "on a disk" } else { "in memory" },
            first_variant,
            one.images.points(),
            second_variant
        );
        if cut > 0 {
            let store = machine.open(&second);
            known.judge(&store, &when);
            let problems = store.verify().unwrap().problems;
            assert!(problems.is_empty(), "{when}: {problems:?}");
            continue;
        }
        let place = work.path().join("2");
        let two = record(
            machine,
            (second_lasts, &second),
            &known,
            scale,
            &mut rng,
            &place,
        );
        for again in 0..4 {
            let (point, copy, known) = two.moment(&mut rng);
            let dir = work.path().join(format!("cut {cut} {again}"));
            let machine = two.cut(point, copy, &mut rng, &dir);
            let (third_variant, _, third) = options_on(on_disk, &mut rng, false);
            let when = format!(
                "{when}, cut at {point} of {}, then {}",
                two.images.points(),
                third_variant
            );
            let store = machine.open(&third);
            known.judge(&store, &when);
            let problems = store.verify().unwrap().problems;
            assert!(problems.is_empty(), "{when}: {problems:?}");
        }
    }
}

fn many_times_two_crashes(on_disk: bool) {
    if let Ok(seed) = std::env::var("CRASH_SEED") {
        return two_crashes(seed.parse().unwrap(), on_disk);
    }
    // Other seeds each time; a failure says which one it was, and CRASH_SEED repeats it.
    let mut seeds = Rng(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    let begun = Instant::now();
    for round in 0.. {
        two_crashes(seeds.below(1_000_000_000), on_disk);
        if round >= 4 && begun.elapsed() > Duration::from_secs(15) {
            break;
        }
    }
}

/// Promise (store): A store never returns anything that was not written to it.
/// Promise (store): Writes that a `nosync` store flushed survive a power cut, and the later ones
/// end at some operation, with none before it missing.
/// Promise (store): Writes that a buffered or `fsync` store acknowledged survive a power cut at any
/// moment of opening, writing, draining, collecting and closing, and a second one in the recovery.
/// Promise: as `a_batch_is_whole_or_nothing_and_a_keys_last_operation_counts`.
/// Promise: as `a_large_value_stays_until_its_replacement_is_on_the_disk`.
#[test]
fn every_acknowledged_write_is_there_after_two_power_cuts() {
    many_times_two_crashes(false);
}

/// Promise (store): Writes that a store with a pool on a disk acknowledged survive power cuts and
/// kills at any moment, as with any pool.
/// Promise: as `a_crash_leaves_committed_puts_and_a_stretch_behind_them`.
#[test]
fn every_write_committed_to_a_disk_survives_two_power_cuts() {
    many_times_two_crashes(true);
}
