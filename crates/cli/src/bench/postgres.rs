//! `forebay bench postgres`.

use super::report::{Report, number};
use crate::{failure::Failure, measuring::Options};
use clap::Args;
use forebay_databases::{
    postgres::{self, SYNCED, load::Size},
    sql::{self, Config},
};

/// Measure PostgreSQL: plain, and under forebay run
#[derive(Args)]
#[command(
    long_about = "Runs pgbench's simple update (pgbench -N) against a PostgreSQL server that is started for the purpose and is reached by a \
                  Unix socket only, with a write-ahead log that is synced for each transaction: plain, under forebay run, and, where \
                  libeatmydata is installed, with syncs that do nothing. They take turns, round after round, each on a fresh copy of one data \
                  directory; figures are medians of the rounds. postgres, initdb and pgbench have to be installed (Debian: postgresql).\n\n\
                  PostgreSQL does not run as root: then server and forebay run as the user postgres, or as nobody.",
    after_long_help = "Examples:\n  \
        forebay bench postgres --dir /var/lib\n  \
        forebay bench postgres --pool-disk /fast --clients 16 --json"
)]
pub struct Postgres {
    /// Connections, each with one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    #[command(flatten)]
    options: Options,
}

impl Postgres {
    pub fn run(self) -> Result<(), Failure> {
        let scale = if self.options.quick { 1 } else { 4 };
        let config = Config {
            setup: self.options.setup(SYNCED)?,
            clients: vec![self.clients.into()],
            size: Size { scale },
            seconds: if self.options.quick { 1 } else { 10 },
        };
        let measured = sql::run::<postgres::Postgres>(&config, &|note| eprintln!("{note}"))?;
        let clients = number(self.clients as usize, "connection");
        let load = format!("pgbench -N, {clients}, tables of scale {scale}");
        Report::of(load, &config.setup, measured)?.print(self.options.json)
    }
}
