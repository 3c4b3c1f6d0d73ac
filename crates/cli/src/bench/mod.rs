//! `forebay bench`: what Forebay gains on this machine, for the pool and for the databases that are
//! installed here.
//!
//! Each of them is measured plain and under Forebay in turns ([`forebay_databases::contest`]), by
//! the load program that comes with it. What the project itself measures, in more modes and beside
//! more peers, is `forebay-lab` (lab/).

mod commits;
mod mariadb;
mod pool;
mod postgres;
pub mod redis;
pub mod report;
mod rocksdb;
mod sqlite;

use crate::{failure::Failure, measuring::clean_up_on_signals};
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    Pool(pool::Pool),
    Redis(redis::Redis),
    Rocksdb(rocksdb::Rocksdb),
    Postgres(postgres::Postgres),
    Mariadb(mariadb::Mariadb),
    Sqlite(sqlite::Sqlite),
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        clean_up_on_signals()?;
        match self {
            Self::Pool(pool) => pool.run(),
            Self::Redis(redis) => redis.run(),
            Self::Rocksdb(rocksdb) => rocksdb.run(),
            Self::Postgres(postgres) => postgres.run(),
            Self::Mariadb(mariadb) => mariadb.run(),
            Self::Sqlite(sqlite) => sqlite.run(),
        }
    }
}
