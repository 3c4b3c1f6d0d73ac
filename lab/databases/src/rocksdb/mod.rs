//! RocksDB: what a write-ahead log that is synced at each Put costs RocksDB, and what it costs
//! under `forebay run` (P3).
//!
//! `db_bench`'s `fillrandom` in every mode in turn, round after round, each time in a database of
//! its own. What counts is `db_bench`'s own time of the Puts; compactions go on meanwhile in every
//! mode alike.

pub mod db_bench;

use crate::{
    MeasureError,
    contest::{self, Cell, Contender, Contest, Mode, Report, Sample, Setup, of_pool},
    scratch::{ScratchDir, memory_dir, sync_file_system},
};
use db_bench::{NO_SYNC, NO_WAL, SYNC};
use serde_json::json;
use std::{fs, path::Path};

/// What RocksDB promises about an acknowledged Put.
pub const MODES: [Mode; 6] = [
    SYNC,
    NO_SYNC,
    NO_WAL,
    contest::EATMYDATA.with(SYNC.settings),
    contest::FOREBAY.with(SYNC.settings),
    contest::NOTIFY.with(SYNC.settings),
];

/// What is measured.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where, in which modes, with which pools.
    pub setup: Setup,
    /// Bytes of a value.
    pub sizes: Vec<u64>,
    /// Numbers of writing threads.
    pub threads: Vec<u64>,
    /// Emulated devices that the log is put on, one after the other, by the names of their
    /// profiles. None: the log is beside the data.
    pub wal_devices: Vec<String>,
    /// Bytes of keys and values that a round writes; `sync` writes for [`seconds`](Self::seconds)
    /// instead.
    pub bytes: u64,
    /// Puts of a round at most.
    pub puts_max: u64,
    /// Seconds of a round of `sync`.
    pub seconds: u64,
    /// All modes write for that time.
    pub is_timed: bool,
}

/// Bytes of a key.
const KEY_BYTES: u64 = 16;

/// What all modes are measured at in turn.
#[derive(Clone, Copy)]
struct At<'a> {
    value_bytes: u64,
    threads: u64,
    wal_device: Option<&'a str>,
}

impl At<'_> {
    fn cell(self) -> Cell {
        let mut columns = json!({"value_bytes": self.value_bytes, "threads": self.threads});
        let mut tag = self.value_bytes.to_string();
        if self.threads > 1 {
            tag = format!("{tag}_threads_{}", self.threads);
        }
        if let Some(device) = self.wal_device {
            columns["wal_device"] = json!(device);
            tag = format!("{tag}_{device}");
        }
        Cell::new(tag, columns)
    }
}

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong; a missing libeatmydata is reported, and is no error.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, MeasureError> {
    let counts = [config.puts_max, config.bytes, config.seconds];
    let setup = &config.setup;
    setup.check(&[&config.sizes, &config.threads, &counts])?;
    db_bench::program().map_err(|missing| MeasureError::Config(format!("rocksdb is {missing}")))?;
    let mut contest = Contest::begin("rocksdb", "Puts", setup, note)?;
    if !config.is_timed {
        let times = "sync writes for a time, the others so many Puts";
        contest.report.tell(json!({}), times);
    }
    let on = config.wal_devices.iter().map(|name| Some(&**name));
    let on: Vec<Option<&str>> = match config.wal_devices.is_empty() {
        true => vec![None],
        false => on.collect(),
    };
    for wal_device in on {
        for &threads in &config.threads {
            for &value_bytes in &config.sizes {
                let at = At {
                    value_bytes,
                    threads,
                    wal_device,
                };
                let measure =
                    |scratch: &Path, contender: &Contender| measure(config, scratch, at, contender);
                contest.cell(&at.cell(), |_| true, measure)?;
            }
        }
    }
    Ok(contest.end())
}

fn measure(
    config: &Config,
    scratch: &Path,
    at: At<'_>,
    contender: &Contender,
) -> Result<Sample, MeasureError> {
    let setup = &config.setup;
    let dir = ScratchDir::new_in(scratch)?;
    let database = dir.path().join("db");
    fs::create_dir(&database).map_err(MeasureError::io("creating", &database))?;
    // An emulated device only adds to what a call takes.
    let apart = at
        .wal_device
        .map(|_| ScratchDir::new_in(&memory_dir()))
        .transpose()?;
    let wal = apart.as_ref().map_or(&*database, |apart| apart.path());
    let data_device = setup.device.as_deref().map(|device| (&*database, device));
    let devices: Vec<(&Path, &str)> = data_device
        .into_iter()
        .chain(at.wal_device.map(|device| (wal, device)))
        .collect();
    let setting = setup.setting(contender, None);
    let around = setting.around(&devices, [], dir.path().join("run"))?;
    sync_file_system(dir.path())?;
    let puts = (config.bytes / (KEY_BYTES + at.value_bytes)).clamp(1, config.puts_max);
    let ends = match config.is_timed || contender.mode == SYNC {
        true => ("duration", config.seconds),
        false => ("writes", (puts / at.threads).max(1)),
    };
    let numbers = [
        ("key_size", KEY_BYTES),
        ("value_size", at.value_bytes),
        ("threads", at.threads),
        ("num", puts),
        ("histogram", 1),
        ends,
    ];
    let mut options = db_bench::options(&database, "fillrandom", &numbers);
    options.push(format!("--wal_dir={}", wal.display()));
    options.extend(contender.mode.settings.iter().map(|&flag| flag.to_owned()));
    let printed = db_bench::run(&around, &options, "fillrandom")?;
    let mut more = of_pool(around.lane_bytes(setup.pools.lane_segments), None);
    more.insert("ops".to_owned(), json!(printed.ops));
    Ok(Sample {
        ops_per_s: printed.ops as f64 / printed.seconds,
        latency: printed.latency(),
        more,
    })
}
