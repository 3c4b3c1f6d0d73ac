//! Arbitrary bytes as a file, read by `forebay_store::fuzzed::dictionary`. The directory is in
//! memory where there is one that is.
//!
//! Promise: as `crates/store/tests/fuzzed.rs`.
#![no_main]

#[path = "../memory_dir.rs"]
mod memory_dir;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    forebay_store::fuzzed::dictionary(memory_dir::memory_dir(), data);
});
