//! Arbitrary bytes, read by `forebay_store::fuzzed::compressed_value`.
//!
//! Promise: as `crates/store/tests/fuzzed.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_store::fuzzed::compressed_value(data));
