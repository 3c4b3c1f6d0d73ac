//! The report: what is printed as JSON, and what tables are made of.

use super::{Config, Deleted, Scanned, Step};
use crate::{
    device::Speed,
    histogram::Percentiles,
    rounds::{Span, median_round, span},
};
use forebay_store::Waits;
use serde::Serialize;
use std::collections::BTreeMap;

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
    pub peers: Vec<Peer>,
    /// Ratios that the rows give, by name: ours over the other's.
    pub ratios: BTreeMap<String, f64>,
    /// Settings that the rows do not show.
    pub settings: Settings,
    /// What to know when reading the figures.
    pub notes: Vec<String>,
    /// The device in each round of Puts.
    #[serde(skip)]
    pub(super) device_rounds: Vec<Speed>,
}

/// Settings of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Bytes of one buffer of an emulated pool.
    pub buffer_bytes: u64,
    /// Bytes in the store before the clock starts; size of the data set of the other workloads.
    pub preload_bytes: u64,
    /// Bytes of the block cache, ours and the peers'.
    pub cache_bytes: u64,
    /// Rounds.
    pub rounds: usize,
    /// The pool in words.
    pub pool: String,
    /// What one reading of the clock costs, nanoseconds: a part of every latency.
    pub clock_reading_ns: f64,
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
pub struct Peer {
    /// The peer.
    pub name: &'static str,
    /// Its row.
    #[serde(flatten)]
    pub outcome: PeerOutcome,
}

/// What became of a peer.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum PeerOutcome {
    /// It ran.
    Ran {
        /// How it ran.
        mode: String,
        /// Its figures.
        #[serde(flatten)]
        figures: Box<Figures>,
    },
    /// It did not.
    Missing {
        /// Why, and the remedy.
        error: String,
    },
}

impl Peer {
    pub(super) fn missing(name: &'static str, error: String) -> Self {
        Self {
            name,
            outcome: PeerOutcome::Missing { error },
        }
    }
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
    /// Wall time inside sync calls, summed over threads, over wall time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync_wall_share: Option<f64>,
    /// Sync calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_calls: Option<u64>,
    /// P1's figure 8: time that the device's writes took per KiB, queueing included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_write_us_per_kib: Option<f64>,
    /// Largest resident memory of our process so far, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes_max: Option<u64>,
    /// Size of the data set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_bytes: Option<u64>,
    /// Space on the disk (`overwrite`).
    #[serde(flatten)]
    pub space: Option<Space>,
    /// How many operations took how long (`stalls`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<Step>,
    /// What writers waited for in the store, by its own account (our rows of writes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// Latency of threads that wait for nothing but a processor, measured in the same run: `stalls`, a look at the clock by those
    /// beside; `put` by several threads, as many that compute for as long as a put takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<Percentiles>,
    /// What deleted keys cost (`queue`, `delete_all`).
    #[serde(flatten)]
    pub deleted: Option<Deleted>,
    /// What scans beside cost (`scans`).
    #[serde(flatten)]
    pub scanned: Option<Scanned>,
    /// Restart (`reopen`).
    #[serde(flatten)]
    pub reopening: Option<Reopening>,
    /// Operations a second, slowest and fastest round.
    pub ops_per_s_span: Option<Span>,
}

/// Space that a data set takes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Space {
    /// Largest bytes on disk over live bytes, while overwriting.
    pub space_amplification_max: f64,
    /// The same when the overwriting is over and everything is on the disk.
    pub space_amplification_final: f64,
}

/// A restart after SIGKILL.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Reopening {
    /// Until the store was open.
    pub open_seconds: f64,
    /// Until it had answered a first get.
    pub first_get_seconds: f64,
    /// Bytes of keys and values that had been written.
    pub written_bytes: u64,
}

impl Figures {
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
        if device.name.is_none() {
            notes.push(
                "the stores' directory is not on a block device: nothing was written to a disk"
                    .to_owned(),
            );
        }
        Self {
            bench: "wisckey",
            device,
            rows: Vec::new(),
            peers: Vec::new(),
            ratios: BTreeMap::new(),
            settings: Settings {
                buffer_bytes: config.buffer_bytes,
                preload_bytes: config.preload_bytes,
                cache_bytes: config.cache_bytes,
                rounds: config.rounds,
                pool,
                clock_reading_ns: crate::clock::reading_ns(),
            },
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
        self.peers.iter().filter_map(|peer| match &peer.outcome {
            PeerOutcome::Ran { mode, figures } => Some((peer.name, mode.as_str(), &**figures)),
            PeerOutcome::Missing { .. } => None,
        })
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
        self.peers.iter().filter_map(|peer| match &peer.outcome {
            PeerOutcome::Ran { .. } => None,
            PeerOutcome::Missing { error } => Some((peer.name, error.as_str())),
        })
    }

    /// The row of that workload and variant.
    #[must_use]
    pub fn row(&self, workload: &str, variant: &str) -> Option<&Figures> {
        self.rows
            .iter()
            .find(|row| row.figures.workload == workload && row.variant == variant)
            .map(|row| &row.figures)
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
