//! What the benchmarks of SQL servers have in common: modes, the turns that they take, and the report.
//!
//! Each number of clients is measured in all modes in turn, round after round, each time on a fresh copy of one data directory, which is reached by a
//! Unix socket. [`Database`] is what a server adds: [`crate::mariadb`], [`crate::postgres`].

mod rows;
pub mod running;
pub mod user;

pub use rows::{Report, Row, Settings};
pub use user::User;

use crate::{
    BenchError,
    device::{self, Effort},
    place::{device_argument, forebay_run},
    processes::{eat_syncs, find_eatmydata},
    rounds::in_turn,
    scratch::{PoolSource, ScratchDir, ScratchPool, sync_file_system},
};
use serde::Serialize;
use std::{
    ffi::OsString,
    fmt::{self, Display},
    io,
    path::{Path, PathBuf},
    str::FromStr,
};

/// A row of a result: its columns as text, or none for NULL.
pub type Columns = Vec<Option<Vec<u8>>>;

/// A connection of the superuser to a server.
pub trait Client: Sized {
    /// Connects by a socket.
    ///
    /// # Errors
    /// I/O errors; `Other` with the server's own words if it refuses.
    fn connect(socket: &Path) -> io::Result<Self>;

    /// Has a statement carried out, or several with semicolons between them; their rows.
    ///
    /// # Errors
    /// I/O errors: then it is not known whether it was; `Other` with the server's own words if it refuses.
    fn query(&mut self, statement: &str) -> io::Result<Vec<Columns>>;
}

/// What the server promises about an acknowledged transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every log that it needs is synced before it is acknowledged.
    Plain,
    /// None is: the server's own setting.
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
}

impl Display for Mode {
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
pub struct Config<S> {
    /// Where the servers' directories are made, in a scratch directory that is removed again.
    pub dir: PathBuf,
    /// Modes, in the order of the rows.
    pub modes: Vec<Mode>,
    /// Connections.
    pub clients: Vec<u64>,
    /// The data set.
    pub size: S,
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

impl<S> Config<S> {
    fn check(&self) -> Result<(), BenchError> {
        let bad = |what: &str| Err(BenchError::Config(what.to_owned()));
        if self.rounds == 0 || self.seconds == 0 || self.clients.contains(&0) {
            return bad("no round, no second or no client measures nothing");
        }
        match self.modes.is_empty() || self.clients.is_empty() {
            true => bad("no mode or number of clients to measure"),
            false => Ok(()),
        }
    }
}

/// What a load program says about a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Transactions a second.
    pub ops_per_s: f64,
    /// Median latency of a transaction.
    pub p50_us: f64,
    /// 99 of 100 are at most this.
    pub p99_us: f64,
}

/// A round of one mode, prepared so far that the server can be started.
#[derive(Debug)]
pub struct Round<'a, S> {
    /// The server's directory, with a fresh copy of the data directory in `data`.
    pub dir: &'a Path,
    /// What stands before the server's program.
    pub wrapper: Vec<OsString>,
    /// The server's processors, as `taskset` has them.
    pub processors: Option<String>,
    /// The server's environment on top of ours.
    pub environment: Vec<(OsString, OsString)>,
    /// What the server is to promise.
    pub mode: Mode,
    /// The load.
    pub load: Load<S>,
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Load<S> {
    /// The data set.
    pub size: S,
    /// Connections, each with one transaction at a time.
    pub clients: u64,
    /// How long it takes.
    pub seconds: u64,
    /// The processor that the load program is to run on.
    pub processor: Option<usize>,
}

/// A server and the load that it gets.
pub trait Database {
    /// Its name in reports.
    const NAME: &'static str;
    /// The load, in words.
    const LOAD: &'static str;
    /// The size of the data set, in words too.
    type Size: Copy + Display;

    /// Whether it can be measured.
    ///
    /// # Errors
    /// [`BenchError::Config`]: why not, and the remedy.
    fn check(config: &Config<Self::Size>) -> Result<(), BenchError>;

    /// The user that servers run as, if not ours.
    ///
    /// # Errors
    /// [`BenchError::Config`] if there is none.
    fn user() -> Result<Option<User>, BenchError> {
        Ok(None)
    }

    /// Makes a data directory with the data set in `dir`: its path.
    ///
    /// # Errors
    /// Those of the server.
    fn prepare(size: Self::Size, dir: &Path) -> Result<PathBuf, BenchError>;

    /// Starts the server, has it warm up and measures it.
    ///
    /// # Errors
    /// Those of the server and of the load program.
    fn measure(round: Round<'_, Self::Size>) -> Result<Measured, BenchError>;
}

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong; if libeatmydata is not installed, that is reported, and is no error.
pub fn run<D: Database>(
    config: &Config<D::Size>,
    note: &dyn Fn(&str),
) -> Result<Report<D::Size>, BenchError> {
    config.check()?;
    D::check(config)?;
    let user = D::user()?;
    // The server has its own directory as the current one, so no path may depend on that.
    std::fs::create_dir_all(&config.dir).map_err(BenchError::io("creating", &config.dir))?;
    let dir = config.dir.canonicalize();
    let scratch = ScratchDir::new_in(&dir.map_err(BenchError::io("finding", &config.dir))?)?;
    note("measuring the device");
    let device = device::measure(scratch.path(), config.effort)?;
    let mut report = Report::new(D::NAME, D::LOAD, config, device);
    let mut modes = config.modes.clone();
    if modes.contains(&Mode::Eatmydata) && find_eatmydata().is_none() {
        modes.retain(|mode| *mode != Mode::Eatmydata);
        report.missing.push(
            "eatmydata: libeatmydata is not installed: apt-get install libeatmydata1".to_owned(),
        );
    }
    note("preparing the tables");
    let template = scratch.path().join("template");
    std::fs::create_dir(&template).map_err(BenchError::io("creating", &template))?;
    if let Some(user) = &user {
        user.let_in(scratch.path())?;
        user.give(&template)?;
    }
    let template = D::prepare(config.size, &template)?;
    for &clients in &config.clients {
        let mut rounds: Vec<Vec<Row>> = modes.iter().map(|_| Vec::new()).collect();
        for round in 0..config.rounds {
            for at in in_turn(0..modes.len(), round) {
                let place = (scratch.path(), &template, user.as_ref());
                let row = measure_one::<D>(config, place, modes[at], clients)?;
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

/// Segments of a pool, at least: a run takes more than its two while the disk is behind.
const SEGMENTS: u64 = 8;

/// One mode with so many clients, once, on a fresh copy.
fn measure_one<D: Database>(
    config: &Config<D::Size>,
    (scratch, template, user): (&Path, &PathBuf, Option<&User>),
    mode: Mode,
    clients: u64,
) -> Result<Row, BenchError> {
    let dir = ScratchDir::new_in(scratch)?;
    let data = dir.path().join("data");
    running::copy(template, &data)?;
    // What other rounds left for the device to do is not this one's.
    sync_file_system(dir.path())?;
    let pool = match mode {
        Mode::Forebay => Some(ScratchPool::new(
            &config.pool,
            SEGMENTS.max(u64::from(config.buffers) * 2),
            config.buffer_bytes,
            None,
        )?),
        _ => None,
    };
    if let Some(user) = user {
        user.give(dir.path())?;
        if let (Some(pool), PoolSource::Emulated) = (&pool, &config.pool) {
            user.give(pool.path().parent().unwrap_or(pool.path()))?;
        }
    }
    let device = config.device.as_ref();
    let (mut wrapper, mut environment) = (Vec::new(), Vec::new());
    if pool.is_some() || device.is_some() {
        wrapper = forebay_run(
            &config.forebay,
            pool.as_ref().map(|pool| (pool.path(), config.buffers)),
            device.map(|profile| ("--device", device_argument(&data, profile))),
        );
    }
    environment.push(("FOREBAY_RUN_DIR".into(), dir.path().join("run").into()));
    if mode == Mode::Eatmydata
        && let Some(library) = find_eatmydata()
    {
        eat_syncs(&library, &mut wrapper, &mut environment);
    }
    let pinned = pinned(clients);
    let load = Load {
        size: config.size,
        clients,
        seconds: config.seconds,
        processor: pinned.as_ref().map(|(_, client)| *client),
    };
    let measured = D::measure(Round {
        dir: dir.path(),
        wrapper,
        processors: pinned.map(|(server, _)| server),
        environment,
        mode,
        load,
    })?;
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
