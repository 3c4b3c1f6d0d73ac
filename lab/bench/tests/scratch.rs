//! Pools and directories of measurements.
#![allow(clippy::unwrap_used, reason = "tests")]

use forebay_bench::scratch::{self, PoolSource, ScratchDir, ScratchMedia, drop_page_cache};
use forebay_device::memory::Profile;
use std::fs;

#[test]
fn a_slow_pool_says_so() {
    let pcm = Profile::named("pcm");
    let pool = scratch::pool(&PoolSource::Emulated, 1, 1 << 20, pcm).unwrap();
    assert!(pool.pool().describe().contains("pcm"));
    let floor = ScratchMedia::new(&PoolSource::Emulated, 1 << 16, pcm)
        .unwrap()
        .unwrap();
    assert!(floor.media.describe().contains("pcm"));
}

#[test]
fn the_page_cache_of_all_files_is_dropped() {
    let dir = ScratchDir::new_in(&std::env::temp_dir()).unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/file"), vec![1; 10_000]).unwrap();
    drop_page_cache(dir.path()).unwrap();
}
