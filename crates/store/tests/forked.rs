//! A store in a forked child: an error from every call, at once, and nothing that the parent
//! acknowledged is lost.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(unsafe_code, reason = "forks")]

mod common;

use common::tiny;
use forebay_pool::{Pool, PoolOptions};
use forebay_store::{
    Batch, Durability, Scan, ScanRange, Snapshot, Store, StoreError, StoreOptions,
};
use std::{
    mem::ManuallyDrop,
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    ptr, thread,
};
use tempfile::TempDir;

/// What a child ends with in which all was as it should be.
const WELL: i32 = 42;
const VALUE: usize = 4096;

/// A medium under the store.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Memory,
    Disk,
    Resident,
    Files(Durability),
}

const KINDS: [Kind; 5] = [
    Kind::Memory,
    Kind::Disk,
    Kind::Resident,
    Kind::Files(Durability::NoSync),
    Kind::Files(Durability::Fsync),
];

struct Place {
    dir: TempDir,
    kind: Kind,
}

impl Place {
    fn new(kind: Kind) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = Self { dir, kind };
        let options = PoolOptions::new().size(16 << 20).segment_size(256 << 10);
        let options = match kind {
            Kind::Disk => options.on_disk(true),
            _ => options.emulated(true),
        };
        options.create(place.pool()).unwrap();
        place
    }

    fn pool(&self) -> PathBuf {
        self.dir.path().join("pool")
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn options(&self) -> StoreOptions {
        match self.kind {
            Kind::Memory | Kind::Disk => tiny(Durability::DOUBLE),
            Kind::Resident => tiny(Durability::Buffered(20)).resident(true),
            Kind::Files(variant) => tiny(variant),
        }
    }

    fn open(&self) -> (Option<Pool>, Store) {
        let pool = match self.kind {
            Kind::Files(_) => None,
            _ => Some(PoolOptions::new().open(self.pool()).unwrap()),
        };
        let store = self.options().open(self.path(), pool.as_ref()).unwrap();
        (pool, store)
    }

    /// Opens it, as whoever comes next, and finds these keys, all of them whole, and no other.
    fn check(&self, keys: u32) {
        let (_pool, store) = self.open();
        let found: Vec<_> = store.scan(ScanRange::all()).unwrap().collect();
        assert_eq!(found.len(), keys as usize, "{:?}", self.kind);
        for (i, pair) in (0..keys).zip(found) {
            let (key, value) = pair.unwrap();
            assert_eq!(
                (&key[..], &*value),
                (&i.to_be_bytes()[..], &value_of(i)[..])
            );
        }
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}

fn value_of(i: u32) -> Vec<u8> {
    vec![i as u8; VALUE]
}

fn put(store: &Store, keys: std::ops::Range<u32>) {
    for i in keys {
        store.put(&i.to_be_bytes(), &value_of(i)).unwrap();
    }
}

/// A child of this process; it does not outlast the test.
struct Child(libc::pid_t);

impl Child {
    fn fork(what: impl FnOnce()) -> Self {
        // SAFETY: the child uses what it has of the C library's memory, whose locks `fork` looks
        // after, and ends without any of the parent's destructors.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: they end the child.
            unsafe {
                libc::alarm(30);
                let done = catch_unwind(AssertUnwindSafe(what));
                libc::_exit(done.map_or(1, |()| WELL));
            }
        }
        Self(child)
    }

    /// It was killed by nothing, its alarm included, and failed in nothing.
    fn ends_well(self) {
        let mut status = 0;
        // SAFETY: it is a child of ours, and `status` is there.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        assert!(libc::WIFEXITED(status), "the child was killed: {status}");
        assert_eq!(libc::WEXITSTATUS(status), WELL, "the child failed");
    }
}

fn forked<T>(result: Result<T, StoreError>) {
    let error = result.err().expect("a forked child was let in");
    assert!(matches!(error, StoreError::Forked), "{error}");
    assert!(error.to_string().contains("Fork first"));
}

fn refuses_everything(store: &Store, snapshot: &Snapshot) {
    forked(store.put(b"key", b"value"));
    forked(store.put(b"large", &vec![7; 1 << 20]));
    forked(store.delete(&0u32.to_be_bytes()));
    let mut batch = Batch::new();
    batch.put(b"key", b"value").unwrap();
    forked(store.write(&batch));
    forked(store.write(&Batch::new()));
    forked(store.get(&0u32.to_be_bytes()));
    forked(store.get(b"absent"));
    forked(store.get_into(&0u32.to_be_bytes(), &mut Vec::new()));
    forked(store.scan(ScanRange::all()));
    forked(store.snapshot());
    forked(snapshot.get(&0u32.to_be_bytes()));
    forked(snapshot.scan(ScanRange::all()));
    forked(store.flush());
    forked(store.commit());
    forked(store.gc());
    forked(store.verify());
    assert!(store.stats().trouble.unwrap().contains("forked"));
    assert!(store.given_up().is_empty());
}

fn scan_ends_with_the_error(mut scan: Scan) {
    forked(scan.next().unwrap());
    assert!(scan.next().is_none());
}

/// A copy of what the parent keeps, for a child to close or drop.
fn inherited<T>(kept: &ManuallyDrop<T>) -> T {
    // SAFETY: this process has its own copy of the bytes, and ends without dropping the original.
    unsafe { ptr::read(&raw const **kept) }
}

/// Promise: as `only_a_child_forked_before_any_store_may_open_one`.
#[test]
fn a_forked_child_gets_an_error_from_every_call() {
    for kind in KINDS {
        let place = Place::new(kind);
        let (pool, store) = place.open();
        put(&store, 0..50);
        let snapshot = store.snapshot().unwrap();
        let mut scan = store.scan(ScanRange::all()).unwrap();
        scan.next().unwrap().unwrap();
        let kept = ManuallyDrop::new((pool, store, snapshot, scan));
        let child = Child::fork(|| {
            let (pool, store, snapshot, scan) = inherited(&kept);
            refuses_everything(&store, &snapshot);
            scan_ends_with_the_error(scan);
            thread::scope(|scope| {
                let thread = scope.spawn(|| refuses_everything(&store, &snapshot));
                thread.join().unwrap();
            });
            forked(store.close());
            drop((snapshot, pool));
        });
        let store = &kept.1;
        put(store, 50..150);
        child.ends_well();
        put(store, 150..200);
        let (pool, store, snapshot, mut scan) = ManuallyDrop::into_inner(kept);
        assert_eq!(scan.by_ref().count(), 49, "{kind:?}");
        drop((scan, snapshot));
        store.close().unwrap();
        drop(pool);
        place.check(200);
    }
}

/// Promise (store): A forked child changes nothing of its parent's store by its drops, and both
/// processes find everything that either acknowledged.
#[test]
fn a_child_that_drops_the_store_takes_nothing_from_it() {
    for kind in KINDS {
        let place = Place::new(kind);
        let (pool, store) = place.open();
        put(&store, 0..300);
        let snapshot = store.snapshot().unwrap();
        put(&store, 0..300);
        let kept = ManuallyDrop::new((snapshot, store, pool));
        Child::fork(|| drop(inherited(&kept))).ends_well();
        // The other way round.
        Child::fork(|| {
            let (snapshot, store, pool) = inherited(&kept);
            drop(pool);
            drop(store);
            drop(snapshot);
        })
        .ends_well();
        let (snapshot, store, pool) = ManuallyDrop::into_inner(kept);
        let in_use = place.options().open(place.path(), pool.as_ref()).err();
        assert!(matches!(in_use, Some(StoreError::InUse { .. })), "{kind:?}");
        assert_eq!(snapshot.scan(ScanRange::all()).unwrap().count(), 300);
        put(&store, 300..400);
        store.gc().unwrap();
        drop((snapshot, store, pool));
        place.check(400);
    }
}

/// Promise: as `a_child_that_drops_the_store_takes_nothing_from_it`.
#[test]
fn a_child_drops_a_snapshot_that_outlives_the_store() {
    let place = Place::new(Kind::Files(Durability::NoSync));
    let (_, store) = place.open();
    put(&store, 0..300);
    let snapshot = store.snapshot().unwrap();
    for _ in 0..8 {
        put(&store, 0..300);
        store.gc().unwrap();
    }
    store.close().unwrap();
    let kept = ManuallyDrop::new(snapshot);
    // The last one that has the index: retired tables go with it.
    Child::fork(|| drop(inherited(&kept))).ends_well();
    assert_eq!(kept.scan(ScanRange::all()).unwrap().count(), 300);
    drop(ManuallyDrop::into_inner(kept));
    place.check(300);
}

/// Promise: as `only_a_child_forked_before_any_store_may_open_one`.
#[test]
fn a_child_forked_amid_writers_waits_for_none() {
    for kind in [Kind::Memory, Kind::Disk, Kind::Files(Durability::Fsync)] {
        let place = Place::new(kind);
        let (_pool, store) = place.open();
        let snapshot = store.snapshot().unwrap();
        thread::scope(|scope| {
            for writer in 0..3u32 {
                let store = &store;
                scope.spawn(move || {
                    for i in (0..600).filter(|i| i % 3 == writer) {
                        put(store, i..i + 1);
                        let _ = store.scan(ScanRange::all()).unwrap().next();
                    }
                });
            }
            for _ in 0..10 {
                Child::fork(|| refuses_everything(&store, &snapshot)).ends_well();
            }
        });
        drop(snapshot);
        store.close().unwrap();
        place.check(600);
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = std::io::pipe().unwrap();
    (read.into(), write.into())
}

/// Waits until the other end is closed.
fn wait_for_end(read: OwnedFd) {
    std::io::read_to_string(std::fs::File::from(read)).unwrap();
}

#[test]
fn a_child_that_lives_on_does_not_keep_its_parents_store_locked() {
    for kind in KINDS {
        let place = Place::new(kind);
        let (pool, store) = place.open();
        put(&store, 0..20);
        let (read, write) = pipe();
        let write = ManuallyDrop::new(write);
        let child = Child::fork(|| {
            drop(inherited(&write));
            wait_for_end(read);
            forked(store.put(b"late", b"value"));
        });
        // Neither when it is closed nor when it is dropped.
        store.close().unwrap();
        drop(pool);
        place.check(20);
        drop(ManuallyDrop::into_inner(write));
        child.ends_well();
        place.check(20);
    }
}

/// Set in a process that runs one test alone, without stores of other tests.
const ALONE: &str = "FOREBAY_TEST_ALONE";

/// Promise (store): A child that is forked while a store is open gets an error at once from every
/// call on it, and from opening another store.
#[test]
fn only_a_child_forked_before_any_store_may_open_one() {
    if std::env::var_os(ALONE).is_none() {
        let name = "only_a_child_forked_before_any_store_may_open_one";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1");
        assert!(alone.status().unwrap().success());
        return;
    }
    for kind in KINDS {
        let place = Place::new(kind);
        Child::fork(|| write_and_close(&place, 0..20)).ends_well();
        let (pool, store) = place.open();
        put(&store, 20..40);
        let other = Place::new(kind);
        let kept = ManuallyDrop::new((pool, store));
        Child::fork(|| {
            let (pool, store) = inherited(&kept);
            forked(other.options().open(other.path(), pool.as_ref()));
            drop((pool, store));
            forked(tiny(Durability::NoSync).open(other.path(), None));
            assert!(!other.path().exists());
        })
        .ends_well();
        let (pool, store) = ManuallyDrop::into_inner(kept);
        store.close().unwrap();
        drop(pool);
        Child::fork(|| write_and_close(&place, 40..60)).ends_well();
        place.check(60);
    }
}

fn write_and_close(place: &Place, keys: std::ops::Range<u32>) {
    let (_pool, store) = place.open();
    put(&store, keys);
    store.close().unwrap();
}
