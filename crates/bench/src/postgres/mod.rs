//! `forebay bench postgres`: what a PostgreSQL server pays for transactions that survive a power cut, and what it pays under `forebay run`.
//!
//! The load is `pgbench -N`; [`crate::sql`] has the modes and the turns. [`server`] and [`client`] are also what the tests use.

pub mod client;
pub mod load;
pub mod server;

use crate::{
    BenchError,
    sql::{Config, Database, Load, Measured, Mode, Round, User},
};
use load::Size;
use server::{Launch, Server};
use std::path::{Path, PathBuf};

/// PostgreSQL, as [`crate::sql::run`] measures it.
#[derive(Clone, Copy, Debug)]
pub struct Postgres;

/// Room in memory for the whole data set.
const BUFFERS: &str = "shared_buffers=512MB";

fn setting(mode: Mode) -> &'static str {
    match mode {
        Mode::NoSync => "synchronous_commit=off",
        _ => "synchronous_commit=on",
    }
}

impl Database for Postgres {
    const NAME: &'static str = "postgres";
    const LOAD: &'static str = "pgbench --skip-some-updates --protocol=prepared over a Unix socket";
    type Size = Size;

    fn check(config: &Config<Size>) -> Result<(), BenchError> {
        if let Some(lacking) = server::lacking() {
            return Err(BenchError::Config(lacking));
        }
        match Self::user()? {
            Some(user) => user.check_reaches(&config.forebay),
            None => Ok(()),
        }
    }

    fn user() -> Result<Option<User>, BenchError> {
        User::unprivileged()
    }

    fn prepare(size: Size, dir: &Path) -> Result<PathBuf, BenchError> {
        let mut launch = Launch::new(dir)?;
        server::create(&launch, &[])?;
        launch.settings = vec![BUFFERS.to_owned()];
        let server = Server::start(&launch)?;
        size.prepare(&server)?;
        server.stop()?;
        Ok(launch.data())
    }

    fn measure(round: Round<'_, Size>) -> Result<Measured, BenchError> {
        let mut launch = Launch::new(round.dir)?;
        launch.wrapper = round.wrapper;
        launch.processors = round.processors;
        launch.environment = round.environment;
        launch.settings = [BUFFERS, setting(round.mode)].map(str::to_owned).to_vec();
        let server = Server::start(&launch)?;
        load::warm_up(&server)?;
        // Plans, and the system's tables.
        let warm_up = Load {
            seconds: 1,
            ..round.load
        };
        load::run(&warm_up, &server)?;
        let measured = load::run(&round.load, &server)?;
        // Its pages are not wanted any more, and a slow device would take minutes for them.
        server.abandon()?;
        Ok(measured)
    }
}
