//! `forebay-lab paper`: the papers' tables and figures, measured again.
//!
//! An [`Experiment`] is one table or figure of a paper: what the paper says as data ([`claims`]), how ours is measured ([`Measurement`]), what it
//! needs, and how its figures are drawn (panels). [`run`] measures some of them, one JSON file each ([`Outcome`]); a report is made from the
//! files alone. All of them are listed in [`catalogue`]; docs/benchmarks.md says how each figure is made.

pub mod catalogue;
pub mod claims;
mod fabric;
mod flash_tier;
mod latency;
mod loss;
mod machine;
mod memory;
mod mixes;
mod needs;
mod outcome;
mod policies;
mod puts;
mod random_writes;
mod run;
mod write_ahead;

pub use machine::Machine;
pub use outcome::{FORMAT, Outcome, Row};
pub use run::{Plan, run};

use crate::{
    BenchError,
    contest::{Contender, Mode, Pools, around::Setting},
    device::Speed,
    place::Place,
    redis::{
        load,
        server::Kind,
        stage::{Rewrites, Stage},
    },
    scratch::PoolSource,
};
use claims::Claim;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// Seconds: shows that it runs and gives every row, not how fast.
    Toy,
    /// Minutes: a first impression.
    Quick,
    /// The papers' sizes.
    Paper,
}

impl Size {
    /// The option that asks for it; none for the papers' sizes.
    #[must_use]
    pub fn option(self) -> Option<&'static str> {
        match self {
            Self::Toy => Some("--toy"),
            Self::Quick => Some("--quick"),
            Self::Paper => None,
        }
    }

    /// One of three.
    pub(crate) fn pick<T>(self, toy: T, quick: T, paper: T) -> T {
        match self {
            Self::Toy => toy,
            Self::Quick => quick,
            Self::Paper => paper,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.pick("toy size", "quick size", "the papers' size"))
    }
}

/// How a panel's figures are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChartKind {
    /// Bars from zero.
    Bars,
    /// Bars on a logarithmic axis: where figures are powers of ten apart.
    LogBars,
    /// Lines over x.
    Lines,
}

/// One chart of an experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    /// Its name in rows.
    pub id: String,
    /// What is shown.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// What x is.
    pub x: String,
    /// How it is drawn.
    pub drawn: ChartKind,
}

/// How an experiment's figures are measured. Experiments of the same measurement are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measurement {
    /// P1: Puts in the store's variants.
    Puts,
    /// P1: Puts in other stores.
    Peers,
    /// P1: Puts with buffers of several sizes.
    Buffers,
    /// P4: SETs of several sizes under the policies.
    Policies,
    /// P4: what is lost in a crash.
    Loss,
    /// P4: DRAM and NVM in use.
    Memory,
    /// P4: mixes of SETs and GETs.
    Mixes,
    /// P4: slower memories.
    Latency,
    /// P4: SETs during rewrites of the append-only file.
    Rewrite,
    /// P2: TPC-C behind a flash cache.
    FlashTier,
    /// P2: other loads behind it.
    FlashLoads,
    /// P3: LinkBench on MyRocks, by where its write-ahead log is.
    LinkBench,
    /// P3: TPC-C, likewise.
    Tpcc,
    /// P3: random writes of the devices by themselves.
    RandomWrites,
    /// P5: the emulated devices, as `forebay-lab device` has them.
    Device,
    /// P5: stores on fabric-attached memory, as `forebay-lab fam` has them.
    Fam,
}

/// A table or figure of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its id, as in `p1-fig5`.
    pub id: String,
    /// The paper, as in `P1`.
    #[serde(skip)]
    pub paper: &'static str,
    /// Which figure, and what it shows.
    pub title: String,
    /// What ours does, in a few sentences.
    pub method: String,
    /// What the paper measured on.
    #[serde(skip)]
    pub setup: String,
    /// Charts.
    pub panels: Vec<Panel>,
    /// What the paper says; nothing if it was not asked there.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    /// How ours is measured.
    pub measurement: Measurement,
    /// About how long, seconds: at toy, quick, and the paper's size. Shared by those measured together.
    pub seconds: [u32; 3],
}

impl Experiment {
    /// The one with this id.
    #[must_use]
    pub fn named(id: &str) -> Option<&'static Self> {
        catalogue::ALL.iter().find(|experiment| experiment.id == id)
    }
}

/// What a measurement runs on.
pub(crate) struct Lab<'a> {
    /// A directory for scratch directories.
    pub dir: &'a Path,
    /// Where pools come from.
    pub pool: &'a PoolSource,
    /// The `forebay` program.
    pub forebay: &'a Path,
    /// This program.
    pub program: &'a Path,
    /// How much.
    pub size: Size,
    /// Who is told of progress.
    pub note: &'a dyn Fn(&str),
}

/// What a measurement gives: rows of all experiments that it is shared by.
#[derive(Default)]
pub(crate) struct Measured {
    pub rows: Vec<Row>,
    /// The device, as often as it was measured.
    pub devices: Vec<Speed>,
    notes: Vec<Note>,
}

/// What to know when reading the figures of some panels, or of all.
struct Note {
    panels: &'static [&'static str],
    text: String,
}

impl Measured {
    /// Nothing, since something is not installed: a row of each panel says so.
    fn all_missing(experiments: &[&Experiment], why: &str) -> Self {
        let panels = experiments.iter().flat_map(|it| &it.panels);
        let row = |panel: &Panel| Row::missing(&panel.id, Place::Here.name(), "", "", why);
        Self {
            rows: panels.map(row).collect(),
            ..Self::default()
        }
    }

    /// Notes something about all figures.
    pub fn note(&mut self, text: impl Into<String>) {
        self.note_of(&[], text);
    }

    /// Notes something about the figures of `panels`.
    pub fn note_of(&mut self, panels: &'static [&'static str], text: impl Into<String>) {
        self.notes.push(Note {
            panels,
            text: text.into(),
        });
    }

    /// The rows and notes of an experiment.
    pub fn of(&self, experiment: &Experiment) -> (Vec<Row>, Vec<String>) {
        let is_mine = |panel: &str| experiment.panels.iter().any(|mine| mine.id == panel);
        let rows = self.rows.iter().filter(|row| is_mine(&row.panel));
        let notes = self.notes.iter().filter(|note| {
            note.panels.is_empty() || note.panels.iter().any(|panel| is_mine(panel))
        });
        (
            rows.cloned().collect(),
            notes.map(|note| note.text.clone()).collect(),
        )
    }
}

impl Lab<'_> {
    pub(crate) fn note(&self, what: &str) {
        (self.note)(what);
    }

    /// Rounds of each figure.
    pub(crate) fn rounds(&self) -> usize {
        self.size.pick(1, 3, 3)
    }

    /// Rounds of what takes long: one on an emulated device, where the model says the same in every round.
    pub(crate) fn rounds_on(&self, place: Place) -> usize {
        match place {
            Place::Here => self.rounds(),
            Place::Emulated(_) => 1,
        }
    }

    /// The program of P4's server.
    pub(crate) fn server(&self) -> Result<PathBuf, BenchError> {
        load::program().map_err(BenchError::Missing)?;
        SERVER.program().map_err(BenchError::Missing)
    }

    /// Pools of the usual size.
    pub(crate) fn pools(&self) -> Pools {
        Pools::of(self.pool.clone())
    }

    /// How a contender's program is to be run.
    pub(crate) fn setting<'a>(&'a self, contender: &'a Contender, pools: &'a Pools) -> Setting<'a> {
        Setting {
            forebay: self.forebay,
            emulator: Some(self.program),
            contender,
            pools,
            user: None,
        }
    }

    /// Where P4's server stands in `mode`.
    pub(crate) fn stage(
        &self,
        mode: Mode,
        place: Place,
        rewrites: Rewrites,
        scratch: &Path,
    ) -> Result<Stage, BenchError> {
        let (contender, pools) = (mode.into(), self.pools());
        let setting = self.setting(&contender, &pools);
        Stage::new(
            &setting,
            place.profile(),
            &self.server()?,
            rewrites,
            scratch,
        )
    }
}

/// The server that P4's experiments use.
pub(crate) const SERVER: Kind = Kind::Redis;

/// P4's sizes of values, bytes.
pub(crate) const SIZES: [u64; 5] = [32, 128, 512, 2048, 8192];

impl Measurement {
    /// Measures.
    pub(crate) fn run(self, lab: &Lab<'_>) -> Result<Measured, BenchError> {
        match self {
            Self::Puts => puts::variants(lab),
            Self::Peers => puts::peers(lab),
            Self::Buffers => puts::buffers(lab),
            Self::Policies => policies::sizes(lab),
            Self::Rewrite => policies::during_rewrite(lab),
            Self::Loss => loss::run(lab),
            Self::Memory => memory::run(lab),
            Self::Mixes => mixes::run(lab),
            Self::Latency => latency::run(lab),
            Self::FlashTier => flash_tier::run(lab),
            Self::FlashLoads => flash_tier::loads::run(lab),
            Self::LinkBench => write_ahead::run(write_ahead::Mix::LinkBench, lab),
            Self::Tpcc => write_ahead::run(write_ahead::Mix::Tpcc, lab),
            Self::RandomWrites => random_writes::run(lab),
            Self::Device => fabric::device(lab),
            Self::Fam => fabric::fam(lab),
        }
    }
}
