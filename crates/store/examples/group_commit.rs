//! A pool on an ordinary disk: each put is committed, or many are by one commit. What was committed
//! is there after a crash.

use forebay_pool::PoolOptions;
use forebay_store::{ScanRange, StoreOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir_in(".")?;
    let (path, data) = (dir.path().join("pool"), dir.path().join("data"));
    let options = PoolOptions::new().size(8 << 20).segment_size(1 << 20);
    let pool = options.on_disk(true).create(&path)?;

    let store = StoreOptions::new().open(&data, &pool)?;
    for number in 0..100u32 {
        store.put(&number.to_be_bytes(), b"value")?; // one write to the disk: durable when this returns
    }
    drop(store);

    let options = StoreOptions::new().commit_puts(false);
    let store = options.close_on_drop(false).open(&data, &pool)?;
    for number in 100..200u32 {
        store.put(&number.to_be_bytes(), b"value")?; // a copy to memory
    }
    store.commit()?; // one write to the disk: all of them are durable
    store.put(b"late", b"value")?;
    drop((store, pool)); // as after a kill: what was in memory is gone

    let pool = PoolOptions::new().open(&path)?;
    let store = StoreOptions::new().open(&data, &pool)?;
    let found = store.scan(ScanRange::all().keys_only())?.count();
    println!("200 puts were committed, one was not; {found} are there");
    Ok(())
}
