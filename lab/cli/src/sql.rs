//! The benchmarks of SQL servers: `forebay-lab mariadb`, `forebay-lab postgres`.

use crate::contest::{Clients, Common, note};
use clap::Args;
use forebay_bench::{
    mariadb::{self, MariaDb},
    postgres::{self, Postgres},
    sql::{self, Config, Database},
};
use forebay_cli::failure::Failure;

/// Measure MariaDB with a binary log: synced, not synced, with libeatmydata, and under forebay
#[derive(Args)]
#[command(
    long_about = "Runs sysbench's oltp_write_only against a MariaDB server with a binary log that was started for the purpose and is reached by a \
                  Unix socket only, in each mode: redo log and binary log synced for each transaction (plain); neither synced (no_sync); synced, with \
                  libeatmydata, which makes fsync do nothing; and synced under forebay run. Modes take turns, round after round, each on a fresh copy \
                  of one data directory; figures are medians of the rounds.",
    after_long_help = "Examples:\n  \
        forebay-lab mariadb\n  \
        forebay-lab mariadb --clients 1,8,16 --rounds 5 --json\n  \
        forebay-lab mariadb --device hdd-7200 --clients 8 --pool-disk /fast\n  \
        forebay-lab mariadb --device /srv/scratch=hdd-7200 --modes plain,forebay"
)]
pub struct Mariadb {
    #[command(flatten)]
    sql: Sql,
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
        forebay-lab postgres\n  \
        forebay-lab postgres --clients 1,8,16 --rounds 5 --json\n  \
        forebay-lab postgres --device hdd-7200 --clients 8 --pool-disk /fast\n  \
        forebay-lab postgres --device /srv/scratch=hdd-7200 --modes plain,forebay"
)]
pub struct Postgresql {
    #[command(flatten)]
    sql: Sql,
}

/// What they have in common.
#[derive(Args)]
#[command(
    mut_arg("clients", |clients| clients.default_value("1,8,16")),
    mut_arg("modes", |modes| modes.default_value("plain,no_sync,eatmydata,forebay").help("Modes: plain, no_sync, eatmydata, forebay"))
)]
struct Sql {
    #[command(flatten)]
    clients: Clients,
    /// Seconds of a round [default: 10]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    #[command(flatten)]
    common: Common,
}

impl Mariadb {
    pub fn run(self) -> Result<(), Failure> {
        let rows = if self.sql.is_quick() { 500 } else { 25_000 };
        let size = mariadb::load::Size { tables: 4, rows };
        self.sql.run::<MariaDb>(size)
    }
}

impl Postgresql {
    pub fn run(self) -> Result<(), Failure> {
        let scale = if self.sql.is_quick() { 1 } else { 4 };
        self.sql.run::<Postgres>(postgres::load::Size { scale })
    }
}

impl Sql {
    fn is_quick(&self) -> bool {
        self.common.options.form.quick
    }

    fn run<D: Database>(self, size: D::Size) -> Result<(), Failure> {
        let mut setup = self.common.setup(&D::MODES)?;
        // A run takes more than its two while the disk is behind.
        setup.pools.segments = 8;
        let config = Config {
            setup,
            clients: self.clients.numbers,
            size,
            seconds: self.common.seconds(self.seconds, 10),
        };
        self.common.print(sql::run::<D>(&config, &note))
    }
}
