//! `forebay-lab rocksdb`.

use crate::contest::{Common, note};
use clap::Args;
use forebay_bench::rocksdb::{self, Config, MODES};
use forebay_cli::{failure::Failure, size};

/// Measure RocksDB: its write-ahead log in its modes, and synced under forebay
#[derive(Args)]
#[command(
    long_about = "Runs db_bench's fillrandom (Debian's rocksdb-tools) in each mode: a log that is synced at each Put (sync), one that is \
                  not (no_sync), none (no_wal); synced with libeatmydata, which makes fsync do nothing; and synced under forebay run. Modes take \
                  turns, round after round; figures are medians of the rounds.",
    mut_arg("modes", |modes| modes.default_value("sync,no_sync,no_wal,eatmydata,forebay").help("Modes: sync, no_sync, no_wal, eatmydata, forebay, notify (forebay with an agent instead of the library)")),
    after_long_help = "Examples:\n  \
        forebay-lab rocksdb\n  \
        forebay-lab rocksdb --sizes 100 --modes sync,no_sync,forebay --rounds 7 --json\n  \
        forebay-lab rocksdb --device hdd-7200 --pool-disk /fast --modes sync,eatmydata,forebay\n  \
        forebay-lab rocksdb --wal-device sata-ssd,nvme,nvram --threads 1,4,10 --modes sync,no_wal,forebay"
)]
pub struct Rocksdb {
    /// Bytes of a value
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size::parse_positive, default_value = "100,4k")]
    sizes: Vec<u64>,
    /// Numbers of writing threads
    #[arg(long, value_name = "T,…", value_delimiter = ',', default_value = "1")]
    threads: Vec<u64>,
    /// Put the log on these emulated devices, one after the other: sata-ssd, nvme, nvram, hdd-7200,
    /// … (forebay-lab run --device)
    #[arg(long, value_name = "DEVICE,…", value_delimiter = ',')]
    wal_device: Vec<String>,
    /// Puts of a round at most; in mode sync, seconds count instead [default: 1000000]
    #[arg(long, value_name = "N")]
    puts: Option<u64>,
    /// Bytes of keys and values of a round at most [default: 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive)]
    bytes: Option<u64>,
    /// Seconds of a round in every mode [default: 4, and in mode sync only]
    #[arg(long, value_name = "N", conflicts_with_all = ["puts", "bytes"])]
    seconds: Option<u64>,
    #[command(flatten)]
    common: Common,
}

impl Rocksdb {
    pub fn run(self) -> Result<(), Failure> {
        let (puts, seconds) = match (self.seconds, self.common.options.form.quick) {
            (Some(seconds), _) => (10_000_000, seconds),
            (None, true) => (2000, 1),
            (None, false) => (1_000_000, 4),
        };
        let bytes = self.seconds.map_or(1 << 30, |_| u64::MAX);
        let config = Config {
            setup: self.common.setup(&MODES)?,
            sizes: self.sizes,
            threads: self.threads,
            wal_devices: self.wal_device,
            bytes: self.bytes.unwrap_or(bytes),
            puts_max: self.puts.unwrap_or(puts),
            seconds,
            is_timed: self.seconds.is_some(),
        };
        self.common.print(rocksdb::run(&config, &note))
    }
}
