//! The benchmarks of SQL servers: `forebay bench mariadb`, `forebay bench postgres`.

use super::default_dir;
use crate::{failure::Failure, output, size};
use clap::Args;
use forebay_bench::{
    device::Effort,
    mariadb::{self, MariaDb},
    postgres::{self, Postgres},
    report,
    scratch::PoolSource,
    sql::{self, Config, Database, Mode},
};
use serde::Serialize;
use std::path::PathBuf;

/// Measure MariaDB with a binary log: synced, not synced, with libeatmydata, and under forebay
#[derive(Args)]
#[command(
    long_about = "Runs sysbench's oltp_write_only against a MariaDB server with a binary log that was started for the purpose and is reached by a \
                  Unix socket only, in each mode: redo log and binary log synced for each transaction (plain); neither synced (no_sync); synced, with \
                  libeatmydata, which makes fsync do nothing; and synced under forebay run. Modes take turns, round after round, each on a fresh copy \
                  of one data directory; figures are medians of the rounds.",
    after_long_help = "Examples:\n  \
        forebay bench mariadb\n  \
        forebay bench mariadb --clients 1,8,16 --rounds 5 --json\n  \
        forebay bench mariadb --device hdd-7200 --clients 8\n  \
        forebay bench mariadb --device /srv/scratch=hdd-7200 --modes plain,forebay"
)]
pub struct Mariadb {
    #[command(flatten)]
    options: Options,
}

/// Measure PostgreSQL: synced, not synced, with libeatmydata, and under forebay
#[derive(Args)]
#[command(
    long_about = "Runs pgbench's simple update (pgbench -N) against a PostgreSQL server that was started for the purpose and is reached by a Unix \
                  socket only, in each mode: the write-ahead log synced for each transaction (plain); synced up to half a second later \
                  (no_sync: synchronous_commit=off); synced, with libeatmydata, which makes fsync do nothing; and synced under forebay run. Modes \
                  take turns, round after round, each on a fresh copy of one data directory; figures are medians of the rounds.\n\n\
                  PostgreSQL does not run as root. Where root measures it, server and forebay run as the user postgres, or as nobody, and the \
                  directories and emulated pools are that user's.",
    after_long_help = "Examples:\n  \
        forebay bench postgres\n  \
        forebay bench postgres --clients 1,8,16 --rounds 5 --json\n  \
        forebay bench postgres --device hdd-7200 --clients 8\n  \
        forebay bench postgres --device /srv/scratch=hdd-7200 --modes plain,forebay"
)]
pub struct Postgresql {
    #[command(flatten)]
    options: Options,
}

/// What they have in common.
#[derive(Args)]
struct Options {
    /// Modes: plain, no_sync, eatmydata, forebay
    #[arg(
        long,
        value_name = "MODE,…",
        value_delimiter = ',',
        default_value = "plain,no_sync,eatmydata,forebay"
    )]
    modes: Vec<Mode>,
    /// Connections, each with one transaction at a time
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,8,16"
    )]
    clients: Vec<u64>,
    /// Seconds of a round [default: 10]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Rounds [default: 3]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Where the servers' directories are made, in a directory that is removed again [default: the one for temporary files, if that is on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Put the data directories on an emulated device: hdd-7200, …, or the path of a profile; with DIR= before it, below DIR
    #[arg(long, value_name = "[DIR=]PROFILE")]
    device: Option<String>,
    /// Use this pool instead of emulated ones
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,
    /// Bytes of a segment of an emulated pool
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "8MiB", conflicts_with = "pool")]
    buffer_size: u64,
    /// Segments that the server gets
    #[arg(long, value_name = "N", default_value_t = 2)]
    buffers: u16,
    /// Toy size: shows that it runs, not how fast
    #[arg(long)]
    quick: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Mariadb {
    pub fn run(self) -> Result<(), Failure> {
        let rows = if self.options.quick { 500 } else { 25_000 };
        let size = mariadb::load::Size { tables: 4, rows };
        self.options.run::<MariaDb>(size)
    }
}

impl Postgresql {
    pub fn run(self) -> Result<(), Failure> {
        let scale = if self.options.quick { 1 } else { 4 };
        self.options.run::<Postgres>(postgres::load::Size { scale })
    }
}

impl Options {
    fn run<D: Database<Size: Serialize>>(self, size: D::Size) -> Result<(), Failure> {
        let (rounds, seconds) = if self.quick { (1, 1) } else { (3, 10) };
        let (placed, device) = match self.device {
            Some(device) => match device.rsplit_once('=') {
                Some((dir, profile)) => (Some(PathBuf::from(dir)), Some(profile.to_owned())),
                None => (None, Some(device)),
            },
            None => (None, None),
        };
        let config = Config {
            dir: self.dir.or(placed).unwrap_or_else(default_dir),
            modes: self.modes,
            clients: self.clients,
            size,
            seconds: self.seconds.unwrap_or(seconds),
            rounds: self.rounds.unwrap_or(rounds),
            pool: self.pool.map_or(PoolSource::Emulated, PoolSource::At),
            buffer_bytes: self.buffer_size,
            buffers: self.buffers,
            device,
            forebay: super::own_program()?,
            effort: if self.quick {
                Effort::QUICK
            } else {
                Effort::SHORT
            },
        };
        let measured = sql::run::<D>(&config, &|note| eprintln!("{note}"))?;
        output::report(self.json, &measured, report::sql)
    }
}
