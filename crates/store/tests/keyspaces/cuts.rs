//! The power fails at each step of one change: a transaction, the delete of a range, a batch with
//! one. After it there is all of the change or nothing, and all if it was acknowledged.

use crate::common::{
    self, Rng, VARIANTS,
    crash_disk::{CrashDisk, DISK_NOTE},
    format, new_sim, tiny,
};
use forebay_pool::{
    Pool, PoolOptions,
    media::{CrashImages, SimMedia},
};
use forebay_store::{Durability, KeyspaceOptions, ScanRange, Store, StoreError, StoreOptions};
use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

const NAMES: [&str; 2] = ["one", "two"];
const SEGMENT_BYTES: u64 = 64 << 10;
/// Of a value that lies in the log, and most of a segment with another one; and in a file of its
/// own.
const LONG: usize = 25_000;
const LARGE: usize = 60_000;

/// Notes: the change begins, and is acknowledged.
const BEGUN: u64 = 1;
const ACKNOWLEDGED: u64 = 2;

type Contents = BTreeMap<(&'static str, Vec<u8>), Vec<u8>>;
type Change = dyn Fn(&Store) -> Result<(), StoreError>;

fn contents(store: &Store) -> Contents {
    let mut all = Contents::new();
    for name in NAMES {
        let keyspace = store.existing_keyspace(name).unwrap();
        for pair in keyspace.scan(ScanRange::all()).unwrap() {
            let (key, value) = pair.unwrap();
            all.insert((name, key), value.into_vec());
        }
    }
    all
}

/// Some of each, durable.
fn fill(store: &Store) {
    for name in NAMES {
        let keyspace = store.keyspace(name, KeyspaceOptions::new()).unwrap();
        for i in 0..10u32 {
            keyspace.put(&i.to_be_bytes(), &[7; 100]).unwrap();
        }
        keyspace.put("long", &[7; LONG]).unwrap();
        keyspace.put("large", &[7; LARGE]).unwrap();
    }
    store.flush().unwrap();
}

/// What was recorded of a change.
struct Recorded {
    options: StoreOptions,
    has_pool: bool,
    acknowledged_lasts: bool,
    disk: CrashDisk,
    sim: Arc<SimMedia>,
    images: CrashImages,
    before: Contents,
    after: Contents,
}

fn record(variant: Durability, live: &Path, index: &Path, change: &Change) -> Recorded {
    let sim = new_sim(SEGMENT_BYTES);
    let pool = format(Arc::clone(&sim), SEGMENT_BYTES);
    fs::create_dir_all(live).unwrap();
    let disk = CrashDisk::new(live, Arc::clone(&sim));
    // Nothing is merged into the index, which is as it was copied.
    let options = tiny(variant).gc(false).memtable_size(8 << 20);
    let options = options.chunk_log_size(64 << 20);
    let has_pool = matches!(variant, Durability::Buffered(_));
    let store = options
        .open_on(
            Arc::new(disk.clone()),
            None,
            live,
            has_pool.then_some(&pool),
        )
        .unwrap();
    fill(&store);
    common::copy_dir(&live.join("index"), index);
    let before = contents(&store);
    sim.note(BEGUN);
    change(&store).unwrap();
    sim.note(ACKNOWLEDGED);
    let after = contents(&store);
    assert!(before != after);
    drop(store);
    Recorded {
        options,
        has_pool,
        acknowledged_lasts: variant != Durability::NoSync,
        images: sim.crash_images(),
        disk,
        sim,
        before,
        after,
    }
}

impl Recorded {
    /// The power fails at `point`: how much is left of what was not sure is up to `seed`. The pool
    /// that is found; `dir` is the store's.
    fn cut(&self, point: usize, seed: u64, dir: &Path) -> Pool {
        let rng = &mut Rng(seed << 32 | point as u64);
        let done = |note: &u64| *note == DISK_NOTE;
        let events = self.images.notes_before(point).filter(done).count();
        fs::create_dir_all(dir).unwrap();
        self.disk.image(events, rng, dir);
        let arrived = [0, u64::MAX, u64::MAX / 2][seed as usize % 3];
        let image = self.images.at(point, || rng.next() <= arrived);
        let sim = Arc::new(self.sim.of_its_kind(image));
        sim.stop_recording();
        PoolOptions::new().open_on("test pool", sim).unwrap()
    }

    /// What a recovery finds there is all or nothing, and the store goes on. True if it is all.
    fn is_done(&self, dir: &Path, pool: &Pool, change: &Change, when: &str) -> bool {
        let pool = self.has_pool.then_some(pool);
        let store = self.options.open(dir, pool);
        let store = store.unwrap_or_else(|error| panic!("{when}: {error}"));
        let found = contents(&store);
        let is_done = found == self.after;
        if !is_done {
            let keys = |all: &Contents| all.keys().cloned().collect::<Vec<_>>();
            assert!(found == self.before, "{when}: {:?}", keys(&found));
        }
        let problems = store.verify().unwrap().problems;
        assert_eq!(problems, Vec::<String>::new(), "{when}");
        change(&store).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(contents(&store) == self.after, "{when}: done again");
        is_done
    }
}

/// Cuts the power at each step of `change`, which makes the same of what it finds whenever it is
/// done.
fn cut_at_each_step(variants: &[Durability], change: &Change) {
    for &variant in variants {
        let work = common::in_memory();
        let index = work.path().join("index");
        let recorded = record(variant, &work.path().join("live"), &index, change);
        let notes = |point| recorded.images.notes_before(point);
        let points = recorded.images.points();
        let begun = (0..points).find(|&point| notes(point).any(|note| note == BEGUN));
        let (mut all, mut nothing) = (0, 0);
        for point in begun.unwrap()..points {
            let acknowledged = notes(point).any(|note| note == ACKNOWLEDGED);
            for seed in 0..3 {
                let dir = work.path().join("found");
                let pool = recorded.cut(point, seed, &dir);
                common::copy_dir(&index, &dir.join("index"));
                let when = format!("{variant}, cut at {point} of {points}, seed {seed}");
                match recorded.is_done(&dir, &pool, change, &when) {
                    true => all += 1,
                    false => {
                        let lasts = acknowledged && recorded.acknowledged_lasts;
                        assert!(!lasts, "{when}: it was acknowledged");
                        nothing += 1;
                    }
                }
                fs::remove_dir_all(&dir).unwrap();
            }
        }
        assert!(all > 0 && nothing > 0, "{variant}: {all}, {nothing}");
    }
}

/// Promise (store): After a power cut at any step of a transaction over keyspaces all of it is
/// there or nothing, large values too, and all if it was acknowledged.
#[test]
fn a_transaction_cut_at_any_step_is_there_whole_or_not() {
    cut_at_each_step(&VARIANTS, &|store| {
        let [one, two] = NAMES.map(|name| store.existing_keyspace(name).unwrap());
        store.transaction(|tx| {
            for pair in tx.scan_in(&one, ScanRange::new(5u32.to_be_bytes()..))? {
                pair?;
            }
            tx.put_in(&one, &7u32.to_be_bytes(), &[8; 200])?;
            tx.put_in(&two, "long", &[8; LONG])?;
            tx.put_in(&two, "large", &[8; LARGE])?;
            tx.put_in(&one, "new", &[8; LARGE])?;
            tx.delete_in(&two, &7u32.to_be_bytes())
        })
    });
}

/// Promise (store): After a power cut at any step of a range's delete, alone or in a batch or a
/// transaction, all of that is there or nothing, and all if it was acknowledged.
#[test]
fn a_range_delete_cut_at_any_step_is_done_or_not() {
    const SOME: [Durability; 3] = [Durability::Fsync, Durability::NoSync, Durability::DOUBLE];
    fn range() -> ScanRange {
        ScanRange::new(3u32.to_be_bytes()..)
    }
    cut_at_each_step(&SOME, &|store| {
        store.existing_keyspace("one")?.delete_range(range())
    });
    cut_at_each_step(&SOME, &|store| {
        let [one, two] = NAMES.map(|name| store.existing_keyspace(name).unwrap());
        let mut batch = store.batch();
        batch.put_in(&one, "gone again", "value")?;
        batch.delete_range_in(&one, range())?;
        batch.put_in(&one, "large", &[8; LARGE])?;
        batch.delete_range_in(&two, ScanRange::prefix("l"))?;
        store.write(&batch)
    });
    cut_at_each_step(&SOME, &|store| {
        let two = store.existing_keyspace("two")?;
        store.transaction(|tx| {
            tx.delete_range_in(&two, range())?;
            tx.put_in(&two, "long", &[8; LONG])
        })
    });
}
