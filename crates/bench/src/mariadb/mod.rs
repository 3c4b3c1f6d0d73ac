//! `forebay bench mariadb`: what a MariaDB server with a binary log pays for transactions that survive a power cut, and what it pays under
//! `forebay run`.
//!
//! Each number of clients is measured in all modes in turn, round after round, each time on a fresh copy of one data directory. The load is
//! sysbench's `oltp_write_only` over a Unix socket. [`server`] and [`client`] are also what the tests use.

pub mod client;
pub mod load;
mod rows;
pub mod server;
pub mod workload;

pub use rows::{Report, Row};

use crate::{
    BenchError,
    device::{self, Effort},
    place::{device_argument, forebay_run},
    processes::{eat_syncs, find_eatmydata},
    rounds::in_turn,
    scratch::{PoolSource, ScratchDir, ScratchPool, sync_file_system},
};
use load::{Load, Size};
use serde::Serialize;
use server::{Launch, Server};
use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// What the server promises about an acknowledged transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Redo log and binary log are synced before it is acknowledged: `innodb_flush_log_at_trx_commit=1`, `sync_binlog=1`.
    Plain,
    /// Neither is (both settings 0).
    NoSync,
    /// As [`Plain`](Self::Plain), but fsync does nothing (libeatmydata).
    Eatmydata,
    /// As [`Plain`](Self::Plain), under `forebay run`.
    Forebay,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::NoSync, Self::Eatmydata, Self::Forebay];

    /// What a transaction that was acknowledged survives at least.
    #[must_use]
    pub fn survives(self) -> &'static str {
        match self {
            Self::Plain => "a power cut",
            Self::NoSync => "nothing (a second may be lost)",
            Self::Eatmydata => "a process crash",
            Self::Forebay => "what the pool does",
        }
    }

    fn options(self) -> [&'static str; 2] {
        match self {
            Self::NoSync => ["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"],
            _ => ["--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"],
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::NoSync => "no_sync",
            Self::Eatmydata => "eatmydata",
            Self::Forebay => "forebay",
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        crate::choice::named(&Self::ALL, "mode", text)
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the servers' directories are made, in a scratch directory that is removed again.
    pub dir: PathBuf,
    /// Modes, in the order of the rows.
    pub modes: Vec<Mode>,
    /// Connections.
    pub clients: Vec<u64>,
    /// The data set.
    pub size: Size,
    /// Seconds of a round.
    pub seconds: u64,
    /// Rounds.
    pub rounds: usize,
    /// Where the pools come from.
    pub pool: PoolSource,
    /// Bytes of a segment of an emulated pool.
    pub buffer_bytes: u64,
    /// Segments of the server's lane.
    pub buffers: u16,
    /// The emulated device that the servers' directories are on: a profile of `forebay run --device`.
    pub device: Option<String>,
    /// How to start this program: `forebay`.
    pub forebay: PathBuf,
    /// How thoroughly the device is measured.
    pub effort: Effort,
}

impl Config {
    fn check(&self) -> Result<(), BenchError> {
        let bad = |what: &str| Err(BenchError::Config(what.to_owned()));
        if self.rounds == 0 || self.seconds == 0 || self.clients.contains(&0) {
            return bad("no round, no second or no client measures nothing");
        }
        if self.modes.is_empty() || self.clients.is_empty() {
            return bad("no mode or number of clients to measure");
        }
        if let Some(lacking) = server::lacking() {
            return Err(BenchError::Config(lacking));
        }
        // InnoDB would map its log there, and neither sync nor write it.
        let shm = Path::new("/dev/shm");
        match self
            .dir
            .canonicalize()
            .is_ok_and(|dir| dir.starts_with(shm))
        {
            true => bad(
                "InnoDB takes /dev/shm for persistent memory and does not sync there; name another directory (--dir)",
            ),
            false => Ok(()),
        }
    }
}

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong; if libeatmydata is not installed, that is reported, and is no error.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, BenchError> {
    config.check()?;
    // The server has its own directory as the current one, so no path may depend on that.
    std::fs::create_dir_all(&config.dir).map_err(BenchError::io("creating", &config.dir))?;
    let dir = config.dir.canonicalize();
    let scratch = ScratchDir::new_in(&dir.map_err(BenchError::io("finding", &config.dir))?)?;
    note("measuring the device");
    let mut report = Report::new(config, device::measure(scratch.path(), config.effort)?);
    let mut modes = config.modes.clone();
    if modes.contains(&Mode::Eatmydata) && find_eatmydata().is_none() {
        modes.retain(|mode| *mode != Mode::Eatmydata);
        report.missing.push(
            "eatmydata: libeatmydata is not installed: apt-get install libeatmydata1".to_owned(),
        );
    }
    note("preparing the tables");
    let template = prepare(config, scratch.path())?;
    for &clients in &config.clients {
        let mut rounds: Vec<Vec<Row>> = modes.iter().map(|_| Vec::new()).collect();
        for round in 0..config.rounds {
            for at in in_turn(0..modes.len(), round) {
                let row = measure_one(config, scratch.path(), &template, modes[at], clients)?;
                note(&format!(
                    "{}, {clients} clients: {:.0} transactions/s, p99 {:.0} µs",
                    row.mode, row.ops_per_s, row.p99_us
                ));
                rounds[at].push(row);
            }
        }
        report
            .rows
            .extend(rounds.into_iter().filter_map(Row::of_rounds));
    }
    report.finish();
    Ok(report)
}

/// What all servers have: the binary log, and room in memory for the whole data set.
const OPTIONS: [&str; 2] = ["--log-bin=binlog", "--innodb-buffer-pool-size=512M"];

/// Makes the data directory that each round gets a copy of.
fn prepare(config: &Config, scratch: &Path) -> Result<PathBuf, BenchError> {
    let dir = scratch.join("template");
    std::fs::create_dir(&dir).map_err(BenchError::io("creating", &dir))?;
    let mut launch = Launch::new(&dir).map_err(BenchError::Config)?;
    server::create(&launch.data())?;
    launch.options = vec![OPTIONS[1].to_owned()];
    let server = Server::start(&launch)?;
    config.size.prepare(&server)?;
    server.stop()?;
    Ok(launch.data())
}

/// One mode with so many clients, once, on a fresh copy.
fn measure_one(
    config: &Config,
    scratch: &Path,
    template: &Path,
    mode: Mode,
    clients: u64,
) -> Result<Row, BenchError> {
    let dir = ScratchDir::new_in(scratch)?;
    let mut launch = Launch::new(dir.path()).map_err(BenchError::Config)?;
    server::copy(template, &launch.data())?;
    // What other rounds left for the device to do is not this one's.
    sync_file_system(dir.path())?;
    let pool = match mode {
        Mode::Forebay => Some(ScratchPool::new(
            &config.pool,
            u64::from(config.buffers) * 2,
            config.buffer_bytes,
            None,
        )?),
        _ => None,
    };
    let pinned = pinned(clients);
    let device = config.device.as_ref();
    if pool.is_some() || device.is_some() {
        launch.wrapper = forebay_run(
            &config.forebay,
            pool.as_ref().map(|pool| (pool.path(), config.buffers)),
            device.map(|profile| ("--device", device_argument(&launch.data(), profile))),
        );
    }
    launch.processors = pinned.as_ref().map(|(server, _)| server.clone());
    launch.environment = vec![("FOREBAY_RUN_DIR".into(), dir.path().join("run").into())];
    if mode == Mode::Eatmydata
        && let Some(library) = find_eatmydata()
    {
        eat_syncs(&library, &mut launch.wrapper, &mut launch.environment);
    }
    launch.options = OPTIONS
        .iter()
        .chain(&mode.options())
        .map(|&word| word.to_owned())
        .collect();
    let server = Server::start(&launch)?;
    let load = Load {
        size: config.size,
        clients,
        seconds: config.seconds,
        processor: pinned.map(|(_, client)| client),
    };
    // Pages and plans are in memory then.
    Load { seconds: 1, ..load }.run(&server)?;
    let measured = load.run(&server)?;
    server.stop()?;
    Ok(Row {
        mode,
        clients,
        is_pinned: load.processor.is_some(),
        ops_per_s: measured.ops_per_s,
        p50_us: measured.p50_us,
        p99_us: measured.p99_us,
        ops_per_s_span: None,
    })
}

/// The server's processors, as `taskset` has them, and the client's. One client and the thread that serves it work in turns: where the
/// scheduler puts both on one processor decides more than any sync, so they are kept apart. Several fill the processors themselves.
fn pinned(clients: u64) -> Option<(String, usize)> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let last = processors.checked_sub(1).filter(|last| *last > 0)?;
    (clients == 1).then(|| (format!("0-{}", last - 1), last))
}
