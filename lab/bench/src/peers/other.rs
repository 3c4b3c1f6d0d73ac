//! The peers beside RocksDB in P1's Puts: LevelDB, LMDB, fjall, redb, and RocksDB with its values in blob files.
//!
//! Each is a process that takes the same arguments and prints one JSON object (`Line`): small C programs that are built when they are
//! needed and linked to Debian's libraries (`programs/`), and `forebay-peers` (lab/peers/), which is built beside this program or is
//! missing. One thread each; what counts is their own time, a sync of what was not synced included.

use super::{leveldb, rocksdb};
use crate::{
    BenchError,
    device::BlockDevice,
    histogram::Percentiles,
    processes::{Process, find_program},
    scratch::sync_file_system,
    wisckey::{Config, Figures},
};
use serde::Deserialize;
use std::{
    env, fmt, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
};

/// A peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// RocksDB with `--enable_blob_files`: values apart from keys, as in WiscKey.
    RocksDbBlob,
    /// LevelDB.
    LevelDb,
    /// LMDB.
    Lmdb,
    /// fjall, with its values apart from its keys.
    Fjall,
    /// redb.
    Redb,
}

/// What an acknowledged Put survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A power cut.
    Sync,
    /// A process crash.
    NoSync,
}

impl Mode {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sync, Self::NoSync];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sync => "sync",
            Self::NoSync => "nosync",
        })
    }
}

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Other {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|other| other.name() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!(
                    "there is no such peer; there are {}, {names}",
                    rocksdb::NAME
                )
            })
    }
}

/// LMDB's program.
const LMDB_SOURCE: &str = include_str!("../../programs/lmdb.c");
/// The program that the Rust stores are in.
const PEERS: &str = "forebay-peers";

/// What a peer prints.
#[derive(Deserialize)]
struct Line {
    ops: u64,
    seconds: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

impl Other {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::RocksDbBlob,
        Self::LevelDb,
        Self::Lmdb,
        Self::Fjall,
        Self::Redb,
    ];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RocksDbBlob => "rocksdb_blob",
            Self::LevelDb => leveldb::NAME,
            Self::Lmdb => "lmdb",
            Self::Fjall => "fjall",
            Self::Redb => "redb",
        }
    }

    /// Checks that it can take part.
    ///
    /// # Errors
    /// In words, why not, and the remedy.
    pub fn check(self, config: &Config) -> Result<(), String> {
        if config.threads > 1 || config.preload_bytes > 0 {
            return Err("not measured: with one thread and without --preload only".to_owned());
        }
        match self {
            Self::RocksDbBlob => rocksdb::find().map(drop),
            Self::LevelDb => leveldb::check(),
            Self::Lmdb => match find_program("cc") {
                Some(_) if Path::new("/usr/include/lmdb.h").exists() => Ok(()),
                _ => Err("not installed: apt-get install liblmdb-dev build-essential".to_owned()),
            },
            Self::Fjall | Self::Redb => find_peers().map(drop),
        }
    }

    /// P1's Puts, in a database of its own in `dir`, which is made, and removed.
    pub(crate) fn put(
        self,
        config: &Config,
        dir: &Path,
        mode: Mode,
    ) -> Result<Figures, BenchError> {
        if self == Self::RocksDbBlob {
            let mode = match mode {
                Mode::Sync => rocksdb::Mode::Sync,
                Mode::NoSync => rocksdb::Mode::NoSync,
            };
            return rocksdb::put_in_blob_files(config, dir, mode);
        }
        fs::create_dir_all(dir).map_err(BenchError::io("creating", dir))?;
        let (program, store) = match self {
            Self::LevelDb => (leveldb::build(dir)?, None),
            Self::Lmdb => (leveldb::build_c(dir, self.name(), LMDB_SOURCE)?, None),
            _ => (find_peers().map_err(BenchError::Config)?, Some(self.name())),
        };
        let parent = dir.parent().unwrap_or(Path::new("."));
        let device = BlockDevice::holding(parent);
        sync_file_system(parent)?;
        let before = device.as_ref().and_then(BlockDevice::written);
        let line = run(&program, store, config, dir, mode)?;
        sync_file_system(parent)?;
        let bytes = line.ops * config.pair_bytes();
        let mut figures = Figures {
            workload: "put",
            value_bytes: config.value_bytes,
            threads: 1,
            ops: line.ops,
            seconds: line.seconds,
            latency: Percentiles {
                p50_us: Some(line.p50_us),
                p99_us: Some(line.p99_us),
                p999_us: Some(line.p999_us),
                max_us: Some(line.max_us),
            },
            ..Figures::default()
        };
        if let (Some(before), Some(now)) = (before, device.as_ref().and_then(BlockDevice::written))
        {
            let written = now - before;
            figures.write_amplification = Some(written.bytes as f64 / bytes as f64);
            figures.device_write_us_per_kib = written.us_per_kib();
        }
        fs::remove_dir_all(dir).map_err(BenchError::io("removing", dir))?;
        Ok(figures.rates(bytes))
    }
}

fn run(
    program: &Path,
    store: Option<&str>,
    config: &Config,
    dir: &Path,
    mode: Mode,
) -> Result<Line, BenchError> {
    let failed = || BenchError::io("running", program);
    let mut process = Process::spawn(
        Command::new(program)
            .args(store)
            .arg(dir)
            .arg("put")
            .arg(config.limit.ops.unwrap_or(0).to_string())
            .arg(config.limit.seconds.unwrap_or(0.0).to_string())
            .arg(config.value_bytes.to_string())
            .arg((crate::data::fresh_seed() >> 1).to_string())
            .arg(if mode == Mode::Sync { "1" } else { "0" })
            .arg(config.cache_bytes.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit()),
    )?;
    let mut printed = String::new();
    if let Some(output) = process.child().stdout.as_mut() {
        output.read_to_string(&mut printed).map_err(failed())?;
    }
    let status = process.child().wait().map_err(failed())?;
    let line = serde_json::from_str(&printed);
    match line {
        Ok(line) if status.success() => Ok(line),
        _ => Err(BenchError::Child(format!(
            "{} ended with {status} and printed {printed:?}",
            program.display()
        ))),
    }
}

/// `forebay-peers`, beside this program or in one of the directories above it.
fn find_peers() -> Result<PathBuf, String> {
    env::current_exe()
        .ok()
        .iter()
        .flat_map(|program| program.ancestors().skip(1).take(2))
        .map(|dir| dir.join(PEERS))
        .find(|program| program.is_file())
        .ok_or_else(|| {
            format!("not installed: build it beside this program, cargo build --release -p {PEERS}")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_called_by_its_name() {
        for other in Other::ALL {
            assert_eq!(other.name().parse(), Ok(other));
        }
        assert!("oracle".parse::<Other>().unwrap_err().contains("leveldb"));
    }

    #[test]
    fn what_a_peer_cannot_do_is_said() {
        let config = Config {
            threads: 2,
            ..Config::default()
        };
        for other in Other::ALL {
            assert!(other.check(&config).unwrap_err().contains("one thread"));
        }
    }
}
