//! Arbitrary bytes as a file, read by `forebay_store::fuzzed::large_value`. The directory is in
//! memory where there is one that is.
//!
//! Promise: as `crates/store/tests/fuzzed.rs`.
#![no_main]

use std::{env, fs, path::Path, process, sync::OnceLock};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static DIR: OnceLock<std::path::PathBuf> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let above = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
        let dir = above.join(format!("forebay-fuzz-{}", process::id()));
        fs::create_dir_all(&dir).expect("a directory for the file");
        dir
    });
    forebay_store::fuzzed::large_value(dir, data);
});
