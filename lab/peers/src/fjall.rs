//! fjall, a log-structured store, with its values apart from its keys as in WiscKey.

use crate::Opening;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use forebay_bench::ycsb::driver::{DrivenStore, ScanCount, StoreFailure};
use std::path::Path;

/// An open database.
pub struct Fjall {
    database: Database,
    pairs: Keyspace,
    sync: bool,
}

impl Fjall {
    /// Makes a database in `dir`.
    pub fn open(dir: &Path, opening: Opening) -> Result<Self, StoreFailure> {
        let database = Database::builder(dir.join("fjall"))
            .cache_size(opening.cache_bytes)
            .open()?;
        let pairs = database.keyspace("pairs", || {
            KeyspaceCreateOptions::default()
                .with_kv_separation(Some(KvSeparationOptions::default()))
        })?;
        Ok(Self {
            database,
            pairs,
            sync: opening.sync,
        })
    }
}

impl DrivenStore for Fjall {
    fn load(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), StoreFailure> {
        let mut batch = self.database.batch();
        for (key, value) in pairs {
            batch.insert(&self.pairs, key.as_slice(), value.as_slice());
        }
        Ok(batch.commit()?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreFailure> {
        self.pairs.insert(key, value)?;
        if self.sync {
            self.database.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn get<'b>(
        &self,
        key: &[u8],
        buffer: &'b mut Vec<u8>,
    ) -> Result<Option<&'b [u8]>, StoreFailure> {
        Ok(self.pairs.get(key)?.map(|value| {
            buffer.clear();
            buffer.extend_from_slice(&value);
            buffer.as_slice()
        }))
    }

    fn scan(
        &self,
        from: &[u8],
        records: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<ScanCount, StoreFailure> {
        let mut count = ScanCount::default();
        for pair in self.pairs.range(from..).take(usize::try_from(records)?) {
            let (key, value) = pair.into_inner()?;
            count.add(&key, &value, buffer);
        }
        Ok(count)
    }

    fn sync(&self) -> Result<(), StoreFailure> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}
