//! The price that a MariaDB server with a binary log pays for transactions that survive a power
//! cut, plain and under `forebay run`.
//!
//! The load is sysbench's `oltp_write_only`; [`crate::sql`] has the modes and the turns. [`server`]
//! and [`client`] are also what the tests use.

pub mod client;
pub mod load;
pub mod server;

use crate::{
    MeasureError,
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
pub const SYNCED: &[&str] = &["--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"];
/// Neither is.
const NOT_SYNCED: &[&str] = &["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"];

impl Database for MariaDb {
    const NAME: &'static str = "mariadb";
    const LOAD: &'static str = "sysbench oltp_write_only over a Unix socket, with a binary log";
    const MODES: [Mode; 4] = modes(SYNCED, NOT_SYNCED);
    const MEMORY: &'static str = "--innodb-buffer-pool-size=512M";
    const OPTIONS: &'static [&'static str] = &["--log-bin=binlog"];
    type Size = Size;

    fn check(config: &Config<Size>) -> Result<(), MeasureError> {
        if let Some(lacking) = server::lacking() {
            return Err(MeasureError::Config(lacking));
        }
        refuse_shared_memory(&config.setup.dir)
    }

    fn launch(dir: &Path) -> Result<Launch, MeasureError> {
        Launch::new(dir).map_err(MeasureError::Config)
    }

    fn create(launch: &Launch) -> Result<(), MeasureError> {
        server::create(&launch.data())
    }

    fn start(launch: &Launch) -> Result<Server, MeasureError> {
        Server::start(launch)
    }

    fn prepare(size: Size, server: &Server) -> Result<(), MeasureError> {
        size.prepare(server)
    }

    fn work(load: &Load<Size>, server: &Server) -> Result<Sample, MeasureError> {
        load::run(load::WRITE_ONLY, load, server)
    }
}

/// InnoDB would map its log there, and neither write nor sync it.
fn refuse_shared_memory(dir: &Path) -> Result<(), MeasureError> {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    match dir.starts_with("/dev/shm") {
        true => Err(MeasureError::Config(format!(
            "InnoDB takes {} for persistent memory and does not sync there: name a directory on a disk (--dir)",
            dir.display()
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_shared_memory_is_refused_with_the_remedy() {
        let refused = refuse_shared_memory(Path::new("/dev/shm"));
        assert!(refused.unwrap_err().to_string().contains("--dir"));
        refuse_shared_memory(Path::new("/")).unwrap();
    }
}
