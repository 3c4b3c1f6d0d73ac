//! The price that a PostgreSQL server pays for transactions that survive a power cut, plain and
//! under `forebay run`.
//!
//! The load is `pgbench -N`; [`crate::sql`] has the modes and the turns. [`server`] and [`client`]
//! are also what the tests use.

pub mod client;
pub mod load;
pub mod server;

use crate::{
    MeasureError,
    contest::{Mode, Sample},
    sql::{Config, Database, Load, User, modes},
};
use load::Size;
use server::{Launch, Server};
use std::path::Path;

/// PostgreSQL, as [`crate::sql::run`] measures it.
#[derive(Clone, Copy, Debug)]
pub struct Postgres;

/// Each transaction is synced.
pub const SYNCED: &[&str] = &["synchronous_commit=on"];
const NOT_SYNCED: &[&str] = &["synchronous_commit=off"];

impl Database for Postgres {
    const NAME: &'static str = "postgres";
    const LOAD: &'static str = "pgbench --skip-some-updates --protocol=prepared over a Unix socket";
    const MODES: [Mode; 4] = modes(SYNCED, NOT_SYNCED);
    const MEMORY: &'static str = "shared_buffers=512MB";
    const OPTIONS: &'static [&'static str] = &[];
    type Size = Size;

    fn check(config: &Config<Size>) -> Result<(), MeasureError> {
        if let Some(lacking) = server::lacking() {
            return Err(MeasureError::Config(lacking));
        }
        match Self::user()? {
            Some(user) => user.check_reaches(&config.setup.forebay),
            None => Ok(()),
        }
    }

    fn user() -> Result<Option<User>, MeasureError> {
        User::unprivileged()
    }

    fn launch(dir: &Path) -> Result<Launch, MeasureError> {
        Launch::new(dir)
    }

    fn create(launch: &Launch) -> Result<(), MeasureError> {
        server::create(launch, &[])
    }

    fn start(launch: &Launch) -> Result<Server, MeasureError> {
        Server::start(launch)
    }

    fn prepare(size: Size, server: &Server) -> Result<(), MeasureError> {
        size.prepare(server)
    }

    fn warm_up(server: &Server) -> Result<(), MeasureError> {
        load::warm_up(server)
    }

    fn work(load: &Load<Size>, server: &Server) -> Result<Sample, MeasureError> {
        load::run(load, server)
    }

    /// Its pages are not wanted any more, and a slow device would take minutes for them.
    fn end(server: Server) -> Result<String, MeasureError> {
        server.abandon()
    }
}
