//! The embedded store, with everything small, so that segments, chunks and value-log files come and
//! go in seconds.

use crate::{Change, Engine, Failure};
use forebay_pool::{Pool, PoolOptions};
use forebay_store::{Batch, ScanRange, Store, StoreOptions};
use std::path::Path;

/// An open store and its pool.
pub struct EmbeddedStore {
    store: Store,
    _pool: Pool,
}

impl EmbeddedStore {
    /// Opens the store in `dir`, and looks at every record of it if `verify` says so.
    pub fn open(dir: &Path, pool: &Path, verify: bool) -> Result<Self, Failure> {
        let pool = PoolOptions::new().open(pool)?;
        let options = StoreOptions::new()
            .file_size(1 << 20)
            .memtable_size(256 << 10)
            .chunk_log_size(1 << 20)
            .cache_size(4 << 20);
        let store = options.open(dir, &pool)?;
        if verify {
            let report = store.verify()?;
            if !report.problems.is_empty() {
                return Err(format!("verify found: {:?}", report.problems).into());
            }
        }
        Ok(Self { store, _pool: pool })
    }
}

impl Engine for EmbeddedStore {
    fn apply(&mut self, changes: Vec<Change>) -> Result<(), Failure> {
        if let [(key, change)] = &changes[..] {
            match change {
                Some(value) => self.store.put(key, value)?,
                None => self.store.delete(key)?,
            }
            return Ok(());
        }
        let mut batch = Batch::new();
        for (key, change) in &changes {
            match change {
                Some(value) => batch.put(key, value)?,
                None => batch.delete(key)?,
            }
        }
        Ok(self.store.write(&batch)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.store.get(key)?.map(forebay_store::Value::into_vec))
    }

    fn count(&self) -> Result<u64, Failure> {
        let mut count = 0;
        for pair in self.store.scan(ScanRange::all())? {
            pair?;
            count += 1;
        }
        Ok(count)
    }
}
