//! `forebay bench rocksdb`: what a write-ahead log that is synced at each Put costs RocksDB, and what it costs under `forebay run` (P3).
//!
//! `db_bench`'s `fillrandom` in every mode in turn, round after round, each time in a database of its own.
//! What counts is `db_bench`'s own time of the Puts; compactions go on meanwhile in every mode alike.

use crate::{
    BenchError,
    device::{self, Effort, Speed},
    histogram::Percentiles,
    peers::{
        db_bench::{self, Around},
        rocksdb,
    },
    place::{device_argument, forebay_run},
    processes::{find_eatmydata, preload},
    rounds::{Span, in_turn, median, span},
    scratch::{PoolSource, ScratchDir, ScratchPool, memory_dir, sync_file_system},
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// What RocksDB promises about an acknowledged Put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Logged and synced.
    Sync,
    /// Logged, not synced.
    NoSync,
    /// Not logged.
    NoWal,
    /// As `sync`, but fsync does nothing (libeatmydata).
    Eatmydata,
    /// As `sync`, under `forebay run`.
    Forebay,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Sync,
        Self::NoSync,
        Self::NoWal,
        Self::Eatmydata,
        Self::Forebay,
    ];

    fn flags(self) -> [&'static str; 2] {
        match self {
            Self::Sync | Self::Eatmydata | Self::Forebay => ["--sync=1", "--disable_wal=0"],
            Self::NoSync => ["--sync=0", "--disable_wal=0"],
            Self::NoWal => ["--sync=0", "--disable_wal=1"],
        }
    }

    /// What a Put that was acknowledged survives at least.
    #[must_use]
    pub fn survives(self) -> &'static str {
        match self {
            Self::Sync => "a power cut",
            Self::NoSync | Self::Eatmydata => "a process crash",
            Self::NoWal => "nothing",
            Self::Forebay => "what the pool does",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sync => "sync",
            Self::NoSync => "no_sync",
            Self::NoWal => "no_wal",
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
    /// Where the databases are made, in a scratch directory that is removed again.
    pub dir: PathBuf,
    /// Modes, in the order of the rows.
    pub modes: Vec<Mode>,
    /// Bytes of a value.
    pub sizes: Vec<u64>,
    /// Numbers of writing threads.
    pub threads: Vec<u64>,
    /// Emulated devices that the log is put on, one after the other: profiles of `forebay run --device`. None: the log is beside the data.
    pub wal_devices: Vec<String>,
    /// Bytes of keys and values that a round writes; `sync` writes for [`seconds_synced`](Self::seconds_synced) instead.
    pub bytes: u64,
    /// Puts of a round at most.
    pub puts_max: u64,
    /// Seconds of a round of `sync`.
    pub seconds_synced: u64,
    /// Rounds.
    pub rounds: usize,
    /// Where the pools come from.
    pub pool: PoolSource,
    /// Bytes of a segment of an emulated pool.
    pub buffer_bytes: u64,
    /// Segments of a lane.
    pub buffers: u16,
    /// How to start this program: `forebay`.
    pub forebay: PathBuf,
    /// How thoroughly the device is measured.
    pub effort: Effort,
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `rocksdb`.
    pub bench: &'static str,
    /// The device under the databases, measured in this run.
    pub device: Speed,
    /// The rows.
    pub rows: Vec<Row>,
    /// Ratios that the rows give: `forebay_over_sync_100`, and so on.
    pub ratios: BTreeMap<String, f64>,
    /// Rounds.
    pub rounds: usize,
    /// What to know when reading the figures.
    pub notes: Vec<String>,
}

/// A mode and size. Each figure is the median of the rounds by itself.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What is promised.
    pub mode: Mode,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// The emulated device that the log is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal_device: Option<String>,
    /// Puts of a round.
    pub ops: u64,
    /// Puts a second.
    pub ops_per_s: f64,
    /// Latency of a Put.
    #[serde(flatten)]
    pub latency: Percentiles,
    /// Bytes of the pool that the database may use.
    pub nvm_bytes_peak: Option<u64>,
    /// Puts a second, slowest and fastest round.
    pub ops_per_s_span: Option<Span>,
}

/// Bytes of a key.
const KEY_BYTES: u64 = 16;

impl Config {
    fn check(&self) -> Result<(), BenchError> {
        let bad = |what: &str| Err(BenchError::Config(what.to_owned()));
        if self.rounds == 0 || self.puts_max == 0 || self.threads.contains(&0) {
            return bad("at least one round, Put and thread are needed");
        }
        if self.modes.is_empty() || self.sizes.is_empty() || self.threads.is_empty() {
            return bad("no mode, size or number of threads to measure");
        }
        rocksdb::find()
            .map(drop)
            .map_err(|missing| BenchError::Config(format!("{} is {missing}", rocksdb::NAME)))
    }

    fn puts(&self, value_bytes: u64) -> u64 {
        (self.bytes / (KEY_BYTES + value_bytes)).clamp(1, self.puts_max)
    }
}

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong; a missing libeatmydata is reported, and is no error.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, BenchError> {
    config.check()?;
    let scratch = ScratchDir::new_in(&config.dir)?;
    note("measuring the device");
    let mut report = Report {
        bench: "rocksdb",
        device: device::measure(scratch.path(), config.effort)?,
        rows: Vec::new(),
        ratios: BTreeMap::new(),
        rounds: config.rounds,
        notes: vec!["each figure is the median of the rounds by itself; sync writes for a time, the others so many Puts".to_owned()],
    };
    if config.modes.contains(&Mode::Forebay) {
        report.notes.extend(config.pool.note());
    }
    let mut modes = config.modes.clone();
    if modes.contains(&Mode::Eatmydata) && find_eatmydata().is_none() {
        modes.retain(|mode| *mode != Mode::Eatmydata);
        report
            .notes
            .push("libeatmydata is not installed: apt-get install libeatmydata1".to_owned());
    }
    for setting in settings(config) {
        let mut rounds: Vec<Vec<Row>> = modes.iter().map(|_| Vec::new()).collect();
        for round in 0..config.rounds {
            for at in in_turn(0..modes.len(), round) {
                let row = measure_one(config, scratch.path(), modes[at], setting)?;
                note(&format!(
                    "rocksdb {}, {setting}: {:.0} Puts/s",
                    modes[at], row.ops_per_s
                ));
                rounds[at].push(row);
            }
        }
        report.rows.extend(rounds.into_iter().filter_map(of_rounds));
    }
    report.finish();
    Ok(report)
}

/// What all modes are measured at in turn.
#[derive(Clone, Copy)]
struct Setting<'a> {
    value_bytes: u64,
    threads: u64,
    wal_device: Option<&'a str>,
}

impl fmt::Display for Setting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, {} threads", self.value_bytes, self.threads)?;
        self.wal_device
            .map_or(Ok(()), |device| write!(f, ", log on {device}"))
    }
}

fn settings(config: &Config) -> Vec<Setting<'_>> {
    let devices: Vec<Option<&str>> = match config.wal_devices.is_empty() {
        true => vec![None],
        false => config
            .wal_devices
            .iter()
            .map(|name| Some(&**name))
            .collect(),
    };
    let mut settings = Vec::new();
    for wal_device in devices {
        for &threads in &config.threads {
            settings.extend(config.sizes.iter().map(|&value_bytes| Setting {
                value_bytes,
                threads,
                wal_device,
            }));
        }
    }
    settings
}

fn measure_one(
    config: &Config,
    scratch: &Path,
    mode: Mode,
    setting: Setting<'_>,
) -> Result<Row, BenchError> {
    let Setting {
        value_bytes,
        threads,
        wal_device,
    } = setting;
    let dir = ScratchDir::new_in(scratch)?;
    let database = dir.path().join("db");
    // An emulated device only adds to what a call takes.
    let apart = wal_device
        .map(|_| ScratchDir::new_in(&memory_dir()))
        .transpose()?;
    let wal = apart.as_ref().map_or(&*database, |apart| apart.path());
    let pool = match mode {
        Mode::Forebay => Some(ScratchPool::new(
            &config.pool,
            u64::from(config.buffers) * 2,
            config.buffer_bytes,
            None,
        )?),
        _ => None,
    };
    sync_file_system(dir.path())?;
    let puts = config.puts(value_bytes);
    let mut flags = vec![
        format!("--db={}", database.display()),
        format!("--wal_dir={}", wal.display()),
        "--benchmarks=fillrandom".to_owned(),
        format!("--key_size={KEY_BYTES}"),
        format!("--value_size={value_bytes}"),
        format!("--threads={threads}"),
        format!("--num={puts}"),
        format!("--seed={}", crate::data::fresh_seed() >> 1),
        "--histogram=1".to_owned(),
        "--compression_type=none".to_owned(),
    ];
    flags.extend(mode.flags().map(str::to_owned));
    flags.push(match mode {
        Mode::Sync => format!("--duration={}", config.seconds_synced),
        _ => format!("--writes={}", (puts / threads).max(1)),
    });
    let around = Around {
        wrapper: match (&pool, wal_device) {
            (None, None) => Vec::new(),
            (pool, device) => forebay_run(
                &config.forebay,
                pool.as_ref().map(|pool| (pool.path(), config.buffers)),
                device.map(|profile| ("--device", device_argument(wal, profile))),
            ),
        },
        environment: match (mode, find_eatmydata()) {
            (Mode::Eatmydata, Some(library)) => vec![("LD_PRELOAD".into(), preload(&library))],
            _ => Vec::new(),
        },
    };
    let program = rocksdb::find().map_err(BenchError::Config)?;
    let printed = db_bench::run_in(&around, &program, &flags, "fillrandom")?;
    Ok(Row {
        mode,
        value_bytes,
        threads,
        wal_device: wal_device.map(str::to_owned),
        ops: printed.ops,
        ops_per_s: printed.ops as f64 / printed.seconds,
        latency: printed.latency(),
        nvm_bytes_peak: pool
            .as_ref()
            .map(|pool| u64::from(config.buffers) * pool.pool().geometry().segment_bytes),
        ops_per_s_span: None,
    })
}

fn of_rounds(rounds: Vec<Row>) -> Option<Row> {
    let all = |figure: fn(&Row) -> f64| rounds.iter().map(figure).collect::<Vec<_>>();
    let latency = |figure: fn(&Row) -> Option<f64>| {
        let known: Vec<f64> = rounds.iter().filter_map(figure).collect();
        (!known.is_empty()).then(|| median(&known))
    };
    Some(Row {
        ops_per_s: median(&all(|row| row.ops_per_s)),
        latency: Percentiles {
            p50_us: latency(|row| row.latency.p50_us),
            p99_us: latency(|row| row.latency.p99_us),
            p999_us: latency(|row| row.latency.p999_us),
            max_us: latency(|row| row.latency.max_us),
        },
        ops_per_s_span: Some(span(&all(|row| row.ops_per_s))),
        ..rounds.first()?.clone()
    })
}

impl Row {
    /// The name of the ratio of ours to this row.
    #[must_use]
    pub fn ratio_name(&self) -> String {
        let threads = match self.threads {
            1 => String::new(),
            threads => format!("_threads_{threads}"),
        };
        let device = self.wal_device.as_ref();
        let device = device.map_or(String::new(), |device| format!("_{device}"));
        format!(
            "forebay_over_{}_{}{threads}{device}",
            self.mode, self.value_bytes
        )
    }
}

impl Report {
    fn finish(&mut self) {
        for ours in self.rows.iter().filter(|row| row.mode == Mode::Forebay) {
            let setting = |row: &Row| (row.value_bytes, row.threads, row.wal_device.clone());
            let others = self.rows.iter().filter(|row| row.mode != Mode::Forebay);
            for other in others.filter(|row| setting(row) == setting(ours)) {
                self.ratios
                    .insert(other.ratio_name(), ours.ops_per_s / other.ops_per_s);
            }
        }
    }
}
