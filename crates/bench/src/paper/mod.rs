//! `forebay bench paper`: the papers' tables and figures, measured again.
//!
//! An [`Experiment`] is one table or figure of a paper: what the paper says as data ([`claims`]), how ours is measured ([`Measurement`]), what it
//! needs, and how its figures are drawn (panels). [`run`] measures some of them, one JSON file each ([`Outcome`]); a report is made from the
//! files alone. All of them are listed in [`catalogue`]; docs/benchmarks.md says how each figure is made.

pub mod catalogue;
pub mod claims;
mod command;
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
    contest::{Mode, Pools, around::Setting},
    device::Speed,
    place::Place,
    redis::{
        load,
        server::Kind,
        stage::{Rewrites, Stage},
    },
    scratch::PoolSource,
    wisckey::Watch,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// Bars from zero.
    Bars,
    /// Bars on a logarithmic axis: where figures are powers of ten apart.
    LogBars,
    /// Lines over x.
    Lines,
}

/// One chart of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// Its name in rows.
    pub id: &'static str,
    /// What is shown.
    pub title: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// What x is.
    pub x: &'static str,
    /// How it is drawn.
    pub drawn: Drawn,
}

/// How an experiment's figures are measured. Experiments of the same measurement are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// P3: a workload on MyRocks, by where its write-ahead log is.
    WriteAhead(write_ahead::Mix),
    /// P3: random writes of the devices by themselves.
    RandomWrites,
    /// Another benchmark of this program, as a process: its name.
    Command(command::Bench),
}

/// A table or figure of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its id, as in `p1-fig5`.
    pub id: &'static str,
    /// The paper, as in `P1`.
    pub paper: &'static str,
    /// Which figure, and what it shows.
    pub title: &'static str,
    /// What ours does, in a few sentences.
    pub method: &'static str,
    /// What the paper measured on.
    pub setup: &'static str,
    /// Charts.
    pub panels: &'static [Panel],
    /// What the paper says.
    pub claims: &'static [Claim],
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
    /// How to start this program.
    pub forebay: &'a Path,
    /// How much.
    pub size: Size,
    /// Who is told of progress.
    pub watch: &'a dyn Watch,
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
    fn missing(experiments: &[&Experiment], why: &str) -> Self {
        let panels = experiments.iter().flat_map(|experiment| experiment.panels);
        let row = |panel: &Panel| Row::missing(panel.id, Place::Here.name(), "", "", why);
        Self {
            rows: panels.map(row).collect(),
            ..Self::default()
        }
    }

    /// Notes something about the figures of `panels`; of none means of all.
    pub fn note(&mut self, panels: &'static [&'static str], text: impl Into<String>) {
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
        self.watch.note(what);
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

    /// Where P4's server stands in `mode`.
    pub(crate) fn stage(
        &self,
        mode: Mode,
        place: Place,
        rewrites: Rewrites,
        scratch: &Path,
    ) -> Result<Stage, BenchError> {
        let setting = Setting {
            forebay: self.forebay,
            contender: &mode.into(),
            pools: &Pools::of(self.pool.clone()),
            user: None,
        };
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
            Self::WriteAhead(mix) => write_ahead::run(mix, lab),
            Self::RandomWrites => random_writes::run(lab),
            Self::Command(bench) => command::run(bench, lab),
        }
    }
}
