//! The example that copies another store, run as a user would.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use forebay_pool::PoolOptions;
use forebay_store::{Store, StoreOptions};
use redb::TableDefinition;
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("boats");

/// Where cargo puts the example: beside the tests' directory. None if it was not built.
fn example() -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    let example = own.ancestors().nth(2).unwrap().join("examples/copy");
    if !example.is_file() {
        assert!(
            std::env::var_os("CI").is_none(),
            "the example was not built"
        );
        println!("skipped: not built: cargo build -p forebay-peers --example copy");
        return None;
    }
    Some(example)
}

fn copy(example: &Path, kind: &str, source: &Path, name: &str, target: &Path) -> Output {
    let mut command = Command::new(example);
    command.arg(kind).arg(source).arg(name).arg(target);
    command.output().unwrap()
}

/// More than one batch takes, and one value beyond what any does.
fn pairs() -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let large = (b"large".to_vec(), vec![7; 5 << 20]);
    let small = (0..9000u32).map(|i| (i.to_be_bytes().to_vec(), vec![i as u8; 1000]));
    small.chain([large])
}

fn is_copied(ran: &Output, target: &Path) {
    assert!(ran.status.success(), "{ran:?}");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(said, "9001 pairs were copied and compared\n");
    let pool = PoolOptions::new().open(target.join("pool")).unwrap();
    let store: Store = StoreOptions::new()
        .open(target.join("data"), &pool)
        .unwrap();
    for (key, value) in pairs() {
        assert!(store.get(&key).unwrap().unwrap() == value);
    }
}

/// Promise (store): A database of fjall or redb is copied into a store by one command, and
/// compared with it.
#[test]
fn a_keyspace_of_fjall_is_copied() {
    let Some(example) = example() else { return };
    let dir = tempfile::tempdir_in(".").unwrap();
    let source = dir.path().join("fjall");
    let database = Database::builder(&source).open().unwrap();
    let boats = database.keyspace("boats", KeyspaceCreateOptions::default);
    let boats = boats.unwrap();
    pairs().for_each(|(key, value)| boats.insert(key, value).unwrap());
    database.persist(PersistMode::SyncAll).unwrap();
    drop((boats, database));
    let ran = copy(
        &example,
        "fjall",
        &source,
        "ships",
        &dir.path().join("none"),
    );
    assert!(!ran.status.success());
    assert!(String::from_utf8_lossy(&ran.stderr).contains("no keyspace"));
    let target = dir.path().join("target");
    is_copied(&copy(&example, "fjall", &source, "boats", &target), &target);
}

/// Promise: as `a_keyspace_of_fjall_is_copied`.
#[test]
fn a_table_of_redb_is_copied() {
    let Some(example) = example() else { return };
    let dir = tempfile::tempdir_in(".").unwrap();
    let source = dir.path().join("boats.redb");
    let database = redb::Database::create(&source).unwrap();
    let writing = database.begin_write().unwrap();
    {
        let mut table = writing.open_table(TABLE).unwrap();
        for (key, value) in pairs() {
            table.insert(&key[..], &value[..]).unwrap();
        }
    }
    writing.commit().unwrap();
    drop(database);
    let target = dir.path().join("target");
    is_copied(&copy(&example, "redb", &source, "boats", &target), &target);
}
