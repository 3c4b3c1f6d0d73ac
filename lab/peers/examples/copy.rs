//! Copies a database of another embedded store into one of Forebay's, and compares the two then:
//!
//! ```sh
//! cargo run --release -p forebay-peers --example copy -- fjall DIRECTORY KEYSPACE TARGET
//! cargo run --release -p forebay-peers --example copy -- redb FILE TABLE TARGET
//! ```
//!
//! `TARGET` gets a store and its pool, as C and Python have them: `TARGET/data` and `TARGET/pool`.
//! A table of redb has types: this copies one of bytes to bytes; for another, change the types
//! here, and say how its keys and values become bytes.

use fjall::{Database, KeyspaceCreateOptions};
use forebay_pool::PoolOptions;
use forebay_store::{Store, StoreError, StoreOptions};
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use std::{error::Error, path::Path};

type Failure = Box<dyn Error>;
/// Takes one pair.
type Take<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), Failure> + 'a;

/// Gives each pair of a fjall keyspace.
fn each_of_fjall(dir: &Path, name: &str, take: &mut Take<'_>) -> Result<(), Failure> {
    if !dir.is_dir() {
        return Err(format!("{} is no directory of fjall", dir.display()).into());
    }
    let database = Database::builder(dir).open()?;
    if !database.keyspace_exists(name) {
        return Err(format!("there is no keyspace {name:?} in {}", dir.display()).into());
    }
    let pairs = database.keyspace(name, KeyspaceCreateOptions::default)?;
    for pair in pairs.iter() {
        let (key, value) = pair.into_inner()?;
        take(&key, &value)?;
    }
    Ok(())
}

/// Gives each pair of a redb table.
fn each_of_redb(file: &Path, name: &str, take: &mut Take<'_>) -> Result<(), Failure> {
    let database = redb::Database::open(file)?;
    let table: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(name);
    for pair in database.begin_read()?.open_table(table)?.iter()? {
        let (key, value) = pair?;
        take(key.value(), value.value())?;
    }
    Ok(())
}

/// Writes the pairs in batches as large as the store takes.
fn copy(
    store: &Store,
    each: impl Fn(&mut Take<'_>) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let (mut batch, mut count) = (store.batch(), 0);
    each(&mut |key, value| {
        if let Err(StoreError::BatchTooLarge { .. }) = batch.put(key, value) {
            store.write(&batch)?;
            batch.clear();
            batch.put(key, value)?;
        }
        count += 1;
        Ok(())
    })?;
    store.write(&batch)?;
    store.flush()?;
    Ok(count)
}

/// Refuses a copy that is not what it was made of.
fn compare(
    store: &Store,
    count: u64,
    each: impl Fn(&mut Take<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut found = 0;
    each(&mut |key, value| {
        found += 1;
        match store.get(key)? {
            Some(copy) if copy == value => Ok(()),
            _ => Err(format!("the copy differs at the key {}", key.escape_ascii()).into()),
        }
    })?;
    let kept = store.range::<&[u8]>(..)?.count() as u64;
    match (found, kept) == (count, count) {
        true => Ok(()),
        false => {
            Err(format!("{count} pairs were copied; there are {found}, and {kept} copies").into())
        }
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, source, name, target] = &arguments[..] else {
        return Err("usage: copy fjall|redb SOURCE NAME TARGET".into());
    };
    let (source, target) = (Path::new(source), Path::new(target));
    let each = |take: &mut Take<'_>| match kind.as_str() {
        "fjall" => each_of_fjall(source, name, take),
        "redb" => each_of_redb(source, name, take),
        _ => Err(format!("unknown store {kind:?}: fjall or redb").into()),
    };
    std::fs::create_dir(target)?;
    let pool = PoolOptions::new()
        .on_disk(true)
        .create(target.join("pool"))?;
    let store = StoreOptions::new().open(target.join("data"), &pool)?;
    let count = copy(&store, each)?;
    compare(&store, count, each)?;
    store.close()?;
    println!("{count} pairs were copied and compared");
    Ok(())
}
