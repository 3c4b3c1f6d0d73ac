//! `forebay bench sqlite`.
//!
//! The load is SQLite's own shell, which is told one INSERT after the other by a pipe: the profile of `forebay run` knows it by its name, it is what the tests
//! of SQLite use, and it needs no driver. What a transaction takes includes a line to the shell and one back, plain and under Forebay alike.

use super::turns::{self, Around, Database, Options, Sample};
use crate::{failure::Failure, size};
use clap::{Args, ValueEnum};
use forebay_measure::{
    dialog::Dialog, processes::find_program, rounds::percentile, server::command_line,
};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

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
        let missing = "sqlite3 is not installed: apt-get install sqlite3";
        let inserts = Inserts {
            program: find_program("sqlite3").ok_or_else(|| Failure::Usage(missing.to_owned()))?,
            journal: format!("{:?}", self.journal).to_lowercase(),
            value_bytes: self.value_size,
            time: Duration::from_millis(if self.options.quick { 200 } else { 5000 }),
        };
        turns::run(inserts, &self.options)?.print(self.options.json)
    }
}

/// Rows, each inserted by a transaction of its own, for some time.
struct Inserts {
    program: PathBuf,
    journal: String,
    value_bytes: u64,
    time: Duration,
}

impl Database for Inserts {
    const NAME: &'static str = "sqlite";
    const COUNTED: &'static str = "INSERTs";
    const PLAIN: &'static str = "survives a power cut, if the disk keeps what it says it has";

    fn load(&self) -> String {
        format!(
            "sqlite3, one connection, rows of {} bytes, each a transaction, journal_mode={}, synchronous=FULL",
            self.value_bytes, self.journal
        )
    }

    fn measure(&self, around: &Around) -> Result<Sample, Failure> {
        let mut command = command_line([], &around.wrapper, &self.program);
        command
            // An error ends it: what it answers then was done.
            .args(["-batch", "-bail"])
            .arg(around.dir().join("database"))
            .envs(around.environment.iter().cloned())
            .current_dir(around.dir());
        let mut shell = Dialog::start(command, &around.dir().join("errors"))?;
        let begin = format!(
            "PRAGMA journal_mode={}; PRAGMA synchronous=FULL; CREATE TABLE t (n INTEGER PRIMARY KEY, v BLOB); SELECT 'done';",
            self.journal
        );
        shell.ask(&begin, "done")?;
        let insert = format!(
            "INSERT INTO t (v) VALUES (randomblob({})); SELECT 'done';",
            self.value_bytes
        );
        let begun = Instant::now();
        let mut times = Vec::new();
        while begun.elapsed() < self.time || times.is_empty() {
            let start = Instant::now();
            shell.ask(&insert, "done")?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        let seconds = begun.elapsed().as_secs_f64();
        shell.end()?;
        Ok(Sample {
            ops_per_s: times.len() as f64 / seconds,
            mean_us: Some(times.iter().sum::<f64>() / times.len() as f64),
            p99_us: Some(percentile(&mut times, 0.99)),
        })
    }
}
