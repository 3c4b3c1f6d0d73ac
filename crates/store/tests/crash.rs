//! Power cuts at any moment, with a pool and a disk that keep no more than they must.
//!
//! Two writers, a collector, flushes; then the power fails at a random moment: of the pool, any subset of what was not
//! fenced is left (`Sim`); of the files, any subset of what was not synced (`CrashDisk`); the index, which has crash tests of its
//! own, is as it was at that moment. A new session recovers, in any variant or resident in the pool, and is cut as well, be it while it recovers. Each time, each
//! writer's keys must be as they were after its last acknowledged operation, or after the one that was in flight; with
//! `nosync`, and with puts that are not committed in a pool on a disk, as after any operation since the last flush or commit.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Rng, VARIANTS,
    crash_disk::{CrashDisk, DISK_NOTE},
    format, new_disk, new_sim,
    oracle::{Change, Known, State, apply, operations, perform},
    tiny,
};
use forebay_pool::{
    Pool, PoolOptions,
    media::{CrashImages, Sim},
};
use forebay_store::{Store, StoreOptions, Variant};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

const WRITERS: u64 = 2;

const ACK: u64 = 1 << 56;
const FLUSHED: u64 = 2 << 56;
const READ: u64 = 3 << 56;
const COPY_BEGINS: u64 = 4 << 56;
const COPY_ENDS: u64 = 5 << 56;
const KIND: u64 = 0xFF << 56;

/// How large everything is in a round of the test.
#[derive(Clone, Copy)]
struct Scale {
    segment_bytes: u64,
    /// By how much most values are longer than a few kilobytes.
    longer: u64,
}

/// Segments that are full soon.
const SMALL: Scale = Scale {
    segment_bytes: 64 << 10,
    longer: 1,
};
/// Segments large enough to be written ahead of their seal.
const LARGE: Scale = Scale {
    segment_bytes: 1 << 20,
    longer: 8,
};

/// A place where a store lives until the power fails.
struct Machine {
    dir: PathBuf,
    sim: Arc<Sim>,
    pool: Pool,
    disk: CrashDisk,
}

impl Machine {
    fn new(dir: &Path, segment_bytes: u64) -> Self {
        Self::with(dir, new_sim(segment_bytes), segment_bytes)
    }

    fn with(dir: &Path, sim: Arc<Sim>, segment_bytes: u64) -> Self {
        let pool = format(Arc::clone(&sim), segment_bytes);
        fs::create_dir_all(dir).unwrap();
        Self {
            dir: dir.to_owned(),
            disk: CrashDisk::new(dir, Arc::clone(&sim)),
            sim,
            pool,
        }
    }

    /// The machine whose pool has this image, and whose directory is there.
    fn after(dir: &Path, image: Vec<u8>) -> Self {
        Self::on(dir, Arc::new(Sim::from_image(image)))
    }

    fn on(dir: &Path, sim: Arc<Sim>) -> Self {
        Self {
            dir: dir.to_owned(),
            disk: CrashDisk::new(dir, Arc::clone(&sim)),
            pool: PoolOptions::new()
                .open_on("test pool", sim.clone())
                .unwrap(),
            sim,
        }
    }

    fn open(&self, options: &StoreOptions) -> Store {
        let disk = Arc::new(self.disk.clone());
        options.open_on(disk, None, &self.dir, &self.pool).unwrap()
    }
}

/// A session that was recorded.
struct Recorded {
    disk: CrashDisk,
    sim: Arc<Sim>,
    images: CrashImages,
    before: Known,
    /// What is acknowledged is durable; otherwise what is flushed.
    acknowledged_lasts: bool,
    /// What each writer's keys were at first, as read, and what was done to them.
    begun: Vec<State>,
    operations: Vec<Vec<Vec<Change>>>,
    /// Copies of the index, and the points between which they hold.
    copies: Vec<(usize, usize, PathBuf)>,
}

/// Copies the index's directory again and again; the copies that hold, by number.
fn copy_index(machine: &Machine, to: &Path, done: &AtomicBool) -> Vec<(u64, PathBuf)> {
    let from = machine.dir.join("index");
    let manifest = || fs::read(from.join("MANIFEST")).ok();
    let mut copies = Vec::new();
    for number in 0.. {
        let last = done.load(SeqCst);
        let copy = to.join(format!("{number}"));
        let before = manifest();
        machine.sim.note(COPY_BEGINS | number);
        fs::create_dir_all(&copy).unwrap();
        for entry in fs::read_dir(&from).into_iter().flatten().flatten() {
            // Tables do not change; those that come and go meanwhile are in no manifest.
            if entry.file_name().to_string_lossy().ends_with(".table") {
                let _ = fs::hard_link(entry.path(), copy.join(entry.file_name()));
            }
        }
        if let Some(manifest) = &before {
            fs::write(copy.join("MANIFEST"), manifest).unwrap();
        }
        if !last {
            thread::sleep(Duration::from_millis(3));
        }
        machine.sim.note(COPY_ENDS | number);
        if manifest() == before {
            copies.push((number, copy));
        }
        if last {
            break;
        }
    }
    copies
}

/// Says so when it goes.
struct Finished<'a>(&'a AtomicBool);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn record(
    machine: Machine,
    (acknowledged_lasts, options): (bool, &StoreOptions),
    known: &Known,
    scale: Scale,
    rng: &mut Rng,
    work: &Path,
) -> Recorded {
    let done = AtomicBool::new(false);
    let count = 40 + rng.below(200);
    let operations: Vec<_> = (0..WRITERS)
        .map(|writer| operations(writer, rng, count, scale.longer))
        .collect();
    let closes = rng.chance(2);
    let begun = std::sync::Mutex::new(Vec::new());
    let copies = thread::scope(|scope| {
        let copier = scope.spawn(|| copy_index(&machine, &work.join("index copies"), &done));
        // Also if something panics: the copier must not go on for ever.
        let finished = Finished(&done);
        let store = machine.open(options);
        *begun.lock().unwrap() = known.judge(&store, "opening again");
        machine.sim.note(READ);
        let acknowledged: Vec<_> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (store, sim) = (&store, &machine.sim);
                    let (operations, acknowledged) = (&operations, &acknowledged);
                    scope.spawn(move || {
                        for (number, operation) in (1..).zip(&operations[writer as usize]) {
                            perform(store, operation);
                            sim.note(ACK | writer << 32 | number);
                            acknowledged[writer as usize].store(number, SeqCst);
                        }
                    })
                })
                .collect();
            while writers.iter().any(|writer| !writer.is_finished()) {
                let sure: Vec<_> = acknowledged.iter().map(|a| a.load(SeqCst)).collect();
                match rng.below(3) {
                    0 => drop(store.gc().unwrap()),
                    1 => store.flush().unwrap(),
                    _ => store.commit().unwrap(),
                }
                for (writer, sure) in (0..).zip(sure) {
                    machine.sim.note(FLUSHED | writer << 32 | sure);
                }
                thread::sleep(Duration::from_millis(rng.below(20)));
            }
        });
        if closes {
            store.close().unwrap();
        } else {
            drop(store);
        }
        drop(finished);
        copier.join().unwrap()
    });
    let images = machine.sim.crash_images();
    let point_of = |note: u64| {
        // The first point with the note before it.
        let (mut low, mut high) = (0, images.points() - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            if images.notes_before(middle).any(|n| n == note) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    };
    let copies = copies
        .into_iter()
        .map(|(number, copy)| {
            let (from, to) = (point_of(COPY_BEGINS | number), point_of(COPY_ENDS | number));
            (from, to, copy)
        })
        .collect();
    let begun = begun.lock().unwrap().clone();
    Recorded {
        disk: machine.disk.clone(),
        sim: Arc::clone(&machine.sim),
        images,
        before: known.clone(),
        acknowledged_lasts,
        begun,
        operations,
        copies,
    }
}

impl Recorded {
    /// A random moment, and what may be there then.
    fn moment(&self, rng: &mut Rng) -> (usize, &Path, Known) {
        let (from, to, copy) = &self.copies[rng.below(self.copies.len() as u64) as usize];
        let point = from + rng.below((to - from + 1) as u64) as usize;
        let notes: Vec<_> = self.images.notes_before(point).collect();
        if !notes.contains(&READ) {
            return (point, copy, self.before.clone());
        }
        let mut known = Known {
            writers: Vec::new(),
        };
        for writer in 0..WRITERS {
            let number = |kind: u64| {
                let of = |note: &&u64| **note & KIND == kind && **note >> 32 & 0xFFFF == writer;
                let numbers = notes.iter().filter(of).map(|note| note & 0xFFFF_FFFF);
                numbers.max().unwrap_or(0) as usize
            };
            let acknowledged = number(ACK);
            let sure = match self.acknowledged_lasts {
                false => number(FLUSHED),
                true => acknowledged,
            };
            let operations = &self.operations[writer as usize];
            let mut state = self.begun[writer as usize].clone();
            let mut allowed = Vec::new();
            for done in 0..=operations.len().min(acknowledged + 1) {
                if done > 0 {
                    apply(&mut state, &operations[done - 1]);
                }
                if done >= sure {
                    allowed.push(state.clone());
                }
            }
            known.writers.push(allowed);
        }
        (point, copy, known)
    }

    /// The power fails at `point`; the machine afterwards, in `dir`.
    fn cut(&self, point: usize, copy: &Path, rng: &mut Rng, dir: &Path) -> Machine {
        let done = |note: &u64| *note == DISK_NOTE;
        let events = self.images.notes_before(point).filter(done).count();
        fs::create_dir_all(dir).unwrap();
        self.disk.image(events, rng, dir);
        if copy.join("MANIFEST").exists() {
            let index = dir.join("index");
            fs::create_dir_all(&index).unwrap();
            for file in common::files_in(copy) {
                let to = index.join(file.file_name().unwrap());
                if to.extension().is_some() {
                    fs::hard_link(file, to).unwrap();
                } else {
                    fs::copy(file, to).unwrap();
                }
            }
        }
        let arrived = [0, u64::MAX, u64::MAX / 2][rng.below(3) as usize];
        let image = self.images.at(point, || rng.next() <= arrived);
        Machine::on(dir, Arc::new(self.sim.of_its_kind(image)))
    }
}

/// How a session opens the store: the variant, whether what it acknowledges lasts, and all options.
fn options(rng: &mut Rng, collects: bool) -> (Variant, bool, StoreOptions) {
    let resident = rng.chance(4);
    let variant = match resident {
        true => Variant::Buffered(12),
        false => VARIANTS[rng.below(5) as usize],
    };
    let options = tiny(variant)
        .resident(resident)
        // Without, a resident store is full some time.
        .gc(collects || resident)
        .space_amplification_max(1.2)
        .file_size(2 << 20);
    (variant, variant != Variant::NoSync, options)
}

/// As [`options`], for a pool on a disk: one in three does not commit its puts.
fn options_on(on_disk: bool, rng: &mut Rng, collects: bool) -> (Variant, bool, StoreOptions) {
    let (variant, lasts, options) = options(rng, collects);
    let commits = !on_disk || !rng.chance(3);
    let is_buffered = matches!(variant, Variant::Buffered(_));
    (
        variant,
        lasts && (commits || !is_buffered),
        options.commit_puts(commits),
    )
}

fn two_crashes(seed: u64, on_disk: bool) {
    let mut rng = Rng(seed);
    let work = tempfile::tempdir().unwrap();
    let scale = if seed.is_multiple_of(4) { LARGE } else { SMALL };
    let (first_variant, first_lasts, first) = options_on(on_disk, &mut rng, true);
    let sim = match on_disk {
        true => new_disk(scale.segment_bytes),
        false => new_sim(scale.segment_bytes),
    };
    let machine = Machine::with(&work.path().join("first"), sim, scale.segment_bytes);
    let (known, place) = (Known::nothing(WRITERS), work.path().join("1"));
    let one = record(
        machine,
        (first_lasts, &first),
        &known,
        scale,
        &mut rng,
        &place,
    );
    for cut in 0..4 {
        let (point, copy, known) = one.moment(&mut rng);
        let dir = work.path().join(format!("cut {cut}"));
        let machine = one.cut(point, copy, &mut rng, &dir);
        let (second_variant, second_lasts, second) = options_on(on_disk, &mut rng, cut == 0);
        let when = format!(
            "seed {seed}, {}: {} cut at {point} of {}, then {}",
            if on_disk { "on a disk" } else { "in memory" },
            first_variant,
            one.images.points(),
            second_variant
        );
        if cut > 0 {
            let store = machine.open(&second);
            known.judge(&store, &when);
            let problems = store.verify().unwrap().problems;
            assert!(problems.is_empty(), "{when}: {problems:?}");
            continue;
        }
        let place = work.path().join("2");
        let two = record(
            machine,
            (second_lasts, &second),
            &known,
            scale,
            &mut rng,
            &place,
        );
        for again in 0..4 {
            let (point, copy, known) = two.moment(&mut rng);
            let dir = work.path().join(format!("cut {cut} {again}"));
            let machine = two.cut(point, copy, &mut rng, &dir);
            let (third_variant, _, third) = options_on(on_disk, &mut rng, false);
            let when = format!(
                "{when}, cut at {point} of {}, then {}",
                two.images.points(),
                third_variant
            );
            let store = machine.open(&third);
            known.judge(&store, &when);
            let problems = store.verify().unwrap().problems;
            assert!(problems.is_empty(), "{when}: {problems:?}");
        }
    }
}

fn many_times_two_crashes(on_disk: bool) {
    if let Ok(seed) = std::env::var("CRASH_SEED") {
        return two_crashes(seed.parse().unwrap(), on_disk);
    }
    // Other seeds each time; a failure says which one it was, and CRASH_SEED repeats it.
    let mut seeds = Rng(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    let begun = Instant::now();
    for round in 0.. {
        two_crashes(seeds.below(1_000_000_000), on_disk);
        if round >= 4 && begun.elapsed() > Duration::from_secs(15) {
            break;
        }
    }
}

#[test]
fn after_two_power_cuts_in_a_row_every_acknowledged_write_is_there() {
    many_times_two_crashes(false);
}

#[test]
fn with_a_pool_on_a_disk_after_two_power_cuts_every_committed_write_is_there() {
    many_times_two_crashes(true);
}

/// A store on a machine of its own, with options that need no pool.
fn without_pool(dir: &Path, options: &StoreOptions) -> (Machine, Store) {
    let machine = Machine::new(dir, SMALL.segment_bytes);
    let disk = Arc::new(machine.disk.clone());
    let store = options.open_on(disk, None, dir, None).unwrap();
    (machine, store)
}

/// The power fails now, and nothing that was not synced has arrived (or, with other seeds, some of it).
fn cut_now(machine: &Machine, seed: u64, to: &Path) {
    let disk = &machine.disk;
    fs::create_dir_all(to).unwrap();
    disk.image(disk.events(), &mut Rng(seed), to);
    let index = machine.dir.join("index");
    if index.exists() {
        common::copy_dir(&index, &to.join("index"));
    }
}

#[test]
fn a_large_value_is_not_removed_before_what_replaced_it_is_on_the_disk() {
    let work = tempfile::tempdir().unwrap();
    // Nothing is merged into the index, and so nothing synced on that account.
    let options = tiny(Variant::NoSync)
        .memtable_size(4 << 20)
        .chunk_log_size(64 << 20);
    let live = work.path().join("live");
    let (machine, store) = without_pool(&live, &options);
    let large = vec![7; 100_000];
    store.put(b"key", &large).unwrap();
    store.flush().unwrap();
    store.put(b"key", b"small").unwrap();
    // The collector looks around when a quarter as much was written.
    let files = || common::files_in(&live.join("large")).len();
    let begun = Instant::now();
    for i in 0.. {
        if files() == 0 {
            break;
        }
        store.put(&(i as u32).to_be_bytes(), &[7; 1000]).unwrap();
        thread::sleep(Duration::from_millis(1));
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it is never collected"
        );
    }
    for seed in 0..8 {
        let found = work.path().join(format!("found {seed}"));
        cut_now(&machine, seed, &found);
        let store = options.open(&found, None).unwrap();
        let value = store.get(b"key").unwrap().unwrap();
        assert!(value == large || value == b"small");
    }
}

#[test]
fn what_a_killed_session_had_not_synced_is_on_the_disk_before_the_log_goes_on_behind_it() {
    for bytes in [4032 - 34 - 3, 100, 4032 + 4096 - 34 - 3] {
        let work = tempfile::tempdir().unwrap();
        let live = work.path().join("live");
        let (machine, store) = without_pool(&live, &tiny(Variant::NoSync));
        store.put(b"old", &vec![7; bytes]).unwrap();
        drop(store);
        let store = machine.open(&tiny(Variant::DOUBLE));
        store.put(b"new", b"value").unwrap();
        let images = machine.sim.crash_images();
        for seed in 0..8 {
            let found = work.path().join(format!("found {seed}"));
            cut_now(&machine, seed, &found);
            let machine = Machine::after(&found, images.at(images.points() - 1, || true));
            let store = machine.open(&tiny(Variant::DOUBLE));
            assert_eq!(store.get(b"new").unwrap().unwrap(), b"value");
            assert_eq!(store.get(b"old").unwrap().unwrap(), vec![7; bytes]);
        }
    }
}

#[test]
fn a_pool_that_lost_what_the_index_was_told_of_is_refused_and_its_addresses_are_not_used_again() {
    let work = tempfile::tempdir().unwrap();
    let options = tiny(Variant::DOUBLE).gc(false);
    let machine = Machine::new(&work.path().join("live"), SMALL.segment_bytes);
    let store = machine.open(&options);
    store.put(b"first", b"1").unwrap();
    let images = machine.sim.crash_images();
    let early = images.at(images.points() - 1, || true);
    for i in 0..50u32 {
        store.put(&i.to_be_bytes(), &[7; 3000]).unwrap();
    }
    store.gc().unwrap();
    let found = work.path().join("found");
    cut_now(&machine, 0, &found);

    let machine = Machine::after(&found, early);
    let refused = options.open(&found, &machine.pool).err();
    let refused = refused.unwrap().to_string();
    assert!(refused.contains("its index was told of it"), "{refused}");
    let salvage = options.clone().salvage(true);
    let store = machine.open(&salvage);
    assert_eq!(store.get(b"first").unwrap().unwrap(), b"1");
    store.put(b"second", b"2").unwrap();
    let images = machine.sim.crash_images();
    let image = images.at(images.points() - 1, || true);
    for (round, variant) in [Variant::DOUBLE, Variant::Fsync].into_iter().enumerate() {
        let found = work.path().join(format!("found {round}"));
        cut_now(&machine, 0, &found);
        let machine = Machine::after(&found, image.clone());
        let options = options.clone().variant(variant);
        for _ in 0..2 {
            let store = machine.open(&options);
            assert_eq!(store.get(b"first").unwrap().unwrap(), b"1");
            assert_eq!(store.get(b"second").unwrap().unwrap(), b"2");
        }
    }
}

#[test]
fn a_file_that_was_begun_while_the_one_before_it_did_not_arrive_is_begun_again() {
    for seed in 0..4 {
        let work = tempfile::tempdir().unwrap();
        // The index stays empty: all of the log is walked at an opening.
        let options = tiny(Variant::NoSync)
            .memtable_size(4 << 20)
            .chunk_log_size(64 << 20);
        let (machine, store) = without_pool(&work.path().join("live"), &options);
        // Up to the moment at which the second file is in the manifest: the first one is not synced yet.
        let two = || common::value_log_files(&machine.dir).len() == 2;
        let mut i = 0u32;
        while !two() {
            store.put(&i.to_be_bytes(), &[i as u8; 20_000]).unwrap();
            i += 1;
        }
        let done = machine.disk.events();
        drop(store);
        // Some of the last operations are undone: the first file's sync among them.
        for back in 1..10 {
            let found = work.path().join(format!("found {back}"));
            fs::create_dir_all(&found).unwrap();
            machine.disk.image(done - back, &mut Rng(seed), &found);
            common::copy_dir(&machine.dir.join("index"), &found.join("index"));
            for round in 0..2u8 {
                let Ok(store) = options.open(&found, None) else {
                    panic!("seed {seed}, {back} operations before the end, round {round}");
                };
                for i in 0..60u32 {
                    store.put(&[round, i as u8], &[i as u8; 20_000]).unwrap();
                }
                drop(store);
            }
            let store = options.open(&found, None).unwrap();
            for round in 0..2u8 {
                for i in 0..60u32 {
                    let value = store.get(&[round, i as u8]).unwrap().unwrap();
                    assert_eq!(value, [i as u8; 20_000]);
                }
            }
            assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        }
    }
}

/// Whatever the opening that was cut had taken in the pool, with other options.
#[test]
fn a_resident_store_has_all_the_room_it_is_given_after_a_first_opening_that_was_cut_anywhere() {
    let work = tempfile::tempdir().unwrap();
    for on_disk in [false, true] {
        let sim = match on_disk {
            true => new_disk(SMALL.segment_bytes),
            false => new_sim(SMALL.segment_bytes),
        };
        let live = work.path().join(format!("live {on_disk}"));
        let machine = Machine::with(&live, sim, SMALL.segment_bytes);
        drop(machine.open(&tiny(Variant::Buffered(4))));
        let images = machine.sim.crash_images();
        for point in 0..images.points() {
            let cut = |number: &u64| *number == DISK_NOTE;
            let events = images.notes_before(point).filter(cut).count();
            let dir = work.path().join(format!("cut {on_disk} {point}"));
            fs::create_dir_all(&dir).unwrap();
            machine.disk.image(events, &mut Rng(1), &dir);
            if dir.join("MANIFEST").exists() {
                // It is empty, from its first moment on.
                common::copy_dir(&live.join("index"), &dir.join("index"));
            }
            let sim = Arc::new(machine.sim.of_its_kind(images.at(point, || true)));
            if PoolOptions::new().open_on("pool", sim.clone()).is_err() {
                // It was not yet made.
                continue;
            }
            let machine = Machine::on(&dir, sim);
            let _store = machine.open(&tiny(Variant::Buffered(12)).resident(true));
            let segments = machine.pool.lanes()[0].segments;
            assert_eq!(segments, 12, "on a disk: {on_disk}, cut at {point}");
        }
    }
}
