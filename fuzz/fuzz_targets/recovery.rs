//! A pool with arbitrary bytes changed, opened, claimed, read and written to.
//!
//! Promise: as `crates/pool/tests/fuzzed.rs`.
#![no_main]

#[path = "../../crates/pool/tests/support/fuzzed.rs"]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzed::recovery(data));
