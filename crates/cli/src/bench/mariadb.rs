//! `forebay bench mariadb`.

use super::report::{Report, number};
use crate::{failure::Failure, measuring::Options};
use clap::Args;
use forebay_databases::{
    mariadb::{MariaDb, SYNCED, load::Size},
    sql::{self, Config},
};

/// Measure MariaDB with a binary log: plain, with libeatmydata, and under forebay run
#[derive(Args)]
#[command(
    long_about = "Runs sysbench's oltp_write_only against a MariaDB server that is started for the purpose and is reached by a Unix socket only. Each \
                  transaction syncs the redo log and the binary log (innodb_flush_log_at_trx_commit=1, sync_binlog=1): plain, under forebay run, and, \
                  where libeatmydata is installed, with syncs that do nothing. They take turns, round after round, each on a fresh copy of one data \
                  directory; figures are medians of the rounds. mariadbd and sysbench have to be installed (Debian: mariadb-server, sysbench).",
    after_long_help = "Examples:\n  \
        forebay bench mariadb --dir /var/lib\n  \
        forebay bench mariadb --dir /data --pool-disk /data --pool-disk /fast\n  \
        forebay bench mariadb --pool /mnt/pmem/forebay.pool --clients 1 --json"
)]
pub struct Mariadb {
    /// Connections, each with one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    #[command(flatten)]
    options: Options,
}

impl Mariadb {
    pub fn run(self) -> Result<(), Failure> {
        let quick = self.options.quick;
        let size = Size {
            tables: if quick { 1 } else { 4 },
            rows: if quick { 1_000 } else { 25_000 },
        };
        let config = Config {
            setup: self.options.setup(SYNCED)?,
            clients: vec![self.clients.into()],
            size,
            seconds: if quick { 1 } else { 10 },
        };
        let measured = sql::run::<MariaDb>(&config, &|note| eprintln!("{note}"))?;
        let load = format!(
            "sysbench oltp_write_only, {}, {} of {} rows, binary log, sync_binlog=1, innodb_flush_log_at_trx_commit=1",
            number(self.clients as usize, "connection"),
            number(size.tables as usize, "table"),
            size.rows
        );
        Report::of(load, &config.setup, measured)?.print(self.options.json)
    }
}
