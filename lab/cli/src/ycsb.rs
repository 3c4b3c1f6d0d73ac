//! `forebay-lab ycsb`.

use crate::{
    failed,
    measuring::{RunForm, default_dir, own_program},
    positive,
    progress::Progress,
};
use clap::Args;
use forebay_bench::{
    device::Effort,
    peers::Peer,
    wisckey::Limit,
    ycsb::{self, CoreWorkload, Distribution, OurVariant, SyncMode, YcsbConfig},
};
use forebay_cli::{failure::Failure, output, size};
use std::path::PathBuf;

/// Measure the store under YCSB's core workloads, beside its peers
#[derive(Args)]
#[command(
    long_about = "Runs YCSB's core workloads A to F on the store in its variants, and if asked for on RocksDB, fjall, \
                  redb and LMDB: the same keys, choices and driver for all of them, a process for each turn. \
                  Contestants take turns, round after round; a row is the median round of one workload. The clock \
                  stops when all that was written is durable.\n\n\
                  A: half reads, half updates. B: 95 % reads, 5 % updates. C: reads. D: 95 % reads of the newest, 5 % \
                  inserts. E: 95 % scans of 1 to 100 records, 5 % inserts. F: half reads, half \
                  read-modify-writes. Records are chosen by a Zipfian distribution, in D the latest.",
    after_long_help = "Examples:\n  \
        forebay-lab ycsb --peers --json > report.json\n  \
        forebay-lab ycsb --peers --threads 1,4 --seconds 10 --rounds 3\n  \
        forebay-lab ycsb --peers=rocksdb_blob,lmdb --variants double --modes synced --workloads A,F\n  \
        forebay-lab ycsb --peers --records 10000000 --workloads C --distribution uniform"
)]
pub struct Ycsb {
    /// Where to make the stores, in a directory that is removed again [default: the one for
    /// temporary files, if that is on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Use this pool instead of those that are emulated in memory; its segments are the buffers
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,
    /// Variants of the store: single, double, buffers=N (the pool in memory), disk (double, the
    /// pool on the disk of the data), fsync, nosync (without a pool)
    #[arg(
        long,
        value_name = "VARIANT,…",
        value_delimiter = ',',
        default_value = "single,double,disk,fsync,nosync"
    )]
    variants: Vec<OurVariant>,
    /// Run peers too: all there are, or those named: rocksdb, rocksdb_blob, fjall, redb, lmdb
    #[arg(long, value_name = "NAME,…", num_args = 0..=1, require_equals = true, value_delimiter = ',', default_missing_value = "rocksdb,rocksdb_blob,fjall,redb,lmdb")]
    peers: Option<Vec<Peer>>,
    /// Whether each write is durable when it returns: synced, unsynced, or both
    #[arg(long, value_name = "MODE,…", value_delimiter = ',', value_parser = mode, default_value = "synced,unsynced")]
    modes: Vec<SyncMode>,
    /// Workloads, in this order, all on one load
    #[arg(
        long,
        value_name = "A,…",
        value_delimiter = ',',
        default_value = "A,B,C,F,D,E"
    )]
    workloads: Vec<CoreWorkload>,
    /// Choose records so in all workloads: zipfian, latest, uniform
    #[arg(long, value_name = "NAME")]
    distribution: Option<Distribution>,
    /// Records that are loaded before the clock starts [default: 1000000]
    #[arg(long, value_name = "N", value_parser = positive::<u64>)]
    records: Option<u64>,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "1KiB")]
    value_size: u64,
    /// Stop a workload after so many operations [default: 1000000]
    #[arg(long, value_name = "N", value_parser = positive::<u64>)]
    ops: Option<u64>,
    /// Stop a workload after so many seconds [default: 20 unless --ops is given]
    #[arg(long, value_name = "S", value_parser = positive::<f64>)]
    seconds: Option<f64>,
    /// Threads; several numbers give rows for each
    #[arg(long, value_name = "T,…", value_delimiter = ',', value_parser = positive::<usize>, default_value = "1")]
    threads: Vec<usize>,
    /// Memory of each store's cache; LMDB's is the kernel's
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "128MiB")]
    cache: u64,
    /// Bytes of one buffer of ours
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "8MiB")]
    buffer_size: u64,
    /// Rounds [default: 3]
    #[arg(long, value_name = "N", value_parser = positive::<usize>)]
    rounds: Option<usize>,
    #[command(flatten)]
    form: RunForm,
}

/// Records and operations, if nothing else is said, and at toy size.
const RECORDS: u64 = 1_000_000;
const TOY_RECORDS: u64 = 500;
/// Seconds of a workload, if nothing else is said: what is slow ends, too.
const SECONDS: f64 = 20.0;

fn mode(name: &str) -> Result<SyncMode, String> {
    let mut all = [SyncMode::Synced, SyncMode::Unsynced].into_iter();
    let found = all.find(|mode| mode.name() == name);
    found.ok_or_else(|| format!("unknown mode {name:?}: synced or unsynced"))
}

impl Ycsb {
    pub fn run(self) -> Result<(), Failure> {
        let config = self.config()?;
        let progress = Progress::new();
        let measured = ycsb::run(&config, &|what| progress.note(what)).map_err(failed)?;
        drop(progress);
        output::report(self.form.json, &measured, ycsb::table)
    }

    fn config(&self) -> Result<YcsbConfig, Failure> {
        let quick = self.form.quick;
        let usual = if quick { TOY_RECORDS } else { RECORDS };
        let limit = match (self.ops, self.seconds) {
            (None, None) => Limit {
                ops: Some(usual),
                seconds: Some(SECONDS),
            },
            (ops, seconds) => Limit { ops, seconds },
        };
        Ok(YcsbConfig {
            dir: self.dir.clone().unwrap_or_else(default_dir),
            pool: self.pool.clone().into(),
            variants: self.variants.clone(),
            peers: self.peers.clone().unwrap_or_default(),
            modes: self.modes.clone(),
            workloads: self.workloads.clone(),
            distribution: self.distribution,
            records: self.records.unwrap_or(usual),
            value_bytes: usize::try_from(self.value_size).unwrap_or(usize::MAX),
            limit,
            threads: self.threads.clone(),
            cache_bytes: self.cache,
            buffer_bytes: self.buffer_size,
            rounds: self.rounds.unwrap_or(if quick { 1 } else { 3 }),
            effort: if quick { Effort::QUICK } else { Effort::FULL },
            program: own_program()?,
        })
    }
}
