//! Simulated devices, pages that can be judged byte by byte, and a model of what the cache has
//! promised.
#![allow(dead_code, reason = "each test program uses a part")]

mod cut;
pub mod devices;
pub mod held_devices;
mod homes;
pub mod machine;
pub mod model;
pub mod session;

pub use forebay_random::Rng;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::{SystemTime, UNIX_EPOCH},
};

/// Runs `test` with `count` seeds (times `FOREBAY_CASES` of 256), and prints the one that fails.
/// `FOREBAY_SEED=n` repeats it.
pub fn with_seeds(count: u64, test: impl Fn(&mut Rng)) {
    let cases = std::env::var("FOREBAY_CASES").map_or(256, |n| n.parse().unwrap());
    let given = std::env::var("FOREBAY_SEED").ok();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = match &given {
        Some(seed) => seed.parse().unwrap(),
        None => now.as_nanos() as u64,
    };
    let count = if given.is_some() {
        1
    } else {
        (count * cases / 256).max(1)
    };
    for seed in (0..count).map(|n| first.wrapping_add(n)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(&mut Rng(seed)))) {
            eprintln!("FOREBAY_SEED={seed}");
            resume_unwind(panic);
        }
    }
}
