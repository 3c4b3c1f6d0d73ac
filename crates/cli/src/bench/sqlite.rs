//! `forebay bench sqlite`.
//!
//! The load is SQLite's own shell, which is told one INSERT after the other by a pipe: the profile of `forebay run` knows it by its name, it is what the tests
//! of SQLite use, and it needs no driver. What a transaction takes includes a line to the shell and one back, plain and under Forebay alike.

use super::turns::{self, Around, Database, Options, Sample};
use crate::{failure::Failure, size};
use clap::{Args, ValueEnum};
use forebay_measure::{
    MeasureError,
    processes::{Process, find_program},
    rounds::percentile,
    server::command_line,
};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Stdio},
    time::{Duration, Instant},
};

/// Measure SQLite with synchronous=FULL: plain, and under forebay run
#[derive(Args)]
#[command(
    long_about = "Has SQLite's shell (Debian: sqlite3) insert rows, each of them a transaction that is durable when it is done (synchronous=FULL): plain, \
                  and under forebay run. The two take turns, round after round, each on fresh files; figures are medians of the rounds. To see where a \
                  pool pays, measure it on the disk of the data and on another: with --pool-disk for each, or --pool.",
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
        let mut shell = Shell::start(&self.program, around)?;
        shell.ask(&format!(
            "PRAGMA journal_mode={}; PRAGMA synchronous=FULL; CREATE TABLE t (n INTEGER PRIMARY KEY, v BLOB); SELECT 'done';",
            self.journal
        ))?;
        let insert = format!(
            "INSERT INTO t (v) VALUES (randomblob({})); SELECT 'done';",
            self.value_bytes
        );
        let begun = Instant::now();
        let mut times = Vec::new();
        while begun.elapsed() < self.time || times.is_empty() {
            let start = Instant::now();
            shell.ask(&insert)?;
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

/// SQLite's shell on a database of its own.
struct Shell {
    process: Process,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Where what it complains of is.
    errors: PathBuf,
}

impl Shell {
    fn start(program: &Path, around: &Around) -> Result<Self, Failure> {
        let errors = around.dir().join("errors");
        let file = File::create(&errors).map_err(Failure::io("making", errors.display()))?;
        let mut command = command_line([], &around.wrapper, program);
        command
            // An error ends it: what it answers then was done.
            .args(["-batch", "-bail"])
            .arg(around.dir().join("database"))
            .envs(around.environment.iter().cloned())
            .current_dir(around.dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file);
        let mut process = Process::spawn(&mut command)?;
        let (input, output) = (process.child().stdin.take(), process.child().stdout.take());
        let output = output.ok_or_else(|| Failure::Failed("sqlite3 has no output".to_owned()))?;
        Ok(Self {
            process,
            input,
            output: BufReader::new(output),
            errors,
        })
    }

    /// Says a line, and waits until the shell says that it is done.
    fn ask(&mut self, line: &str) -> Result<(), Failure> {
        let said = match &mut self.input {
            Some(input) => writeln!(input, "{line}").is_ok(),
            None => false,
        };
        let mut answer = String::new();
        while said && answer != "done\n" {
            answer.clear();
            if !matches!(self.output.read_line(&mut answer), Ok(1..)) {
                break;
            }
        }
        match answer == "done\n" {
            true => Ok(()),
            false => Err(self.failed()),
        }
    }

    /// Has it end, as it does when it is told nothing more.
    fn end(mut self) -> Result<(), Failure> {
        const PATIENCE: Duration = Duration::from_secs(120);
        drop(self.input.take());
        match self.process.wait(PATIENCE)?.success() {
            true => Ok(()),
            false => Err(self.failed()),
        }
    }

    fn failed(&self) -> Failure {
        let said = fs::read_to_string(&self.errors).unwrap_or_default();
        MeasureError::Child(format!("(sqlite3) ended and said: {}", said.trim())).into()
    }
}
