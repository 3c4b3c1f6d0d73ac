//! RocksDB, by Debian's `db_bench` (package rocksdb-tools).
//!
//! What is counted: `db_bench`'s own time of the benchmark, and for writes also the flush of the memtable that
//! follows, after which every acknowledged byte is in a synced table (or, with a log, was already durable there).
//! The device's counters are read when the process has ended and the file system is synced.
//! Compactions that are still pending then are not counted, which is in RocksDB's favour.

use super::db_bench::{self, Printed};
use crate::{
    BenchError,
    device::BlockDevice,
    scratch::sync_file_system,
    wisckey::{Config, Figures, Limit, Read},
};
use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
};

/// The peer's name in reports.
pub const NAME: &str = "rocksdb";

/// What RocksDB promises about an acknowledged Put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Written to the log and synced: what our `fsync`, `single` and `double` promise.
    Sync,
    /// Written to the log, not synced: lost in a power cut.
    NoSync,
    /// No log at all: lost when the process ends.
    DisableWal,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sync, Self::NoSync, Self::DisableWal];

    fn flags(self) -> [&'static str; 2] {
        match self {
            Self::Sync => ["--sync=1", "--disable_wal=0"],
            Self::NoSync => ["--sync=0", "--disable_wal=0"],
            Self::DisableWal => ["--sync=0", "--disable_wal=1"],
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sync => "sync",
            Self::NoSync => "nosync",
            Self::DisableWal => "disable_wal",
        })
    }
}

/// Where `db_bench` is.
///
/// # Errors
/// In words, that it is not installed, and the remedy.
pub fn find() -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|dir| dir.join("db_bench"))
        .find(|program| program.is_file())
        .ok_or_else(|| "not installed: apt-get install rocksdb-tools".to_owned())
}

/// A number of keys so large that random keys practically all differ, as in P1.
const KEYS_ALL: u64 = 1 << 62;

/// P1's Puts, in a database of its own in `dir`, which is removed.
pub(crate) fn put(config: &Config, dir: &Path, mode: Mode) -> Result<Figures, BenchError> {
    put_with(config, dir, mode, &[])
}

/// The same with values in blob files.
pub(crate) fn put_in_blob_files(
    config: &Config,
    dir: &Path,
    mode: Mode,
) -> Result<Figures, BenchError> {
    put_with(config, dir, mode, &["--enable_blob_files=1"])
}

fn put_with(config: &Config, dir: &Path, mode: Mode, more: &[&str]) -> Result<Figures, BenchError> {
    if config.preload_bytes > 0 {
        load(config, dir)?;
    }
    let mut flags = vec![
        format!("--use_existing_db={}", u8::from(config.preload_bytes > 0)),
        format!("--num={KEYS_ALL}"),
    ];
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    // fillrandom refuses a database that is there; overwrite is the same for one. Of so many keys hardly any is overwritten.
    let name = match config.preload_bytes {
        0 => "fillrandom",
        _ => "overwrite",
    };
    let figures = write(config, dir, name, "put", (mode, config.limit), flags)?;
    fs::remove_dir_all(dir).map_err(BenchError::io("removing", dir))?;
    Ok(figures)
}

/// Fills the data set in `dir`: every key once, in random order.
pub(crate) fn load(config: &Config, dir: &Path) -> Result<(), BenchError> {
    let mut flags = common(config, dir, "filluniquerandom,flush");
    flags.push("--threads=1".to_owned());
    flags.push("--disable_wal=1".to_owned());
    flags.push(format!("--num={}", config.data_keys()));
    db_bench::run(&program()?, &flags, "filluniquerandom")?;
    Ok(())
}

/// Overwrites the data set in `dir` at random.
pub(crate) fn overwrite(config: &Config, dir: &Path, limit: Limit) -> Result<Figures, BenchError> {
    let flags = vec![
        "--use_existing_db=1".to_owned(),
        format!("--num={}", config.data_keys()),
    ];
    let mut figures = write(
        config,
        dir,
        "overwrite",
        "overwrite",
        (Mode::DisableWal, limit),
        flags,
    )?;
    figures.data_bytes = Some(config.data_keys() * config.pair_bytes());
    Ok(figures)
}

/// Reads the data set in `dir` at random. With `warm_up`, does so twice and counts the second time.
pub(crate) fn read(
    config: &Config,
    dir: &Path,
    read: Read,
    ops: u64,
    warm_up: bool,
) -> Result<Figures, BenchError> {
    let name = match read {
        Read::Get => "readrandom",
        Read::Scan => "seekrandom",
    };
    let benchmarks = if warm_up {
        format!("{name},{name}")
    } else {
        name.to_owned()
    };
    let mut flags = common(config, dir, &benchmarks);
    flags.push("--use_existing_db=1".to_owned());
    flags.push(format!("--threads={}", config.threads));
    flags.push(format!("--num={}", config.data_keys()));
    flags.push(format!("--reads={}", (ops / config.threads as u64).max(1)));
    flags.push(format!("--seek_nexts={}", Read::SCAN_KEYS));
    let printed = db_bench::run(&program()?, &flags, name)?;
    let pairs = match read {
        Read::Get => 1,
        Read::Scan => Read::SCAN_KEYS + 1,
    };
    Ok(figures(config, &printed).rates(printed.ops * pairs * config.pair_bytes()))
}

/// Runs one write benchmark and the flush that belongs to it.
fn write(
    config: &Config,
    dir: &Path,
    name: &str,
    workload: &'static str,
    (mode, limit): (Mode, Limit),
    flags: Vec<String>,
) -> Result<Figures, BenchError> {
    let parent = dir.parent().unwrap_or(Path::new("."));
    let device = BlockDevice::holding(parent);
    sync_file_system(parent)?;
    let before = device.as_ref().and_then(BlockDevice::written);

    let mut all = common(config, dir, &format!("{name},flush"));
    all.extend(flags);
    all.push(format!("--threads={}", config.threads));
    all.extend(mode.flags().map(str::to_owned));
    all.push(limit_flag(limit, mode, config.threads));
    let printed = db_bench::run(&program()?, &all, name)?;

    sync_file_system(parent)?;
    let bytes = printed.ops * config.pair_bytes();
    let mut figures = Figures {
        workload,
        ..figures(config, &printed)
    };
    figures.seconds += printed.flush_seconds;
    if let (Some(before), Some(now)) = (before, device.as_ref().and_then(BlockDevice::written)) {
        let written = now - before;
        figures.write_amplification = Some(written.bytes as f64 / bytes as f64);
        figures.device_write_us_per_kib = written.us_per_kib();
    }
    Ok(figures.rates(bytes))
}

fn figures(config: &Config, printed: &Printed) -> Figures {
    Figures {
        value_bytes: config.value_bytes,
        threads: config.threads,
        ops: printed.ops,
        seconds: printed.seconds,
        latency: printed.latency(),
        ..Figures::default()
    }
}

/// `db_bench` stops after a number of operations or after a time, not after whichever comes first. If both are given,
/// the mode that waits for the device gets the time and the others the operations.
fn limit_flag(limit: Limit, mode: Mode, threads: usize) -> String {
    match limit {
        Limit {
            seconds: Some(seconds),
            ops,
        } if ops.is_none() || mode == Mode::Sync => {
            format!("--duration={}", seconds.ceil() as u64)
        }
        Limit { ops, .. } => format!("--writes={}", (ops.unwrap_or(1) / threads as u64).max(1)),
    }
}

fn common(config: &Config, dir: &Path, benchmarks: &str) -> Vec<String> {
    vec![
        format!("--db={}", dir.display()),
        format!("--benchmarks={benchmarks}"),
        format!("--key_size={}", Config::KEY_BYTES),
        format!("--value_size={}", config.value_bytes),
        format!("--cache_size={}", config.cache_bytes),
        format!("--seed={}", crate::data::fresh_seed() >> 1),
        format!("--histogram={}", u8::from(config.latencies)),
        "--compression_type=none".to_owned(),
    ]
}

fn program() -> Result<PathBuf, BenchError> {
    find().map_err(|missing| BenchError::Config(format!("{NAME} is {missing}")))
}
