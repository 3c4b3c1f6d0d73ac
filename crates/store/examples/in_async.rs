//! The store in an asynchronous program: each piece of work that may wait for a disk goes to a
//! thread that may be kept waiting, by `spawn_blocking`. A scan goes there as a whole.

use forebay_pool::PoolOptions;
use forebay_store::{Store, StoreError, StoreOptions};
use std::{error::Error, sync::Arc};

/// A store for tasks. Clones share it.
#[derive(Clone)]
struct AsyncStore(Arc<Store>);

impl AsyncStore {
    /// Does `work` where it may wait. It is done to its end, also if nobody waits for it any more.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Box<dyn Error + Send + Sync>> {
        let store = Arc::clone(&self.0);
        Ok(tokio::task::spawn_blocking(move || work(&store)).await??)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let dir = tempfile::tempdir_in(".")?;
    let pool = PoolOptions::new().size(8 << 20).segment_size(1 << 20);
    let pool = pool.on_disk(true).create(dir.path().join("pool"))?;
    let store = StoreOptions::new().open(dir.path().join("data"), &pool)?;
    let store = AsyncStore(Arc::new(store));

    // Tasks that put at the same time share the write to the disk.
    let mut tasks = Vec::new();
    for number in 0..50u32 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let key = format!("boat/{number:02}");
            store.with(move |store| store.put(&key, "blue")).await
        }));
    }
    for task in tasks {
        task.await??;
    }

    let boats = store.with(|store| store.prefix("boat/")?.collect::<Result<Vec<_>, _>>());
    println!("{} boats were put by as many tasks", boats.await?.len());

    // The last one closes it: so an error is told.
    if let Some(store) = Arc::into_inner(store.0) {
        tokio::task::spawn_blocking(|| store.close()).await??;
    }
    Ok(())
}
