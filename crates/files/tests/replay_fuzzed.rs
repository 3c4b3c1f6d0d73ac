//! The fuzz target's function, with the committed seeds and with random bytes: no lane, whatever it
//! says, makes a recovery panic, or write to a file that it does not name by its identity.
//!
//! Promise (rights): No bytes in a lane make a recovery panic, or write to a file that they do not
//! name by its identity.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/replay_fuzzed.rs"]
mod fuzzed;

use std::{fs, path::PathBuf};

#[test]
fn no_seed_of_the_replay_fuzzer_makes_a_replay_panic() {
    let seeds = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/replay");
    let mut number = 0;
    for seed in fs::read_dir(seeds).unwrap() {
        let path = seed.unwrap().path();
        eprintln!("{}", path.display());
        fuzzed::replay(&fs::read(&path).unwrap());
        number += 1;
    }
    assert!(number > 3);
}

#[test]
fn random_lanes_are_replayed_or_refused_and_write_nowhere_else() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..600 {
        let length = next() % 160;
        let mut data: Vec<u8> = (0..length).map(|_| (next() >> 32) as u8).collect();
        // Most begin with a file that is there, or nothing of them is ever written.
        if let [_, rest @ ..] = &mut data[..]
            && rest.len() > 8
            && next() % 4 != 0
        {
            rest[..8].copy_from_slice(&[0; 8]);
        }
        fuzzed::replay(&data);
    }
}
