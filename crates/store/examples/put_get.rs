//! Put, get and delete, on an ordinary disk: what was put survives a power cut.

use forebay_pool::PoolOptions;
use forebay_store::StoreOptions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir_in(".")?; // in your program: a directory that stays
    // A file of 64 MiB, best on a disk that syncs fast. On persistent memory: without on_disk.
    let pool = PoolOptions::new()
        .on_disk(true)
        .open_or_create(dir.path().join("pool"))?;
    let store = StoreOptions::new().open(dir.path().join("data"), &pool)?;

    store.put("key", "value")?; // durable when this returns
    assert_eq!(store.get("key")?.as_deref(), Some(&b"value"[..]));
    store.delete("key")?;
    assert!(!store.contains_key("key")?);

    store.close()?; // says what went wrong; dropped, the store is closed too
    println!("put, got, deleted");
    Ok(())
}
