//! The store of Forebay under the driver.

use super::driver::{DrivenStore, DriverOrder, ScanCount, StoreFailure, drive};
use crate::BenchError;
use forebay_pool::PoolOptions;
use forebay_store::{Durability, Store, StoreOptions};

/// In a child: does what `order` (JSON) says with a store of ours.
///
/// # Errors
/// Those of the store; [`BenchError::Wrong`] if it gives a wrong answer.
pub fn run_order(order: &str) -> Result<(), BenchError> {
    let order = DriverOrder::received(order)?;
    let pool = order.pool.as_ref().map(|path| {
        let pool = PoolOptions::new().open(path);
        pool.map_err(BenchError::from)
    });
    let pool = pool.transpose()?;
    let durability: Durability = order.store.parse().map_err(BenchError::Config)?;
    let store = StoreOptions::new()
        .durability(durability)
        .segment_size(order.buffer_bytes)
        .cache_size(order.cache_bytes)
        .open(&order.dir, pool.as_ref())?;
    let ours = OurStore {
        store,
        // A batch is one record of the log, which takes half a segment at most.
        batch_bytes: usize::try_from(order.buffer_bytes / 4).unwrap_or(usize::MAX),
    };
    drive(&ours, &order)?;
    Ok(ours.store.close()?)
}

struct OurStore {
    store: Store,
    batch_bytes: usize,
}

impl DrivenStore for OurStore {
    fn load(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), StoreFailure> {
        let mut batch = self.store.batch();
        let mut bytes = 0;
        for (key, value) in pairs {
            bytes += key.len() + value.len();
            if bytes > self.batch_bytes && !batch.is_empty() {
                self.store.write(&batch)?;
                batch = self.store.batch();
                bytes = key.len() + value.len();
            }
            batch.put(key, value)?;
        }
        Ok(self.store.write(&batch)?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreFailure> {
        Ok(self.store.put(key, value)?)
    }

    fn get<'b>(
        &self,
        key: &[u8],
        buffer: &'b mut Vec<u8>,
    ) -> Result<Option<&'b [u8]>, StoreFailure> {
        Ok(self.store.get_into(key, buffer)?)
    }

    fn scan(
        &self,
        from: &[u8],
        records: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<ScanCount, StoreFailure> {
        let mut count = ScanCount::default();
        for pair in self.store.range(from..)?.take(usize::try_from(records)?) {
            let (key, value) = pair?;
            count.add(&key, &value, buffer);
        }
        Ok(count)
    }

    fn sync(&self) -> Result<(), StoreFailure> {
        Ok(self.store.flush()?)
    }
}
