//! A pool on a disk is none for a store.

use forebay_pool::PoolOptions;
use forebay_store::StoreOptions;

#[test]
fn a_store_with_a_pool_on_a_disk_is_refused_for_what_it_is_and_nothing_is_made() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = PoolOptions::new().size(4 << 20).segment_size(64 << 10);
    let pool = options
        .on_disk(true)
        .create(dir.path().join("pool"))
        .unwrap();
    let store = dir.path().join("store");
    let refused = StoreOptions::new().open(&store, &pool).map(drop);
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("lies on a disk"), "{why}");
    assert!(!store.exists());
}
