//! Arbitrary bytes, read by `forebay_store::fuzzed::manifest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_store::fuzzed::manifest(data));
