//! Whole sessions on a disk that is soon full, drawn from a seed: every variant and size, snapshots
//! that are held, another program that takes room, closes, crashes and kills, and openings.
//!
//! After a step that was refused for want of room, and at the end of each session:
//! * deletes are taken;
//! * once little is live, so are puts;
//! * an opening works;
//! * what is there is what was acknowledged.
//!
//! A few sessions run with the other tests. Many: `FOREBAY_FULL_DISK_SEED=1
//! FOREBAY_FULL_DISK_SESSIONS=500 cargo test -p forebay-store --test full_disk_fuzz -- --ignored
//! many --nocapture`
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Rng, VARIANTS, small_disk::SmallDisk, within};
use forebay_pool::{Pool, PoolOptions};
use forebay_store::{Batch, Durability, ScanRange, Snapshot, Store, StoreError, StoreOptions};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const DISK: u64 = 64 << 20;
/// What an operation may take on a full disk, another program's room and snapshots given back.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);
/// A phase begins no step later.
const PHASE: Duration = Duration::from_millis(1500);
/// With so much live, in parts of a hundred of the disk, puts are taken.
const LITTLE: u64 = 40;
/// What a child process is told.
const ORDER: &str = "FOREBAY_FULL_DISK_CHILD";

/// What a key has: the version that makes its value's bytes, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Val {
    version: u64,
    bytes: usize,
}

impl Val {
    fn make(self) -> Vec<u8> {
        let mut rng = Rng(self.version);
        let mut value = vec![0; self.bytes];
        for word in value.chunks_mut(8) {
            let random = rng.next().to_le_bytes();
            word.copy_from_slice(&random[..word.len()]);
        }
        value
    }
}

/// The largest of the small values.
const SMALL: u64 = 2000;

type Model = BTreeMap<u32, Val>;

fn key(number: u32) -> Vec<u8> {
    format!("key {number:07}").into_bytes()
}

fn number(key: &[u8]) -> u32 {
    str::from_utf8(&key[4..]).unwrap().parse().unwrap()
}

type Change = (u32, Option<Val>);

/// How a phase of a session draws its operations.
#[derive(Clone, Copy, Debug)]
struct Profile {
    keys: u64,
    /// One in so many operations is a delete, and a batch.
    deletes: u64,
    batches: u64,
    /// What values are like.
    small: u64,
    largest: u64,
}

impl Profile {
    fn draw(rng: &mut Rng) -> Self {
        let largest = match rng.below(7) {
            0 => 300,
            1 => 4 << 10,
            2 => 16 << 10,
            3 => 64 << 10,
            4 => 600 << 10,
            5 => 20,
            _ => 6 << 20,
        };
        let small = [1, 2, 5][rng.below(3) as usize];
        // All of them together are more than the disk, or half of it.
        let bytes = (largest + 2 * (small - 1) * largest.min(SMALL)) / (2 * small) + 100;
        Self {
            keys: (DISK / bytes).max(8) * 2 / (1 + rng.below(4)),
            deletes: [2, 3, 8, 30, 1 << 40][rng.below(5) as usize],
            batches: [3, 10, 1000][rng.below(3) as usize],
            small,
            largest,
        }
    }

    fn value(&self, rng: &mut Rng) -> Val {
        let largest = match rng.below(self.small) {
            0 => self.largest,
            _ => self.largest.min(SMALL),
        };
        Val {
            version: rng.next(),
            bytes: rng.below(largest + 1) as usize,
        }
    }

    fn change(&self, rng: &mut Rng) -> Change {
        let key = rng.below(self.keys) as u32;
        let value = (!rng.chance(self.deletes)).then(|| self.value(rng));
        (key, value)
    }

    /// The next operation: one change, or those of a batch.
    fn operation(&self, rng: &mut Rng) -> Vec<Change> {
        let changes = match rng.chance(self.batches) {
            true => 1 + rng.below(8),
            false => 1,
        };
        (0..changes).map(|_| self.change(rng)).collect()
    }
}

fn perform(store: &Store, operation: &[Change]) -> Result<(), StoreError> {
    match operation {
        [(number, None)] => store.delete(&key(*number)),
        [(number, Some(value))] => store.put(&key(*number), &value.make()),
        changes => {
            let mut batch = Batch::new();
            for (number, change) in changes {
                match change {
                    Some(value) => batch.put(&key(*number), &value.make()).unwrap(),
                    None => batch.delete(&key(*number)).unwrap(),
                }
            }
            store.write(&batch)
        }
    }
}

/// Everything that a session may find wrong is told by such a text.
type Found<T = ()> = Result<T, String>;

/// What was counted in a session.
#[derive(Debug, Default)]
struct Counts {
    operations: u64,
    refused_puts: u64,
    refused_deletes: u64,
    openings: u64,
    kills: u64,
    longest_delete: Duration,
    longest_put: Duration,
}

struct World {
    rng: Rng,
    seed: u64,
    disk: SmallDisk,
    /// Dropped when nothing is mounted in it.
    dir: tempfile::TempDir,
    pool_segment: Option<u64>,
    model: Model,
    /// What keys may have instead, after writes of which it is unknown whether they were done.
    maybe: BTreeMap<u32, Vec<Option<Val>>>,
    counts: Counts,
    said: Vec<String>,
    /// Why a delete was refused last.
    last: String,
}

/// An open store, and what goes when it goes.
struct Open {
    store: Store,
    options: String,
    gc: bool,
    snapshots: Vec<(Snapshot, Model)>,
    hog: bool,
}

/// How a store is opened in a phase: what a child is told, too.
#[derive(Clone, Copy, Debug)]
struct Way {
    variant: Durability,
    segment: u64,
    file: u64,
    memtable: usize,
    gc: bool,
}

impl Way {
    fn draw(rng: &mut Rng, with_pool: bool) -> Self {
        let variant = loop {
            let variant = VARIANTS[rng.below(5) as usize];
            if with_pool || matches!(variant, Durability::Fsync | Durability::NoSync) {
                break variant;
            }
        };
        Self {
            variant,
            segment: (64 << 10) << rng.below(5),
            file: (1 << 20) << rng.below(5),
            memtable: (64 << 10) << rng.below(5),
            gc: !rng.chance(4),
        }
    }

    fn options(&self) -> StoreOptions {
        StoreOptions::new()
            .close_on_drop(false)
            .durability(self.variant)
            .segment_size(self.segment)
            .file_size(self.file)
            .memtable_size(self.memtable)
            .chunk_log_size(4 << 20)
            .cache_size(4 << 20)
            .gc(self.gc)
    }
}

fn open_pool(dir: &Path) -> Option<Pool> {
    let path = dir.join("pool");
    path.exists()
        .then(|| PoolOptions::new().emulated(true).open(path).unwrap())
}

impl World {
    /// None if no file system can be mounted here.
    fn new(seed: u64) -> Option<Self> {
        let mut rng = Rng(seed);
        // In memory: no other disk is waited for.
        let named = || {
            let mut it = tempfile::Builder::new();
            it.prefix("full-disk-fuzz-");
            it
        };
        let dir = named()
            .tempdir_in("/dev/shm")
            .or_else(|_| named().tempdir());
        let dir = dir.unwrap();
        let disk = match rng.chance(4) {
            false => SmallDisk::xfs(dir.path(), DISK),
            true => SmallDisk::ext4(dir.path(), DISK),
        };
        let disk = disk?;
        let pool_segment = (!rng.chance(4)).then(|| (64 << 10) << rng.below(6));
        if let Some(segment) = pool_segment {
            PoolOptions::new()
                .size(16 * segment + (64 << 10))
                .segment_size(segment)
                .lanes(4)
                .emulated(true)
                .create(dir.path().join("pool"))
                .unwrap();
        }
        Some(Self {
            rng,
            seed,
            disk,
            dir,
            pool_segment,
            model: Model::new(),
            maybe: BTreeMap::new(),
            counts: Counts::default(),
            said: Vec::new(),
            last: String::new(),
        })
    }

    fn store_path(&self) -> PathBuf {
        self.disk.path().join("store")
    }

    fn say(&mut self, what: String) {
        if std::env::var_os("FOREBAY_FULL_DISK_SAY").is_some() {
            println!("  {what}");
        }
        self.said.push(what);
    }

    /// The files there are, for who reads of a fault.
    fn listing(&self) -> String {
        let du = Command::new("du")
            .args(["-ak", "--apparent-size"])
            .arg(self.disk.path())
            .output();
        let df = Command::new("df").arg("-k").arg(self.disk.path()).output();
        [du, df]
            .into_iter()
            .flatten()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .collect()
    }

    fn live_bytes(&self) -> u64 {
        self.model.values().map(|v| v.bytes as u64 + 128).sum()
    }

    fn open(&mut self, way: Way) -> Found<Open> {
        self.counts.openings += 1;
        let pool = open_pool(self.dir.path());
        let begun = Instant::now();
        let mut store = way.options().open(self.store_path(), &pool);
        if let (Err(error), true) = (&store, self.hog().exists()) {
            self.say(format!("opening beside another program's file: {error}"));
            fs::remove_file(self.hog()).unwrap();
            store = way.options().open(self.store_path(), &pool);
        }
        let store = store.map_err(|e| format!("opening as {way:?}: {e}"))?;
        if begun.elapsed() > Duration::from_secs(5) {
            self.say(format!("opening took {:?}", begun.elapsed()));
        }
        self.say(format!("opened as {way:?}"));
        let opened = Open {
            store,
            options: format!("{way:?}"),
            gc: way.gc,
            snapshots: Vec::new(),
            hog: self.hog().exists(),
        };
        self.settle(&opened.store)?;
        self.check(&opened.store, "after an opening")?;
        Ok(opened)
    }

    fn hog(&self) -> PathBuf {
        self.disk.path().join("another program's")
    }

    /// After an opening: what became of writes of which nothing is known.
    fn settle(&mut self, store: &Store) -> Found {
        for (number, others) in std::mem::take(&mut self.maybe) {
            let found = store.get(&key(number)).map_err(|e| e.to_string())?;
            let is = |value: &Option<Val>| match (value, &found) {
                (None, None) => true,
                (Some(value), Some(found)) => **found == value.make()[..],
                _ => false,
            };
            let known = self.model.get(&number).copied();
            let value = std::iter::once(known).chain(others).find(is);
            match value {
                Some(Some(value)) => drop(self.model.insert(number, value)),
                Some(None) => drop(self.model.remove(&number)),
                None => return Err(format!("key {number} has what it was never given")),
            }
        }
        Ok(())
    }

    fn check(&self, store: &Store, when: &str) -> Found {
        let scan = store.scan(ScanRange::all()).map_err(|e| e.to_string())?;
        let mut expected = self.model.iter();
        for pair in scan {
            let (found, value) = pair.map_err(|e| format!("{when}: a scan: {e}"))?;
            let Some((number, expected)) = expected.next() else {
                return Err(format!("{when}: a key too many: {}", number(&found)));
            };
            if key(*number) != *found || *value != expected.make()[..] {
                return Err(format!("{when}: key {number} is missing or wrong"));
            }
        }
        match expected.next() {
            Some((number, _)) => Err(format!("{when}: key {number} and all behind are missing")),
            None => Ok(()),
        }
    }

    fn done(&mut self, operation: &[Change]) {
        for (number, change) in operation {
            self.maybe.remove(number);
            match change {
                Some(value) => drop(self.model.insert(*number, *value)),
                None => drop(self.model.remove(number)),
            }
        }
    }

    fn unknown(&mut self, operation: &[Change]) {
        for (number, change) in operation {
            self.maybe.entry(*number).or_default().push(*change);
        }
    }

    /// Does an operation; false if there was no room.
    fn try_operation(&mut self, open: &Open, operation: &[Change]) -> Found<bool> {
        self.counts.operations += 1;
        let error = match perform(&open.store, operation) {
            Ok(()) => {
                self.done(operation);
                return Ok(true);
            }
            Err(error) => error,
        };
        let said = error.to_string();
        match error {
            // A batch that is too long is none for want of room.
            StoreError::BatchTooLarge { .. } => return Ok(true),
            StoreError::Stalled { .. } | StoreError::IndexStalled { .. } => {}
            StoreError::Io { .. } => self.unknown(operation),
            _ => return Err(format!("{said}, for want of room?")),
        }
        if !said.contains("make") || !said.contains("room") {
            return Err(format!("no remedy in: {said}"));
        }
        match operation.iter().any(|(_, value)| value.is_some()) {
            true => self.counts.refused_puts += 1,
            false if open.hog || !open.snapshots.is_empty() => {}
            false => {
                self.counts.refused_deletes += 1;
                self.last = said;
            }
        }
        Ok(false)
    }

    /// Gives back what rightly keeps the store from having room.
    fn give_back(&mut self, open: &mut Open) {
        open.snapshots.clear();
        if open.hog {
            fs::remove_file(self.hog()).unwrap();
            open.hog = false;
            self.say("the other program's room is given back".into());
        }
    }

    /// An operation has to be taken; how long that took.
    fn must(
        &mut self,
        open: &mut Open,
        operation: &[Change],
        patience: Duration,
    ) -> Found<Duration> {
        let mut begun = Instant::now();
        let mut tries = 0;
        while !self.try_operation(open, operation)? {
            tries += 1;
            if (open.hog || !open.snapshots.is_empty()) && begun.elapsed() > PATIENCE / 20 {
                self.give_back(open);
                begun = Instant::now();
                tries = 0;
            }
            if !open.gc && tries % 4 == 1 {
                // With a sync for each record that is copied, it takes as long as it takes.
                let collecting = Instant::now();
                if let Err(error) = open.store.gc() {
                    self.say(format!("gc: {error}"));
                }
                begun += collecting.elapsed().saturating_sub(PAUSE);
            } else {
                thread::sleep(PAUSE);
            }
            if begun.elapsed() > patience {
                let refused = perform(&open.store, operation);
                return Err(format!(
                    "not taken for {:?}, {tries} times, hog {}: {refused:?}: {operation:?}; {}; live {}; {:?}\n{}",
                    begun.elapsed(),
                    open.hog,
                    open.options,
                    self.live_bytes(),
                    open.store.stats(),
                    self.listing()
                ));
            }
        }
        if tries > 0 {
            let (took, last) = (begun.elapsed(), std::mem::take(&mut self.last));
            self.say(format!(
                "taken after {tries} refusals, {took:?}: {operation:?}: {last}"
            ));
        }
        Ok(begun.elapsed())
    }

    fn random_key(&mut self) -> Option<u32> {
        let last = *self.model.last_key_value()?.0;
        let from = self.rng.below(u64::from(last) + 1) as u32;
        self.model.range(from..).next().map(|(number, _)| *number)
    }

    /// Deletes are taken on a full disk.
    fn deletes_are_taken(&mut self, open: &mut Open, count: u64) -> Found {
        for _ in 0..count {
            let Some(number) = self.random_key() else {
                return Ok(());
            };
            let took = self
                .must(open, &[(number, None)], PATIENCE)
                .map_err(|e| format!("a delete was {e}"))?;
            self.counts.longest_delete = self.counts.longest_delete.max(took);
        }
        Ok(())
    }

    /// With little live, puts are taken.
    fn puts_are_taken(&mut self, open: &mut Open) -> Found {
        let most = DISK / 100 * LITTLE;
        self.say(format!("{} live, deletes to {most}", self.live_bytes()));
        let mut live = self.live_bytes();
        let in_order = self.rng.chance(3);
        while live > most {
            let next = match in_order {
                true => self.model.first_key_value().map(|(number, _)| *number),
                false => self.random_key(),
            };
            let Some(number) = next else { break };
            live -= self.model[&number].bytes as u64 + 128;
            let took = self
                .must(open, &[(number, None)], PATIENCE)
                .map_err(|e| format!("a delete was {e}"))?;
            self.counts.longest_delete = self.counts.longest_delete.max(took);
        }
        self.give_back(open);
        for bytes in [100, 10_000, 1 << 20] {
            let version = self.rng.next();
            let number = 9_000_000 + bytes as u32 % 1000;
            let took = self
                .must(open, &[(number, Some(Val { version, bytes }))], PATIENCE)
                .map_err(|e| format!("a put of {bytes} was {e}"))?;
            self.counts.longest_put = self.counts.longest_put.max(took);
        }
        Ok(())
    }

    /// One step of a phase.
    fn step(&mut self, open: &mut Open, profile: &Profile, bytes: &mut u64) -> Found {
        match self.rng.below(40) {
            0 => {
                if let Err(error) = open.store.gc() {
                    self.say(format!("gc: {error}"));
                }
            }
            1 if open.snapshots.len() < 3 => {
                let snapshot = open.store.snapshot().map_err(|e| e.to_string())?;
                open.snapshots.push((snapshot, self.model.clone()));
            }
            2 | 3 if !open.snapshots.is_empty() => {
                let at = self.rng.below(open.snapshots.len() as u64) as usize;
                let (snapshot, model) = open.snapshots.swap_remove(at);
                for (number, value) in model.iter().step_by(1 + model.len() / 20) {
                    let found = snapshot.get(&key(*number)).map_err(|e| e.to_string())?;
                    if found.is_none_or(|found| *found != value.make()[..]) {
                        return Err(format!("a snapshot's key {number} is missing or wrong"));
                    }
                }
            }
            4 if !open.hog => {
                let bytes = (1 + self.rng.below(30)) << 20;
                let Ok(mut file) = File::create(self.hog()) else {
                    return Ok(());
                };
                let block = vec![1; 64 << 10];
                let mut left = bytes;
                while left > 0 && file.write_all(&block).is_ok() {
                    left -= block.len() as u64;
                }
                open.hog = true;
                self.say(format!("another program takes {} of {bytes}", bytes - left));
            }
            5 | 6 if open.hog => {
                fs::remove_file(self.hog()).unwrap();
                open.hog = false;
                self.say("another program gives its room back".into());
            }
            7 => thread::sleep(Duration::from_millis(self.rng.below(100))),
            _ => {
                let most = *bytes + self.rng.below(4 << 20);
                while *bytes < most {
                    let operation = profile.operation(&mut self.rng);
                    *bytes += operation
                        .iter()
                        .map(|(_, v)| 64 + v.map_or(0, |v| v.bytes as u64))
                        .sum::<u64>();
                    if !self.try_operation(open, &operation)? {
                        return self.after_refusal(open);
                    }
                }
            }
        }
        Ok(())
    }

    fn after_refusal(&mut self, open: &mut Open) -> Found {
        match self.rng.below(12) {
            0 => self.puts_are_taken(open),
            1..6 => {
                let count = 1 + self.rng.below(200);
                self.deletes_are_taken(open, count)
            }
            6 => {
                let count = self.rng.below(self.model.len() as u64 + 1);
                self.deletes_are_taken(open, count)
            }
            // On it goes, refused or not.
            _ => Ok(()),
        }
    }

    /// From an opening to a close or a crash.
    fn phase(&mut self) -> Found {
        let way = Way::draw(&mut self.rng, self.pool_segment.is_some());
        let mut open = self.open(way)?;
        let mut profile = Profile::draw(&mut self.rng);
        let mut bytes = 0;
        let most = self.rng.below(3 * DISK);
        if self.model.is_empty() {
            profile.deletes = 1 << 40;
        }
        self.say(format!("{profile:?}"));
        let begun = Instant::now();
        while bytes < most && begun.elapsed() < PHASE {
            self.step(&mut open, &profile, &mut bytes)?;
        }
        self.end(open)
    }

    /// A close that may have no room, or a crash.
    fn end(&mut self, mut open: Open) -> Found {
        if self.rng.chance(4) {
            self.check(&open.store, "at a phase's end")?;
        }
        open.snapshots.clear();
        let before = open.store.stats();
        match self.rng.chance(2) {
            true => {
                self.say("closes".into());
                let begun = Instant::now();
                if let Err(error) = open.store.close() {
                    self.say(format!("close: {error}; {before:?}"));
                }
                if begun.elapsed() > PATIENCE {
                    return Err(format!("a close took {:?}", begun.elapsed()));
                }
            }
            false => {
                self.say("is dropped".into());
                drop(open.store);
            }
        }
        Ok(())
    }

    /// A phase in a child that is killed.
    fn killed_phase(&mut self) -> Found {
        let way = Way::draw(&mut self.rng, self.pool_segment.is_some());
        let (profile, seed) = (Profile::draw(&mut self.rng), self.rng.next());
        let log = self.dir.path().join("child");
        let _ = fs::remove_file(&log);
        self.say(format!("to be killed, {way:?}, {profile:?}"));
        self.counts.kills += 1;
        let order = format!(
            "{} {} {} {} {} {} {seed} {} {} {} {} {}",
            self.dir.path().display(),
            way.variant,
            way.segment,
            way.file,
            way.memtable,
            way.gc,
            profile.keys,
            profile.deletes,
            profile.batches,
            profile.small,
            profile.largest
        );
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "child"])
            .env(ORDER, order)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let killed = Killed(child);
        let most = 200 << self.rng.below(4);
        thread::sleep(Duration::from_millis(self.rng.below(most)));
        drop(killed);
        let mut rng = Rng(seed);
        let heard = fs::read(&log).unwrap_or_default();
        if heard.first() == Some(&b'E') && !self.hog().exists() {
            return Err(format!("a child: {}", String::from_utf8_lossy(&heard)));
        }
        for result in heard.split(|&byte| byte == b'?').skip(1) {
            let operation = profile.operation(&mut rng);
            self.counts.operations += 1;
            match result {
                b"+" => self.done(&operation),
                // It may have been done and not said.
                b"" => self.unknown(&operation),
                b"-" => {}
                // After an error of the disk it may be there.
                b"~" => self.unknown(&operation),
                other => return Err(format!("a child: {}", String::from_utf8_lossy(other))),
            }
        }
        Ok(())
    }

    fn session(&mut self) -> Found {
        if !self.rng.chance(5) {
            self.phase()?;
        }
        for _ in 0..1 + self.rng.below(4) {
            match self.rng.chance(4) {
                true => self.killed_phase()?,
                false => self.phase()?,
            }
        }
        let mut way = Way::draw(&mut self.rng, self.pool_segment.is_some());
        way.gc |= self.rng.chance(2);
        let mut open = self.open(way)?;
        let count = self.rng.below(100);
        self.deletes_are_taken(&mut open, count)?;
        self.puts_are_taken(&mut open)?;
        self.check(&open.store, "at the end")?;
        let report = open.store.verify().map_err(|e| e.to_string())?;
        if !report.problems.is_empty() {
            return Err(format!("{:?}", report.problems));
        }
        open.store
            .close()
            .map_err(|e| format!("the last close: {e}"))?;
        let way = Way::draw(&mut self.rng, self.pool_segment.is_some());
        let open = self.open(way)?;
        open.store
            .close()
            .map_err(|e| format!("the very last close: {e}"))
    }
}

/// A child that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

#[test]
#[ignore = "the process that is killed; run by the tests below"]
fn child() {
    let Ok(order) = std::env::var(ORDER) else {
        return;
    };
    let words: Vec<&str> = order.split(' ').collect();
    let at = |n: usize| words[n].parse::<u64>().unwrap();
    let dir = PathBuf::from(words[0]);
    let way = Way {
        variant: words[1].parse().unwrap(),
        segment: at(2),
        file: at(3),
        memtable: at(4) as usize,
        gc: words[5] == "true",
    };
    let mut rng = Rng(at(6));
    let profile = Profile {
        keys: at(7),
        deletes: at(8),
        batches: at(9),
        small: at(10),
        largest: at(11),
    };
    let mut log = File::create(dir.join("child")).unwrap();
    let pool = open_pool(&dir);
    let store = match way.options().open(dir.join("disk").join("store"), &pool) {
        Ok(store) => store,
        Err(error) => return write!(log, "E{error}").unwrap(),
    };
    // As much as the first refusals take.
    let mut refusals = 0;
    for _ in 0..200_000 {
        let operation = profile.operation(&mut rng);
        log.write_all(b"?").unwrap();
        let result = match perform(&store, &operation) {
            Ok(()) => "+",
            Err(StoreError::BatchTooLarge { .. }) => "-",
            Err(StoreError::Stalled { .. } | StoreError::IndexStalled { .. }) => "-",
            Err(StoreError::Io { .. }) => "~",
            Err(error) => return write!(log, "{error}").unwrap(),
        };
        log.write_all(result.as_bytes()).unwrap();
        if result != "+" {
            refusals += 1;
            if refusals % 1000 == 0 {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    let _ = store.close();
}

/// Runs the session of a seed. What it found, if anything; false if nothing can be mounted.
fn run(seed: u64) -> Found<bool> {
    let Some(mut world) = World::new(seed) else {
        println!("skipped: no file system can be mounted here");
        return Ok(false);
    };
    let begun = Instant::now();
    let done = world.session();
    println!(
        "session {seed}: {:?}, pool {:?}, {:?}{}",
        begun.elapsed(),
        world.pool_segment,
        world.counts,
        if done.is_err() { ": FAULT" } else { "" }
    );
    if world.counts.refused_deletes > 0 {
        println!("  deletes were refused:\n    {}", world.said.join("\n    "));
    }
    done.map_err(|found| {
        format!(
            "seed {}: {found}\n  {}\n{}",
            world.seed,
            world.said.join("\n  "),
            world.listing()
        )
    })?;
    Ok(true)
}

fn run_all(seeds: std::ops::Range<u64>) {
    let mut found = Vec::new();
    for seed in seeds {
        let done = within(Duration::from_secs(600), "a session", move || run(seed));
        match done {
            Ok(true) => {}
            Ok(false) => return,
            Err(fault) => {
                println!("{fault}");
                found.push(fault);
            }
        }
    }
    assert!(
        found.is_empty(),
        "{} faults:\n{}",
        found.len(),
        found.join("\n")
    );
}

/// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
#[test]
fn sessions_on_a_full_disk_never_get_stuck() {
    run_all(1..4);
}

#[test]
#[ignore = "as long as it is asked to take"]
fn many() {
    let number = |name: &str, default| {
        let given = std::env::var(name).ok();
        given.map_or(default, |text| text.parse::<u64>().unwrap())
    };
    let seed = number("FOREBAY_FULL_DISK_SEED", 1);
    run_all(seed..seed + number("FOREBAY_FULL_DISK_SESSIONS", 100));
}
