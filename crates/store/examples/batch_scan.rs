//! A batch, which is written whole or not at all; scans in both directions; a snapshot, which later
//! writes leave as it is.

use forebay_pool::PoolOptions;
use forebay_store::{Batch, ScanRange, StoreOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let pool = PoolOptions::new()
        .emulated(true)
        .create(dir.path().join("pool"))?;
    let store = StoreOptions::new().open(dir.path().join("data"), &pool)?;

    let mut batch = Batch::new();
    for (fruit, price) in [("apple", "3"), ("cherry", "9"), ("pear", "4")] {
        batch.put(format!("fruit/{fruit}").as_bytes(), price.as_bytes())?;
    }
    batch.put(b"total", b"16")?;
    store.write(&batch)?;

    let before = store.snapshot()?;
    store.delete(b"fruit/cherry")?;

    for pair in store.range("fruit/b".."fruit/q")? {
        let (key, value) = pair?;
        println!("{} {}", key.escape_ascii(), value.escape_ascii());
    }
    for pair in store.scan(ScanRange::prefix("fruit/").reversed())? {
        let (key, value) = pair?;
        println!("{} {}", key.escape_ascii(), value.escape_ascii());
    }
    let keys = before.prefix("fruit/")?;
    println!("{} fruits before the delete", keys.count());
    drop(before);
    Ok(store.close()?)
}
