//! Arbitrary bytes, read by `forebay_store::fuzzed::index_manifest`.
//!
//! Promise: as `crates/store/tests/fuzzed.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_store::fuzzed::index_manifest(data));
