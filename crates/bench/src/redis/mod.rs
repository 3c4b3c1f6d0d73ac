//! `forebay bench redis`: what an append-only file that is synced at each write costs a Redis or Valkey server, and what it costs
//! under `forebay run` (P4).
//!
//! Each cell of the table (server, bytes of a value, connections) is measured in all modes in turn, round after round, each time on a fresh
//! server on loopback with a directory of its own; the load is redis-benchmark's SETs of random keys.
//!
//! [`stage`] is a server's directory, pool and command line; [`mix`] is a client of our own for mixes of SETs and GETs. [`server`] and [`resp`] are also what the end-to-end tests talk to servers with.

pub mod load;
pub mod mix;
pub mod resp;
mod rows;
pub mod server;
pub mod stage;

pub use rows::{Behind, Missing, Report, Row};

use crate::{
    BenchError,
    device::{self, Effort},
    processes::find_eatmydata,
    rounds::{in_turn, median},
    scratch::{PoolSource, ScratchDir},
};
use forebay_pool::media::Profile;
use load::Load;
use serde::Serialize;
use server::Kind;
use stage::{Rewrites, Setting, Stage};
use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// What the server promises about an acknowledged SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// No append-only file.
    Off,
    /// Appended, never synced by the server.
    No,
    /// Synced once a second.
    Everysec,
    /// Synced before it is acknowledged.
    Always,
    /// As `always`, but fsync does nothing (libeatmydata).
    Eatmydata,
    /// As `always`, with the server's whole directory in memory that stands for NVM: all pairs are there.
    Nvm,
    /// As `always`, under `forebay run`.
    Forebay,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Off,
        Self::No,
        Self::Everysec,
        Self::Always,
        Self::Eatmydata,
        Self::Nvm,
        Self::Forebay,
    ];

    /// What a SET that was acknowledged survives at least.
    #[must_use]
    pub fn survives(self) -> &'static str {
        match self {
            Self::Off => "nothing",
            Self::No | Self::Eatmydata => "a process crash",
            Self::Everysec => "a power cut, but for a second",
            Self::Always => "a power cut",
            Self::Nvm => "what the memory does",
            Self::Forebay => "what the pool does",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Off => &["--appendonly", "no"],
            Self::No => &["--appendonly", "yes", "--appendfsync", "no"],
            Self::Everysec => &["--appendonly", "yes", "--appendfsync", "everysec"],
            Self::Always | Self::Eatmydata | Self::Nvm | Self::Forebay => {
                &["--appendonly", "yes", "--appendfsync", "always"]
            }
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::No => "no",
            Self::Everysec => "everysec",
            Self::Always => "always",
            Self::Eatmydata => "eatmydata",
            Self::Nvm => "nvm",
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
    /// Servers.
    pub servers: Vec<Kind>,
    /// Modes, in the order of the rows.
    pub modes: Vec<Mode>,
    /// Bytes of a value.
    pub sizes: Vec<u64>,
    /// Connections.
    pub clients: Vec<u64>,
    /// SETs of a round. Where each waits for the device, there are fewer ([`Config::requests_of`]).
    pub requests: u64,
    /// Keys that are chosen from.
    pub keys: u64,
    /// Rounds.
    pub rounds: usize,
    /// Also measure while the append-only file is rewritten, with values of this size.
    pub during_rewrite: Option<u64>,
    /// Where the pools come from.
    pub pool: PoolSource,
    /// Bytes of a segment of an emulated pool.
    pub buffer_bytes: u64,
    /// Segments of a lane, which takes more of the pool while the disk is behind.
    pub buffers: u16,
    /// Bytes of an emulated pool, at least the lane's segments: mode forebay has a row for each. None: twice the lane's segments.
    pub pool_sizes: Vec<u64>,
    /// Make the pools as slow as this device.
    pub slowed: Option<Profile>,
    /// The emulated device that the servers' directories are on: a profile of `forebay run --device`.
    pub device: Option<String>,
    /// How to start this program: `forebay`.
    pub forebay: PathBuf,
    /// How thoroughly the device is measured.
    pub effort: Effort,
}

impl Config {
    /// SETs of a round in `mode`: where each waits for the device, so many fewer that a round takes seconds, not minutes.
    #[must_use]
    pub fn requests_of(&self, mode: Mode, clients: u64) -> u64 {
        const SYNCED_PER_CLIENT: u64 = 2000;
        match mode {
            Mode::Always => self.requests.min(SYNCED_PER_CLIENT * clients.max(1)),
            _ => self.requests,
        }
    }

    /// What takes turns: the modes, with a pool of each size that is asked for where there is one.
    fn contenders(&self, modes: &[Mode]) -> Vec<(Mode, Option<u64>)> {
        let mut contenders = Vec::new();
        for &mode in modes {
            match mode {
                Mode::Forebay if !self.pool_sizes.is_empty() => {
                    contenders.extend(self.pool_sizes.iter().map(|&bytes| (mode, Some(bytes))));
                }
                _ => contenders.push((mode, None)),
            }
        }
        contenders
    }

    fn check(&self) -> Result<(), BenchError> {
        let bad = |what: &str| Err(BenchError::Config(what.to_owned()));
        if self.rounds == 0 || self.requests == 0 || self.keys == 0 {
            return bad("at least one round, request and key are needed");
        }
        if self.clients.contains(&0) || self.sizes.contains(&0) {
            return bad("no client, or no byte of a value, measures nothing");
        }
        let lane = u64::from(self.buffers) * self.buffer_bytes;
        if self.pool_sizes.iter().any(|bytes| *bytes < lane) {
            return bad("a pool smaller than the segments of a lane holds none");
        }
        if self.servers.is_empty() || self.modes.is_empty() {
            return bad("no server or mode to measure");
        }
        load::program().map(drop).map_err(BenchError::Config)
    }
}

/// One cell of the table, to be measured in all modes.
#[derive(Clone, Copy)]
struct Cell {
    server: Kind,
    value_bytes: u64,
    clients: u64,
    during_rewrite: bool,
}

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong; a server or library that is not installed is reported, and is no error.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, BenchError> {
    config.check()?;
    let scratch = ScratchDir::new_in(&config.dir)?;
    note("measuring the device");
    let mut report = Report::new(config, device::measure(scratch.path(), config.effort)?);
    let mut modes = config.modes.clone();
    if modes.contains(&Mode::Eatmydata) && find_eatmydata().is_none() {
        modes.retain(|mode| *mode != Mode::Eatmydata);
        report.missing(
            "eatmydata",
            "libeatmydata is not installed: apt-get install libeatmydata1",
        );
    }
    for server in &config.servers {
        let program = match server.program() {
            Ok(program) => program,
            Err(why) => {
                report.missing(&server.to_string(), &why);
                continue;
            }
        };
        let cells = config.sizes.iter().map(|&size| (size, false));
        let cells = cells.chain(config.during_rewrite.map(|size| (size, true)));
        for (value_bytes, during_rewrite) in cells {
            for &clients in &config.clients {
                let cell = Cell {
                    server: *server,
                    value_bytes,
                    clients,
                    during_rewrite,
                };
                measure_cell(
                    config,
                    &program,
                    scratch.path(),
                    cell,
                    &modes,
                    note,
                    &mut report,
                )?;
            }
        }
    }
    report.finish();
    Ok(report)
}

fn measure_cell(
    config: &Config,
    program: &Path,
    scratch: &Path,
    cell: Cell,
    modes: &[Mode],
    note: &dyn Fn(&str),
    report: &mut Report,
) -> Result<(), BenchError> {
    // Without a file there is nothing to rewrite.
    let modes: Vec<Mode> = modes
        .iter()
        .copied()
        .filter(|mode| !(cell.during_rewrite && *mode == Mode::Off))
        .collect();
    let contenders = config.contenders(&modes);
    let mut rounds: Vec<Vec<Row>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..config.rounds {
        for at in in_turn(0..contenders.len(), round) {
            let row = measure_one(config, program, scratch, cell, contenders[at])?;
            note(&format!(
                "{} {}, {} bytes, {} clients{}: {:.0} SETs/s, p99 {:.0} µs",
                cell.server,
                row.name(),
                cell.value_bytes,
                cell.clients,
                if cell.during_rewrite {
                    ", during rewrites"
                } else {
                    ""
                },
                row.ops_per_s,
                row.p99_us
            ));
            rounds[at].push(row);
        }
    }
    report
        .rows
        .extend(rounds.into_iter().filter_map(Row::of_rounds));
    Ok(())
}

/// One mode of one cell, once, on a fresh server.
fn measure_one(
    config: &Config,
    program: &Path,
    scratch: &Path,
    cell: Cell,
    (mode, pool_bytes): (Mode, Option<u64>),
) -> Result<Row, BenchError> {
    let stage = Stage::new(
        &Setting {
            program,
            forebay: &config.forebay,
            mode,
            pool: &config.pool,
            buffers: config.buffers,
            buffer_bytes: config.buffer_bytes,
            pool_bytes,
            slowed: config.slowed,
            device: config.device.as_deref(),
            rewrites: Rewrites::Asked,
        },
        scratch,
    )?;
    let server = stage.start()?;
    let load = Load {
        requests: config.requests_of(mode, cell.clients),
        value_bytes: cell.value_bytes,
        clients: cell.clients,
        keys: config.keys,
    };
    let warm_up = Load {
        requests: (load.requests / 10).max(1),
        ..load
    };
    warm_up.run(&server)?;
    let (measured, rewrites) = if cell.during_rewrite {
        let (measured, rewrites) = load.run_during_rewrites(&server)?;
        (measured, Some(rewrites))
    } else {
        (load.run(&server)?, None)
    };
    let nvm_bytes_peak = stage.nvm_bytes();
    let behind = stage.behind();
    server.stop()?;
    Ok(Row {
        server: cell.server,
        mode,
        pool_bytes,
        value_bytes: cell.value_bytes,
        clients: cell.clients,
        during_rewrite: cell.during_rewrite,
        requests: load.requests,
        ops_per_s: measured.ops_per_s,
        p50_us: measured.p50_us,
        p99_us: measured.p99_us,
        max_us: measured.max_us,
        rewrites,
        nvm_bytes_peak,
        behind,
        ops_per_s_span: None,
        p99_us_span: None,
    })
}

/// The medians of rounds, each figure by itself.
fn medians(rounds: &[Row], figure: fn(&Row) -> f64) -> f64 {
    median(&rounds.iter().map(figure).collect::<Vec<_>>())
}
