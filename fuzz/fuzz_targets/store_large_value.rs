//! Arbitrary bytes as a file, read by `forebay_store::fuzzed::large_value`. The directory is in
//! memory where there is one that is.
//!
//! Promise: as `crates/store/tests/fuzzed.rs`.
#![no_main]

#[path = "../memory_dir.rs"]
mod memory_dir;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    forebay_store::fuzzed::large_value(memory_dir::memory_dir(), data);
});
