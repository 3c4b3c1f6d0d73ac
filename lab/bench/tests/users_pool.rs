//! A user's pool that is measured is left as it was.
#![allow(clippy::unwrap_used, reason = "tests")]

use forebay_bench::{
    pool_bench::{Config, run},
    scratch::PoolSource,
};

#[test]
fn a_users_pool_is_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.pool");
    let options = forebay_pool::PoolOptions::new()
        .size(8 << 20)
        .segment_size(1 << 20)
        .emulated(true);
    let free = options.create(&path).unwrap().segments_free();
    let config = Config {
        pool: PoolSource::At(path.clone()),
        sizes: vec![64, 1 << 20],
        threads: vec![1, 2],
        rounds: 1,
        slice_seconds: 0.005,
        profile: None,
        segment_bytes: 0,
        processes: Vec::new(),
        program: std::path::PathBuf::new(),
    };
    let report = run(&config, &|_| {}).unwrap();
    assert_eq!(
        report.rows.len(),
        2,
        "a size above half a segment is left out"
    );
    let pool = forebay_pool::PoolOptions::new().open(&path).unwrap();
    assert!(pool.lanes().is_empty());
    assert_eq!(pool.segments_free(), free);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
