//! `forebay-lab ycsb`: the core workloads of YCSB (Cooper et al., SoCC 2010) on the store in its
//! variants, and on its peers.
//!
//! [`YcsbConfig`] says what to run; [`run`] runs it and returns a [`Report`]. Each contestant's
//! turn is a process of its own, with one [`driver`] for all stores: it loads the records, and runs
//! the workloads one after the other. `operations` does a workload; `keys` and `workload` say what
//! is asked for as YCSB does; `ours` is the store of Forebay, the others are in lab/peers; `report`
//! makes rows and tables.
//!
//! What differs from YCSB: a record is one value and not ten fields, and is read and written as a
//! whole; E runs on the records that D added, not on newly loaded ones.

pub mod driver;
mod keys;
mod operations;
mod ours;
mod report;
mod workload;

pub use driver::SyncMode;
pub use keys::Distribution;
pub use ours::run_order;
pub use report::table;
pub use workload::{CoreWorkload, OperationKind};

use crate::{
    BenchError, data,
    device::{self, Effort},
    peers::Peer,
    processes::{output, said_by},
    report::{Report, Row},
    rounds,
    scratch::{self, PoolSource, ScratchDir, ScratchPool, sync_file_system},
    wisckey::Limit,
};
use driver::{DriverOrder, WorkloadOutcome};
use forebay_store::Durability;
use serde_json::json;
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

/// A variant of our store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OurVariant {
    durability: Durability,
    /// The pool is a file on the disk of the data.
    is_pool_on_disk: bool,
}

impl FromStr for OurVariant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "disk" {
            return Ok(Self {
                durability: Durability::DOUBLE,
                is_pool_on_disk: true,
            });
        }
        let durability = text.parse().map_err(|e| format!("{e}; or disk"))?;
        Ok(Self {
            durability,
            is_pool_on_disk: false,
        })
    }
}

impl fmt::Display for OurVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_pool_on_disk {
            true => f.write_str("disk"),
            false => self.durability.fmt(f),
        }
    }
}

impl OurVariant {
    fn mode(self) -> SyncMode {
        match self.durability {
            Durability::NoSync => SyncMode::Unsynced,
            _ => SyncMode::Synced,
        }
    }
}

/// Who takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum YcsbContestant {
    Ours(OurVariant),
    Peer(Peer, SyncMode),
}

impl YcsbContestant {
    fn mode(self) -> SyncMode {
        match self {
            Self::Ours(variant) => variant.mode(),
            Self::Peer(_, mode) => mode,
        }
    }

    /// What of an acknowledged write is there again.
    fn survives(self) -> &'static str {
        match self {
            Self::Ours(variant) if variant.is_pool_on_disk => "a power cut",
            Self::Ours(variant) if matches!(variant.durability, Durability::Buffered(_)) => {
                "as the pool"
            }
            // What it did not commit durably is in the memory of the process.
            Self::Peer(Peer::Redb, SyncMode::Unsynced) => "nothing",
            _ if self.mode() == SyncMode::Synced => "a power cut",
            _ => "a process crash",
        }
    }
}

impl fmt::Display for YcsbContestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(variant) => variant.fmt(f),
            Self::Peer(peer, mode) => write!(f, "{peer} {}", mode.name()),
        }
    }
}

/// What a run measures.
#[derive(Clone, Debug)]
pub struct YcsbConfig {
    /// Where the stores are made, in a scratch directory that is removed again.
    pub dir: PathBuf,
    /// Where the pools come from of variants that have one in memory.
    pub pool: PoolSource,
    /// Variants of ours.
    pub variants: Vec<OurVariant>,
    /// The peers.
    pub peers: Vec<Peer>,
    /// Whether writes are synced: rows for each, of those stores that have it.
    pub modes: Vec<SyncMode>,
    /// In this order, on one load.
    pub workloads: Vec<CoreWorkload>,
    /// How records are chosen, if not as each workload does.
    pub distribution: Option<Distribution>,
    /// Records that are loaded.
    pub records: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// When a workload is done.
    pub limit: Limit,
    /// Numbers of threads: rows for each.
    pub threads: Vec<usize>,
    /// Memory of each store's cache.
    pub cache_bytes: u64,
    /// Bytes of a segment of ours.
    pub buffer_bytes: u64,
    /// How often each row is measured.
    pub rounds: usize,
    /// How thoroughly the device is measured.
    pub effort: Effort,
    /// `forebay-lab`, as which our stores are driven.
    pub program: PathBuf,
}

impl YcsbConfig {
    fn contestants(&self) -> Vec<YcsbContestant> {
        let mut all = Vec::new();
        for &mode in &self.modes {
            let ours = self.variants.iter().copied().filter(|v| v.mode() == mode);
            all.extend(ours.map(YcsbContestant::Ours));
            let peers = self.peers.iter().filter(|peer| peer.check_driven().is_ok());
            all.extend(peers.map(|&peer| YcsbContestant::Peer(peer, mode)));
        }
        all
    }
}

/// Runs all that `config` says.
///
/// # Errors
/// The first thing that goes wrong; a peer that is not installed is reported as a row, and is no
/// error.
pub fn run(config: &YcsbConfig, note: &dyn Fn(&str)) -> Result<Report, BenchError> {
    let contestants = config.contestants();
    if contestants.is_empty() || config.workloads.is_empty() {
        let nothing = "nothing to measure: --modes has no row for any of --variants and --peers";
        return Err(BenchError::Config(nothing.to_owned()));
    }
    note("measuring the device");
    let scratch = ScratchDir::new_in(&config.dir)?;
    let mut device = vec![device::measure(scratch.path(), config.effort)?];
    let mut report = report::begin(config, &device[0]);
    for &peer in &config.peers {
        if let Err(why) = peer.check_driven() {
            let row = Row::of(json!({"name": peer.name(), "error": why}));
            report.peers.push(row);
        }
    }
    let seed = data::fresh_seed();
    for &threads in &config.threads {
        let turns = rounds::take_turns(&contestants, config.rounds, |&contestant| {
            if Some(&contestant) == contestants.first() {
                note("measuring the device");
                device.push(device::measure(scratch.path(), config.effort)?);
            }
            note(&format!("{contestant}, {threads} threads"));
            let rows = turn(config, contestant, (threads, seed), scratch.path())?;
            for row in &rows {
                let workload = row.text("workload");
                let rate = row.shown("ops_per_s");
                note(&format!("{contestant}, {workload}: {rate} ops/s"));
            }
            Ok::<_, BenchError>(rows)
        })?;
        for (&contestant, rounds) in contestants.iter().zip(turns) {
            report::add(&mut report, contestant, rounds);
        }
    }
    let device = device::of_rounds(&device).unwrap_or(device[0].clone());
    report::finish(&mut report, &device);
    Ok(report)
}

/// A contestant's round: a row for each workload.
fn turn(
    config: &YcsbConfig,
    contestant: YcsbContestant,
    (threads, seed): (usize, u64),
    scratch: &Path,
) -> Result<Vec<Row>, BenchError> {
    let dir = scratch.join("store");
    fs::create_dir_all(&dir).map_err(BenchError::io("creating", &dir))?;
    let mut order = DriverOrder {
        store: String::new(),
        dir: dir.clone(),
        pool: None,
        library: None,
        mode: contestant.mode(),
        workloads: config.workloads.clone(),
        distribution: config.distribution,
        records: config.records,
        value_bytes: config.value_bytes,
        ops_max: config.limit.ops,
        seconds_max: config.limit.seconds,
        threads,
        cache_bytes: config.cache_bytes,
        buffer_bytes: config.buffer_bytes,
        seed,
    };
    // Kept until the process is gone.
    let _pool = match contestant {
        YcsbContestant::Ours(variant) => {
            let pool = pool_of(config, variant)?;
            order.store = variant.durability.to_string();
            order.pool = pool.as_ref().map(|pool| pool.path().to_owned());
            pool
        }
        YcsbContestant::Peer(peer, _) => {
            order.store = peer.name().to_owned();
            None
        }
    };
    let mut command = match contestant {
        YcsbContestant::Ours(_) => {
            let mut command = Command::new(&config.program);
            command.args(["internal", "ycsb"]);
            command
        }
        YcsbContestant::Peer(peer, _) => {
            let (program, library) = peer.driver(scratch)?;
            order.library = library;
            let mut command = Command::new(program);
            command.arg("ycsb");
            command
        }
    };
    sync_file_system(scratch)?;
    let outcomes = outcomes(command.arg(report::as_text(&order)?), &order)?;
    fs::remove_dir_all(&dir).map_err(BenchError::io("removing", &dir))?;
    let row = |outcome| report::row(&order, contestant, outcome);
    Ok(outcomes.iter().map(row).collect())
}

/// A new pool for a variant that has one.
fn pool_of(config: &YcsbConfig, variant: OurVariant) -> Result<Option<ScratchPool>, BenchError> {
    let Durability::Buffered(buffers) = variant.durability else {
        return Ok(None);
    };
    let source = match variant.is_pool_on_disk {
        true => &PoolSource::OnDisk(config.dir.clone()),
        false => &config.pool,
    };
    scratch::pool(source, u64::from(buffers), config.buffer_bytes, None).map(Some)
}

/// What a driver's process prints, which is a line for each workload.
fn outcomes(
    command: &mut Command,
    order: &DriverOrder,
) -> Result<Vec<WorkloadOutcome>, BenchError> {
    let said = said_by(&order.store, output(command)?)?;
    let read = |line| {
        serde_json::from_str(line)
            .map_err(|e| BenchError::Child(format!("({}) printed {line:?}: {e}", order.store)))
    };
    let outcomes = said
        .lines()
        .map(read)
        .collect::<Result<Vec<WorkloadOutcome>, _>>()?;
    if outcomes.len() == order.workloads.len() {
        return Ok(outcomes);
    }
    let found = outcomes.len();
    Err(BenchError::Child(format!(
        "({}) reported {found} workloads of {}",
        order.store,
        order.workloads.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_have_their_names_modes_and_promises() {
        let told = |name: &str| {
            let variant: OurVariant = name.parse().unwrap();
            assert_eq!(variant.to_string(), name);
            let contestant = YcsbContestant::Ours(variant);
            (contestant.mode().name(), contestant.survives())
        };
        assert_eq!(told("double"), ("synced", "as the pool"));
        assert_eq!(told("disk"), ("synced", "a power cut"));
        assert_eq!(told("fsync"), ("synced", "a power cut"));
        assert_eq!(told("nosync"), ("unsynced", "a process crash"));
        assert!("floppy".parse::<OurVariant>().unwrap_err().contains("disk"));
    }
}
