//! A NATS server of our own with JetStream, on loopback, in a directory of its own.

use super::client::Connection;
use crate::{
    MeasureError,
    processes::find_programs,
    server::{self, Program},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
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

/// The first version, of its major one, that knows [`ALWAYS`].
const MINOR_MIN: u32 = 10;

/// `sync_interval` that has every message synced before it is acknowledged.
pub const ALWAYS: &str = "always";

/// Its program, one that can sync each message.
///
/// # Errors
/// In words, that it is not installed, and the remedy.
pub fn program() -> Result<PathBuf, String> {
    let syncs_each = |program: &PathBuf| {
        let said = Command::new(program).arg("--version").output();
        said.is_ok_and(|said| is_new_enough(&String::from_utf8_lossy(&said.stdout)))
    };
    find_programs(Nats::NAME)
        .find(syncs_each)
        .ok_or_else(|| format!("nats-server 2.{MINOR_MIN} is not installed: scripts/setup.sh test"))
}

/// By what it says of its version: `nats-server: v2.10.29`.
fn is_new_enough(said: &str) -> bool {
    let version = said.split_once(": v").map_or("", |(_, version)| version);
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let (major, minor): (Option<u32>, Option<u32>) = (numbers.next(), numbers.next());
    major > Some(2) || (major == Some(2) && minor >= Some(MINOR_MIN))
}

/// Writes a server's settings into `dir`, with this `sync_interval`.
///
/// # Errors
/// I/O errors.
pub fn configure(dir: &Path, port: u16, sync: &str) -> Result<PathBuf, MeasureError> {
    let path = dir.join("nats.conf");
    let text = format!(
        "host: 127.0.0.1\nport: {port}\nserver_name: one\n\
         jetstream {{ store_dir: data, sync_interval: {sync} }}\n"
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
        let settings = configure(&launch.dir, port, ALWAYS)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_before_2_10_is_too_old() {
        for (said, is_new) in [
            ("nats-server: v2.10.29\n", true),
            ("nats-server: v2.9.10\n", false),
            ("nats-server: v3.0.0\n", true),
            ("nats-server: v1.12.0\n", false),
            ("", false),
        ] {
            assert_eq!(is_new_enough(said), is_new, "{said}");
        }
    }
}
