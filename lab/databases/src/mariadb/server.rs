//! A MariaDB server of our own: a data directory made for the purpose, reached by a Unix socket
//! only.
//!
//! What is measured, and what the tests of MariaDB start. [`create`] makes a data directory,
//! [`Launch`] says how a server is started on it, [`Server`] is one that runs.

use super::{MariaDb, client::Connection};
use crate::{
    MeasureError,
    processes::{find_program, output},
    server::{self, Program},
    sql::{Client, running::option},
};
use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

pub use crate::sql::running::{copy, said_by};

/// The database that sysbench's scripts work on.
pub const DATABASE: &str = "bench";

/// A program of MariaDB or sysbench: on the path, or where Debian keeps those of administrators.
///
/// # Errors
/// In words, that it is not installed, and the remedy.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let admins = Path::new("/usr/sbin").join(name);
    find_program(name)
        .or_else(|| admins.is_file().then_some(admins))
        .ok_or_else(|| format!("{name} is not installed: apt-get install mariadb-server sysbench"))
}

/// The directory of plugins with MyRocks in it: Debian's, or where `scripts/setup.sh` unpacks it.
#[must_use]
pub fn myrocks() -> Option<PathBuf> {
    const PLUGIN: &str = "ha_rocksdb.so";
    let installed = Path::new("/usr/lib/mysql/plugin").join(PLUGIN);
    let found = match installed.is_file() {
        true => Some(installed),
        false => find_program(PLUGIN),
    };
    found?.parent().map(Path::to_owned)
}

/// What measuring a server by sysbench needs and is not installed, in words, with the remedy.
#[must_use]
pub fn lacking() -> Option<String> {
    let programs = ["mariadbd", "mariadb-install-db", "mariadb", "sysbench"];
    programs.iter().find_map(|name| program(name).err())
}

/// Makes the data directory `data` by `mariadb-install-db`: the user root has no password.
///
/// # Errors
/// [`MeasureError::Config`] if it is not installed, [`MeasureError::Child`] with what it said.
pub fn create(data: &Path) -> Result<(), MeasureError> {
    // Its own: a server that starts deletes what others have in the directory of temporary files.
    let temporary =
        tempfile::tempdir().map_err(MeasureError::io("making", &std::env::temp_dir()))?;
    let mut command = Command::new(program("mariadb-install-db").map_err(MeasureError::Config)?);
    command
        .args(["--no-defaults", "--skip-test-db", &own_user()])
        .arg("--auth-root-authentication-method=normal")
        .arg(option("--datadir=", data))
        .env("TMPDIR", temporary.path());
    said_by("mariadb-install-db", output(&mut command)?).map(drop)
}

/// `--user` with the user that we are: as root the server asks for it.
fn own_user() -> String {
    let id = Command::new("id").arg("-un").output();
    let name = id.map(|id| String::from_utf8_lossy(&id.stdout).trim().to_owned());
    format!("--user={}", name.unwrap_or_default())
}

/// What sysbench says, whose exit status does not tell of every error in one of its threads.
///
/// # Errors
/// [`MeasureError::Child`] with what it said if it fails.
pub fn run_sysbench(command: &mut Command) -> Result<String, MeasureError> {
    let said = said_by("sysbench", output(command)?)?;
    match said.contains("FATAL") {
        true => Err(MeasureError::Child(format!(
            "(sysbench) said: {}",
            said.trim()
        ))),
        false => Ok(said),
    }
}

/// Where sysbench reaches a server.
#[derive(Clone, Debug)]
pub enum Address {
    /// A Unix socket.
    Socket(PathBuf),
    /// Ports of this machine, all of which lead to it; connections take turns at them.
    Ports(Vec<u16>),
}

impl From<&Server> for Address {
    fn from(server: &Server) -> Self {
        Self::Socket(server.socket().to_owned())
    }
}

impl Address {
    /// The words of sysbench's command line, behind its name, that have `script` work on
    /// [`DATABASE`] of the server there.
    #[must_use]
    pub fn sysbench(&self, script: &OsStr) -> Vec<OsString> {
        let mut words = vec![
            script.to_owned(),
            "--mysql-user=root".into(),
            format!("--mysql-db={DATABASE}").into(),
        ];
        match self {
            Self::Socket(path) => words.push(option("--mysql-socket=", path)),
            Self::Ports(ports) => {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                words.push("--mysql-host=127.0.0.1".into());
                words.push(format!("--mysql-port={}", ports.join(",")).into());
            }
        }
        words
    }
}

impl Program for MariaDb {
    const NAME: &'static str = "mariadbd";
    const IN_ITS_DIR: bool = false;
    type Address = PathBuf;
}

/// How a server is started.
pub type Launch = server::Launch<MariaDb>;
/// A running server.
pub type Server = server::Server<MariaDb>;

impl Launch {
    /// `mariadbd` with no option in `dir`.
    ///
    /// # Errors
    /// In words, that it is not installed.
    pub fn new(dir: &Path) -> Result<Self, String> {
        Ok(Self::of(program("mariadbd")?, dir))
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// Its own: a server that starts deletes what others have there.
    fn temporary(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    fn server(&self) -> Command {
        let mut command = self.command(&self.wrapper, &self.program);
        match &self.defaults {
            Some(file) => command.arg(option("--defaults-file=", file)),
            None => command.arg("--no-defaults"),
        };
        command
            .args(["--skip-networking", &own_user()])
            .arg(option("--datadir=", &self.data()))
            .arg(option("--socket=", &self.socket()))
            .arg(option("--pid-file=", &self.dir.join("pid")))
            .args(&self.options)
            .env("TMPDIR", self.temporary());
        command
    }
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
        let temporary = launch.temporary();
        fs::create_dir_all(&temporary).map_err(MeasureError::io("making", &temporary))?;
        let serves = |socket: &PathBuf| Connection::connect(socket).is_ok();
        Self::run(launch, socket, launch.server(), serves)
    }

    /// A command line of MariaDB's client programs that leads to this server, as root.
    ///
    /// # Errors
    /// [`MeasureError::Config`] if it is not installed.
    pub fn client(&self, name: &str) -> Result<Command, MeasureError> {
        let mut command = Command::new(program(name).map_err(MeasureError::Config)?);
        command
            .args(["--no-defaults", "--user=root"])
            .arg(option("--socket=", self.socket()));
        Ok(command)
    }

    /// The rows that `statements` give in `database`, columns separated by tabs, without their
    /// names.
    ///
    /// # Errors
    /// [`MeasureError::Child`] with what the server said.
    pub fn sql(&self, statements: &str, database: &str) -> Result<String, MeasureError> {
        let mut client = self.client("mariadb")?;
        client.args(["--batch", "--skip-column-names", "--execute", statements]);
        if !database.is_empty() {
            client.arg(database);
        }
        said_by("mariadb", output(&mut client)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysbench_reaches_a_server_by_its_socket_or_by_ports_in_turn() {
        let words = |at: Address| at.sysbench(OsStr::new("tpcc.lua")).split_off(3);
        let socket = Address::Socket("/run/socket".into());
        assert_eq!(words(socket), ["--mysql-socket=/run/socket"]);
        let expected = ["--mysql-host=127.0.0.1", "--mysql-port=7,8"];
        assert_eq!(words(Address::Ports(vec![7, 8])), expected);
    }
}
