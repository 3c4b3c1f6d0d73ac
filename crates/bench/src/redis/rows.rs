//! The report.

use super::{Config, Mode, medians, server::Kind};
use crate::{
    device::Speed,
    rounds::{Span, median_round, span},
    units::bytes_name,
};
use serde::Serialize;
use std::{collections::BTreeMap, fs};

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `redis`.
    pub bench: &'static str,
    /// The device under the servers' directories, measured in this run.
    pub device: Speed,
    /// The rows.
    pub rows: Vec<Row>,
    /// What was not installed.
    pub missing: Vec<Missing>,
    /// Ratios that the rows give: `forebay_over_everysec_redis_32_50`, and so on. Of p99 with `p99_` before it.
    pub ratios: BTreeMap<String, f64>,
    /// Settings that the rows do not show.
    pub settings: Settings,
    /// What to know when reading the figures.
    pub notes: Vec<String>,
}

/// Settings of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Rounds.
    pub rounds: usize,
    /// Keys chosen from.
    pub keys: u64,
    /// Segments of a server's lane, and bytes of each.
    pub buffers: u16,
    /// Bytes of a segment of an emulated pool.
    pub buffer_bytes: u64,
    /// The pool in words.
    pub pool: String,
    /// Processors of the machine, which server, load and supervisor share.
    pub processors: usize,
}

/// A server, mode, size and number of connections. Each figure is the median of the rounds by itself.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The server.
    pub server: Kind,
    /// What it promises.
    pub mode: Mode,
    /// Bytes of its emulated pool, where that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_bytes: Option<u64>,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Connections.
    pub clients: u64,
    /// The append-only file was rewritten again and again meanwhile.
    pub during_rewrite: bool,
    /// SETs of a round.
    pub requests: u64,
    /// SETs a second.
    pub ops_per_s: f64,
    /// Median latency as the client sees it.
    pub p50_us: f64,
    /// 99 of 100 are at most this.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Rewrites that came to their end meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrites: Option<u64>,
    /// Bytes of the pool that the server had, used or not; the largest of the rounds.
    pub nvm_bytes_peak: Option<u64>,
    /// What happened behind, in the median round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<Behind>,
    /// SETs a second, slowest and fastest round.
    pub ops_per_s_span: Option<Span>,
    /// p99, smallest and largest.
    pub p99_us_span: Option<Span>,
}

/// What the supervisor did while the server served, the warm-up included.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Behind {
    /// Times that the server waited because its lane was full.
    pub waits: u64,
    /// Real syncs.
    pub real_syncs: u64,
    /// Time that they took, seconds.
    pub real_sync_seconds: f64,
}

/// What was not measured.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// A server, or a mode.
    pub name: String,
    /// Why, and the remedy.
    pub error: String,
}

impl Row {
    /// The medians of its rounds.
    pub(super) fn of_rounds(rounds: Vec<Self>) -> Option<Self> {
        let all = |figure: fn(&Self) -> f64| rounds.iter().map(figure).collect::<Vec<_>>();
        let behind = median_round(rounds.clone(), |row| row.ops_per_s)?.behind;
        Some(Self {
            behind,
            ops_per_s: medians(&rounds, |row| row.ops_per_s),
            p50_us: medians(&rounds, |row| row.p50_us),
            p99_us: medians(&rounds, |row| row.p99_us),
            max_us: medians(&rounds, |row| row.max_us),
            rewrites: rounds.iter().map(|row| row.rewrites).min().flatten(),
            nvm_bytes_peak: rounds.iter().map(|row| row.nvm_bytes_peak).max().flatten(),
            ops_per_s_span: Some(span(&all(|row| row.ops_per_s))),
            p99_us_span: Some(span(&all(|row| row.p99_us))),
            ..rounds.first()?.clone()
        })
    }

    /// The mode, with the pool where its size is asked for: `forebay 16 MiB`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.pool_bytes {
            Some(bytes) => format!("{} {}", self.mode, bytes_name(bytes)),
            None => self.mode.to_string(),
        }
    }

    /// True if the two differ in nothing but the mode and the pool.
    #[must_use]
    pub fn is_comparable(&self, other: &Self) -> bool {
        (
            self.server,
            self.value_bytes,
            self.clients,
            self.during_rewrite,
        ) == (
            other.server,
            other.value_bytes,
            other.clients,
            other.during_rewrite,
        )
    }
}

impl Report {
    pub(super) fn new(config: &Config, device: Speed) -> Self {
        let mut notes = vec![
            "each figure is the median of the rounds by itself; server, redis-benchmark and the supervisor share the processors".to_owned(),
            "always has fewer requests than the other modes, so that a round takes seconds".to_owned(),
        ];
        notes.extend(config.pool.note());
        if device.name.is_none() {
            notes.push(
                "the directory is not on a block device: nothing was written to a disk".to_owned(),
            );
        }
        if let Ok(policy) = fs::read_to_string("/proc/sys/vm/overcommit_memory")
            && policy.trim() == "2"
        {
            notes
                .push("vm.overcommit_memory is 2: rewrites may fail for want of memory".to_owned());
        }
        Self {
            bench: "redis",
            device,
            rows: Vec::new(),
            missing: Vec::new(),
            ratios: BTreeMap::new(),
            settings: Settings {
                rounds: config.rounds,
                keys: config.keys,
                buffers: config.buffers,
                buffer_bytes: config.buffer_bytes,
                pool: config.pool.to_string(),
                processors: std::thread::available_parallelism().map_or(1, usize::from),
            },
            notes,
        }
    }

    pub(super) fn missing(&mut self, name: &str, error: &str) {
        self.missing.push(Missing {
            name: name.to_owned(),
            error: error.to_owned(),
        });
    }

    pub(super) fn finish(&mut self) {
        for ours in self.rows.iter().filter(|row| row.mode == Mode::Forebay) {
            let others = self.rows.iter().filter(|row| row.mode != Mode::Forebay);
            for other in others.filter(|row| row.is_comparable(ours)) {
                let name = format!(
                    "{}_over_{}_{}_{}_{}{}",
                    ours.name().replace(' ', "_"),
                    other.mode,
                    ours.server,
                    ours.value_bytes,
                    ours.clients,
                    if ours.during_rewrite {
                        "_during_rewrite"
                    } else {
                        ""
                    }
                );
                self.ratios
                    .insert(format!("p99_{name}"), ours.p99_us / other.p99_us);
                self.ratios.insert(name, ours.ops_per_s / other.ops_per_s);
            }
        }
    }
}
