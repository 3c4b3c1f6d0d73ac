//! `forebay-lab wisckey`.

use crate::{
    Slowed, failed,
    measuring::{RunForm, default_dir, own_program},
    positive,
    progress::Progress,
};
use clap::Args;
use forebay_bench::{
    device::Effort,
    peers::Peer,
    wisckey::{self, Config, Limit, Workload},
};
use forebay_cli::{failure::Failure, output, size};
use forebay_store::Durability;
use std::path::PathBuf;

/// Measure the store in its variants, beside its peers
#[derive(Args)]
#[command(
    long_about = "Runs the workload of the paper that the store is built after: Puts of new 8-byte keys in random \
                  order, in every variant, and if asked for on RocksDB (db_bench of Debian's rocksdb-tools) and other stores. \
                  Contestants take turns, round after round; a row is the median round. The clock stops when the \
                  data is on the disk. The device's own sequential bandwidth is measured in the same run.\n\n\
                  Other workloads: --overwrite, --reads, --reopen, --stalls, --queue, --scans; --full runs the first three at full size (half an \
                  hour, 20 GB of disk).",
    after_long_help = "Examples:\n  \
        forebay-lab wisckey                               the paper's 262,144 Puts of 4 KiB\n  \
        forebay-lab wisckey --peers --json > report.json\n  \
        forebay-lab wisckey --value-size 100,4k --seconds 5 --variants single,double,buffers=4\n  \
        forebay-lab wisckey --threads 1,2,4,8,16 --value-size 100,4k --variants double --peers=rocksdb --seconds 5\n  \
        forebay-lab wisckey --no-puts --reads --peers --preload 1GiB\n  \
        forebay-lab wisckey --no-puts --reads --one-by-one --peers=rocksdb_blob --preload 24GiB --read-ops 1000000\n  \
        forebay-lab wisckey --full --peers --json"
)]
pub struct Wisckey {
    /// Where to make the stores, in a directory that is removed again [default: the one for
    /// temporary files, if that is on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Use this pool; its segments are the buffers
    #[arg(long, value_name = "PATH", conflicts_with = "emulated")]
    pool: Option<PathBuf>,
    /// Use pools emulated in ordinary memory (this is the default)
    #[arg(long)]
    emulated: bool,
    #[command(flatten)]
    slowed: Slowed,
    /// Variants: fsync, nosync, single, double, buffers=N
    #[arg(
        long,
        value_name = "VARIANT,…",
        value_delimiter = ',',
        default_value = "fsync,nosync,single,double"
    )]
    variants: Vec<Durability>,
    /// Bytes of a value; several sizes give rows for each
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size::parse, default_value = "4k")]
    value_size: Vec<u64>,
    /// Writing threads; several numbers give rows for each (Puts)
    #[arg(long, value_name = "T,…", value_delimiter = ',', value_parser = positive::<usize>, default_value = "1")]
    threads: Vec<usize>,
    /// Stop a row after so many seconds
    #[arg(long, value_name = "S", value_parser = positive::<f64>)]
    seconds: Option<f64>,
    /// Stop a row after so many operations [default: 262144 unless --seconds is given]
    #[arg(long, value_name = "N", value_parser = positive::<u64>)]
    ops: Option<u64>,
    /// Bytes of one buffer
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "8MiB")]
    buffer_size: u64,
    /// Bytes in the store before the clock starts; the data set of --reads, --overwrite and
    /// --reopen [default: none, and 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    preload: Option<u64>,
    /// Memory of the block cache, ours and the peers'
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "128MiB")]
    cache: u64,
    /// Rounds
    #[arg(long, value_name = "N", value_parser = positive::<usize>)]
    rounds: Option<usize>,
    /// Run peers too: all there are, or those named: rocksdb (all workloads), rocksdb_blob (Puts
    /// and reads), leveldb, lmdb, fjall, redb (Puts)
    #[arg(long, value_name = "NAME,…", num_args = 0..=1, require_equals = true, value_delimiter = ',', default_missing_value = ALL_PEERS)]
    peers: Option<Vec<Peer>>,
    /// Leave the Puts out
    #[arg(long)]
    no_puts: bool,
    /// Random gets and scans of 100 keys
    #[arg(long)]
    reads: bool,
    /// Gets of a row of --reads; a twentieth of it are scans [default: 100000]
    #[arg(long, value_name = "N", value_parser = positive::<u64>, requires = "reads")]
    read_ops: Option<u64>,
    /// Have --reads load, read and remove one store after the other, where there is no room for
    /// several at a time
    #[arg(long, requires = "reads")]
    one_by_one: bool,
    /// Overwrite a data set three times over, with garbage collection
    #[arg(long)]
    overwrite: bool,
    /// Reopen after SIGKILL
    #[arg(long)]
    reopen: bool,
    /// The longest put: new keys beside two busy threads, 50 million or --ops
    #[arg(long)]
    stalls: bool,
    /// A queue of which a million keys are taken, and a store of which as many are all deleted, or
    /// --ops
    #[arg(long)]
    queue: bool,
    /// Ten million new keys, or --ops, alone and beside short scans, twenty a second
    #[arg(long)]
    scans: bool,
    /// Everything at full size: sustained Puts over 8 GB, 100-byte values, and the other workloads
    #[arg(long, conflicts_with_all = ["quick", "seconds", "ops", "value_size", "preload", "no_puts"])]
    full: bool,
    /// Do not take the latency of each operation
    #[arg(long)]
    no_latencies: bool,
    #[command(flatten)]
    form: RunForm,
}

/// The data set of reads, overwriting and reopening, if nothing else is said.
const DATA_BYTES: u64 = 1 << 30;
/// What `--peers` alone means.
const ALL_PEERS: &str = "rocksdb,rocksdb_blob,leveldb,lmdb,fjall,redb";
/// Puts of --stalls and --scans, and pops (and keys to delete) of --queue, if nothing else is said;
/// and at toy size.
const STALL_PUTS: u64 = 50_000_000;
const QUEUE_POPS: u64 = 1_000_000;
const SCANNED_PUTS: u64 = 10_000_000;
const TOY_OPS: u64 = 20_000;
/// The same at toy size.
const TOY_BYTES: u64 = 4 << 20;

impl Wisckey {
    pub fn run(self) -> Result<(), Failure> {
        let configs = if self.full {
            self.full_configs()?
        } else {
            self.configs()?
        };
        let progress = Progress::new();
        let measured = wisckey::run(&configs, &|what| progress.note(what)).map_err(failed)?;
        drop(progress);
        output::report(self.form.json, &measured, wisckey::table)
    }

    /// What all configurations have in common.
    fn base(&self) -> Result<Config, Failure> {
        Ok(Config {
            dir: self.dir.clone().unwrap_or_else(default_dir),
            pool: self.pool.clone().into(),
            profile: self.slowed.profile,
            variants: self.variants.clone(),
            threads: self.threads.first().copied().unwrap_or(1),
            buffer_bytes: self.buffer_size,
            cache_bytes: self.cache,
            rounds: self.rounds.unwrap_or(if self.form.quick { 1 } else { 3 }),
            latencies: !self.no_latencies,
            peers: self.peers.clone().unwrap_or_default(),
            effort: if self.form.quick {
                Effort::QUICK
            } else {
                Effort::FULL
            },
            program: own_program()?,
            ..Config::default()
        })
    }

    /// The configurations that the options ask for: the Puts of each value size, and the other
    /// workloads.
    fn configs(&self) -> Result<Vec<Config>, Failure> {
        let (base, quick) = (self.base()?, self.form.quick);
        let limit = match (self.ops, self.seconds) {
            (None, None) if quick => Limit::of_ops(2000),
            (None, None) => Limit::PAPER,
            (ops, seconds) => Limit { ops, seconds },
        };
        let toy_or_data = if quick { TOY_BYTES } else { DATA_BYTES };
        let mut configs = Vec::new();
        for &value_bytes in &self.value_size {
            let sized = Config {
                value_bytes: usize::try_from(value_bytes).unwrap_or(usize::MAX),
                limit,
                ..base.clone()
            };
            if !self.no_puts {
                configs.extend(self.threads.iter().map(|&threads| Config {
                    threads,
                    preload_bytes: self.preload.unwrap_or(0),
                    ..sized.clone()
                }));
            }
            let others = [
                (self.overwrite, Workload::Overwrite),
                (self.reads, Workload::Reads),
                (self.reopen, Workload::Reopen),
            ];
            let wanted = others.into_iter().filter(|(is_wanted, _)| *is_wanted);
            configs.extend(wanted.map(|(_, workload)| {
                Config {
                    workload,
                    preload_bytes: self.preload.unwrap_or(toy_or_data),
                    cache_bytes: if quick {
                        TOY_BYTES / 2
                    } else {
                        base.cache_bytes
                    },
                    read_ops: self
                        .read_ops
                        .unwrap_or(if quick { 500 } else { base.read_ops }),
                    is_one_by_one: self.one_by_one,
                    ..sized.clone()
                }
            }));
        }
        let counted = [
            (self.stalls, Workload::Stalls, STALL_PUTS),
            (self.queue, Workload::Queue, QUEUE_POPS),
            (self.scans, Workload::Scans, SCANNED_PUTS),
        ];
        let wanted = counted.into_iter().filter(|(is_wanted, ..)| *is_wanted);
        configs.extend(wanted.map(|(_, workload, ops)| Config {
            workload,
            limit: Limit::of_ops(self.ops.unwrap_or(if quick { TOY_OPS } else { ops })),
            rounds: self.rounds.unwrap_or(1),
            ..base.clone()
        }));
        if configs.is_empty() {
            return Err(Failure::Usage(
                "nothing to measure: with --no-puts, ask for --reads, --overwrite, --reopen, --stalls, --queue or --scans"
                    .to_owned(),
            ));
        }
        Ok(configs)
    }

    /// Everything, at the sizes that the project's aims are stated for.
    fn full_configs(&self) -> Result<Vec<Config>, Failure> {
        const SUSTAINED_BYTES: u64 = 8 << 30;
        let base = self.base()?;
        let limit = |ops, seconds| Limit {
            ops: Some(ops),
            seconds: Some(seconds),
        };
        let peers = base.peers.iter().copied();
        let rocksdb = peers.filter(|peer| *peer == Peer::RocksDb);
        // The last variant, as the other workloads have it: what more threads cost is the same for
        // all that have a pool.
        let threads = [1, 2, 4, 8, 16].into_iter().flat_map(|threads| {
            [100, 4096].map(|value_bytes| Config {
                run: "threads".to_owned(),
                value_bytes,
                threads,
                variants: vec![base.main_variant()],
                peers: rocksdb.clone().collect(),
                limit: limit(2_000_000, 5.0),
                ..base.clone()
            })
        });
        let threads: Vec<Config> = threads.collect();
        let mut configs = vec![
            Config {
                run: "sustained".to_owned(),
                limit: limit(SUSTAINED_BYTES / 4096, 60.0),
                ..base.clone()
            },
            Config {
                run: "short".to_owned(),
                limit: limit(262_144, 60.0),
                ..base.clone()
            },
            Config {
                run: "small".to_owned(),
                value_bytes: 100,
                limit: limit(10_000_000, 20.0),
                ..base.clone()
            },
            Config {
                workload: Workload::Overwrite,
                preload_bytes: DATA_BYTES,
                ..base.clone()
            },
            Config {
                workload: Workload::Reads,
                preload_bytes: DATA_BYTES,
                ..base.clone()
            },
            Config {
                workload: Workload::Reopen,
                preload_bytes: SUSTAINED_BYTES,
                ..base.clone()
            },
        ];
        configs.extend(threads);
        Ok(configs)
    }
}
