//! The embedded store, with everything small, so that segments, chunks and value-log files come and
//! go in seconds.
//!
//! The keys are shared out to two keyspaces: values of one are compressed by LZ4, those of the
//! other expire, in many years. A change of one key is made by a put or a delete, a
//! compare-and-swap, an update, a transaction that read the key, or a deleted range, in turn;
//! several by a batch or by a transaction over both keyspaces. Such a one leaves a [`trail`] beside
//! it, which a boot compares. Now and then the store is compacted in a thread beside, and a
//! checkpoint is made, which a boot opens ([`copies`]).
//!
//! A store that is broken on purpose does none of this, but puts, deletes and batches: its damage
//! is to be seen by the client, after the cut.

mod copies;
mod trail;

use crate::{Change, Engine, Failure};
use copies::Copies;
use forebay_pool::{Pool, PoolOptions};
use forebay_store::{
    Batch, Compression, Keyspace, KeyspaceOptions, ScanRange, Store, StoreError, StoreOptions,
    Transaction,
};
use std::{
    ops::ControlFlow,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

/// So many transactions of the client's are between two checkpoints, and between two compactions.
const CHECKPOINT_EVERY: u64 = 100;
const COMPACT_EVERY: u64 = 70;
/// Longer than any chain of cuts.
const LIFE: Duration = Duration::from_secs(20 * 365 * 24 * 3600);

/// An open store and its pool.
pub struct EmbeddedStore {
    store: Arc<Store>,
    /// None of a store that is broken on purpose.
    copies: Option<Copies>,
    /// Transactions since the boot.
    applied: u64,
    compaction: Option<JoinHandle<Result<(), StoreError>>>,
    _pool: Pool,
}

/// Where a key is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyHome {
    /// Values are stored twice in a row, which is what there is to compress.
    Packed,
    Lasting,
}

impl KeyHome {
    const ALL: [Self; 2] = [Self::Packed, Self::Lasting];

    fn of(key: &[u8]) -> Self {
        match key.last().is_some_and(|byte| byte % 2 == 0) {
            true => Self::Packed,
            false => Self::Lasting,
        }
    }

    fn in_store(self, store: &Store) -> Result<Keyspace<'_>, StoreError> {
        match self {
            Self::Packed => {
                let options = KeyspaceOptions::new().compression(Compression::Lz4);
                store.keyspace("packed", options)
            }
            Self::Lasting => store.keyspace("lasting", KeyspaceOptions::new().ttl(LIFE)),
        }
    }

    fn stored(self, value: &[u8]) -> Vec<u8> {
        match self {
            Self::Packed => [value, value].concat(),
            Self::Lasting => value.to_vec(),
        }
    }

    fn given(self, mut value: Vec<u8>) -> Result<Vec<u8>, Failure> {
        if self == Self::Packed {
            let (first, second) = value.split_at(value.len() / 2);
            if first != second {
                return Err("the two halves of a compressed value differ".into());
            }
            value.truncate(value.len() / 2);
        }
        Ok(value)
    }
}

fn small() -> StoreOptions {
    StoreOptions::new()
        .file_size(1 << 20)
        .memtable_size(256 << 10)
        .chunk_log_size(1 << 20)
        .cache_size(4 << 20)
}

/// Looks at every record of a store.
fn verify(store: &Store) -> Result<(), Failure> {
    let problems = store.verify()?.problems;
    match problems.is_empty() {
        true => Ok(()),
        false => Err(format!("verify found: {problems:?}").into()),
    }
}

impl EmbeddedStore {
    /// Opens the store in `dir`, and looks at every record of it, its trail and its copies, unless
    /// it is broken on purpose.
    pub fn open(dir: &Path, pool: &Path, is_broken: bool) -> Result<Self, Failure> {
        let pool = PoolOptions::new().open(pool)?;
        let store = small().open(dir, &pool)?;
        let copies = (!is_broken).then(|| Copies::beside(dir)).transpose()?;
        if let Some(copies) = &copies {
            verify(&store)?;
            trail::check(&store)?;
            copies.check()?;
            trail::mend(&store)?;
        }
        Ok(Self {
            store: Arc::new(store),
            copies,
            applied: 0,
            compaction: None,
            _pool: pool,
        })
    }

    /// One change, in one of the ways that there are.
    fn apply_one(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), Failure> {
        let home = KeyHome::of(key);
        let keyspace = home.in_store(&self.store)?;
        let stored = value.map(|value| home.stored(value));
        let stored = stored.as_deref();
        let way = match self.copies {
            Some(_) => self.applied % 5,
            None => 0,
        };
        match (way, stored) {
            (0, Some(value)) => keyspace.put(key, value)?,
            (0, None) => keyspace.delete(key)?,
            (1, _) => {
                let present = keyspace.get(key)?;
                if !keyspace.compare_and_swap(key, present.as_deref(), stored)? {
                    return Err("nobody else writes, and a swap found another value".into());
                }
            }
            (2, _) => drop(keyspace.update(key, |_| stored.map(<[u8]>::to_vec))?),
            (3, _) => self.store.transaction(|tx| {
                tx.get_in(&keyspace, key)?;
                change_in(tx, &keyspace, key, stored)
            })?,
            _ => {
                let mut batch = self.store.batch();
                batch.delete_range_in(&keyspace, ScanRange::new(key..=key))?;
                if let Some(value) = stored {
                    batch.put_in(&keyspace, key, value)?;
                }
                self.store.write(&batch)?;
            }
        }
        Ok(())
    }

    /// Several, all or none, with the next step of the trail.
    fn apply_all(&self, changes: &[Change]) -> Result<(), Failure> {
        let begin = |_| trail::begin(&self.store);
        let step = self.copies.as_ref().map(begin).transpose()?;
        let [packed, lasting] = [
            KeyHome::Packed.in_store(&self.store)?,
            KeyHome::Lasting.in_store(&self.store)?,
        ];
        let place = |key: &[u8]| match KeyHome::of(key) {
            KeyHome::Packed => &packed,
            KeyHome::Lasting => &lasting,
        };
        let stored = |key: &[u8], value: &Option<Vec<u8>>| {
            let value = value.as_ref();
            value.map(|value| KeyHome::of(key).stored(value))
        };
        let Some(step) = step.filter(|_| !self.applied.is_multiple_of(2)) else {
            let mut batch = Batch::new();
            for (key, value) in changes {
                match stored(key, value) {
                    Some(value) => batch.put_in(place(key), key, &value)?,
                    None => batch.delete_in(place(key), key)?,
                }
            }
            if let Some(step) = step {
                trail::leave(step, &mut batch)?;
            }
            return Ok(self.store.write(&batch)?);
        };
        Ok(self.store.transaction(|tx| {
            for (key, value) in changes {
                tx.get_in(place(key), key)?;
                change_in(tx, place(key), key, stored(key, value).as_deref())?;
            }
            trail::leave(step, tx)
        })?)
    }

    /// Begins a compaction in a thread beside, unless the last one still runs.
    fn compact_beside(&mut self) -> Result<(), Failure> {
        if self
            .compaction
            .as_ref()
            .is_some_and(|last| !last.is_finished())
        {
            return Ok(());
        }
        if let Some(last) = self.compaction.take() {
            last.join().map_err(|_| "the compaction panicked")??;
        }
        let store = Arc::clone(&self.store);
        let compact = move || store.compact(|_| ControlFlow::Continue(())).map(drop);
        self.compaction = Some(thread::spawn(compact));
        Ok(())
    }
}

fn change_in(
    tx: &mut Transaction<'_>,
    keyspace: &Keyspace<'_>,
    key: &[u8],
    value: Option<&[u8]>,
) -> Result<(), StoreError> {
    match value {
        Some(value) => tx.put_in(keyspace, key, value),
        None => tx.delete_in(keyspace, key),
    }
}

impl Engine for EmbeddedStore {
    fn apply(&mut self, changes: Vec<Change>) -> Result<(), Failure> {
        match &changes[..] {
            [(key, value)] => self.apply_one(key, value.as_deref())?,
            _ => self.apply_all(&changes)?,
        }
        self.applied += 1;
        let Some(copies) = &self.copies else {
            return Ok(());
        };
        if self.applied.is_multiple_of(CHECKPOINT_EVERY) {
            copies.make(&self.store)?;
        }
        if self.applied.is_multiple_of(COMPACT_EVERY) {
            self.compact_beside()?;
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let home = KeyHome::of(key);
        let value = home.in_store(&self.store)?.get(key)?;
        let value = value.map(|value| home.given(value.into_vec()));
        value.transpose()
    }

    fn count(&self) -> Result<u64, Failure> {
        let mut count = 0;
        for home in KeyHome::ALL {
            for pair in home.in_store(&self.store)?.scan(ScanRange::all())? {
                pair?;
                count += 1;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some changes of some keys, of which some go.
    fn changes(turn: u64) -> Vec<Change> {
        let count = if turn.is_multiple_of(3) { 4 } else { 1 };
        let key = |n| format!("key:{}", (turn * 7 + n * 3) % 20).into_bytes();
        let value = |n: u64| !(turn + n).is_multiple_of(4);
        let of_turn = |n| format!("{turn} {n}").repeat(100).into_bytes();
        (0..count)
            .map(|n| (key(n), value(n).then(|| of_turn(n))))
            .collect()
    }

    #[test]
    fn a_store_holds_what_was_applied_and_its_copies_agree() {
        let dir = tempfile::tempdir().unwrap();
        let pool_path = dir.path().join("pool");
        let pool = PoolOptions::new()
            .emulated(true)
            .size(4 << 20)
            .segment_size(256 << 10);
        drop(pool.create(&pool_path).unwrap());
        let mut model = std::collections::BTreeMap::new();
        for boot in 0..3 {
            let path = dir.path().join("db");
            let mut engine = EmbeddedStore::open(&path, &pool_path, false).unwrap();
            assert_eq!(engine.count().unwrap(), model.len() as u64);
            for turn in boot * 250..boot * 250 + 250 {
                let changes = changes(turn);
                for (key, value) in changes.clone() {
                    match value {
                        Some(value) => drop(model.insert(key, value)),
                        None => drop(model.remove(&key)),
                    }
                }
                engine.apply(changes).unwrap();
            }
            for n in 0..20 {
                let key = format!("key:{n}").into_bytes();
                assert_eq!(engine.get(&key).unwrap(), model.get(&key).cloned());
            }
            if let Some(last) = engine.compaction.take() {
                last.join().unwrap().unwrap();
            }
        }
    }
}
