//! A recorded session: writers, a collector, compactions and flushes, and what each moment of it
//! may leave behind.

use crate::{
    common::{
        self, Rng,
        crash_disk::{CrashDisk, DISK_NOTE},
        oracle::{Change, Known, OracleWriter, State, apply, operations},
    },
    machine::{Machine, Scale},
};
use forebay_pool::media::{CrashImages, SimMedia};
use forebay_store::StoreOptions;
use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

pub const WRITERS: u64 = 2;

const ACK: u64 = 1 << 56;
const FLUSHED: u64 = 2 << 56;
const READ: u64 = 3 << 56;
const COPY_BEGINS: u64 = 4 << 56;
const COPY_ENDS: u64 = 5 << 56;
const KIND: u64 = 0xFF << 56;

/// A session that was recorded.
pub struct Recorded {
    disk: CrashDisk,
    sim: Arc<SimMedia>,
    pub images: CrashImages,
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

pub fn record(
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
                        let oracle = OracleWriter::begin(store, writer, known.keyspaces);
                        for (number, operation) in (1..).zip(&operations[writer as usize]) {
                            oracle.perform(operation);
                            sim.note(ACK | writer << 32 | number);
                            acknowledged[writer as usize].store(number, SeqCst);
                        }
                    })
                })
                .collect();
            while writers.iter().any(|writer| !writer.is_finished()) {
                let sure: Vec<_> = acknowledged.iter().map(|a| a.load(SeqCst)).collect();
                match rng.below(4) {
                    0 => drop(store.gc().unwrap()),
                    1 => drop(store.compact(|_| ControlFlow::Continue(())).unwrap()),
                    2 => store.flush().unwrap(),
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
    pub fn moment(&self, rng: &mut Rng) -> (usize, &Path, Known) {
        let (from, to, copy) = &self.copies[rng.below(self.copies.len() as u64) as usize];
        let point = from + rng.below((to - from + 1) as u64) as usize;
        let notes: Vec<_> = self.images.notes_before(point).collect();
        if !notes.contains(&READ) {
            return (point, copy, self.before.clone());
        }
        let mut known = Known {
            writers: Vec::new(),
            keyspaces: self.before.keyspaces,
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
    pub fn cut(&self, point: usize, copy: &Path, rng: &mut Rng, dir: &Path) -> Machine {
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
