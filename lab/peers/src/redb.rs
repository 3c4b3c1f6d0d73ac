//! redb, a copy-on-write B-tree.

use crate::Opening;
use forebay_bench::ycsb::driver::{DrivenStore, ScanCount, StoreFailure};
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
    pub fn open(dir: &Path, opening: Opening) -> Result<Self, StoreFailure> {
        let database = Builder::new()
            .set_cache_size(usize::try_from(opening.cache_bytes)?)
            .create(dir.join("redb"))?;
        let peer = Self {
            database,
            durability: match opening.sync {
                true => Durability::Immediate,
                false => Durability::None,
            },
        };
        peer.commit(Durability::Immediate, [])?;
        Ok(peer)
    }

    fn commit<'a>(
        &self,
        durability: Durability,
        added: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), StoreFailure> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        {
            let mut pairs = transaction.open_table(PAIRS)?;
            for (key, value) in added {
                pairs.insert(key, value)?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl DrivenStore for Redb {
    fn load(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), StoreFailure> {
        let slices = pairs.iter().map(|(key, value)| (&key[..], &value[..]));
        self.commit(Durability::None, slices)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreFailure> {
        self.commit(self.durability, [(key, value)])
    }

    fn get<'b>(
        &self,
        key: &[u8],
        buffer: &'b mut Vec<u8>,
    ) -> Result<Option<&'b [u8]>, StoreFailure> {
        let pairs = self.database.begin_read()?.open_table(PAIRS)?;
        Ok(pairs.get(key)?.map(|value| {
            buffer.clear();
            buffer.extend_from_slice(value.value());
            buffer.as_slice()
        }))
    }

    fn scan(
        &self,
        from: &[u8],
        records: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<ScanCount, StoreFailure> {
        let pairs = self.database.begin_read()?.open_table(PAIRS)?;
        let mut count = ScanCount::default();
        for pair in pairs.range(from..)?.take(usize::try_from(records)?) {
            let (key, value) = pair?;
            count.add(key.value(), value.value(), buffer);
        }
        Ok(count)
    }

    fn sync(&self) -> Result<(), StoreFailure> {
        self.commit(Durability::Immediate, [])
    }
}
