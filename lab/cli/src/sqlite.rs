//! `forebay-lab sqlite`.

use crate::contest::{Common, note};
use clap::Args;
use forebay_bench::sqlite::{self, Config, MODES};
use forebay_cli::{failure::Failure, size};

/// Measure SQLite: synced, not synced, with libeatmydata, and under forebay
#[derive(Args)]
#[command(
    long_about = "Has SQLite's shell (Debian: sqlite3) insert rows, each of them a transaction, in each mode: durable when it is done (plain: \
                  synchronous=FULL); never synced (no_sync: synchronous=OFF); synced, with libeatmydata, which makes fsync do nothing; and \
                  synced under forebay run. Modes take turns, round after round, each on a fresh database; figures are medians of the rounds.",
    mut_arg("modes", |modes| modes.default_value("plain,no_sync,eatmydata,forebay").help("Modes: plain, no_sync, eatmydata, forebay, notify (forebay with an agent instead of the library)")),
    after_long_help = "Examples:\n  \
        forebay-lab sqlite\n  \
        forebay-lab sqlite --journals wal,delete --rounds 5 --json\n  \
        forebay-lab sqlite --device hdd-7200 --pool-disk /fast --modes plain,eatmydata,forebay"
)]
pub struct Sqlite {
    /// How SQLite keeps a transaction whole: its journal_mode
    #[arg(
        long,
        value_name = "MODE,…",
        value_delimiter = ',',
        default_value = "wal",
        value_parser = ["wal", "delete", "truncate", "persist"]
    )]
    journals: Vec<String>,
    /// Bytes of a row
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "512")]
    value_size: u64,
    /// Seconds of a round [default: 5]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    #[command(flatten)]
    common: Common,
}

impl Sqlite {
    pub fn run(self) -> Result<(), Failure> {
        let config = Config {
            setup: self.common.setup(&MODES)?,
            journals: self.journals,
            value_bytes: self.value_size,
            seconds: self.common.seconds(self.seconds, 5),
        };
        self.common.print(sqlite::run(&config, &note))
    }
}
