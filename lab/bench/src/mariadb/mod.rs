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
    sql::{Config, Database, Load, modes},
};
use load::Size;
use server::{Launch, Server};
use std::path::Path;

/// MariaDB, as [`crate::sql::run`] measures it.
#[derive(Clone, Copy, Debug)]
pub struct MariaDb;

/// Redo log and binary log are synced for each transaction.
const SYNCED: &[&str] = &["--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"];
/// Neither is.
const NOT_SYNCED: &[&str] = &["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"];

impl Database for MariaDb {
    const NAME: &'static str = "mariadb";
    const LOAD: &'static str = "sysbench oltp_write_only over a Unix socket, with a binary log";
    const MODES: [Mode; 4] = modes(SYNCED, NOT_SYNCED);
    const MEMORY: &'static str = "--innodb-buffer-pool-size=512M";
    const OPTIONS: &'static [&'static str] = &["--log-bin=binlog"];
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

    fn launch(dir: &Path) -> Result<Launch, BenchError> {
        Launch::new(dir).map_err(BenchError::Config)
    }

    fn create(launch: &Launch) -> Result<(), BenchError> {
        server::create(&launch.data())
    }

    fn start(launch: &Launch) -> Result<Server, BenchError> {
        Server::start(launch)
    }

    fn prepare(size: Size, server: &Server) -> Result<(), BenchError> {
        size.prepare(server)
    }

    fn work(load: &Load<Size>, server: &Server) -> Result<Sample, BenchError> {
        load::run(load::WRITE_ONLY, load, server)
    }
}
