//! `forebay bench sqlite`.

use super::report::Report;
use crate::{failure::Failure, measuring::Options, size};
use clap::{Args, ValueEnum};
use forebay_databases::sqlite::{self, Config, SYNCED};

/// Measure SQLite with synchronous=FULL: plain, and under forebay run
#[derive(Args)]
#[command(
    long_about = "Has SQLite's shell (Debian: sqlite3) insert rows, each of them a transaction that is durable when it is done \
                  (synchronous=FULL): plain, under forebay run, and, where libeatmydata is installed, with syncs that do nothing. They take \
                  turns, round after round, each on fresh files; figures are medians of the rounds. To see where a pool pays, measure it on the \
                  disk of the data and on another: with --pool-disk for each, or --pool.",
    after_long_help = "Examples:\n  \
        forebay bench sqlite --dir /var/lib\n  \
        forebay bench sqlite --dir /data --pool-disk /data --pool-disk /fast\n  \
        forebay bench sqlite --pool /fast/forebay.pool --journal delete --json"
)]
pub struct Sqlite {
    /// How SQLite keeps a transaction whole
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Journal::Wal)]
    journal: Journal,
    /// Bytes of a row
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "512")]
    value_size: u64,
    #[command(flatten)]
    options: Options,
}

/// SQLite's `journal_mode`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Journal {
    /// A write-ahead log
    Wal,
    /// A rollback journal that is deleted at each commit: SQLite's default
    Delete,
    /// One that is truncated
    Truncate,
    /// One that is overwritten
    Persist,
}

impl Sqlite {
    pub fn run(self) -> Result<(), Failure> {
        let journal = format!("{:?}", self.journal).to_lowercase();
        let load = format!(
            "sqlite3, one connection, rows of {} bytes, each a transaction, journal_mode={journal}, synchronous=FULL",
            self.value_size
        );
        let config = Config {
            setup: self.options.setup(SYNCED)?,
            journals: vec![journal],
            value_bytes: self.value_size,
            seconds: if self.options.quick { 1 } else { 5 },
        };
        let measured = sqlite::run(&config, &|note| eprintln!("{note}"))?;
        Report::of(load, &config.setup, measured)?.print(self.options.json)
    }
}
