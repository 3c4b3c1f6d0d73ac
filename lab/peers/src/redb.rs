//! redb, a copy-on-write B-tree.

use crate::{Failure, Order, Peer};
use redb::{Builder, Database, Durability, ReadableDatabase, TableDefinition};
use std::path::Path;

const PAIRS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("pairs");

/// An open database.
pub struct Redb {
    database: Database,
    durability: Durability,
}

impl Redb {
    /// Makes a database in `dir`.
    pub fn open(dir: &Path, order: Order) -> Result<Self, Failure> {
        let database = Builder::new()
            .set_cache_size(usize::try_from(order.cache_bytes)?)
            .create(dir.join("redb"))?;
        let peer = Self {
            database,
            durability: match order.sync {
                true => Durability::Immediate,
                false => Durability::None,
            },
        };
        peer.commit(Durability::Immediate, None)?;
        Ok(peer)
    }

    fn commit(&self, durability: Durability, pair: Option<(&[u8], &[u8])>) -> Result<(), Failure> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        {
            let mut pairs = transaction.open_table(PAIRS)?;
            if let Some((key, value)) = pair {
                pairs.insert(key, value)?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Peer for Redb {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.commit(self.durability, Some((key, value)))
    }

    fn sync(&mut self) -> Result<(), Failure> {
        self.commit(Durability::Immediate, None)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let pairs = self.database.begin_read()?.open_table(PAIRS)?;
        Ok(pairs.get(key)?.map(|value| value.value().to_vec()))
    }
}
