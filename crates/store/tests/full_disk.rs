//! A full disk: what is garbage gives room, deletes are taken, and puts go on by themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    hook_disk::{Doing, HookDisk},
    new_pool,
    small_disk::{QuotaDisk, SmallDisk},
    tiny, within,
};
use forebay_pool::Pool;
use forebay_store::{Durability, ScanRange, Store, StoreError, StoreOptions, disk::Disk};
use std::{
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

const SEGMENT: u64 = 256 << 10;
const VALUE: usize = 16 << 10;
const DISK: u64 = 48 << 20;
/// However slow the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

const VARIANTS: [Durability; 3] = [Durability::DOUBLE, Durability::NoSync, Durability::Fsync];

/// A store on a disk of its own that is soon full.
struct Place {
    disk: Option<SmallDisk>,
    quota: Option<Arc<QuotaDisk>>,
    dir: tempfile::TempDir,
    pool: Pool,
    variant: Durability,
}

impl Place {
    /// On an ext4, if this process may mount one.
    fn ext4(variant: Durability) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let disk = SmallDisk::ext4(dir.path(), DISK)?;
        Some(Self::of(dir, Some(disk), None, variant))
    }

    /// Where a quota ends what a user may have.
    fn quota(variant: Durability) -> Self {
        let quota = Arc::new(QuotaDisk::new(DISK));
        Self::of(tempfile::tempdir().unwrap(), None, Some(quota), variant)
    }

    fn of(
        dir: tempfile::TempDir,
        disk: Option<SmallDisk>,
        quota: Option<Arc<QuotaDisk>>,
        variant: Durability,
    ) -> Self {
        Self {
            disk,
            quota,
            dir,
            pool: new_pool(SEGMENT),
            variant,
        }
    }

    fn path(&self) -> PathBuf {
        match &self.disk {
            Some(disk) => disk.path().join("store"),
            None => self.dir.path().join("store"),
        }
    }

    fn options(&self, gc: bool) -> StoreOptions {
        StoreOptions::new()
            .close_on_drop(false)
            .durability(self.variant)
            .segment_size(SEGMENT)
            .file_size(4 << 20)
            .memtable_size(256 << 10)
            .chunk_log_size(4 << 20)
            .gc(gc)
    }

    fn open(&self, gc: bool) -> Store {
        self.open_with(&self.options(gc)).unwrap()
    }

    fn open_with(&self, options: &StoreOptions) -> Result<Store, StoreError> {
        match &self.quota {
            Some(quota) => {
                let disk: Arc<dyn Disk> = quota.clone();
                options.open_on(disk, None, self.path(), &self.pool)
            }
            None => options.open(self.path(), &self.pool),
        }
    }
}

/// A disk that has no room for a file, and has some a moment after it was asked for it.
#[derive(Default)]
struct RefusingDisk {
    is_full: AtomicBool,
    refused: AtomicU64,
    since: OnceLock<Instant>,
}

impl RefusingDisk {
    fn create(&self) -> io::Result<()> {
        if !self.is_full.load(SeqCst) {
            return Ok(());
        }
        let since = self.since.get_or_init(Instant::now);
        if since.elapsed() > Duration::from_millis(300) {
            self.is_full.store(false, SeqCst);
            return Ok(());
        }
        self.refused.fetch_add(1, SeqCst);
        Err(io::ErrorKind::StorageFull.into())
    }
}

/// All places that there are here.
fn everywhere(test: impl Fn(&Place) + Send + Sync + Copy + 'static) {
    for variant in VARIANTS {
        within(PATIENCE * 2, "a full disk", move || {
            test(&Place::quota(variant));
            match Place::ext4(variant) {
                Some(place) => test(&place),
                None => println!("skipped: no file system can be mounted here"),
            }
        });
    }
}

fn value(i: u32, round: u32) -> Vec<u8> {
    let mut value = vec![i as u8; VALUE];
    value[..4].copy_from_slice(&round.to_le_bytes());
    value
}

fn put(store: &Store, i: u32, round: u32) -> Result<(), StoreError> {
    store.put(&i.to_be_bytes(), &value(i, round))
}

/// Fills the disk: every fourth record stays live. The keys that are live, and with what.
fn fill_with_garbage(store: &Store) -> Vec<(u32, u32)> {
    let mut live = Vec::new();
    let (mut lasting, mut last) = (1000, None);
    for round in 0.. {
        let i = match round % 4 {
            0 => {
                lasting += 1;
                lasting
            }
            _ => 1,
        };
        match put(store, i, round) {
            Ok(()) if i == 1 => last = Some((1, round)),
            Ok(()) => live.push((i, round)),
            Err(error) => {
                assert!(error.to_string().contains("make room"), "{error}");
                break;
            }
        }
        assert!(round < 100_000, "the disk is never full");
    }
    live.extend(last);
    live
}

/// Fills the disk with keys that are all live: how many.
fn fill(store: &Store) -> u32 {
    let refused = (0..).find(|&i| put(store, i, 0).is_err());
    refused.unwrap()
}

fn check(store: &Store, live: &[(u32, u32)]) {
    for &(i, round) in live {
        let found = store.get(&i.to_be_bytes()).unwrap();
        assert!(
            found.is_some_and(|found| *found == value(i, round)[..]),
            "key {i}"
        );
    }
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// Puts go on, without help.
fn goes_on(store: &Store, what: &str) {
    let begun = Instant::now();
    while let Err(error) = put(store, 7, 7) {
        assert!(
            begun.elapsed() < PATIENCE,
            "{what}: {error}; {:?}",
            store.stats()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Several files more fit on the disk.
fn has_room_for_more(store: &Store, live: &mut Vec<(u32, u32)>) {
    for i in 0..500 {
        let begun = Instant::now();
        while let Err(error) = put(store, 500_000 + i, 9) {
            assert!(
                begun.elapsed() < PATIENCE,
                "put {i}: {error}; {:?}",
                store.stats()
            );
            thread::sleep(Duration::from_millis(20));
        }
        live.push((500_000 + i, 9));
    }
}

/// Promise (store): A store on a full disk collects garbage, takes deletes, closes and opens, and
/// takes puts once there is room, if the file system allocates ahead.
#[test]
fn garbage_on_a_full_disk_is_collected_when_asked_for() {
    everywhere(|place| {
        let store = place.open(false);
        let mut live = fill_with_garbage(&store);
        let report = store.gc().unwrap();
        assert!(report.reclaimed_bytes > 8 << 20, "{report:?}");
        goes_on(&store, "after a collection");
        has_room_for_more(&store, &mut live);
        check(&store, &live);
        store.close().unwrap();
        check(&place.open(true), &live);
    });
}

/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn garbage_on_a_full_disk_is_collected_after_an_opening() {
    everywhere(|place| {
        let store = place.open(false);
        let mut live = fill_with_garbage(&store);
        drop(store);
        let store = place.open(true);
        // It is full still, and says so when something is put.
        let _ = put(&store, 7, 7);
        goes_on(&store, "with a collector");
        has_room_for_more(&store, &mut live);
        check(&store, &live);
    });
}

/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn deletes_are_taken_on_a_full_disk_and_give_room() {
    everywhere(|place| {
        let store = place.open(true);
        let keys = fill(&store);
        assert!(keys > 500, "{keys}");
        let (mut live, mut gone) = (Vec::new(), Vec::new());
        for i in 0..keys {
            match i % 3 {
                0 => live.push((i, 0)),
                _ => gone.push(i),
            }
        }
        for i in &gone {
            let deleted = store.delete(&i.to_be_bytes());
            deleted.unwrap_or_else(|e| panic!("delete of {i}: {e}; {:?}", store.stats()));
        }
        goes_on(&store, "after the deletes");
        has_room_for_more(&store, &mut live);
        live.retain(|(i, _)| *i != 7);
        check(&store, &live);
        store.close().unwrap();
        let store = place.open(true);
        check(&store, &live);
        let absent = |i: &u32| *i == 7 || store.get(&i.to_be_bytes()).unwrap().is_none();
        assert!(gone.iter().all(absent));
    });
}

/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn ranges_are_deleted_on_a_full_disk_as_keys_are() {
    within(PATIENCE, "a full disk", || {
        let place = Place::quota(Durability::DOUBLE);
        let store = place.open(true);
        let keys = fill(&store);
        for i in (0..keys - 3).step_by(3) {
            let range = ScanRange::new(i.to_be_bytes()..(i + 2).to_be_bytes());
            let deleted = store.delete_range(range);
            deleted.unwrap_or_else(|e| panic!("delete from {i}: {e}; {:?}", store.stats()));
        }
        goes_on(&store, "after the deletes");
        store.compact(|_| ControlFlow::Continue(())).unwrap();
        assert!(store.get(&2u32.to_be_bytes()).unwrap().is_some());
        assert!(store.get(&3u32.to_be_bytes()).unwrap().is_none());
    });
}

/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn deletes_of_ranges_and_batches_wait_for_room_made_soon() {
    for is_range in [true, false] {
        let state = Arc::new(RefusingDisk::default());
        let disk = HookDisk::by(&state, |doing, state| match doing {
            Doing::Create(path) if path.extension().is_some_and(|it| it == "vlog") => {
                state.create()
            }
            _ => Ok(()),
        });
        let dir = tempfile::tempdir().unwrap();
        let options = tiny(Durability::NoSync);
        let store = options
            .open_on(disk, None, dir.path().join("store"), None)
            .unwrap();
        store.put("key", "value").unwrap();
        state.is_full.store(true, SeqCst);
        // Until one of them needs a new file, and has it.
        let key = [7; 20_000];
        for _ in 0..100 {
            let mut batch = store.batch();
            match is_range {
                true => batch.delete_range(ScanRange::new(&key[..]..&[8][..])),
                false => batch.delete(&key),
            }
            .unwrap();
            store.write(&batch).unwrap();
        }
        assert!(state.refused.load(SeqCst) > 0);
        assert!(!state.is_full.load(SeqCst));
        assert!(store.contains_key("key").unwrap());
    }
}

/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn a_store_on_a_full_disk_closes_and_opens() {
    everywhere(|place| {
        let store = place.open(true);
        let keys = fill(&store);
        let live: Vec<_> = (1..keys).map(|i| (i, 0)).collect();
        store.delete(&0u32.to_be_bytes()).unwrap();
        store.close().unwrap();
        for closes in [false, true, true] {
            let store = place.open(true);
            check(&store, &live);
            store.delete(&0u32.to_be_bytes()).unwrap();
            if closes {
                store.close().unwrap();
            }
        }
        let store = place.open(true);
        assert_eq!(store.scan(ScanRange::all()).unwrap().count(), live.len());
    });
}

/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn room_that_another_makes_is_used_again() {
    everywhere(|place| {
        let store = place.open(true);
        let keys = fill(&store);
        assert!(store.stats().trouble.is_some());
        let Some(disk) = &place.disk else { return };
        // A larger disk under the store, as an administrator makes it.
        if disk.grow(2 * DISK) {
            goes_on(&store, "on a larger disk");
            let live: Vec<_> = (0..keys).filter(|i| *i != 7).map(|i| (i, 0)).collect();
            check(&store, &live);
        }
    });
}

/// Bytes of the reserve are found where they should be, and nowhere for a store that needs none.
///
/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn a_reserve_is_kept_once_there_are_files() {
    let place = Place::quota(Durability::NoSync);
    let store = place.open(true);
    let reserve = |path: &Path| std::fs::metadata(path.join("RESERVE")).map_or(0, |f| f.len());
    assert_eq!(reserve(&place.path()), 0);
    put(&store, 1, 1).unwrap();
    assert!(reserve(&place.path()) >= 4 << 20);
    store.close().unwrap();
    // It may go whenever no process has the store.
    std::fs::remove_file(place.path().join("RESERVE")).unwrap();
    let store = place.open(true);
    check(&store, &[(1, 1)]);
    assert!(reserve(&place.path()) >= 4 << 20);
}

/// Sessions that end in a crash, with another variant and other sizes each, on a disk that is soon
/// full: the lane of the last one is full then, and little is left of the reserve.
fn crash_on_a_full_disk(place: &Place) -> (StoreOptions, Vec<u32>) {
    let mut options = place.options(true);
    let mut keys = Vec::new();
    for round in 0..6_u32 {
        let variant = match round % 3 {
            0 => Durability::DOUBLE,
            1 => Durability::Buffered(5),
            _ => Durability::SINGLE,
        };
        options = place
            .options(round % 2 == 0)
            .durability(variant)
            .file_size(1 << (20 + round % 3 * 2))
            .memtable_size(64 << 10);
        let store = place.open_with(&options).unwrap();
        // A new key, or one that is there: a file has both live records and garbage.
        for n in 0..4000_u32 {
            let i = round * 4000 + n;
            let done = match n % 3 {
                0 => store.delete(&(i / 2).to_be_bytes()),
                _ => put(&store, i, 0).inspect(|()| keys.push(i)),
            };
            if done.is_err() && n > 1000 {
                break;
            }
        }
        drop(store);
    }
    (options, keys)
}

/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn crashes_on_a_full_disk_end_in_room_by_deletes() {
    within(PATIENCE * 2, "crashes on a full disk", || {
        let places = [
            Some(Place::quota(Durability::DOUBLE)),
            Place::ext4(Durability::DOUBLE),
        ];
        for place in places.into_iter().flatten() {
            let (options, keys) = crash_on_a_full_disk(&place);
            for variant in [Durability::Fsync, Durability::DOUBLE] {
                let store = place
                    .open_with(&options.clone().durability(variant).gc(true))
                    .unwrap();
                for i in &keys {
                    let deleted = store.delete(&i.to_be_bytes());
                    deleted.unwrap_or_else(|e| panic!("{variant}, {i}: {e}; {:?}", store.stats()));
                }
                goes_on(&store, "after the deletes");
                store.gc().unwrap();
                check(&store, &[(7, 7)]);
            }
        }
    });
}

/// A new value-log file that the manifest has no room to name takes none itself.
///
/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn a_file_that_manifest_cannot_name_is_taken_back() {
    let place = Place::quota(Durability::NoSync);
    let quota = place.quota.clone().unwrap();
    let store = place.open(false);
    fill_with_garbage(&store);
    quota.refuse("MANIFEST.tmp");
    let files = || {
        std::fs::read_dir(place.path().join("vlog"))
            .unwrap()
            .count()
    };
    let before = files();
    let mut deleted = Ok(());
    for i in 0..1_000_000_u32 {
        deleted = store.delete(&i.to_be_bytes());
        if deleted.is_err() {
            break;
        }
    }
    assert!(deleted.unwrap_err().to_string().contains("make room"));
    assert_eq!(files(), before);
    quota.refuse("");
    store.gc().unwrap();
    goes_on(&store, "once the manifest can be written");
}

/// Until a write is taken; each refusal must be for want of room.
fn taken(store: &Store, what: &str, mut write: impl FnMut() -> Result<(), StoreError>) {
    let begun = Instant::now();
    while let Err(error) = write() {
        assert!(error.to_string().contains("make room"), "{what}: {error}");
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{what}: {error}; {:?}",
            store.stats()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// A large value has no room, and the log is not lacking any: its garbage is collected all the
/// same, however little it is.
///
/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn a_large_value_gets_the_room_that_garbage_has() {
    everywhere(|place| {
        let store = place.open(true);
        for i in 0..320 {
            put(&store, i, 0).unwrap();
        }
        for i in 0..320_u32 {
            store.delete(&i.to_be_bytes()).unwrap();
        }
        let large = vec![9; 1 << 20];
        let put = |i: u32| store.put(&i.to_be_bytes(), &large);
        let refused = (1000..).find(|&i| put(i).is_err()).unwrap();
        taken(&store, "a large value", || put(refused));
    });
}

/// The collector copies a value that is too long for today's segments to a file of its own, with
/// the reserve.
///
/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn values_that_become_large_are_collected_on_a_full_disk() {
    let Some(place) = Place::ext4(Durability::NoSync) else {
        return println!("skipped: no file system can be mounted here");
    };
    let value = vec![7; 50 << 10];
    let key = |i: u32| i.to_be_bytes();
    let store = place.open(false);
    let refused = (0..).find(|&i| store.put(&key(i), &value).is_err());
    let keys = refused.unwrap();
    for i in (0..keys).filter(|i| i % 2 == 0) {
        store.delete(&key(i)).unwrap();
    }
    store.close().unwrap();
    let options = place.options(false).segment_size(64 << 10);
    let store = place.open_with(&options).unwrap();
    // What is free goes to another program.
    let other = place
        .disk
        .as_ref()
        .unwrap()
        .path()
        .join("another program's");
    let _ = std::fs::write(&other, vec![1; DISK as usize]);
    // What is given back comes back to the store now and then.
    let (mut reclaimed, begun) = (0, Instant::now());
    while reclaimed <= 8 << 20 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", store.stats());
        reclaimed += store.gc().unwrap().reclaimed_bytes;
    }
    for i in (0..keys).filter(|i| i % 2 == 1) {
        assert!(
            store
                .get(&key(i))
                .unwrap()
                .is_some_and(|found| *found == value[..])
        );
    }
}

/// Small values are deleted all over the disk, as fast as it goes: no file is dead, and all that
/// the reserve has is soon used up unless the collector comes first.
///
/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn deletes_of_small_values_all_over_a_full_disk_are_taken() {
    let (double, nosync) = (Durability::DOUBLE, Durability::NoSync);
    for (variant, bytes) in [(double, 300), (nosync, 300)] {
        within(PATIENCE * 2, "deletes all over", move || {
            let Some(place) = Place::ext4(variant) else {
                return println!("skipped: no file system can be mounted here");
            };
            let store = place.open(true);
            let key = |i: u32| i.to_be_bytes();
            let value = |i: u32| vec![i as u8; bytes];
            let refused = (0..).find(|&i| store.put(&key(i), &value(i)).is_err());
            let keys = refused.unwrap();
            // Each third stays, whatever their order.
            let (gone, live): (Vec<u32>, Vec<u32>) = (0..keys)
                .map(|n| (u64::from(n) * 1_000_003 % u64::from(keys)) as u32)
                .partition(|i| i % 3 != 0);
            for i in &gone {
                taken(&store, "a delete", || store.delete(&key(*i)));
            }
            taken(&store, "a put", || store.put(b"more", &[1; 300]));
            for i in &live {
                assert!(
                    store
                        .get(&key(*i))
                        .unwrap()
                        .is_some_and(|v| *v == value(*i)[..])
                );
            }
        });
    }
}
