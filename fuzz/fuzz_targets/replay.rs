//! Arbitrary bytes as records of a lane of the files tier, recovered.
#![no_main]

#[path = "../../crates/files/tests/support/fuzzed.rs"]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzed::replay(data));
