//! A PostgreSQL server of our own: a data directory made for the purpose, reached by a Unix socket
//! only.
//!
//! What is measured, and what the tests of PostgreSQL start. [`Launch`] says how a server is
//! started, [`create`] makes its data directory, [`Server`] is one that runs. Root cannot run it:
//! then everything is another user's ([`User`]), what stands before the server included, since a
//! pool and the logs in it are one user's.

pub use forebay_measure::processes::find_of_postgres as program;

use super::{
    Postgres,
    client::{Connection, DATABASE, SUPERUSER},
};
use crate::{
    MeasureError,
    processes::output,
    server::{self, Program},
    sql::{
        Client, Columns, User,
        running::{Running, said_by},
    },
};
use rustix::process::Signal;
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What running a server needs and is not installed, in words, with the remedy.
#[must_use]
pub fn lacking() -> Option<String> {
    let programs = ["postgres", "initdb", "pgbench"];
    programs.iter().find_map(|name| program(name).err())
}

impl Program for Postgres {
    const NAME: &'static str = "postgres";
    /// A fast shutdown.
    const ENDS_BY: Signal = Signal::INT;
    /// An immediate shutdown: its processes and its shared memory go with it.
    const GIVEN_UP_BY: Option<Signal> = Some(Signal::QUIT);
    type Address = PathBuf;
}

/// How a server is started.
pub type Launch = server::Launch<Postgres>;
/// A running server.
pub type Server = server::Server<Postgres>;

impl Launch {
    /// `postgres` with no setting in `dir`, which is made, and given to the user that it is to run
    /// as.
    ///
    /// # Errors
    /// I/O errors; [`MeasureError::Config`] that it is not installed, or that there is no user for
    /// it.
    pub fn new(dir: &Path) -> Result<Self, MeasureError> {
        Self::of_program(program("postgres").map_err(MeasureError::Config)?, dir)
    }

    /// As [`new`](Self::new), of the PostgreSQL whose programs are in `bin`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_programs(bin: &Path, dir: &Path) -> Result<Self, MeasureError> {
        Self::of_program(bin.join("postgres"), dir)
    }

    fn of_program(postgres: PathBuf, dir: &Path) -> Result<Self, MeasureError> {
        let launch = Self {
            user: User::unprivileged()?,
            ..Self::of(postgres, dir)
        };
        fs::create_dir_all(dir).map_err(MeasureError::io("creating", dir))?;
        if let Some(user) = &launch.user {
            user.check_reaches(&launch.program)?;
            user.give(dir)?;
        }
        Ok(launch)
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join(".s.PGSQL.5432")
    }

    /// A command line of one of PostgreSQL's programs, of the same user, which leads to this server
    /// if it is one for that.
    ///
    /// # Errors
    /// [`MeasureError::Config`] if it is not installed.
    pub fn client(&self, name: &str) -> Result<Command, MeasureError> {
        let mut command = self.command(&[], &self.program_beside(name)?);
        command.env("PGHOST", &self.dir).env("PGUSER", SUPERUSER);
        Ok(command)
    }

    /// A program of the same PostgreSQL as the server.
    fn program_beside(&self, name: &str) -> Result<PathBuf, MeasureError> {
        let beside = self.program.with_file_name(name);
        match beside.is_file() {
            true => Ok(beside),
            false => program(name).map_err(MeasureError::Config),
        }
    }

    fn server(&self) -> Command {
        let mut command = self.command(&self.wrapper, &self.program);
        command.arg("-D").arg(self.data());
        let mut sockets = OsString::from("unix_socket_directories=");
        sockets.push(&self.dir);
        command.arg("-c").arg(sockets);
        // Its compiler of queries is not installed everywhere.
        for setting in ["listen_addresses=", "jit=off"] {
            command.args(["-c", setting]);
        }
        for setting in &self.options {
            command.args(["-c", setting]);
        }
        command
    }
}

/// Makes the data directory by `initdb` with these options, not synced: the superuser has no
/// password.
///
/// # Errors
/// [`MeasureError::Config`] if it is not installed, [`MeasureError::Child`] with what it said.
pub fn create(launch: &Launch, options: &[&str]) -> Result<(), MeasureError> {
    let mut command = launch.client("initdb")?;
    command
        .args(["--auth=trust", "--username", SUPERUSER, "--no-sync"])
        .args(["--locale=C", "--encoding=UTF8"])
        .args(options)
        .arg("--pgdata")
        .arg(launch.data());
    said_by("initdb", output(&mut command)?).map(drop)
}

impl Server {
    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// I/O errors, and [`MeasureError::Child`] with what it said if it ends or does not serve.
    pub fn start(launch: &Launch) -> Result<Self, MeasureError> {
        let socket = launch.socket();
        // One that a killed server left is not to be taken for this one's.
        drop(fs::remove_file(&socket));
        let serves = |socket: &PathBuf| Connection::connect(socket).is_ok();
        Self::run(launch, socket, launch.server(), serves)
    }

    /// The rows that `statements` give.
    ///
    /// # Errors
    /// [`MeasureError::Child`] with what the server said.
    pub fn sql(&self, statements: &str) -> Result<Vec<Columns>, MeasureError> {
        Connection::connect(self.socket())
            .and_then(|mut connection| connection.query(statements))
            .map_err(|e| MeasureError::Child(format!("(postgres) refused {statements:?}: {e}")))
    }

    /// The first column of the first row that `statements` give, as text.
    ///
    /// # Errors
    /// As [`sql`](Self::sql); [`MeasureError::Child`] if there is none.
    pub fn value(&self, statements: &str) -> Result<String, MeasureError> {
        let rows = self.sql(statements)?;
        let first = rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next()?);
        first
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .ok_or_else(|| {
                MeasureError::Child(format!("(postgres) has no answer to {statements:?}"))
            })
    }

    /// A command line of PostgreSQL's programs that leads to this server, as ourselves.
    ///
    /// # Errors
    /// [`MeasureError::Config`] if it is not installed.
    pub fn load_program(
        &self,
        name: &str,
        processor: Option<usize>,
    ) -> Result<Command, MeasureError> {
        let program = self.launch().program_beside(name)?;
        let mut command = crate::sql::running::on_processor(processor, &program);
        command
            .env("PGHOST", &self.launch().dir)
            .env("PGUSER", SUPERUSER)
            .env("PGDATABASE", DATABASE);
        Ok(command)
    }

    /// Has the server end at once, without writing its pages (an immediate shutdown), and waits for
    /// the end of all. Gives what they have printed.
    ///
    /// # Errors
    /// [`MeasureError::Child`] if they do not end, or end with an error.
    pub fn abandon(mut self) -> Result<String, MeasureError> {
        Running::stop(&mut self, Signal::QUIT)
    }
}
