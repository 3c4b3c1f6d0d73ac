//! Arbitrary bytes as records of a lane of the files tier, recovered.
//!
//! Promise: as `crates/files/tests/replay_fuzzed.rs`.
#![no_main]

#[path = "../../crates/files/tests/support/replay_fuzzed.rs"]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzed::replay(data));
