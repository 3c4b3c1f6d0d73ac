//! The workloads on the peers, each in a database of its own.
//!
//! RocksDB by `db_bench`. What is counted: its own time of the benchmark, and for writes also the flush of the memtable that follows, after which every
//! acknowledged byte is in a synced table (or, with a log, was already durable there). Compactions that are still pending then are not counted, which is
//! in RocksDB's favour. The others are processes that take the same arguments and print one JSON object ([`Line`]): one thread; what counts is
//! their own time, a sync of what was not synced included.
//!
//! The device's counters are read when the process has ended and the file system is synced.

use super::{
    config::{Config, Limit},
    meter::{OnDevice, remove_dir},
    rows::Figures,
};
use crate::{
    BenchError,
    contest::{Around, Mode},
    histogram::Percentiles,
    peers::Peer,
    processes::{output, said_by},
    rocksdb::db_bench::{self, NO_SYNC, NO_WAL, Printed, SYNC},
};
use serde::Deserialize;
use std::{fs, path::Path, process::Command};

/// What a peer promises about an acknowledged Put: what our `fsync`, `single` and `double` do; no more than to survive a process crash; nothing.
const MODES: [Mode; 3] = [
    SYNC,
    Mode {
        name: "nosync",
        ..NO_SYNC
    },
    DISABLE_WAL,
];

/// A peer at its fastest.
pub(super) const DISABLE_WAL: Mode = Mode {
    name: "disable_wal",
    ..NO_WAL
};

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// One key.
    Get,
    /// [`SCAN_KEYS`](Self::SCAN_KEYS) pairs after the one that it starts from.
    Scan,
}

impl Read {
    /// As db_bench's `--seek_nexts`.
    pub const SCAN_KEYS: u64 = 100;
}

/// A number of keys so large that random keys practically all differ, as in P1.
const KEYS_ALL: u64 = 1 << 62;

/// What a peer prints.
#[derive(Deserialize)]
struct Line {
    ops: u64,
    seconds: f64,
    #[serde(flatten)]
    latency: Percentiles,
}

/// The modes that a peer is measured in.
pub(super) fn modes(peer: Peer) -> &'static [Mode] {
    match peer {
        Peer::RocksDb => &MODES,
        _ => &MODES[..2],
    }
}

/// Checks that it can take part.
///
/// # Errors
/// In words, why not, and the remedy.
pub(super) fn check(peer: Peer, config: &Config) -> Result<(), String> {
    let is_plain = config.threads == 1 && config.preload_bytes == 0;
    match peer == Peer::RocksDb || is_plain {
        true => peer.check(),
        false => Err("not measured: with one thread and without --preload only".to_owned()),
    }
}

/// A peer's database, in a directory of its own.
#[derive(Clone, Copy)]
pub(super) struct Database<'a> {
    pub config: &'a Config,
    pub dir: &'a Path,
}

impl Database<'_> {
    /// P1's Puts, in a new one, which is removed again.
    pub fn put(self, peer: Peer, mode: Mode) -> Result<Figures, BenchError> {
        // fillrandom refuses a database that is there; overwrite is the same for one. Of so many
        // keys hardly any is overwritten.
        let fill = |more| {
            let benchmark = match self.config.preload_bytes {
                0 => "fillrandom",
                _ => {
                    self.load()?;
                    "overwrite"
                }
            };
            self.write((benchmark, KEYS_ALL), (mode, self.config.limit), more)
        };
        let figures = match peer {
            Peer::RocksDb => fill(None)?,
            Peer::RocksDbBlob => fill(Some("--enable_blob_files=1"))?,
            _ => self.put_lines(peer, mode)?,
        };
        remove_dir(self.dir)?;
        Ok(Figures {
            workload: "put",
            ..figures
        })
    }

    fn put_lines(self, peer: Peer, mode: Mode) -> Result<Figures, BenchError> {
        let Self { config, dir } = self;
        fs::create_dir_all(dir).map_err(BenchError::io("creating", dir))?;
        let mut command = Command::new(peer.program(dir)?);
        if matches!(peer, Peer::Fjall | Peer::Redb) {
            command.arg(peer.name());
        }
        command
            .arg(dir)
            .arg("put")
            .arg(config.limit.ops.unwrap_or(0).to_string())
            .arg(config.limit.seconds.unwrap_or(0.0).to_string())
            .arg(config.value_bytes.to_string())
            .arg((crate::data::fresh_seed() >> 1).to_string())
            .arg(if mode == SYNC { "1" } else { "0" })
            .arg(config.cache_bytes.to_string());
        self.on_device(|| {
            let printed = said_by(peer.name(), output(&mut command)?)?;
            let line: Line = serde_json::from_str(&printed)
                .map_err(|e| BenchError::Child(format!("({peer}) printed {printed:?}: {e}")))?;
            let figures = Figures::of(config, line.ops, line.seconds, line.latency);
            Ok(Figures {
                threads: 1,
                ..figures
            })
        })
    }

    /// The figures of writes, with what the device wrote for them.
    fn on_device(
        self,
        work: impl FnOnce() -> Result<Figures, BenchError>,
    ) -> Result<Figures, BenchError> {
        let parent = self.dir.parent().unwrap_or(Path::new("."));
        let device = OnDevice::since_now(parent)?;
        device.added_to(work()?, parent, self.config)
    }

    /// Fills RocksDB's data set: every key once, in random order.
    pub fn load(self) -> Result<(), BenchError> {
        let more = ["--threads=1", "--disable_wal=1"].map(str::to_owned);
        let keys = self.config.data_keys();
        let loaded = self.rocksdb("filluniquerandom,flush", keys, &more);
        loaded.map(drop)
    }

    /// Overwrites RocksDB's data set at random.
    pub fn overwrite(self, limit: Limit) -> Result<Figures, BenchError> {
        let keys = ("overwrite", self.config.data_keys());
        Ok(Figures {
            workload: "overwrite",
            data_bytes: Some(self.config.data_keys() * self.config.pair_bytes()),
            ..self.write(keys, (DISABLE_WAL, limit), None)?
        })
    }

    /// Reads RocksDB's data set at random. With `warm_up`, does so twice and counts the second time.
    pub fn read(self, read: Read, ops: u64, warm_up: bool) -> Result<Figures, BenchError> {
        let config = self.config;
        let (name, pairs) = match read {
            Read::Get => ("readrandom", 1),
            Read::Scan => ("seekrandom", Read::SCAN_KEYS + 1),
        };
        let benchmarks = match warm_up {
            true => format!("{name},{name}"),
            false => name.to_owned(),
        };
        let more = [
            "--use_existing_db=1".to_owned(),
            format!("--threads={}", config.threads),
            format!("--reads={}", (ops / config.threads as u64).max(1)),
            format!("--seek_nexts={}", Read::SCAN_KEYS),
        ];
        let printed = self.rocksdb(&benchmarks, config.data_keys(), &more)?;
        let figures = Figures::of(config, printed.ops, printed.seconds, printed.latency());
        Ok(figures.rates(printed.ops * pairs * config.pair_bytes()))
    }

    /// Runs one write benchmark on so many keys, and the flush that belongs to it.
    fn write(
        self,
        (benchmark, keys): (&str, u64),
        (mode, limit): (Mode, Limit),
        more: Option<&str>,
    ) -> Result<Figures, BenchError> {
        let is_there = u8::from(benchmark == "overwrite");
        let mut options = vec![
            format!("--use_existing_db={is_there}"),
            format!("--threads={}", self.config.threads),
            limit_option(limit, mode, self.config.threads),
        ];
        options.extend(mode.settings.iter().copied().chain(more).map(str::to_owned));
        self.on_device(|| {
            let printed = self.rocksdb(&format!("{benchmark},flush"), keys, &options)?;
            let seconds = printed.seconds + printed.flush_seconds;
            let latency = printed.latency();
            Ok(Figures::of(self.config, printed.ops, seconds, latency))
        })
    }

    /// Runs db_bench: what the first of `benchmarks` printed.
    fn rocksdb(self, benchmarks: &str, keys: u64, more: &[String]) -> Result<Printed, BenchError> {
        let numbers = [
            ("key_size", Config::KEY_BYTES as u64),
            ("value_size", self.config.value_bytes as u64),
            ("cache_size", self.config.cache_bytes),
            ("num", keys),
            ("histogram", self.config.latencies.into()),
        ];
        let mut options = db_bench::options(self.dir, benchmarks, &numbers);
        options.extend_from_slice(more);
        let name = benchmarks.split(',').next().unwrap_or_default();
        db_bench::run(&Around::default(), &options, name)
    }
}

/// `db_bench` stops after a number of operations or after a time, not after whichever comes first. If both are given,
/// the mode that waits for the device gets the time and the others the operations.
fn limit_option(limit: Limit, mode: Mode, threads: usize) -> String {
    match (limit.seconds, limit.ops) {
        (Some(seconds), ops) if ops.is_none() || mode == SYNC => {
            format!("--duration={}", seconds.ceil() as u64)
        }
        (_, ops) => format!("--writes={}", (ops.unwrap_or(1) / threads as u64).max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_cannot_do_is_said() {
        let config = Config {
            threads: 2,
            ..Config::default()
        };
        for peer in &Peer::ALL[1..] {
            assert!(check(*peer, &config).unwrap_err().contains("one thread"));
        }
    }
}
