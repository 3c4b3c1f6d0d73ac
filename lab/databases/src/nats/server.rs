//! A NATS server of our own with JetStream, on loopback, in a directory of its own.

use super::client::Connection;
use crate::{
    MeasureError,
    processes::find_program,
    server::{self, Program},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// NATS, and the port of its clients.
#[derive(Clone, Copy, Debug)]
pub struct Nats;

impl Program for Nats {
    const NAME: &'static str = "nats-server";
    type Address = u16;
}

/// How one is started.
pub type Launch = server::Launch<Nats>;
/// A running one.
pub type Server = server::Server<Nats>;

/// Its program.
///
/// # Errors
/// In words, that it is not installed, and the remedy.
pub fn program() -> Result<PathBuf, String> {
    find_program(Nats::NAME)
        .ok_or_else(|| "nats-server is not installed: scripts/setup.sh test".to_owned())
}

/// Writes a server's settings into `dir`: every message is synced before it is acknowledged.
///
/// # Errors
/// I/O errors.
pub fn configure(dir: &Path, port: u16) -> Result<PathBuf, MeasureError> {
    let path = dir.join("nats.conf");
    let text = format!(
        "host: 127.0.0.1\nport: {port}\nserver_name: one\n\
         jetstream {{ store_dir: data, sync_interval: always }}\n"
    );
    fs::write(&path, text).map_err(MeasureError::io("writing", &path))?;
    Ok(path)
}

impl Server {
    /// Starts it on a free port, with its data in `data` of its directory, and waits until it
    /// serves.
    ///
    /// # Errors
    /// I/O errors, and [`MeasureError::Child`] with what it said if it ends or does not serve.
    pub fn start(launch: &Launch) -> Result<Self, MeasureError> {
        Self::on_free_ports(|[port]| Self::start_on(launch, port))
    }

    fn start_on(launch: &Launch, port: u16) -> Result<Self, MeasureError> {
        let settings = configure(&launch.dir, port)?;
        let mut command = launch.command(&launch.wrapper, &launch.program);
        command.arg("-c").arg(settings).args(&launch.options);
        let serves = |port: &u16| Connection::new(*port).is_ok();
        Self::run(launch, port, command, serves)
    }

    /// A new connection.
    ///
    /// # Errors
    /// I/O errors.
    pub fn connect(&self) -> io::Result<Connection> {
        Connection::new(self.at)
    }
}
