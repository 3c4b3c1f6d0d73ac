//! A MariaDB server of our own: a data directory made for the purpose, reached by a Unix socket only.
//!
//! What `forebay-lab mariadb` measures, and what the tests of MariaDB start. [`create`] makes a data directory, [`Launch`] says how a server
//! is started on it, [`Server`] is one that runs.

use super::client::Connection;
use crate::{
    BenchError,
    processes::{Handle, find_program, output},
    sql::{
        Client,
        running::{Running, command_line, option, pinned},
    },
};
use rustix::process::Signal;
use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
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
        .ok_or_else(|| format!("{name} is not installed: scripts/setup.sh test"))
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
/// [`BenchError::Config`] if it is not installed, [`BenchError::Child`] with what it said.
pub fn create(data: &Path) -> Result<(), BenchError> {
    let mut datadir = OsString::from("--datadir=");
    datadir.push(data);
    // Its own: a server that starts deletes what others have in the directory of temporary files.
    let temporary = tempfile::tempdir().map_err(BenchError::io("making", &std::env::temp_dir()))?;
    let done = output(
        Command::new(program("mariadb-install-db").map_err(BenchError::Config)?)
            .args(["--no-defaults", "--skip-test-db", &own_user()])
            .arg("--auth-root-authentication-method=normal")
            .arg(datadir)
            .env("TMPDIR", temporary.path()),
    )?;
    match done.status.success() {
        true => Ok(()),
        false => Err(BenchError::Child(format!(
            "(mariadb-install-db) ended with {} and said: {}",
            done.status,
            String::from_utf8_lossy(&done.stderr).trim()
        ))),
    }
}

/// `--user` with the user that we are: as root the server asks for it.
fn own_user() -> String {
    let id = Command::new("id").arg("-un").output();
    let name = id.map(|id| String::from_utf8_lossy(&id.stdout).trim().to_owned());
    format!("--user={}", name.unwrap_or_default())
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The server's program.
    pub program: PathBuf,
    /// Where its data directory is (`data`), its socket (`socket`), and its output (`server.out`).
    pub dir: PathBuf,
    /// What stands before it on the command line: a program that starts it as its child. May be empty.
    pub wrapper: Vec<OsString>,
    /// Processors that it, and what stands before it, may run on, as `taskset` has them.
    pub processors: Option<String>,
    /// Environment on top of ours.
    pub environment: Vec<(OsString, OsString)>,
    /// Its file of options; none of the machine's are read without.
    pub defaults: Option<PathBuf>,
    /// Its options.
    pub options: Vec<String>,
}

impl Launch {
    /// `mariadbd` with no option in `dir`.
    ///
    /// # Errors
    /// In words, that it is not installed.
    pub fn new(dir: &Path) -> Result<Self, String> {
        Ok(Self {
            program: program("mariadbd")?,
            dir: dir.to_owned(),
            wrapper: Vec::new(),
            processors: None,
            environment: Vec::new(),
            defaults: None,
            options: Vec::new(),
        })
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
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

    fn command(&self) -> Command {
        let before = pinned(self.processors.as_ref());
        let mut command = command_line(before, &self.wrapper, &self.program);
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
            .env("TMPDIR", self.temporary())
            .envs(self.environment.iter().cloned());
        command
    }
}

/// A running server, killed when this is dropped, and what stands before it too.
#[derive(Debug)]
pub struct Server {
    socket: PathBuf,
    running: Running,
}

impl Server {
    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// I/O errors, and [`BenchError::Child`] with what it said if it ends or does not serve.
    pub fn start(launch: &Launch) -> Result<Self, BenchError> {
        let socket = launch.socket();
        // One that a killed server left is not to be taken for this one's.
        drop(fs::remove_file(&socket));
        let temporary = launch.temporary();
        fs::create_dir_all(&temporary).map_err(BenchError::io("making", &temporary))?;
        let serves = || Connection::connect(&socket).is_ok();
        let running = Running::start(
            "mariadbd",
            launch.command(),
            launch.dir.join("server.out"),
            !launch.wrapper.is_empty(),
            serves,
        )?;
        Ok(Self { socket, running })
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A command line of MariaDB's client programs that leads to this server, as root.
    ///
    /// # Errors
    /// [`BenchError::Config`] if it is not installed.
    pub fn client(&self, name: &str) -> Result<Command, BenchError> {
        let mut command = Command::new(program(name).map_err(BenchError::Config)?);
        command
            .args(["--no-defaults", "--user=root"])
            .arg(option("--socket=", &self.socket));
        Ok(command)
    }

    /// The words of sysbench's command line, behind its name, that have `script` work on [`DATABASE`] of this server.
    #[must_use]
    pub fn sysbench(&self, script: &OsStr) -> [OsString; 4] {
        [
            script.to_owned(),
            "--mysql-user=root".into(),
            format!("--mysql-db={DATABASE}").into(),
            option("--mysql-socket=", &self.socket),
        ]
    }

    /// The rows that `statements` give in `database`, columns separated by tabs, without their names.
    ///
    /// # Errors
    /// [`BenchError::Child`] with what the server said.
    pub fn sql(&self, statements: &str, database: &str) -> Result<String, BenchError> {
        let mut client = self.client("mariadb")?;
        client.args(["--batch", "--skip-column-names", "--execute", statements]);
        if !database.is_empty() {
            client.arg(database);
        }
        said_by("mariadb", output(&mut client)?)
    }

    /// The server process itself.
    #[must_use]
    pub fn server(&self) -> &Handle {
        self.running.server()
    }

    /// What was started: the server, or what stands before it.
    #[must_use]
    pub fn outer(&self) -> &Handle {
        self.running.outer()
    }

    /// What both of them have printed so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.running.output()
    }

    /// Has the server end in the orderly way, and waits for the end of all. Gives what they have printed.
    ///
    /// # Errors
    /// [`BenchError::Child`] if they do not end, or end with an error.
    pub fn stop(mut self) -> Result<String, BenchError> {
        self.running.stop(Signal::TERM)
    }

    /// Waits for the end of all without asking for it.
    ///
    /// # Errors
    /// [`BenchError::Child`] if they do not end.
    pub fn wait(&mut self) -> Result<ExitStatus, BenchError> {
        self.running.wait()
    }
}
