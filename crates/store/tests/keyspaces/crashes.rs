//! A disk that fails, and a machine that loses power, at each step of making and dropping one.

use crate::common::{
    self, Rng,
    crash_disk::CrashDisk,
    hook_disk::{Doing, HookDisk},
    new_sim, tiny,
};
use forebay_store::{
    Durability, KeyspaceOptions, ScanRange, Store, StoreError,
    disk::{
        RealDisk,
        faulty::{Fault, FaultPlan, FaultyDisk},
    },
};
use parking_lot::Mutex;
use std::{io, path::Path, sync::Arc};

const KEYS: usize = 100;

fn fill(store: &Store, name: &str) -> Result<(), StoreError> {
    let keyspace = store.keyspace(name, KeyspaceOptions::new())?;
    for i in 0..KEYS as u32 {
        keyspace.put(&i.to_be_bytes(), &[7; 500])?;
    }
    keyspace.put("large", &vec![7; 60_000])
}

fn count(store: &Store, name: &str) -> Option<usize> {
    let keyspace = store.existing_keyspace(name).ok()?;
    Some(keyspace.scan(ScanRange::all()).unwrap().count())
}

/// The store in `dir` may have the keyspace to be dropped whole, or nothing of it, and goes on.
fn check(dir: &Path, was_dropped: bool, when: &str) {
    let options = tiny(Durability::Fsync);
    let store = options
        .open(dir, None)
        .unwrap_or_else(|error| panic!("{when}: {error}"));
    match count(&store, "dropped") {
        Some(found) => assert!(!was_dropped && found == KEYS + 1, "{when}: {found}"),
        None => assert_eq!(store.verify().unwrap().keys as usize, KEYS + 1, "{when}"),
    }
    assert_eq!(count(&store, "kept"), Some(KEYS + 1), "{when}");
    let _ = store.drop_keyspace("dropped");
    let again = store.keyspace("dropped", KeyspaceOptions::new()).unwrap();
    assert_eq!(again.scan(ScanRange::all()).unwrap().count(), 0, "{when}");
    again.put("new", "value").unwrap();
    assert_eq!(
        store.verify().unwrap().problems,
        Vec::<String>::new(),
        "{when}"
    );
}

/// Promise (store): After a power cut at any step of a drop the keyspace is there as a whole, or
/// gone for good, and a drop that was acknowledged is done.
#[test]
fn a_power_cut_leaves_a_keyspace_whole_or_dropped() {
    let work = tempfile::tempdir().unwrap();
    let live = work.path().join("live");
    std::fs::create_dir_all(&live).unwrap();
    let disk = CrashDisk::new(&live, new_sim(64 << 10));
    let options = tiny(Durability::Fsync).gc(false).memtable_size(8 << 20);
    let options = options.chunk_log_size(64 << 20);
    let store = options
        .open_on(Arc::new(disk.clone()), None, &live, None)
        .unwrap();
    fill(&store, "kept").unwrap();
    fill(&store, "dropped").unwrap();
    // Whatever the index is told of later is on the disk.
    let index = work.path().join("index");
    common::copy_dir(&live.join("index"), &index);
    let begun = disk.events();
    store.drop_keyspace("dropped").unwrap();
    let dropped = disk.events();
    assert!(dropped > begun + 3);
    for events in begun..=dropped {
        for seed in 0..3 {
            let found = work.path().join(format!("found {events} {seed}"));
            std::fs::create_dir_all(&found).unwrap();
            disk.image(events, &mut Rng(seed), &found);
            common::copy_dir(&index, &found.join("index"));
            check(
                &found,
                events == dropped,
                &format!("{events} of {begun} to {dropped}"),
            );
            std::fs::remove_dir_all(&found).unwrap();
        }
    }
}

/// Promise (store): When a making of a keyspace is cut or fails at any step, the next opening has
/// it empty or not at all, and no key of it was acknowledged.
#[test]
fn a_power_cut_leaves_a_new_keyspace_empty_or_not_made() {
    let work = tempfile::tempdir().unwrap();
    let live = work.path().join("live");
    std::fs::create_dir_all(&live).unwrap();
    let disk = CrashDisk::new(&live, new_sim(64 << 10));
    let options = tiny(Durability::Fsync).gc(false);
    let store = options
        .open_on(Arc::new(disk.clone()), None, &live, None)
        .unwrap();
    store.put("key", "value").unwrap();
    let index = work.path().join("index");
    common::copy_dir(&live.join("index"), &index);
    let begun = disk.events();
    let one = store.keyspace("one", KeyspaceOptions::new()).unwrap();
    let made = disk.events();
    one.put("key", "value").unwrap();
    let put = disk.events();
    for events in begun..=put {
        for seed in 0..3 {
            let found = work.path().join(format!("found {events} {seed}"));
            std::fs::create_dir_all(&found).unwrap();
            disk.image(events, &mut Rng(seed), &found);
            common::copy_dir(&index, &found.join("index"));
            let when = format!("{events} of {begun}, {made}, {put}");
            let store = options
                .open(&found, None)
                .unwrap_or_else(|e| panic!("{when}: {e}"));
            assert_eq!(store.get("key").unwrap().unwrap(), "value", "{when}");
            match count(&store, "one") {
                None => assert!(events < made, "{when}"),
                Some(keys) => assert!(keys <= usize::from(events > made), "{when}: {keys}"),
            }
            assert!(events < put || count(&store, "one") == Some(1), "{when}");
            store.keyspace("one", KeyspaceOptions::new()).unwrap();
            store
                .keyspace("two", KeyspaceOptions::new())
                .unwrap()
                .put("k", "v")
                .unwrap();
            drop(store);
            std::fs::remove_dir_all(&found).unwrap();
        }
    }
}

/// Promise (store): A drop that fails at an operation of the disk leaves the keyspace refused until
/// it is dropped or the store is opened again, and loses nothing of it unless it is dropped.
#[test]
fn a_drop_that_fails_loses_nothing_unless_it_is_done() {
    for fault in [Fault::Error, Fault::Torn, Fault::Gone] {
        for step in 1.. {
            let when = format!("{fault:?} at step {step}");
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("store");
            let plan = Arc::new(FaultPlan::default());
            let disk = FaultyDisk::new(Arc::new(RealDisk::default()), Arc::clone(&plan));
            let options = tiny(Durability::NoSync).gc(false).memtable_size(8 << 20);
            let options = options.chunk_log_size(64 << 20);
            let store = options.open_on(Arc::new(disk), None, &path, None).unwrap();
            fill(&store, "kept").unwrap();
            fill(&store, "dropped").unwrap();
            let one = store.existing_keyspace("dropped").unwrap();
            plan.strike(step, fault);
            let done = store.drop_keyspace("dropped");
            let struck = plan.struck();
            plan.heal();
            // Before it is in the manifest, what was written is synced. Behind a sync that failed
            // nothing is written at all.
            let is_synced = store.delete("nothing").is_ok();
            match one.put("key", "value") {
                // After the drop it may be the index that met the fault.
                Err(StoreError::KeyspaceDropped { .. }) => {
                    assert!(is_synced || done.is_ok(), "{when}");
                }
                Err(StoreError::ReadOnly { .. }) => {
                    assert!(!is_synced && done.is_err(), "{when}");
                    assert_eq!(count(&store, "dropped"), Some(KEYS + 1), "{when}");
                }
                put => panic!("{when}: {put:?}"),
            }
            if done.is_err() && step % 2 == 0 && is_synced {
                store
                    .drop_keyspace("dropped")
                    .unwrap_or_else(|e| panic!("{when}: {e}"));
                assert!(count(&store, "dropped").is_none());
                store.keyspace("dropped", KeyspaceOptions::new()).unwrap();
                assert_eq!(count(&store, "dropped"), Some(0), "{when}");
                store.drop_keyspace("dropped").unwrap();
            }
            let is_done = done.is_ok() || step % 2 == 0 && is_synced;
            drop(store);
            check(&path, is_done, &when);
            if struck == 0 {
                assert!(step > 2, "{when}: a drop does nothing on the disk");
                break;
            }
        }
    }
}

/// A drop is in the manifest, and whether it lasts is not known when the process dies: an opening
/// makes sure of it before it removes a large value that the drop has freed.
#[test]
fn an_opening_syncs_a_drop_before_it_removes_large_values() {
    #[derive(Default)]
    struct Seen {
        fails: bool,
        is_synced: bool,
        removed: usize,
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store_dir = path.clone();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let disk = HookDisk::by(&seen, move |doing, seen| {
        let mut seen = seen.lock();
        match doing {
            Doing::SyncDir(dir) if dir == store_dir => {
                if seen.fails {
                    return Err(io::Error::other("the process is killed here"));
                }
                seen.is_synced = true;
            }
            Doing::Remove(path) if path.parent() == Some(&store_dir.join("large")) => {
                assert!(seen.is_synced, "{}", path.display());
                seen.removed += 1;
            }
            _ => {}
        }
        Ok(())
    });
    let options = tiny(Durability::Fsync).gc(false);
    let store = options.open_on(disk.clone(), None, &path, None).unwrap();
    fill(&store, "dropped").unwrap();
    seen.lock().fails = true;
    assert!(store.drop_keyspace("dropped").is_err());
    drop(store);
    *seen.lock() = Seen::default();
    let store = options.open_on(disk, None, &path, None).unwrap();
    assert_eq!(seen.lock().removed, 1);
    assert!(count(&store, "dropped").is_none());
}
