//! `forebay-lab mariadb`: what a MariaDB server with a binary log pays for transactions that survive a power cut, and what it pays under
//! `forebay run`.
//!
//! The load is sysbench's `oltp_write_only`; [`crate::sql`] has the modes and the turns. [`server`] and [`client`] are also what the tests use.

pub mod client;
pub mod load;
pub mod server;
pub mod workload;

use crate::{
    BenchError,
    contest::{Mode, Sample},
    sql::{Config, Database, Load, Round, modes},
};
use load::Size;
use server::{Launch, Server};
use std::path::{Path, PathBuf};

/// MariaDB, as [`crate::sql::run`] measures it.
#[derive(Clone, Copy, Debug)]
pub struct MariaDb;

/// What all servers have: the binary log, and room in memory for the whole data set.
const OPTIONS: [&str; 2] = ["--log-bin=binlog", "--innodb-buffer-pool-size=512M"];

/// Redo log and binary log are synced for each transaction.
const SYNCED: &[&str] = &["--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"];
/// Neither is.
const NOT_SYNCED: &[&str] = &["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"];

impl Database for MariaDb {
    const NAME: &'static str = "mariadb";
    const LOAD: &'static str = "sysbench oltp_write_only over a Unix socket, with a binary log";
    const MODES: [Mode; 4] = modes(SYNCED, NOT_SYNCED);
    type Size = Size;

    fn check(config: &Config<Size>) -> Result<(), BenchError> {
        if let Some(lacking) = server::lacking() {
            return Err(BenchError::Config(lacking));
        }
        // InnoDB would map its log there, and neither sync nor write it.
        let shm = Path::new("/dev/shm");
        match config
            .setup
            .dir
            .canonicalize()
            .is_ok_and(|dir| dir.starts_with(shm))
        {
            true => Err(BenchError::Config(
                "InnoDB takes /dev/shm for persistent memory and does not sync there; name another directory (--dir)".to_owned(),
            )),
            false => Ok(()),
        }
    }

    fn prepare(size: Size, dir: &Path) -> Result<PathBuf, BenchError> {
        let mut launch = Launch::new(dir).map_err(BenchError::Config)?;
        server::create(&launch.data())?;
        launch.options = vec![OPTIONS[1].to_owned()];
        let server = Server::start(&launch)?;
        size.prepare(&server)?;
        server.stop()?;
        Ok(launch.data())
    }

    fn measure(round: Round<'_, Size>) -> Result<Sample, BenchError> {
        let mut launch = Launch::new(round.dir).map_err(BenchError::Config)?;
        launch.wrapper = round.around.wrapper.clone();
        launch.processors = round.processors;
        launch.environment = round.around.environment.clone();
        launch.options = OPTIONS
            .iter()
            .chain(round.mode.settings)
            .map(|&word| word.to_owned())
            .collect();
        let server = Server::start(&launch)?;
        // Pages and plans are in memory then.
        let warm_up = Load {
            seconds: 1,
            ..round.load
        };
        load::run(load::WRITE_ONLY, &warm_up, &server)?;
        let measured = load::run(load::WRITE_ONLY, &round.load, &server)?;
        server.stop()?;
        Ok(measured)
    }
}
