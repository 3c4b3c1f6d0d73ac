//! The report.

use super::{Config, Mode};
use crate::{
    device::Speed,
    rounds::{Span, median, span},
};
use serde::Serialize;
use std::{collections::BTreeMap, fmt::Display};

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report<S> {
    /// `mariadb`, `postgres`.
    pub bench: &'static str,
    /// The device under the servers' directories, measured in this run.
    pub device: Speed,
    /// The emulated device that the directories are on, if any.
    pub emulated: Option<String>,
    /// The rows.
    pub rows: Vec<Row>,
    /// What was not installed, and the remedy.
    pub missing: Vec<String>,
    /// Ratios of transactions a second that the rows give: `forebay_over_eatmydata_8`, and so on.
    pub ratios: BTreeMap<String, f64>,
    /// Settings that the rows do not show.
    pub settings: Settings<S>,
    /// What to know when reading the figures.
    pub notes: Vec<String>,
}

/// Settings of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Settings<S> {
    /// Rounds, and seconds of each.
    pub rounds: usize,
    /// Seconds of a round.
    pub seconds: u64,
    /// The data set.
    #[serde(flatten)]
    pub size: S,
    /// Segments of the server's lane.
    pub buffers: u16,
    /// Bytes of a segment of an emulated pool.
    pub buffer_bytes: u64,
    /// The pool in words.
    pub pool: String,
    /// Processors of the machine, which server, load and supervisor share.
    pub processors: usize,
}

/// A mode and number of clients. Each figure is the median of the rounds by itself.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What the server promises.
    pub mode: Mode,
    /// Connections.
    pub clients: u64,
    /// Client and server were kept on different processors.
    pub is_pinned: bool,
    /// Transactions a second.
    pub ops_per_s: f64,
    /// Median latency of a transaction.
    pub p50_us: f64,
    /// 99 of 100 are at most this.
    pub p99_us: f64,
    /// Transactions a second, slowest and fastest round.
    pub ops_per_s_span: Option<Span>,
}

impl Row {
    /// The medians of its rounds.
    pub(super) fn of_rounds(rounds: Vec<Self>) -> Option<Self> {
        let all = |figure: fn(&Self) -> f64| rounds.iter().map(figure).collect::<Vec<_>>();
        Some(Self {
            ops_per_s: median(&all(|row| row.ops_per_s)),
            p50_us: median(&all(|row| row.p50_us)),
            p99_us: median(&all(|row| row.p99_us)),
            ops_per_s_span: Some(span(&all(|row| row.ops_per_s))),
            ..rounds.first()?.clone()
        })
    }
}

impl<S: Copy + Display> Report<S> {
    /// One without rows. `load`: what is measured, in words.
    pub(super) fn new(bench: &'static str, load: &str, config: &Config<S>, device: Speed) -> Self {
        let mut notes = vec![
            format!("{load}; each figure is the median of the rounds by itself"),
            "server, load and supervisor share the processors; one client is kept on a processor of its own, where there are two".to_owned(),
        ];
        notes.extend(config.pool.note());
        if device.name.is_none() {
            notes.push(
                "the directory is not on a block device: nothing was written to a disk".to_owned(),
            );
        }
        Self {
            bench,
            device,
            emulated: config.device.clone(),
            rows: Vec::new(),
            missing: Vec::new(),
            ratios: BTreeMap::new(),
            settings: Settings {
                rounds: config.rounds,
                seconds: config.seconds,
                size: config.size,
                buffers: config.buffers,
                buffer_bytes: config.buffer_bytes,
                pool: config.pool.to_string(),
                processors: std::thread::available_parallelism().map_or(1, usize::from),
            },
            notes,
        }
    }

    /// Our row with as many clients as this one, which is not ours.
    #[must_use]
    pub fn ours_beside(&self, row: &Row) -> Option<&Row> {
        let ours = self
            .rows
            .iter()
            .find(|other| other.mode == Mode::Forebay && other.clients == row.clients);
        ours.filter(|_| row.mode != Mode::Forebay)
    }

    pub(super) fn finish(&mut self) {
        let ratio = |row: &Row| {
            let ours = self.ours_beside(row)?;
            let name = format!("forebay_over_{}_{}", row.mode, row.clients);
            Some((name, ours.ops_per_s / row.ops_per_s))
        };
        self.ratios = self.rows.iter().filter_map(ratio).collect();
    }
}
