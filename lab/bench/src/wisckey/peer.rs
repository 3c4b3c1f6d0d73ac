//! The workloads on the peers, each in a database of its own.
//!
//! RocksDB by `db_bench`. What is counted: its own time of the benchmark, and for writes also the
//! flush of the memtable that follows, after which every acknowledged byte is in a synced table
//! (or, with a log, was already durable there). Compactions that are still pending then are not
//! counted, which is in RocksDB's favour. The others are processes that take the same arguments and
//! print one JSON object ([`Line`](crate::peers::Line)): one thread; what counts is their own time,
//! a sync of what was not synced included.
//!
//! The device's counters are read when the process has ended and the file system is synced.

use super::{
    config::{Config, Limit},
    meter::{OnDevice, remove_dir},
    turns::{DISABLE_WAL, Run},
};
use crate::{
    BenchError,
    contest::{Around, Mode},
    histogram::Percentiles,
    peers::Peer,
    report::Row,
    rocksdb::db_bench::{self, Printed, SYNC},
};
use std::{fs, path::PathBuf, process::Command};

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

/// A peer's database, in a directory of its own.
pub(super) struct Database<'a> {
    run: Run<'a>,
    peer: Peer,
    pub dir: PathBuf,
}

impl<'a> Database<'a> {
    /// The peer's place in a run. Nothing is there yet.
    pub fn of(run: Run<'a>, peer: Peer) -> Self {
        let dir = run.scratch.join(peer.name());
        Self { run, peer, dir }
    }

    /// P1's Puts, in a new one, which is removed again.
    pub fn put(&self, mode: Mode) -> Result<Row, BenchError> {
        let config = self.run.config;
        let is_rocksdb = matches!(self.peer, Peer::RocksDb | Peer::RocksDbBlob);
        let write = |benchmark| self.write("put", (benchmark, KEYS_ALL), (mode, config.limit));
        let row = match config.preload_bytes {
            _ if !is_rocksdb => self.put_lines(mode)?,
            0 => write("fillrandom")?,
            // fillrandom refuses a database that is there; overwrite is the same for one. Of so
            // many keys hardly any is overwritten.
            _ => self.load().and_then(|()| write("overwrite"))?,
        };
        remove_dir(&self.dir)?;
        Ok(row)
    }

    /// The Puts of a peer that prints a [`Line`](crate::peers::Line).
    fn put_lines(&self, mode: Mode) -> Result<Row, BenchError> {
        let (config, peer, dir) = (self.run.config, self.peer, &self.dir);
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
        self.on_device("put", || {
            let line = &peer.lines(&mut command, 1)?[0];
            Ok((line.ops, line.seconds, line.latency))
        })
    }

    /// The row of writes, with what the device wrote for them.
    fn on_device(
        &self,
        workload: &str,
        work: impl FnOnce() -> Result<(u64, f64, Percentiles), BenchError>,
    ) -> Result<Row, BenchError> {
        let Run {
            config, scratch, ..
        } = self.run;
        let device = OnDevice::since_now(scratch)?;
        let (ops, seconds, latency) = work()?;
        let bytes = ops * config.pair_bytes();
        let row = config.row(workload, (ops, seconds), latency, bytes);
        Ok(row.with(device.written_for(bytes, scratch)?))
    }

    /// Fills RocksDB's data set: every key once, in random order.
    pub fn load(&self) -> Result<(), BenchError> {
        let more = ["--threads=1", "--disable_wal=1"].map(str::to_owned);
        let keys = self.run.config.data_keys();
        let loaded = self.rocksdb("filluniquerandom,flush", keys, &more);
        loaded.map(drop)
    }

    /// Overwrites RocksDB's data set at random.
    pub fn overwrite(&self, limit: Limit) -> Result<Row, BenchError> {
        let keys = self.run.config.data_keys();
        self.write("overwrite", ("overwrite", keys), (DISABLE_WAL, limit))
    }

    /// Reads RocksDB's data set at random. With `warm_up`, does so twice and counts the second
    /// time.
    pub fn read(
        &self,
        workload: &str,
        read: Read,
        ops: u64,
        warm_up: bool,
    ) -> Result<Row, BenchError> {
        let config = self.run.config;
        let (name, pairs) = match read {
            Read::Get => ("readrandom", 1),
            Read::Scan => ("seekrandom", Read::SCAN_KEYS + 1),
        };
        let benchmarks = [name; 2][usize::from(!warm_up)..].join(",");
        let more = [
            "--use_existing_db=1".to_owned(),
            format!("--threads={}", config.threads),
            format!("--reads={}", (ops / config.threads as u64).max(1)),
            format!("--seek_nexts={}", Read::SCAN_KEYS),
        ];
        let printed = self.rocksdb(&benchmarks, config.data_keys(), &more)?;
        let done = (printed.ops, printed.seconds);
        let bytes = printed.ops * pairs * config.pair_bytes();
        Ok(config.row(workload, done, printed.latency(), bytes))
    }

    /// Runs one write benchmark on so many keys, and the flush that belongs to it.
    fn write(
        &self,
        workload: &str,
        (benchmark, keys): (&str, u64),
        (mode, limit): (Mode, Limit),
    ) -> Result<Row, BenchError> {
        let threads = self.run.config.threads;
        let is_there = u8::from(benchmark == "overwrite");
        let mut options = vec![
            format!("--use_existing_db={is_there}"),
            format!("--threads={threads}"),
            limit_option(limit, mode, threads),
        ];
        options.extend(mode.settings.iter().map(|&setting| setting.to_owned()));
        self.on_device(workload, || {
            let printed = self.rocksdb(&format!("{benchmark},flush"), keys, &options)?;
            let seconds = printed.seconds + printed.flush_seconds;
            Ok((printed.ops, seconds, printed.latency()))
        })
    }

    /// Runs db_bench: what the first of `benchmarks` printed.
    fn rocksdb(&self, benchmarks: &str, keys: u64, more: &[String]) -> Result<Printed, BenchError> {
        let config = self.run.config;
        let numbers = [
            ("key_size", Config::KEY_BYTES as u64),
            ("value_size", config.value_bytes as u64),
            ("cache_size", config.cache_bytes),
            ("num", keys),
            ("histogram", config.latencies.into()),
        ];
        let mut options = db_bench::options(&self.dir, benchmarks, &numbers);
        if self.peer == Peer::RocksDbBlob {
            // Ours keeps values in its cache, too.
            let blobs = ["--enable_blob_files=1", "--use_blob_cache=1"];
            options.extend(blobs.map(str::to_owned));
        }
        options.extend_from_slice(more);
        let name = benchmarks.split(',').next().unwrap_or_default();
        db_bench::run(&Around::default(), &options, name)
    }
}

/// `db_bench` stops after a number of operations or after a time, not after whichever comes first.
/// If both are given, the mode that waits for the device gets the time and the others the
/// operations.
fn limit_option(limit: Limit, mode: Mode, threads: usize) -> String {
    match (limit.seconds, limit.ops) {
        (Some(seconds), ops) if ops.is_none() || mode == SYNC => {
            format!("--duration={}", seconds.ceil() as u64)
        }
        (_, ops) => format!("--writes={}", (ops.unwrap_or(1) / threads as u64).max(1)),
    }
}
