//! The comparison of databases: in modes that promise different things, in turns, with one report
//! for all of them.
//!
//! A [`Mode`] is what a database promises and how its syncs are served. A [`Contender`] is a mode
//! with a pool, where it has one: pools of several kinds and sizes are contenders of their own. A
//! [`Cell`] of the report's table is what all contenders are measured at, in turn, round after
//! round; [`Contest`] lets them. What stands before a database's program for that is in [`around`].

pub mod around;
mod pools;
mod report;

pub use around::{Around, Behind};
pub use pools::Pools;
pub(crate) use report::of_pool;
pub use report::{Cell, Missing, Report, Row};

use crate::{
    MeasureError,
    disk::{self, Effort},
    processes::find_eatmydata,
    rounds::{Percentiles, take_turns},
    scratch::ScratchDir,
    units::named,
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Who serves a database's syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// The disk, as often as the database asks.
    Disk,
    /// Nothing: libeatmydata.
    Eaten,
    /// Memory that stands for NVM: all files are there.
    Memory,
    /// `forebay run`, by the front end that it chooses.
    Forebay,
    /// `forebay run --front-end notify`: an agent beside the program.
    Agent,
}

/// What a database promises about what it has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// What an acknowledged write survives at least.
    pub survives: &'static str,
    /// The database's own settings.
    pub settings: &'static [&'static str],
    /// Who serves the syncs.
    pub syncs: Syncs,
}

/// As the database is, every sync by the disk.
pub const PLAIN: Mode = Mode::new("plain", "a power cut", &[]);
/// The same, with libeatmydata.
pub const EATMYDATA: Mode = Mode::new("eatmydata", "a process crash", &[]).by(Syncs::Eaten);
/// The same, under `forebay run`.
pub const FOREBAY: Mode = Mode::new("forebay", "what the pool does", &[]).by(Syncs::Forebay);
/// The same, with an agent instead of the library.
pub const NOTIFY: Mode = Mode::new("notify", "what the pool does", &[]).by(Syncs::Agent);

impl Mode {
    /// A mode of this name, whose syncs the disk serves.
    #[must_use]
    pub const fn new(
        name: &'static str,
        survives: &'static str,
        settings: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            survives,
            settings,
            syncs: Syncs::Disk,
        }
    }

    /// The same mode, with its syncs served so.
    #[must_use]
    pub const fn by(self, syncs: Syncs) -> Self {
        Self { syncs, ..self }
    }

    /// The same mode by another name.
    #[must_use]
    pub const fn called(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// True if it is under `forebay run`.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        matches!(self.syncs, Syncs::Forebay | Syncs::Agent)
    }

    /// The same mode of a database with these settings.
    #[must_use]
    pub const fn with(self, settings: &'static [&'static str]) -> Self {
        Self { settings, ..self }
    }

    /// The one of `all` that is called so.
    ///
    /// # Errors
    /// In words: that there is none, and which there are.
    pub fn named(all: &[Self], name: &str) -> Result<Self, String> {
        named("mode", all, name)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A mode, and which pool it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// What is promised.
    pub mode: Mode,
    /// Under Forebay, which of the disks for pools ([`Pools::disks`]) has the pool; otherwise it is
    /// in memory.
    pub disk: Option<usize>,
    /// Bytes of the pool, where that is asked for.
    pub pool_bytes: Option<u64>,
}

impl From<Mode> for Contender {
    fn from(mode: Mode) -> Self {
        Self {
            mode,
            disk: None,
            pool_bytes: None,
        }
    }
}

impl Contender {
    /// What an acknowledged write survives at least.
    #[must_use]
    pub fn durability(&self) -> &'static str {
        match self.disk {
            Some(_) => "a power cut",
            None => self.mode.survives,
        }
    }

    /// True if it runs under `forebay run`.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.mode.is_ours()
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mode.fmt(f)?;
        match self.disk {
            None => Ok(()),
            Some(0) => f.write_str("_disk"),
            Some(at) => write!(f, "_disk_{}", at + 1),
        }
    }
}

impl Serialize for Contender {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What all benchmarks of databases are told.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where databases are made, in a scratch directory that is removed again.
    pub dir: PathBuf,
    /// Modes, in the order of the rows.
    pub modes: Vec<Mode>,
    /// The pools.
    pub pools: Pools,
    /// The emulated device that the data is on, by the name of its profile.
    pub device: Option<String>,
    /// Rounds.
    pub rounds: usize,
    /// The `forebay` program.
    pub forebay: PathBuf,
    /// What stands in for it where devices or memories are emulated: a program with the options of
    /// `forebay run`, and with `--device DIR=PROFILE` and `--media-profile MEMORY`.
    pub emulator: Option<PathBuf>,
    /// How thoroughly the device is measured.
    pub effort: Effort,
}

impl Setup {
    /// Refuses what measures nothing: an empty list, or a zero in one, among them.
    ///
    /// # Errors
    /// [`MeasureError::Config`].
    pub fn check(&self, lists: &[&[u64]]) -> Result<(), MeasureError> {
        let bad = |what: &str| Err(MeasureError::Config(what.to_owned()));
        if self.rounds == 0 {
            return bad("at least one round is needed");
        }
        if self.modes.is_empty() && self.pools.disks.is_empty() {
            return bad("no mode to measure");
        }
        match lists
            .iter()
            .any(|list| list.is_empty() || list.contains(&0))
        {
            true => bad("no size, second, client or thread, or none of them, measures nothing"),
            false => self.pools.check(),
        }
    }
}

/// What one round of a contender gives.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Operations a second.
    pub ops_per_s: f64,
    /// Their latencies.
    pub latency: Percentiles,
    /// Whatever else a row has.
    pub more: Map<String, Value>,
}

/// A run: its contenders, and the report that it fills.
pub struct Contest<'a> {
    setup: &'a Setup,
    modes: Vec<Mode>,
    scratch: ScratchDir,
    note: &'a dyn Fn(&str),
    /// What it gives.
    pub report: Report,
}

impl<'a> Contest<'a> {
    /// Makes the scratch directory and measures its device. `unit`: what an operation is called, as
    /// in `SETs`.
    ///
    /// # Errors
    /// I/O errors; a missing libeatmydata is reported, and is no error.
    pub fn begin(
        bench: &'static str,
        unit: &'static str,
        setup: &'a Setup,
        note: &'a dyn Fn(&str),
    ) -> Result<Self, MeasureError> {
        // A server has its own directory as the current one, so no path may depend on that.
        std::fs::create_dir_all(&setup.dir).map_err(MeasureError::io("creating", &setup.dir))?;
        let dir = setup.dir.canonicalize();
        let scratch = ScratchDir::new_in(&dir.map_err(MeasureError::io("finding", &setup.dir))?)?;
        note("measuring the device");
        let device = disk::measure(scratch.path(), setup.effort)?;
        let mut report = Report::new(bench, unit, setup, device);
        let mut modes = setup.modes.clone();
        if find_eatmydata().is_none() {
            for mode in modes.extract_if(.., |mode| mode.syncs == Syncs::Eaten) {
                let why = "libeatmydata is not installed: apt-get install libeatmydata1";
                report.missing(mode.name, why);
            }
        }
        Ok(Self {
            setup,
            modes,
            scratch,
            note,
            report,
        })
    }

    /// The directory that everything is made in.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Says what is being done.
    pub fn note(&self, what: &str) {
        (self.note)(what);
    }

    /// Has every contender that is `wanted` measured in turn, round after round, and adds their
    /// rows.
    ///
    /// # Errors
    /// The first that `measure` has.
    pub fn cell(
        &mut self,
        cell: &Cell,
        wanted: impl Fn(&Mode) -> bool,
        measure: impl Fn(&Path, &Contender) -> Result<Sample, MeasureError>,
    ) -> Result<(), MeasureError> {
        let modes = self.modes.iter().copied().filter(wanted);
        let contenders = self.setup.pools.contenders(modes);
        let rounds = take_turns(&contenders, self.setup.rounds, |contender| {
            let sample = measure(self.scratch.path(), contender)?;
            self.note(&format!(
                "{} {}, {cell}: {:.0} {}/s, p99 {:.0} µs",
                self.report.bench,
                report::name(contender),
                sample.ops_per_s,
                self.report.unit,
                sample.latency.p99_us.unwrap_or(0.0)
            ));
            Ok::<_, MeasureError>(sample)
        })?;
        for (contender, rounds) in contenders.into_iter().zip(rounds) {
            self.report.add(cell, contender, rounds);
        }
        Ok(())
    }

    /// The report.
    #[must_use]
    pub fn end(mut self) -> Report {
        self.report.finish();
        self.report
    }
}
