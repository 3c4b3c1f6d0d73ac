//! Readers beside the owner, checkpoints and backups.

use crate::{
    TestClock,
    common::{Bench, tiny},
};
use forebay_store::{Durability, KeyspaceOptions, ScanRange, StoreError};
use std::time::Duration;

/// Promise (store): A reader beside the owner, a checkpoint and a backup have the keyspaces with
/// their options, their values with the time at which they expire, and nothing of a dropped one.
#[test]
fn readers_and_copies_have_the_keyspaces() {
    let bench = Bench::new();
    let clock = TestClock::new();
    let options = clock.options(tiny(Durability::DOUBLE));
    let store = bench.open(&options);
    let hour = KeyspaceOptions::new().ttl(Duration::from_secs(3600));
    let sessions = store.keyspace("sessions", hour).unwrap();
    let owners = store.keyspace("owners", KeyspaceOptions::new()).unwrap();
    let gone = store.keyspace("gone", KeyspaceOptions::new()).unwrap();
    for i in 0..2000u32 {
        for keyspace in [&sessions, &owners, &gone] {
            keyspace.put(&i.to_be_bytes(), &[7; 200]).unwrap();
        }
    }
    let reader = options.open_read_only(bench.path(), &bench.pool).unwrap();
    store.drop_keyspace("gone").unwrap();
    assert_eq!(reader.keyspaces().len(), 3);
    reader.refresh().unwrap();
    let copy = bench.dir.path().join("copy");
    let backups = bench.dir.path().join("backups");
    store.checkpoint(&copy).unwrap();
    let backup = store.backup(&backups, |_| {}).unwrap().backup;
    let names: Vec<_> = reader.keyspaces().into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["owners", "sessions"]);
    let snapshot = reader.snapshot().unwrap();
    assert!(matches!(
        snapshot.keyspace("gone"),
        Err(StoreError::NoKeyspace { .. })
    ));
    let some = [7u32, 2000].map(u32::to_be_bytes);
    for name in ["owners", "sessions"] {
        let found = snapshot.keyspace(name).unwrap();
        assert_eq!(found.scan(ScanRange::all()).unwrap().count(), 2000);
        let values = found.multi_get(some).unwrap();
        assert!(values[0].is_some() && values[1].is_none());
        let mut scan = found.scan(ScanRange::all()).unwrap();
        scan.seek_back(1000u32.to_be_bytes());
        assert_eq!(scan.rev().count(), 1001);
    }
    assert!(reader.multi_get(some).unwrap().iter().all(Option::is_none));
    assert_eq!(reader.scan(ScanRange::all()).unwrap().count(), 0);
    let fsync = clock.options(tiny(Durability::Fsync));
    for path in [copy, backup.into()] {
        let copy = fsync.open(&path, None).unwrap();
        assert_eq!(copy.keyspaces(), store.keyspaces());
        let sessions = copy.keyspace("sessions", hour).unwrap();
        let owners = copy.existing_keyspace("owners").unwrap();
        assert_eq!(sessions.scan(ScanRange::all()).unwrap().count(), 2000);
        assert_eq!(copy.verify().unwrap().problems, Vec::<String>::new());
        // A new one does not see what the dropped one had.
        let gone = copy.keyspace("gone", KeyspaceOptions::new()).unwrap();
        assert_eq!(gone.scan(ScanRange::all()).unwrap().count(), 0);
        clock.pass(3_600_000);
        assert_eq!(sessions.scan(ScanRange::all()).unwrap().count(), 0);
        assert_eq!(owners.scan(ScanRange::all()).unwrap().count(), 2000);
        clock.set(clock.now() - 3_600_000);
    }
}

/// Promise (store): A MANIFEST that is older than a keyspace of which there are keys is refused.
#[test]
fn a_manifest_without_a_keyspace_that_has_keys_is_refused() {
    for indexed in [false, true] {
        let bench = Bench::new();
        let options = tiny(Durability::DOUBLE);
        let store = bench.open(&options);
        store.put("key", "value").unwrap();
        let manifest = bench.path().join("MANIFEST");
        let older = std::fs::read(&manifest).unwrap();
        let one = store.keyspace("one", KeyspaceOptions::new()).unwrap();
        one.put("key", "value").unwrap();
        if indexed {
            store.gc().unwrap();
        }
        drop(store);
        let newer = std::fs::read(&manifest).unwrap();
        std::fs::write(&manifest, older).unwrap();
        let refused = options.open(bench.path(), &bench.pool).err().unwrap();
        assert!(
            matches!(refused, StoreError::NotOneMoment { .. }),
            "{refused}"
        );
        std::fs::write(&manifest, newer).unwrap();
        let store = bench.open(&options);
        assert!(
            store
                .existing_keyspace("one")
                .unwrap()
                .contains_key("key")
                .unwrap()
        );
    }
}
