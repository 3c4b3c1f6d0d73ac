//! fjall, a log-structured store, with its values apart from its keys as in WiscKey.

use crate::{Failure, Order, Peer};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use std::path::Path;

/// An open database.
pub struct Fjall {
    database: Database,
    pairs: Keyspace,
    sync: bool,
}

impl Fjall {
    /// Makes a database in `dir`.
    pub fn open(dir: &Path, order: Order) -> Result<Self, Failure> {
        let database = Database::builder(dir.join("fjall"))
            .cache_size(order.cache_bytes)
            .open()?;
        let pairs = database.keyspace("pairs", || {
            KeyspaceCreateOptions::default()
                .with_kv_separation(Some(KvSeparationOptions::default()))
        })?;
        Ok(Self {
            database,
            pairs,
            sync: order.sync,
        })
    }
}

impl Peer for Fjall {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.pairs.insert(key, value)?;
        if self.sync {
            self.database.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Failure> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.pairs.get(key)?.map(|value| value.to_vec()))
    }
}
