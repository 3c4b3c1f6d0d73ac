//! Put, get and delete, with a pool in front of the disk.

use forebay_pool::PoolOptions;
use forebay_store::StoreOptions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    // In ordinary memory. On persistent memory: PoolOptions::new().create("/mnt/pmem/pool")
    let pool = PoolOptions::new()
        .emulated(true)
        .create(dir.path().join("pool"))?;
    let store = StoreOptions::new().open(dir.path().join("data"), &pool)?;

    store.put(b"key", b"value")?; // durable when this returns: one memory copy and a fence
    assert_eq!(store.get(b"key")?.as_deref(), Some(&b"value"[..]));
    store.delete(b"key")?;
    assert!(store.get(b"key")?.is_none());

    store.close()?; // the next opening has nothing to recover
    println!("put, got, deleted");
    Ok(())
}
