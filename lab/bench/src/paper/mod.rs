//! `forebay-lab paper`: the papers' tables and figures, measured again.
//!
//! An [`Experiment`] is one table or figure of a paper: what the paper says ([`claims`]), how its figures are drawn (panels), what it needs, and
//! which of the `MEASUREMENTS` makes them, all of it data in the [`catalogue`]. [`run`] measures some, one JSON file each ([`Outcome`]); a report
//! is made from the files alone. docs/benchmarks.md says how each figure is made.

pub mod catalogue;
pub mod claims;
mod fabric;
mod flash_tier;
mod lab;
mod loss;
mod machine;
mod memory;
mod mixes;
mod outcome;
mod policies;
mod puts;
mod room;
mod run;
mod template;
mod write_ahead;

pub use machine::Machine;
pub use outcome::{FORMAT, Outcome, Row};
pub use run::{Plan, run};

use crate::BenchError;
use claims::Claim;
use lab::Lab;
use outcome::Measured;
use serde::{Deserialize, Serialize};
use std::fmt;

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
        self.pick(Some("--toy"), Some("--quick"), None)
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

/// A table or figure of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its id, as in `p1-fig5`.
    pub id: String,
    /// The paper, as in `P1`.
    #[serde(skip)]
    pub paper: &'static str,
    /// What the paper is about, and who wrote it.
    #[serde(skip)]
    pub paper_title: String,
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
    /// What to know when reading the figures, beside what the measurement itself notes.
    #[serde(default)]
    notes: Vec<String>,
    /// How ours is measured. Experiments of the same measurement are measured together.
    measurement: String,
    /// About how long, seconds: at toy, quick, and the paper's size. Shared by those measured together.
    pub seconds: [u32; 3],
    /// Room that it needs on the disk at its peak.
    disk_mib: [u64; 3],
    /// Room that it needs in memory that files are in, if pools are emulated.
    memory_mib: [u64; 3],
}

impl Experiment {
    /// The one with this id.
    #[must_use]
    pub fn named(id: &str) -> Option<&'static Self> {
        catalogue::ALL.iter().find(|experiment| experiment.id == id)
    }

    /// Measures it, with all others of the same measurement.
    fn measure(&self, lab: &Lab<'_>) -> Result<Measured, BenchError> {
        let is_mine = |(name, _): &&(&str, Measure)| *name == self.measurement;
        let found = MEASUREMENTS.iter().find(is_mine);
        let (_, measure) = found.unwrap_or_else(|| unreachable!("no {}", self.measurement));
        measure(lab)
    }
}

/// Gives the rows of all experiments of a measurement.
type Measure = fn(&Lab<'_>) -> Result<Measured, BenchError>;

/// How figures are measured, by the names that the catalogue has for it.
const MEASUREMENTS: [(&str, Measure); 16] = [
    ("puts", puts::variants),
    ("peers", puts::peers),
    ("buffers", puts::buffers),
    ("policies", policies::sizes),
    ("rewrite", policies::during_rewrite),
    ("latency", policies::slower_memories),
    ("loss", loss::run),
    ("memory", memory::run),
    ("mixes", mixes::run),
    ("flash_tier", flash_tier::run),
    ("flash_loads", flash_tier::loads::run),
    ("link_bench", write_ahead::link_bench),
    ("tpcc", write_ahead::tpcc),
    ("random_writes", fabric::random_writes),
    ("device", fabric::device),
    ("fam", fabric::fam),
];
