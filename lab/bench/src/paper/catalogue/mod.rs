//! Every experiment, with the papers' figures as the papers state them: a TOML file for each paper,
//! read once.
//!
//! `measurement` names one of `paper::run`'s; `seconds`, `disk_mib` and `memory_mib` are what it
//! takes at toy, quick and the paper's size. A claim's `ours` is one of `ratio = [over, under]`,
//! `below = [lower, upper]`, `value` and `spread = [figure, …]`; a figure is `"panel | series |
//! x"`, without an x at all of them. `above` and `below` name one of the paper's `reasons`; without
//! `below`, `above` says both. An experiment's `notes` name some of the paper's `notes`, which
//! stand behind those that are made while it is measured. A `paper` figure may be a range, `inf`
//! where it is open. What is `measured` belongs to the measurements of that paper.

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use std::{collections::BTreeMap, sync::LazyLock};

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
    /// What the paper says, as `forebay-lab report` reads it; nothing if it was not asked there.
    #[serde(default, rename = "claim")]
    pub claims: Vec<toml::Table>,
    /// What to know when reading the figures, beside what the measurement itself notes.
    #[serde(default)]
    pub(super) notes: Vec<String>,
    /// How ours is measured. Experiments of the same measurement are measured together.
    pub(super) measurement: String,
    /// About how long, seconds: at toy, quick, and the paper's size. Shared by those measured
    /// together.
    pub seconds: [u32; 3],
    /// Room that it needs on the disk at its peak.
    pub disk_mib: [u64; 3],
    /// Room that it needs in memory that files are in, if pools are emulated.
    pub memory_mib: [u64; 3],
}

impl Experiment {
    /// The one with this id.
    #[must_use]
    pub fn named(id: &str) -> Option<&'static Self> {
        ALL.iter().find(|experiment| experiment.id == id)
    }
}

/// A paper's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    #[serde(default)]
    setup: String,
    #[serde(default)]
    reasons: BTreeMap<String, String>,
    #[serde(default)]
    notes: BTreeMap<String, String>,
    #[serde(default, rename = "measured")]
    _measured: IgnoredAny,
    #[serde(default, rename = "experiment")]
    experiments: Vec<Experiment>,
}

const FILES: [(&str, &str); 5] = [
    ("P1", include_str!("p1.toml")),
    ("P2", include_str!("p2.toml")),
    ("P3", include_str!("p3.toml")),
    ("P4", include_str!("p4.toml")),
    ("P5", include_str!("p5.toml")),
];

/// All experiments, in the order in which they are run and shown.
pub static ALL: LazyLock<Vec<Experiment>> = LazyLock::new(|| {
    let papers = FILES.into_iter();
    papers.flat_map(|(id, text)| read(id, text)).collect()
});

/// What a paper's file says is measured.
pub(super) fn measured<T: DeserializeOwned>(paper: &str) -> T {
    #[derive(Deserialize)]
    struct Part<T> {
        measured: T,
    }
    let texts = FILES.iter().filter(|(id, _)| *id == paper);
    let mut parts = texts.map(|(_, text)| toml::from_str::<Part<T>>(text));
    match parts.next() {
        Some(Ok(part)) => part.measured,
        other => unreachable!("{paper}: {:?}", other.map(Result::err)),
    }
}

fn read(id: &'static str, text: &str) -> Vec<Experiment> {
    // The files are a part of this program.
    let named = |texts: &BTreeMap<String, String>, name: &str| {
        let text = texts.get(name);
        text.unwrap_or_else(|| unreachable!("{id}: nothing is named {name}"))
            .clone()
    };
    let mut file: File = toml::from_str(text).unwrap_or_else(|e| unreachable!("{id}: {e}"));
    for experiment in &mut file.experiments {
        experiment.paper = id;
        experiment.paper_title.clone_from(&file.title);
        experiment.setup.clone_from(&file.setup);
        for claim in &mut experiment.claims {
            for side in ["above", "below"] {
                if let Some(because) = claim.get_mut(side) {
                    let name = because.as_str().unwrap_or_default();
                    *because = named(&file.reasons, name).into();
                }
            }
        }
        for note in &mut experiment.notes {
            *note = named(&file.notes, note);
        }
    }
    file.experiments
}
