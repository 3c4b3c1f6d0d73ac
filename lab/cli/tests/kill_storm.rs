//! Writers that are killed with SIGKILL at random moments, again and again: every acknowledged write is there with its
//! exact value, what was in flight is there as a whole or not at all, and nothing else is there.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_bench::{
    crash::{Mix, Storm},
    data::fresh_seed,
    rounds::Span,
    scratch::{PoolSource, ScratchDir, ScratchPool},
};
use forebay_store::Variant;
use std::sync::{Mutex, PoisonError};

/// One storm at a time: a child that another test has just started holds, until the kernel has closed them, copies of this
/// process's descriptors, and with them the lock of a store that was closed here and that a writer is to open.
static TURN: Mutex<()> = Mutex::new(());

/// Kills a writer of one store `kills` times.
fn storm(variant: Variant, kills: usize, mix: Mix, threads: u32) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let seed =
        std::env::var("FOREBAY_SEED").map_or_else(|_| fresh_seed(), |seed| seed.parse().unwrap());
    println!("{variant}: FOREBAY_SEED={seed}");
    let writer = [env!("CARGO_BIN_EXE_forebay-lab"), "internal", "write"]
        .map(str::to_owned)
        .to_vec();
    let dir = ScratchDir::new_in(&std::env::temp_dir()).unwrap();
    let buffers = match variant {
        Variant::Buffered(n) => u64::from(n),
        _ => 1,
    };
    let pool = ScratchPool::new(&PoolSource::Emulated, buffers, 1 << 20, None).unwrap();
    let in_pool = matches!(variant, Variant::Buffered(_)).then(|| pool.path());
    let mut storm = Storm::new(writer, &dir.path().join("store"), in_pool, variant, seed)
        .mix(mix)
        .threads(threads)
        .small();
    let mut acknowledged = 0;
    for kill in 1..=kills {
        let strike = storm.strike(Span { min: 0.0, max: 0.4 }).unwrap();
        let verdict = &strike.verdict;
        println!(
            "{variant}, kill {kill}: {} acknowledged, {} keys, {} in flight done, reopened in {:?}",
            verdict.acknowledged, verdict.keys, verdict.in_flight_done, strike.reopen
        );
        assert_eq!(
            verdict.wrong,
            Vec::<String>::new(),
            "{variant}, kill {kill}, seed {seed}"
        );
        assert_eq!(verdict.found, verdict.keys);
        acknowledged += verdict.acknowledged;
    }
    assert!(acknowledged > 100, "the writers hardly wrote");
}

/// Everything, with values beyond half a segment.
const ALL: Mix = Mix::All {
    value_bytes_max: 700_000,
};

#[test]
fn the_double_buffer_loses_nothing_in_8_kills() {
    storm(Variant::DOUBLE, 8, ALL, 3);
}

#[test]
fn the_single_buffer_loses_nothing_in_6_kills() {
    storm(Variant::SINGLE, 6, ALL, 2);
}

#[test]
fn four_buffers_lose_nothing_in_6_kills() {
    storm(Variant::Buffered(4), 6, ALL, 4);
}

#[test]
fn a_sync_at_each_put_loses_nothing_in_4_kills() {
    storm(Variant::Fsync, 4, ALL, 2);
}

#[test]
fn without_syncs_a_kill_loses_nothing_either_in_3_kills() {
    storm(Variant::NoSync, 3, ALL, 2);
}

#[test]
fn puts_of_new_keys_at_full_speed_lose_nothing_in_3_kills() {
    storm(Variant::DOUBLE, 3, Mix::Puts, 1);
}
