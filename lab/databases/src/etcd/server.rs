//! An etcd of one member, on loopback, in a directory of its own.

use super::client::Connection;
use crate::{
    MeasureError,
    processes::find_program,
    server::{self, Program},
};
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    path::PathBuf,
    time::Duration,
};

/// etcd, and the port of its clients.
#[derive(Clone, Copy, Debug)]
pub struct Etcd;

impl Program for Etcd {
    const NAME: &'static str = "etcd";
    type Address = u16;
}

/// How one is started.
pub type Launch = server::Launch<Etcd>;
/// A running one.
pub type Server = server::Server<Etcd>;

/// Its program.
///
/// # Errors
/// In words, that it is not installed, and the remedy.
pub fn program() -> Result<PathBuf, String> {
    find_program("etcd").ok_or_else(|| "etcd is not installed: scripts/setup.sh test".to_owned())
}

/// That of a newer one than Debian's.
///
/// # Errors
/// As [`program`].
pub fn current_program() -> Result<PathBuf, String> {
    find_program("current/etcd")
        .ok_or_else(|| "a current etcd is not built: scripts/setup.sh test".to_owned())
}

impl Server {
    /// Starts it on free ports, with its data in `data` of its directory, and waits until it
    /// serves.
    ///
    /// # Errors
    /// I/O errors, and [`MeasureError::Child`] with what it said if it ends or does not serve.
    pub fn start(launch: &Launch) -> Result<Self, MeasureError> {
        Self::on_free_ports(|ports| Self::start_on(launch, ports))
    }

    fn start_on(launch: &Launch, [client, peer]: [u16; 2]) -> Result<Self, MeasureError> {
        let mut command = launch.command(&launch.wrapper, &launch.program);
        let [client_url, peer_url] = [client, peer].map(|port| format!("http://127.0.0.1:{port}"));
        command
            .args(["--name", "one", "--data-dir", "data"])
            .args(["--listen-client-urls", &client_url])
            .args(["--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url])
            .args(["--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("one={peer_url}")])
            .args(&launch.options);
        let is_healthy = |port: &u16| {
            get(*port, "/health").is_ok_and(|text| text.contains(r#""health":"true""#))
        };
        Self::run(launch, client, command, is_healthy)
    }

    /// A new connection.
    ///
    /// # Errors
    /// I/O errors.
    pub fn connect(&self) -> io::Result<Connection> {
        Connection::new(self.at)
    }

    /// Its metrics, as text.
    ///
    /// # Errors
    /// I/O errors.
    pub fn metrics(&self) -> io::Result<String> {
        get(self.at, "/metrics")
    }
}

/// What the server answers to a `GET`, head and body.
fn get(port: u16, path: &str) -> io::Result<String> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
