//! The report: what is printed as JSON, and what tables are made of.

use super::config::Config;
use crate::{
    device::Speed,
    histogram::Percentiles,
    report::{figure, object},
    rounds::{Span, median_round, span},
};
use forebay_store::Waits;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, fmt};

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `wisckey`.
    pub bench: &'static str,
    /// The device under the stores, measured in this run.
    pub device: Speed,
    /// Our rows.
    pub rows: Vec<Row>,
    /// The peers' rows.
    pub peers: Vec<PeerRow>,
    /// Ratios that the rows give, by name: ours over the other's.
    pub ratios: BTreeMap<String, f64>,
    /// Settings that the rows do not show.
    pub settings: Value,
    /// What to know when reading the figures.
    pub notes: Vec<String>,
    /// The device in each round of Puts.
    #[serde(skip)]
    pub(super) device_rounds: Vec<Speed>,
}

/// One of our rows.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The variant.
    pub variant: String,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A row of a peer, or why there is none.
#[derive(Clone, Debug, Serialize)]
pub struct PeerRow {
    /// The peer.
    pub name: &'static str,
    /// How it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Option<Box<Figures>>,
    /// Why it did not run, and the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The figures of one row. What was not, or cannot be, measured is `null`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// `put`, `overwrite`, `get`, `get_cold`, `scan_100`, `scan_100_cold`, `reopen`, `stalls`,
    /// `queue`, `delete_all`, `scans`.
    pub workload: &'static str,
    /// Name of the run, where there are several: `sustained`, `short`, `small`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Threads.
    pub threads: usize,
    /// Operations.
    pub ops: u64,
    /// Wall time, the drain included.
    pub seconds: f64,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Keys and values, 10^6 bytes a second.
    pub mb_per_s: f64,
    /// Latency of an operation.
    #[serde(flatten)]
    pub latency: Percentiles,
    /// Processor time inside sync calls over all processor time of the process (P1: "share of core time in fsync").
    pub fsync_cpu_share: Option<f64>,
    /// Bytes that the device wrote (machine-wide) over bytes of keys and values.
    pub write_amplification: Option<f64>,
    /// The same by samples of perf, or why there are none; where it was asked for.
    #[serde(skip)]
    pub fsync_sample_share: Option<Result<f64, String>>,
    /// Size of the data set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_bytes: Option<u64>,
    /// What writers waited for in the store, by its own account (our rows of writes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// Latency of threads that wait for nothing but a processor, measured in the same run: `stalls`, a look at the clock by those
    /// beside; `put` by several threads, as many that compute for as long as a put takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<Percentiles>,
    /// What else the workload has (docs/benchmarks.md).
    #[serde(flatten)]
    pub more: Map<String, Value>,
    /// Operations a second, slowest and fastest round.
    pub ops_per_s_span: Option<Span>,
}

/// As progress has them.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [seconds, ops_per_s, mb_per_s] =
            [self.seconds, self.ops_per_s, self.mb_per_s].map(|it| figure(Some(it)));
        let ops = self.ops;
        write!(
            f,
            "{ops} ops in {seconds} s, {ops_per_s} ops/s, {mb_per_s} MB/s"
        )
    }
}

impl Figures {
    /// Those of so many operations of a run.
    pub(super) fn of(config: &Config, ops: u64, seconds: f64, latency: Percentiles) -> Self {
        Self {
            value_bytes: config.value_bytes,
            threads: config.threads,
            ops,
            seconds,
            latency,
            ..Self::default()
        }
    }

    /// Adds what else the workload has: an object.
    pub(super) fn add(&mut self, more: Value) {
        self.more.extend(object(more));
    }

    /// A number of what else the workload has.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.more.get(name)?.as_f64()
    }

    /// Rates from counts.
    pub(crate) fn rates(mut self, bytes: u64) -> Self {
        self.ops_per_s = self.ops as f64 / self.seconds;
        self.mb_per_s = bytes as f64 / 1e6 / self.seconds;
        self
    }

    /// The median round, with the span of all.
    pub(super) fn of_rounds(rounds: Vec<Self>) -> Option<Self> {
        let all: Vec<f64> = rounds.iter().map(|r| r.ops_per_s).collect();
        let mut figures = median_round(rounds, |r| r.ops_per_s)?;
        figures.ops_per_s_span = Some(span(&all));
        Some(figures)
    }
}

impl Report {
    pub(super) fn new(config: &Config, device: Speed) -> Self {
        let mut notes = vec![
            "write_amplification counts what the whole machine wrote to the device meanwhile".to_owned(),
            "a peer's compactions that are pending when it ends are not counted; they would cost it".to_owned(),
        ];
        notes.extend(config.pool.note());
        let mut pool = config.pool.to_string();
        if let Some(profile) = config.profile {
            pool = format!("{pool}, slowed to {} ({})", profile.name, profile.source);
        }
        notes.extend(device.note());
        Self {
            bench: "wisckey",
            device,
            rows: Vec::new(),
            peers: Vec::new(),
            ratios: BTreeMap::new(),
            settings: json!({
                "buffer_bytes": config.buffer_bytes,
                "preload_bytes": config.preload_bytes,
                "cache_bytes": config.cache_bytes,
                "rounds": config.rounds,
                "pool": pool,
                // A part of every latency.
                "clock_reading_ns": crate::clock::reading_ns(),
            }),
            notes,
            device_rounds: Vec::new(),
        }
    }

    /// Sums the device up, and adds the ratios that the rows give.
    pub(super) fn finish(&mut self) {
        if let Some(device) = Speed::of_rounds(&self.device_rounds) {
            self.device = device;
        }
        let mut ratios = BTreeMap::new();
        for row in &self.rows {
            let ours = &row.figures;
            let run = if ours.run.is_empty() {
                String::new()
            } else {
                format!("{}_", ours.run)
            };
            // The same workload on data sets of two sizes is two ratios.
            let of = ours
                .data_bytes
                .map_or_else(String::new, |bytes| format!("_of_{}mb", bytes / 1_000_000));
            // And so is the same with several numbers of threads.
            let of = match ours.threads {
                1 => of,
                threads => format!("{of}_by_{threads}_threads"),
            };
            let name = |other: &str| {
                format!(
                    "{run}{}_{}_{}{of}_over_{other}",
                    ours.workload, row.variant, ours.value_bytes
                )
            };
            if ours.workload == "put" {
                ratios.insert(name("device"), ours.mb_per_s / self.device.seq_write_mb_s);
            }
            let others = self.rows.iter().filter(|r| r.variant != row.variant);
            for (other, theirs) in others
                .map(|r| (r.variant.clone(), &r.figures))
                .chain(self.peer_rows().map(|(n, m, f)| (format!("{n}_{m}"), f)))
            {
                if ours.is_comparable(theirs) {
                    ratios.insert(name(&other), ours.ops_per_s / theirs.ops_per_s);
                }
            }
        }
        self.ratios = ratios;
    }

    /// The peers that ran: name, mode and figures.
    pub fn peer_rows(&self) -> impl Iterator<Item = (&'static str, &str, &Figures)> {
        let peers = self.peers.iter();
        peers.filter_map(|peer| Some((peer.name, peer.mode.as_deref()?, peer.figures.as_deref()?)))
    }

    /// Those who ran, ours and then the peers: who, and the figures.
    pub fn all_rows(&self) -> impl Iterator<Item = (String, &Figures)> {
        let ours = self
            .rows
            .iter()
            .map(|row| (row.variant.clone(), &row.figures));
        let peers = self
            .peer_rows()
            .map(|(name, mode, figures)| (format!("{name} {mode}"), figures));
        ours.chain(peers)
    }

    /// The peers that did not, and why.
    pub fn missing_peers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let peers = self.peers.iter();
        peers.filter_map(|peer| Some((peer.name, peer.error.as_deref()?)))
    }
}

impl Figures {
    /// True if a ratio of the two means anything.
    #[must_use]
    pub fn is_comparable(&self, other: &Self) -> bool {
        self.workload == other.workload
            && self.run == other.run
            && self.workload != "reopen"
            && self.value_bytes == other.value_bytes
            && self.threads == other.threads
            && self.data_bytes == other.data_bytes
    }
}
