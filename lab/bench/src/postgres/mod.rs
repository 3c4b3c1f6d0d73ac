//! `forebay-lab postgres`: what a PostgreSQL server pays for transactions that survive a power cut, and what it pays under `forebay run`.
//!
//! The load is `pgbench -N`; [`crate::sql`] has the modes and the turns. [`server`] and [`client`] are also what the tests use.

pub mod client;
pub mod load;
pub mod server;

use crate::{
    BenchError,
    contest::{Mode, Sample},
    sql::{Config, Database, Load, Round, User, modes},
};
use load::Size;
use server::{Launch, Server};
use std::path::{Path, PathBuf};

/// PostgreSQL, as [`crate::sql::run`] measures it.
#[derive(Clone, Copy, Debug)]
pub struct Postgres;

/// Room in memory for the whole data set.
const BUFFERS: &str = "shared_buffers=512MB";

const SYNCED: &[&str] = &["synchronous_commit=on"];
const NOT_SYNCED: &[&str] = &["synchronous_commit=off"];

impl Database for Postgres {
    const NAME: &'static str = "postgres";
    const LOAD: &'static str = "pgbench --skip-some-updates --protocol=prepared over a Unix socket";
    const MODES: [Mode; 4] = modes(SYNCED, NOT_SYNCED);
    type Size = Size;

    fn check(config: &Config<Size>) -> Result<(), BenchError> {
        if let Some(lacking) = server::lacking() {
            return Err(BenchError::Config(lacking));
        }
        match Self::user()? {
            Some(user) => user.check_reaches(&config.setup.forebay),
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

    fn measure(round: Round<'_, Size>) -> Result<Sample, BenchError> {
        let mut launch = Launch::new(round.dir)?;
        launch.wrapper = round.around.wrapper.clone();
        launch.processors = round.processors;
        launch.environment = round.around.environment.clone();
        let settings = [BUFFERS]
            .into_iter()
            .chain(round.mode.settings.iter().copied());
        launch.settings = settings.map(str::to_owned).collect();
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
