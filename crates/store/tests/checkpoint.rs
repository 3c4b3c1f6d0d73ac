//! Checkpoints and backups while the store is written to, collected and killed: the copy is the
//! store as of one moment, or is no store and says so; the store is as it was.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{
    Bench, Rng, VARIANTS, contents, copy_dir,
    crash_disk::CrashDisk,
    hook_disk::{Doing, HookDisk},
    new_pool, new_sim, tiny, value_log_files, within,
};
use forebay_store::{
    Durability, ScanRange, Store, StoreError, StoreOptions,
    disk::{
        Disk, RealDisk,
        faulty::{Fault, FaultPlan, FaultyDisk},
    },
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

const KEYS: u64 = 40;

/// What the write of this number does: puts of many sizes, one in a file of its own now and then,
/// deletes, batches.
fn write(store: &Store, number: u64) -> Result<(), StoreError> {
    let key = (number % KEYS).to_be_bytes();
    match number % 7 {
        0 => store.delete(&key),
        1 => {
            let mut batch = store.batch();
            batch.put(&key, &value(number))?;
            batch.put("last batch", &number.to_be_bytes())?;
            store.write(&batch)
        }
        _ => store.put(&key, &value(number)),
    }
}

fn value(number: u64) -> Vec<u8> {
    let bytes = match number % 61 {
        60 => 70_000,
        n => 50 * n + 9,
    };
    let mut value = vec![number as u8; bytes as usize];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

/// Ends a writer beside a test, also one that fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Does to `all` what the write of this number does to a store.
fn apply(all: &mut Contents, number: u64) {
    let key = (number % KEYS).to_be_bytes().to_vec();
    match number % 7 {
        0 => drop(all.remove(&key)),
        _ => drop(all.insert(key, value(number))),
    }
    if number % 7 == 1 {
        all.insert(b"last batch".to_vec(), number.to_be_bytes().to_vec());
    }
}

fn all_of(store: &Store) -> Contents {
    let pairs = store.scan(ScanRange::all()).unwrap().map(Result::unwrap);
    pairs.map(|(key, value)| (key, value.into_vec())).collect()
}

/// How many writes the store has, from `least` to `most`; it must have exactly the first so many,
/// and be whole.
fn writes_in(store: &Store, least: u64, most: u64) -> u64 {
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    let (found, mut expected) = (all_of(store), Contents::new());
    (0..least).for_each(|number| apply(&mut expected, number));
    for writes in least..=most {
        if found == expected {
            return writes;
        }
        apply(&mut expected, writes);
    }
    panic!("not as of a moment between {least} and {most}");
}

fn without_pool(dir: &Path) -> Result<Store, StoreError> {
    let options = tiny(Durability::NoSync).create_if_missing(false);
    options.open(dir, None)
}

fn resident() -> StoreOptions {
    tiny(Durability::Buffered(12)).resident(true)
}

/// Promise (store): A checkpoint is the store as of one moment while threads write to it: every
/// write that was acknowledged before, none in part, and it needs no pool.
#[test]
fn a_checkpoint_beside_a_writer_is_the_store_as_of_one_moment() {
    let variants = VARIANTS.map(tiny).into_iter().chain([resident()]);
    for options in variants {
        let bench = Bench::new();
        let store = bench.open(&options);
        let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut copies = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0.. {
                    if over.load(SeqCst) {
                        break;
                    }
                    // A resident log has no room but what a checkpoint leaves it.
                    while let Err(error) = write(&store, number) {
                        assert!(matches!(error, StoreError::Full { .. }), "{error}");
                        thread::yield_now();
                    }
                    done.store(number + 1, SeqCst);
                }
            });
            let _over = Over(&over);
            for number in 0..3 {
                while done.load(SeqCst) < number * 200 {
                    thread::yield_now();
                }
                let dir = bench.dir.path().join(format!("copy {number}"));
                let before = done.load(SeqCst);
                let report = store.checkpoint(&dir).unwrap();
                assert!(report.done_bytes >= report.copied_bytes);
                // One more may be between its record and its acknowledgement.
                copies.push((dir, before, done.load(SeqCst) + 1));
            }
        });
        for (dir, before, behind) in copies {
            let copy = without_pool(&dir).unwrap();
            let found = writes_in(&copy, before, behind);
            // It goes on as any store does.
            (found..found + 20).for_each(|number| write(&copy, number).unwrap());
            copy.gc().unwrap();
            copy.close().unwrap();
            let copy = without_pool(&dir).unwrap();
            writes_in(&copy, found + 20, found + 20);
        }
        let written = done.load(SeqCst);
        writes_in(&store, written, written);
    }
}

/// Promise (store): A backup that is made beside the owner is the store as of one moment behind its
/// beginning: it has every write that was acknowledged before, and no part of one.
#[test]
fn a_backup_beside_the_owner_is_the_store_as_of_one_moment() {
    for options in VARIANTS.map(tiny).into_iter().chain([resident()]) {
        let bench = Bench::new();
        let store = bench.open(&options);
        let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let backups = bench.dir.path().join("backups");
        let mut copies = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0.. {
                    if over.load(SeqCst) {
                        break;
                    }
                    write(&store, number).unwrap();
                    done.store(number + 1, SeqCst);
                    if number % 500 == 499 {
                        store.gc().unwrap();
                    }
                }
            });
            let _over = Over(&over);
            let reader = options.open_read_only(bench.path(), &bench.pool).unwrap();
            for number in 1..4 {
                while done.load(SeqCst) < number * 700 {
                    thread::yield_now();
                }
                let before = done.load(SeqCst);
                let made = reader.backup(&backups, |_| ()).unwrap();
                assert!(made.copied_files > 0 && made.bytes >= made.copied_bytes);
                copies.push((made.backup, before, done.load(SeqCst) + 1));
            }
            let gone = reader.prune_backups(&backups, 3).unwrap();
            assert!(gone.is_empty(), "{gone:?}");
        });
        for (dir, before, behind) in copies {
            let restored = bench.dir.path().join("restored");
            copy_dir(Path::new(&dir), &restored);
            let copy = without_pool(&restored).unwrap();
            let found = writes_in(&copy, before, behind);
            // It goes on as any store does.
            (found..found + 20).for_each(|number| write(&copy, number).unwrap());
            copy.gc().unwrap();
            copy.close().unwrap();
            writes_in(&without_pool(&restored).unwrap(), found + 20, found + 20);
            fs::remove_dir_all(restored).unwrap();
        }
        // The owner's own takes up where the reader's left off.
        let made = store.backup(&backups, |_| ()).unwrap();
        assert!(made.backup.ends_with("000004"), "{}", made.backup);
        let written = done.load(SeqCst);
        writes_in(&store, written, written);
    }
}

/// Promise (store): A backup beside an owner that removes what is being copied is of a later
/// moment, or fails; it never lacks what a key leads to.
#[test]
fn a_backup_beside_the_owner_lacks_no_large_value() {
    let bench = Bench::new();
    let options = tiny(Durability::NoSync);
    let store = bench.open(&options);
    let large = |number: u64| [&number.to_be_bytes()[..], &[7; 70_000]].concat();
    let put = |number: u64| {
        store
            .put(&(number % 3).to_be_bytes(), &large(number))
            .unwrap()
    };
    (0..3).for_each(put);
    let reader = options.open_read_only(bench.path(), None).unwrap();
    let backups = bench.dir.path().join("backups");
    // Each time something is copied, up to some time, all values are replaced and removed.
    for times in [1, 4, u64::MAX] {
        let mut replaced = 0;
        let made = reader.backup(&backups, |_| {
            if replaced < times {
                replaced += 1;
                (0..3).for_each(|number| put(3 * replaced + number));
                store.gc().unwrap();
            }
        });
        let made = match made {
            Err(error) => {
                assert!(matches!(error, StoreError::Outdated { .. }), "{error}");
                assert_eq!(times, u64::MAX);
                continue;
            }
            Ok(made) => made,
        };
        let copy = without_pool(Path::new(&made.backup)).unwrap();
        assert_eq!(copy.verify().unwrap().problems, Vec::<String>::new());
        let values = all_of(&copy).into_values().map(|value| value.len());
        assert_eq!(values.collect::<Vec<_>>(), [70_008; 3]);
        drop(copy);
        fs::remove_dir_all(made.backup).unwrap();
    }
}

/// Promise (store): What a checkpoint or backup has is never changed by the store that it was made
/// of, whatever that writes, collects and recovers.
#[test]
fn a_checkpoint_stays_as_it_is_while_its_store_goes_on() {
    for variant in [Durability::DOUBLE, Durability::NoSync, Durability::Fsync] {
        let bench = Bench::new();
        let store = bench.open(&tiny(variant));
        (0..2000).for_each(|number| write(&store, number).unwrap());
        assert!(value_log_files(&bench.path()).len() > 1);
        let [first, second] = ["first", "second"].map(|name| bench.dir.path().join(name));
        let report = store.checkpoint(&first).unwrap();
        assert!(report.copied_files < report.files, "nothing was linked");
        let before = contents(&first);
        (2000..4000).for_each(|number| write(&store, number).unwrap());
        store.gc().unwrap();
        assert!(store.stats().gc_files_removed > 0);
        drop(store);
        // What a recovery writes again, cuts and seals is its own.
        let store = bench.open(&tiny(variant));
        (4000..4100).for_each(|number| write(&store, number).unwrap());
        store.checkpoint(&second).unwrap();
        store.close().unwrap();
        assert!(contents(&first) == before, "{variant}");
        // Nor does one copy change another, or the store, when it is opened and collected.
        let (copy, others) = (without_pool(&first).unwrap(), contents(&bench.path()));
        let later = contents(&second);
        writes_in(&copy, 2000, 2000);
        (2000..3000).for_each(|number| write(&copy, number).unwrap());
        copy.gc().unwrap();
        drop(copy);
        writes_in(&without_pool(&first).unwrap(), 3000, 3000);
        assert!(contents(&second) == later && contents(&bench.path()) == others);
        writes_in(&bench.open(&tiny(variant)), 4100, 4100);
    }
}

/// A disk on which all keys are written again, and a collection runs to its end, before each file
/// that comes into `target`.
fn collecting(
    disk: Arc<dyn Disk>,
    target: &Path,
    store: &Arc<OnceLock<Weak<Store>>>,
    written: &Arc<AtomicU64>,
) -> Arc<HookDisk> {
    let (store, written, target) = (Arc::clone(store), Arc::clone(written), target.to_owned());
    HookDisk::over(disk, move |doing: Doing<'_>| {
        let (Doing::Create(path) | Doing::Link(path)) = doing else {
            return Ok(());
        };
        if path.starts_with(&target) {
            let store = store.get().and_then(Weak::upgrade).unwrap();
            for _ in 0..KEYS * 7 {
                write(&store, written.fetch_add(1, SeqCst)).unwrap();
            }
            store.gc().unwrap();
        }
        Ok(())
    })
}

/// Promise (store): A checkpoint beside the collector has everything that the collector moves and
/// removes meanwhile.
#[test]
fn checkpoints_amid_collections_have_all_that_was_moved() {
    let bench = Bench::new();
    let target = bench.dir.path().join("copy");
    let (store, written) = (Arc::new(OnceLock::<Weak<Store>>::new()), AtomicU64::new(0));
    let written = Arc::new(written);
    let real = Arc::new(RealDisk::default());
    let disk = collecting(real, &target, &store, &written);
    let options = tiny(Durability::DOUBLE);
    let opened = options.open_on(disk, None, bench.path(), &bench.pool);
    let opened = Arc::new(opened.unwrap());
    store.set(Arc::downgrade(&opened)).unwrap();
    for _ in 0..2000 {
        write(&opened, written.fetch_add(1, SeqCst)).unwrap();
    }
    for _ in 0..3 {
        let (before, removed) = (written.load(SeqCst), opened.stats().gc_files_removed);
        opened.checkpoint(&target).unwrap();
        assert!(opened.stats().gc_files_removed > removed);
        writes_in(&without_pool(&target).unwrap(), before, before);
        fs::remove_dir_all(&target).unwrap();
    }
}

/// Promise (store): A process that ends at any step of a checkpoint leaves a target that is
/// complete, or is no store and says so; the store is untouched.
#[test]
fn a_kill_at_any_step_leaves_a_whole_copy_or_none_that_says_so() {
    let work = tempfile::tempdir().unwrap();
    let (path, dir) = (work.path().join("store"), work.path().join("copy"));
    // What a kill leaves: the files as they are then.
    let (step, images) = (AtomicU64::new(0), work.path().join("images"));
    let target = dir.clone();
    let hook = move |doing: Doing<'_>| {
        let touched = doing
            .changes()
            .is_some_and(|path| path.starts_with(&target));
        if touched && target.exists() {
            let step = step.fetch_add(1, SeqCst);
            copy_dir(&target, &images.join(format!("{step:04}")));
        }
        Ok(())
    };
    let options = tiny(Durability::NoSync);
    let store = options
        .open_on(HookDisk::new(hook), None, &path, None)
        .unwrap();
    (0..700).for_each(|number| write(&store, number).unwrap());
    store.checkpoint(&dir).unwrap();
    writes_in(&store, 700, 700);
    drop(store);
    writes_in(&options.open(&path, None).unwrap(), 700, 700);
    let (mut whole, mut unfinished) = (0, 0);
    for image in common::files_in(&work.path().join("images")) {
        match without_pool(&image) {
            Ok(store) => {
                writes_in(&store, 700, 700);
                whole += 1;
            }
            Err(error) => {
                assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
                let is_new = fs::read_dir(&image).unwrap().count() == 0;
                let says = error.to_string().contains("not finished");
                assert!(is_new || says, "{}: {error}", image.display());
                unfinished += 1;
            }
        }
    }
    assert!(whole >= 2 && unfinished > 20, "{whole}, {unfinished}");
    writes_in(&without_pool(&dir).unwrap(), 700, 700);
}

/// Promise: as `a_kill_at_any_step_leaves_a_whole_copy_or_none_that_says_so`.
#[test]
fn a_power_cut_at_any_step_leaves_a_whole_copy_or_none() {
    for variant in [Durability::Fsync, Durability::NoSync] {
        cut_at_each_step(variant);
    }
}

/// The bench's store, opened, with that many writes.
fn with_100_writes(bench: &Bench, options: &StoreOptions) -> Store {
    let store = bench.open(options);
    (0..100).for_each(|number| write(&store, number).unwrap());
    store
}

/// True if the copy there has so many writes; false if it says that it is none.
fn is_whole_copy(at: &Path, writes: u64) -> bool {
    match without_pool(at) {
        Ok(copy) => {
            writes_in(&copy, writes, writes);
            true
        }
        Err(error) => {
            assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
            false
        }
    }
}

fn cut_at_each_step(variant: Durability) {
    // Several files.
    const WRITES: u64 = 1300;
    let work = tempfile::tempdir().unwrap();
    let live = work.path().join("live");
    fs::create_dir_all(live.join("store")).unwrap();
    let disk = CrashDisk::new(&live, new_sim(4096));
    let options = tiny(variant);
    let opened = options.open_on(Arc::new(disk.clone()), None, live.join("store"), None);
    let store = opened.unwrap();
    (0..WRITES).for_each(|number| write(&store, number).unwrap());
    let begun = disk.events();
    store.checkpoint(live.join("copy")).unwrap();
    let done = disk.events();
    drop(store);
    let mut rng = Rng(11);
    let mut whole = 0;
    for events in begun..=done {
        let found = work.path().join("found");
        disk.image(events, &mut rng, &found);
        let is_whole = is_whole_copy(&found.join("copy"), WRITES);
        assert!(is_whole || events < done, "it was complete");
        whole += u32::from(is_whole);
        // The index's tables went round the disk. Without syncs the store has no promise.
        if variant == Durability::Fsync {
            copy_dir(&live.join("store/index"), &found.join("store/index"));
            writes_in(&without_pool(&found.join("store")).unwrap(), WRITES, WRITES);
        }
        fs::remove_dir_all(&found).unwrap();
    }
    assert!(whole > 0 && done - begun > 20);
}

/// Promise: as `checkpoints_amid_collections_have_all_that_was_moved`.
/// Promise: as `a_kill_at_any_step_leaves_a_whole_copy_or_none_that_says_so`.
#[test]
fn a_power_cut_amid_collections_leaves_a_whole_copy_or_none() {
    for variant in [Durability::DOUBLE, Durability::NoSync] {
        cut_amid_collections(variant);
    }
}

fn cut_amid_collections(variant: Durability) {
    let work = common::in_memory();
    let live = work.path().join("live");
    fs::create_dir_all(live.join("store")).unwrap();
    let target = live.join("copy");
    let disk = CrashDisk::new(&live, new_sim(4096));
    let (store, written) = (Arc::new(OnceLock::<Weak<Store>>::new()), AtomicU64::new(0));
    let written = Arc::new(written);
    let below = collecting(Arc::new(disk.clone()), &target, &store, &written);
    // How many operations of the disk there were before each that is the target's.
    let steps = Arc::new(Mutex::new(Vec::new()));
    let (seen, of, at) = (Arc::clone(&steps), target.clone(), disk.clone());
    let above = HookDisk::over(below, move |doing: Doing<'_>| {
        if doing.changes().is_some_and(|path| path.starts_with(&of)) {
            seen.lock().push(at.events());
        }
        Ok(())
    });
    let pool = matches!(variant, Durability::Buffered(_)).then(|| new_pool(64 << 10));
    let opened = tiny(variant).open_on(above, None, live.join("store"), pool.as_ref());
    let opened = Arc::new(opened.unwrap());
    store.set(Arc::downgrade(&opened)).unwrap();
    for _ in 0..1300 {
        write(&opened, written.fetch_add(1, SeqCst)).unwrap();
    }
    let (before, removed) = (written.load(SeqCst), opened.stats().gc_files_removed);
    let report = opened.checkpoint(&target).unwrap();
    assert!(report.copied_files < report.files, "nothing was linked");
    assert!(opened.stats().gc_files_removed > removed);
    let done = disk.events();
    drop(opened);
    let steps = steps.lock().clone();
    // Before each of the target's, and somewhere in the collection that follows.
    let places = steps.iter().zip(steps.iter().skip(1).chain([&done]));
    let cuts = places.flat_map(|(&step, &next)| [step, usize::midpoint(step + 1, next)]);
    let (mut rng, mut whole, mut none) = (Rng(13), 0, 0);
    for events in cuts.chain([done]) {
        let found = work.path().join("found");
        disk.image(events, &mut rng, &found);
        match is_whole_copy(&found.join("copy"), before) {
            true => whole += 1,
            false => {
                assert!(events < done, "it was complete");
                none += 1;
            }
        }
        fs::remove_dir_all(&found).unwrap();
    }
    assert!(whole > 0 && none > 30, "{variant}: {whole}, {none}");
}

/// Promise (store): A checkpoint that fails at any step removes what it began, and changes nothing
/// of the store.
#[test]
fn a_checkpoint_that_fails_leaves_nothing_behind() {
    let bench = Bench::new();
    let plan = Arc::new(FaultPlan::default());
    let disk = FaultyDisk::new(Arc::new(RealDisk::default()), Arc::clone(&plan));
    let options = tiny(Durability::DOUBLE).gc(false);
    let opened = options.open_on(Arc::new(disk), None, bench.path(), &bench.pool);
    let store = opened.unwrap();
    (0..700).for_each(|number| write(&store, number).unwrap());
    store.flush().unwrap();
    let dir = bench.dir.path().join("copy");
    for at in 1.. {
        let before = plan.struck();
        plan.strike(at, Fault::Error);
        let made = store.checkpoint(&dir);
        let struck = plan.struck() > before;
        plan.heal();
        match made {
            Err(_) => assert!(!dir.exists(), "operation {at}"),
            // A file that could not be linked was copied, or one was not needed.
            Ok(_) if struck => fs::remove_dir_all(&dir).unwrap(),
            Ok(_) => {
                assert!(at > 20, "{at}");
                break;
            }
        }
    }
    writes_in(&without_pool(&dir).unwrap(), 700, 700);
    writes_in(&store, 700, 700);
}

/// How a copy of a store is made in a directory; where it is then.
type Copying = fn(&Store, &Path) -> PathBuf;

/// Promise (store): A checkpoint or backup keeps no writer waiting.
#[test]
fn writers_go_on_at_every_step_of_a_checkpoint() {
    let checkpoint: Copying = |store, dir| {
        store.checkpoint(dir).unwrap();
        dir.to_owned()
    };
    let backup: Copying = |store, dir| PathBuf::from(store.backup(dir, |_| ()).unwrap().backup);
    // The second one links what the first one has.
    let backups: Copying = |store, dir| {
        let first = store.backup(dir, |_| ()).unwrap();
        let second = store.backup(dir, |_| ()).unwrap();
        assert!(second.copied_files < second.files, "{first:?}, {second:?}");
        PathBuf::from(second.backup)
    };
    // What a collector has moved meanwhile is in other files, and none of them may be left to link.
    for (copying, collects) in [(checkpoint, true), (backup, true), (backups, false)] {
        within(
            Duration::from_secs(120),
            "a copy beside a writer",
            move || writers_go_on_at_every_step_of(copying, collects),
        );
    }
}

/// Each step of the copying waits for a writer, who must not wait for it.
fn writers_go_on_at_every_step_of(copying: Copying, collects: bool) {
    let bench = Bench::new();
    let dir = bench.dir.path().join("copy");
    let (target, written) = (dir.clone(), Arc::new(AtomicU64::new(0)));
    let seen = Arc::clone(&written);
    let disk = HookDisk::new(move |doing: Doing<'_>| {
        let touched = match doing {
            Doing::Create(path) | Doing::Link(path) | Doing::Sync(path) => path,
            Doing::Rename(path) | Doing::SyncDir(path) => path,
            _ => return Ok(()),
        };
        if touched.starts_with(&target) {
            let now = seen.load(SeqCst);
            while seen.load(SeqCst) < now + 2 {
                thread::yield_now();
            }
        }
        Ok(())
    });
    let options = tiny(Durability::DOUBLE).gc(collects);
    let opened = options.open_on(disk, None, bench.path(), &bench.pool);
    let store = opened.unwrap();
    (0..1000).for_each(|number| write(&store, number).unwrap());
    let over = AtomicBool::new(false);
    let made = thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1000.. {
                if over.load(SeqCst) {
                    break;
                }
                write(&store, number).unwrap();
                written.fetch_add(1, SeqCst);
            }
        });
        let _over = Over(&over);
        copying(&store, &dir)
    });
    let most = 1001 + written.load(SeqCst);
    writes_in(&without_pool(&made).unwrap(), 1000, most);
}

/// Promise (store): A checkpoint that is opened with its store's pool takes nothing of what is
/// there for its own.
#[test]
fn a_checkpoint_leaves_its_stores_lane_alone() {
    let bench = Bench::new();
    let options = tiny(Durability::DOUBLE);
    let store = with_100_writes(&bench, &options);
    let dir = bench.dir.path().join("copy");
    store.checkpoint(&dir).unwrap();
    (100..110).for_each(|number| write(&store, number).unwrap());
    let refused = || {
        let error = options.open(&dir, &bench.pool).err().unwrap();
        assert!(matches!(error, StoreError::NotOneMoment { .. }), "{error}");
    };
    refused();
    drop(store);
    for _ in 0..3 {
        refused();
        // However often the store was opened since, and also when its lane is empty.
        let store = bench.open(&options);
        writes_in(&store, 110, 110);
        store.flush().unwrap();
        drop(store);
    }
    writes_in(&without_pool(&dir).unwrap(), 100, 100);
    writes_in(&bench.open(&options), 110, 110);
}

/// Promise (store): A store that is opened with the pool of its checkpoint or backup takes nothing
/// of what is there for its own.
#[test]
fn a_store_leaves_its_checkpoints_lane_alone() {
    let bench = Bench::new();
    let options = tiny(Durability::DOUBLE);
    let store = with_100_writes(&bench, &options);
    let dir = bench.dir.path().join("copy");
    store.checkpoint(&dir).unwrap();
    store.close().unwrap();
    let refused = || {
        for options in [options.clone(), options.clone().salvage(true)] {
            let error = options.open(bench.path(), &bench.pool).err().unwrap();
            assert!(matches!(error, StoreError::PoolOfCopy { .. }), "{error}");
        }
    };
    let copy = options.open(&dir, &bench.pool).unwrap();
    (100..110).for_each(|number| write(&copy, number).unwrap());
    drop(copy);
    for _ in 0..3 {
        refused();
        let copy = options.open(&dir, &bench.pool).unwrap();
        writes_in(&copy, 110, 110);
        // Also when its lane is empty.
        copy.flush().unwrap();
        drop(copy);
    }
    refused();
    writes_in(&without_pool(&bench.path()).unwrap(), 100, 100);
    // Nor is it refused once the copy has left the pool.
    options.open(&dir, &bench.pool).unwrap().close().unwrap();
    writes_in(&bench.open(&options), 100, 100);
    writes_in(&without_pool(&dir).unwrap(), 110, 110);
}

/// Promise (store): A further backup copies what is new, and leaves the earlier ones as they are;
/// each alone is the store as of its moment.
#[test]
fn a_further_backup_copies_what_is_new_alone() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE).gc(false));
    let backups = bench.dir.path().join("backups");
    (0..3000).for_each(|number| write(&store, number).unwrap());
    let mut told = 0;
    let first = store
        .backup(&backups, |so_far| {
            assert!(so_far.done_bytes >= told);
            told = so_far.done_bytes;
        })
        .unwrap();
    assert_eq!((first.copied_files, told), (first.files, first.bytes));
    let before = contents(&backups.join("000001"));
    (3000..3050).for_each(|number| write(&store, number).unwrap());
    let second = store.backup(&backups, |_| ()).unwrap();
    assert!(second.backup.ends_with("000002"));
    let few = second.copied_bytes < second.bytes / 2 && second.copied_files < second.files / 2;
    assert!(few, "{second:?}");
    assert!(contents(&backups.join("000001")) == before);
    // On another machine: a copy of one, without the others and without the pool.
    for (number, writes) in [("000001", 3000), ("000002", 3050)] {
        let restored = bench.dir.path().join(format!("restored {number}"));
        copy_dir(&backups.join(number), &restored);
        writes_in(&without_pool(&restored).unwrap(), writes, writes);
    }
    // One that was cut is removed, and counts for nothing.
    let cut = backups.join("000007");
    copy_dir(&backups.join("000002"), &cut);
    fs::remove_file(cut.join("MANIFEST")).unwrap();
    fs::write(cut.join("UNFINISHED"), "").unwrap();
    assert!(
        store
            .backup(&backups, |_| ())
            .unwrap()
            .backup
            .ends_with("000003")
    );
    assert!(!cut.exists());
    let removed = store.prune_backups(&backups, 1).unwrap();
    assert_eq!(removed.len(), 2);
    writes_in(&without_pool(&backups.join("000003")).unwrap(), 3050, 3050);
}

/// Promise (store): A torn large value to which no key leads, as a crash leaves one, stops no
/// backup, and is in none.
#[test]
fn a_torn_large_value_that_no_key_leads_to_stops_no_backup() {
    let bench = Bench::new();
    let store = with_100_writes(&bench, &tiny(Durability::DOUBLE).gc(false));
    // What reached the disk of a value whose record did not.
    store.put("torn", &vec![7; 200_000]).unwrap();
    let large = bench.path().join("large");
    let torn = common::files_in(&large).pop().unwrap();
    store.delete("torn").unwrap();
    let mut bytes = fs::read(&torn).unwrap();
    bytes[10..100].fill(0);
    fs::write(&torn, bytes).unwrap();
    let backups = bench.dir.path().join("backups");
    store.backup(&backups, |_| ()).unwrap();
    let copy = without_pool(&backups.join("000001")).unwrap();
    writes_in(&copy, 100, 100);
    let there = backups.join("000001/large").join(torn.file_name().unwrap());
    assert!(torn.exists() && !there.exists());
}

/// Promise (store): A backup is refused if the log that it needs cannot be read in order, also
/// where that was linked to an earlier backup.
#[test]
fn a_backup_that_would_link_damaged_log_it_replays_fails() {
    let bench = Bench::new();
    // Nothing goes into the index by itself.
    let options = tiny(Durability::DOUBLE).gc(false);
    let store = bench.open(&options.memtable_size(64 << 20).chunk_log_size(256 << 20));
    (0..3000).for_each(|number| write(&store, number).unwrap());
    let backups = bench.dir.path().join("backups");
    store.backup(&backups, |_| ()).unwrap();
    let file = value_log_files(&backups.join("000001")).remove(0);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 300].fill(0x5a);
    fs::write(&file, bytes).unwrap();
    let error = store.backup(&backups, |_| ()).unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
    assert!(!backups.join("000002").exists());
}

/// Promise (store): One backup or prune at a time is at work in a directory; another one is refused
/// and changes nothing.
#[test]
fn a_second_backup_beside_one_that_is_made_is_refused() {
    let bench = Bench::new();
    let store = with_100_writes(&bench, &tiny(Durability::DOUBLE));
    let backups = bench.dir.path().join("backups");
    let mut refused = 0;
    let made = store.backup(&backups, |_| {
        if refused > 0 {
            return;
        }
        let others = [
            store.backup(&backups, |_| ()).map(drop),
            store.prune_backups(&backups, 1).map(drop),
        ];
        for other in others {
            let error = other.unwrap_err();
            assert!(matches!(error, StoreError::BackupsInUse { .. }), "{error}");
            refused += 1;
        }
    });
    assert!(made.unwrap().backup.ends_with("000001") && refused > 0);
    writes_in(&without_pool(&backups.join("000001")).unwrap(), 100, 100);
    store.backup(&backups, |_| ()).unwrap();
    assert_eq!(store.prune_backups(&backups, 1).unwrap().len(), 1);
}

/// Promise (store): Whatever a cut leaves of a backup that is made or removed, the next one goes
/// on.
#[test]
fn what_a_cut_leaves_of_a_backup_stops_no_further_one() {
    let bench = Bench::new();
    let store = with_100_writes(&bench, &tiny(Durability::DOUBLE));
    let backups = bench.dir.path().join("backups");
    for _ in 0..2 {
        store.backup(&backups, |_| ()).unwrap();
    }
    // Between the manifest and the mark: it is a backup.
    fs::write(backups.join("000001/UNFINISHED"), "").unwrap();
    // Before the mark, or behind it.
    fs::create_dir(backups.join("000003")).unwrap();
    let third = store.backup(&backups, |_| ()).unwrap();
    assert!(third.backup.ends_with("000003"));
    assert_eq!(store.prune_backups(&backups, 1).unwrap().len(), 2);
    assert_eq!(common::files_in(&backups), [backups.join("000003")]);
    writes_in(&without_pool(&backups.join("000003")).unwrap(), 100, 100);
}

/// Promise (store): A checkpoint that finds another one begun in its directory changes nothing of
/// it.
#[test]
fn of_two_checkpoints_in_one_directory_the_first_is_whole() {
    let bench = Bench::new();
    let first = with_100_writes(&bench, &tiny(Durability::DOUBLE));
    let (dir, first) = (bench.dir.path().join("copy"), Arc::new(first));
    let begun = bench.dir.path().join("begun");
    // The other one begins when this one has seen that nothing is there, and also ends, or not yet.
    let disk = {
        let marks = [&dir, &begun].map(|dir| dir.join("UNFINISHED"));
        let (first, seen) = (Arc::clone(&first), AtomicBool::new(false));
        HookDisk::new(move |doing: Doing<'_>| {
            match doing {
                Doing::Create(path) if path == marks[0] && !seen.swap(true, SeqCst) => {
                    first.checkpoint(path.parent().unwrap()).unwrap();
                }
                Doing::Create(path) if path == marks[1] => fs::write(path, "the other one's")?,
                _ => {}
            }
            Ok(())
        })
    };
    let others = tempfile::tempdir().unwrap();
    let options = tiny(Durability::NoSync);
    let second = options
        .open_on(disk, None, others.path().join("store"), None)
        .unwrap();
    let error = second.checkpoint(&dir).unwrap_err();
    assert!(matches!(error, StoreError::NotEmpty { .. }), "{error}");
    assert!(!dir.join("UNFINISHED").exists());
    writes_in(&without_pool(&dir).unwrap(), 100, 100);
    let error = second.checkpoint(&begun).unwrap_err();
    assert!(matches!(error, StoreError::NotEmpty { .. }), "{error}");
    assert!(begun.join("UNFINISHED").exists());
}

/// A checkpoint below the store's own directory would be in its way.
#[test]
fn a_checkpoint_in_the_stores_directory_is_refused() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    write(&store, 1).unwrap();
    for dir in ["copy", "vlog/copy", "deep/er/copy"].map(|name| bench.path().join(name)) {
        let refused = [
            store.checkpoint(&dir).map(drop),
            store.backup(&dir, |_| ()).map(drop),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert!(matches!(error, StoreError::NotEmpty { .. }), "{error}");
        }
        assert!(!dir.exists() && !bench.path().join("deep").exists());
    }
}

/// Promise (store): A backup of a store with a damaged record, table or large value fails, and
/// names the file.
#[test]
fn a_backup_of_damage_fails_and_counts_for_nothing() {
    for part in ["vlog", "large", "index"] {
        let bench = Bench::new();
        let store = bench.open(&tiny(Durability::DOUBLE).gc(false));
        (0..1420).for_each(|number| write(&store, number).unwrap());
        store.gc().unwrap();
        // One that the next backup has as well: others may lie there that merges have replaced.
        let sound = bench.dir.path().join("sound");
        store.backup(&sound, |_| ()).unwrap();
        let files = common::files_in(&sound.join("000001").join(part));
        let is_data = |path: &&std::path::PathBuf| !path.ends_with("MANIFEST");
        let name = files.iter().find(is_data).unwrap().file_name().unwrap();
        let file = bench.path().join(part).join(name);
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 300]
            .iter_mut()
            .for_each(|byte| *byte ^= 1);
        // In place: the store has it open.
        fs::write(file, bytes).unwrap();
        let backups = bench.dir.path().join("backups");
        let error = store.backup(&backups, |_| ()).expect_err(part).to_string();
        assert!(error.contains(part) && error.contains("damaged"), "{error}");
        assert_eq!(fs::read_dir(&backups).unwrap().count(), 0);
    }
}

/// Promise (store): A checkpoint or backup is refused where anything else is, and leaves that as it
/// is.
#[test]
fn a_directory_with_anything_else_is_refused_and_left_as_it_is() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    write(&store, 1).unwrap();
    let dir = bench.dir.path().join("taken");
    fs::create_dir(&dir).unwrap();
    // An empty one is not.
    store.checkpoint(&dir).unwrap();
    let before = contents(&dir);
    let others = Bench::new();
    let other = others.open(&tiny(Durability::DOUBLE));
    let backups = bench.dir.path().join("backups");
    other.backup(&backups, |_| ()).unwrap();
    let refused = [
        store.checkpoint(&dir).map(drop),
        store.backup(&dir, |_| ()).map(drop),
        store.backup(&backups, |_| ()).map(drop),
        store.prune_backups(&backups, 1).map(drop),
        store.checkpoint(bench.path()).map(drop),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(matches!(error, StoreError::NotEmpty { .. }), "{error}");
    }
    assert!(contents(&dir) == before);
}
