//! `forebay bench rocksdb`.

use super::report::{Report, number};
use crate::{failure::Failure, measuring::Options, size};
use clap::Args;
use forebay_databases::rocksdb::{self, Config, db_bench::SYNC};

/// Measure RocksDB with a write-ahead log that is synced at each Put: plain, and under forebay run
#[derive(Args)]
#[command(
    long_about = "Runs db_bench's fillrandom (Debian: rocksdb-tools) with a write-ahead log that is synced at each Put: plain, under forebay \
                  run, and, where libeatmydata is installed, with syncs that do nothing. They take turns, round after round, each on fresh \
                  files; figures are medians of the rounds.",
    after_long_help = "Examples:\n  \
        forebay bench rocksdb --dir /var/lib\n  \
        forebay bench rocksdb --pool-disk /fast --threads 8 --json"
)]
pub struct Rocksdb {
    /// Writing threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "512")]
    value_size: u64,
    #[command(flatten)]
    options: Options,
}

impl Rocksdb {
    pub fn run(self) -> Result<(), Failure> {
        let config = Config {
            setup: self.options.setup(SYNC.settings)?,
            sizes: vec![self.value_size],
            threads: vec![self.threads.into()],
            wal_devices: Vec::new(),
            bytes: u64::MAX,
            puts_max: 10_000_000,
            seconds: if self.options.quick { 1 } else { 5 },
            is_timed: true,
        };
        let measured = rocksdb::run(&config, &|note| eprintln!("{note}"))?;
        let load = format!(
            "db_bench fillrandom, {}, values of {} bytes, each Put synced",
            number(self.threads as usize, "thread"),
            self.value_size
        );
        Report::of(load, &config.setup, measured)?.print(self.options.json)
    }
}
