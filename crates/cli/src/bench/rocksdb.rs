//! `forebay bench rocksdb`.

use super::default_dir;
use crate::{failure::Failure, output, size};
use clap::Args;
use forebay_bench::{
    device::Effort,
    report,
    rocksdb::{self, Config, Mode},
    scratch::PoolSource,
};
use std::path::PathBuf;

/// Measure RocksDB: its write-ahead log in its modes, and synced under forebay
#[derive(Args)]
#[command(
    long_about = "Runs db_bench's fillrandom (Debian's rocksdb-tools) in each mode: a log that is synced at each Put (sync), one that is \
                  not (no_sync), none (no_wal); synced with libeatmydata, which makes fsync do nothing; and synced under forebay run. Modes take \
                  turns, round after round; figures are medians of the rounds.",
    after_long_help = "Examples:\n  \
        forebay bench rocksdb\n  \
        forebay bench rocksdb --sizes 100 --modes sync,no_sync,forebay --rounds 7 --json\n  \
        forebay bench rocksdb --wal-device sata-ssd,nvme,nvram --threads 1,4,10 --modes sync,no_wal,forebay"
)]
pub struct Rocksdb {
    /// Modes: sync, no_sync, no_wal, eatmydata, forebay
    #[arg(
        long,
        value_name = "MODE,…",
        value_delimiter = ',',
        default_value = "sync,no_sync,no_wal,eatmydata,forebay"
    )]
    modes: Vec<Mode>,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size::parse_positive, default_value = "100,4k")]
    sizes: Vec<u64>,
    /// Numbers of writing threads
    #[arg(long, value_name = "T,…", value_delimiter = ',', default_value = "1")]
    threads: Vec<u64>,
    /// Put the log on these emulated devices, one after the other: sata-ssd, nvme, nvram, hdd-7200, … (forebay run --device)
    #[arg(long, value_name = "DEVICE,…", value_delimiter = ',')]
    wal_device: Vec<String>,
    /// Puts of a round at most; in mode sync, seconds count instead [default: 1000000]
    #[arg(long, value_name = "N")]
    puts: Option<u64>,
    /// Bytes of keys and values of a round at most [default: 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive)]
    bytes: Option<u64>,
    /// Rounds [default: 3]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Where the databases are made, in a directory that is removed again [default: the one for temporary files, if that is on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Use this pool instead of emulated ones
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,
    /// Bytes of a segment of an emulated pool
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "8MiB", conflicts_with = "pool")]
    buffer_size: u64,
    /// Segments that the database gets
    #[arg(long, value_name = "N", default_value_t = 2)]
    buffers: u16,
    /// Toy size: shows that it runs, not how fast
    #[arg(long)]
    quick: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Rocksdb {
    pub fn run(self) -> Result<(), Failure> {
        let (rounds, puts, seconds_synced) = if self.quick {
            (1, 2000, 1)
        } else {
            (3, 1_000_000, 4)
        };
        let config = Config {
            dir: self.dir.unwrap_or_else(default_dir),
            modes: self.modes,
            sizes: self.sizes,
            threads: self.threads,
            wal_devices: self.wal_device,
            bytes: self.bytes.unwrap_or(1 << 30),
            puts_max: self.puts.unwrap_or(puts),
            seconds_synced,
            rounds: self.rounds.unwrap_or(rounds),
            pool: self.pool.map_or(PoolSource::Emulated, PoolSource::At),
            buffer_bytes: self.buffer_size,
            buffers: self.buffers,
            forebay: super::own_program()?,
            effort: if self.quick {
                Effort::QUICK
            } else {
                Effort::SHORT
            },
        };
        let measured = rocksdb::run(&config, &|note| eprintln!("{note}"))?;
        output::report(self.json, &measured, report::rocksdb)
    }
}
