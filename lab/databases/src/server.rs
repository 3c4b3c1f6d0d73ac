//! Database servers of our own, each in a directory of its own: how one is started ([`Launch`]),
//! and one that runs ([`Server`]). What is a database's own stands in [`crate::redis::server`],
//! [`crate::mariadb::server`] and [`crate::postgres::server`].

use crate::{MeasureError, contest::Around};
use forebay_measure::{
    server::{Running, command_line, free_port, pinned},
    user::User,
};
use rustix::process::Signal;
use std::{
    ffi::OsString,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// A database, as a server's program.
pub trait Program: Clone {
    /// Its name in messages.
    const NAME: &'static str;
    /// By which a server ends in the orderly way.
    const ENDS_BY: Signal = Signal::TERM;
    /// By which it ends at once and takes its processes with it, where being killed would leave
    /// them.
    const GIVEN_UP_BY: Option<Signal> = None;
    /// Whether it is started in its directory; otherwise it goes there itself.
    const IN_ITS_DIR: bool = true;
    /// Where clients reach it.
    type Address;
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Launch<P> {
    /// The server's program.
    pub program: PathBuf,
    /// Its directory, where its output (`server.out`) goes, too.
    pub dir: PathBuf,
    /// Whom it, and what stands before it, runs as, if not as ourselves.
    pub user: Option<User>,
    /// What stands before it on the command line: a program that starts it as its child. May be
    /// empty.
    pub wrapper: Vec<OsString>,
    /// Processors that it, and what stands before it, may run on, as `taskset` has them.
    pub processors: Option<String>,
    /// Environment on top of ours.
    pub environment: Vec<(OsString, OsString)>,
    /// MariaDB's file of options; none of the machine's are read without.
    pub defaults: Option<PathBuf>,
    /// Its options; PostgreSQL's settings, `name=value`.
    pub options: Vec<String>,
    /// Which database it is.
    pub database: PhantomData<P>,
}

impl<P> Launch<P> {
    /// A program with no option in `dir`.
    pub fn of(program: PathBuf, dir: &Path) -> Self {
        Self {
            program,
            dir: dir.to_owned(),
            user: None,
            wrapper: Vec::new(),
            processors: None,
            environment: Vec::new(),
            defaults: None,
            options: Vec::new(),
            database: PhantomData,
        }
    }

    /// The data directory of an SQL server.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Has it started by what stands around it in a mode.
    pub fn stand_in(&mut self, around: &Around) {
        self.wrapper.clone_from(&around.wrapper);
        self.environment.clone_from(&around.environment);
    }
}

impl<P: Program> Launch<P> {
    /// A command line of the user and on the processors of the server.
    pub fn command(&self, wrapper: &[OsString], program: &Path) -> Command {
        let user = self.user.iter().flat_map(User::words);
        let before = pinned(self.processors.as_ref()).chain(user);
        let mut command = command_line(before, wrapper, program);
        command.envs(self.environment.iter().cloned());
        if P::IN_ITS_DIR {
            command.current_dir(&self.dir);
        }
        command
    }
}

/// A running server. When this is dropped it is killed, and what stands before it too.
#[derive(Debug)]
pub struct Server<P: Program> {
    launch: Launch<P>,
    /// Where clients reach it.
    pub(crate) at: P::Address,
    running: Running,
}

impl<P: Program> Server<P> {
    /// Starts it by `command`, and waits until it serves.
    pub(crate) fn run(
        launch: &Launch<P>,
        at: P::Address,
        command: Command,
        serves: impl Fn(&P::Address) -> bool,
    ) -> Result<Self, MeasureError> {
        let output = launch.dir.join("server.out");
        let is_wrapped = !launch.wrapper.is_empty();
        let running = Running::start(P::NAME, command, output, is_wrapped, || serves(&at))?;
        Ok(Self {
            launch: launch.clone(),
            at,
            running,
        })
    }

    /// How it was started.
    pub fn launch(&self) -> &Launch<P> {
        &self.launch
    }

    /// Has the server end in the orderly way, without waiting for clients, and waits for the end of
    /// all. Gives what they have printed.
    ///
    /// # Errors
    /// [`MeasureError::Child`] if they do not end, or end with an error.
    pub fn stop(mut self) -> Result<String, MeasureError> {
        self.running.stop(P::ENDS_BY)
    }

    /// The same, of a server whose status says only by which signal it was told to end.
    ///
    /// # Errors
    /// [`MeasureError::Child`] if they do not end.
    pub fn end(mut self) -> Result<(), MeasureError> {
        self.running.server().signal(P::ENDS_BY);
        self.running.wait().map(drop)
    }
}

impl<P: Program> Server<P> {
    /// Kills it, and what stands before it first, so that this cannot finish what the server
    /// leaves.
    ///
    /// # Errors
    /// [`MeasureError::Child`] if they do not end.
    pub fn kill(mut self) -> Result<(), MeasureError> {
        self.running.outer().signal(Signal::KILL);
        self.running.server().signal(Signal::KILL);
        self.running.wait().map(drop)
    }
}

impl<P: Program<Address = u16>> Server<P> {
    /// Its port of loopback.
    pub fn port(&self) -> u16 {
        self.at
    }

    /// Starts it by `start` on free ports; on others if another program takes one of them before
    /// the server does.
    pub(crate) fn on_free_ports<const PORTS: usize>(
        start: impl Fn([u16; PORTS]) -> Result<Self, MeasureError>,
    ) -> Result<Self, MeasureError> {
        const TRIES: usize = 3;
        let mut said = "found no free port".to_owned();
        for _ in 0..TRIES {
            let mut ports = [0; PORTS];
            for port in &mut ports {
                *port = free_port()?;
            }
            match start(ports) {
                Err(MeasureError::Child(why)) if why.contains("in use") => said = why,
                other => return other,
            }
        }
        Err(MeasureError::Child(said))
    }
}

impl<P: Program<Address = PathBuf>> Server<P> {
    /// Its socket.
    pub fn socket(&self) -> &Path {
        &self.at
    }
}

impl<P: Program> Deref for Server<P> {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

impl<P: Program> DerefMut for Server<P> {
    fn deref_mut(&mut self) -> &mut Running {
        &mut self.running
    }
}

impl<P: Program> Drop for Server<P> {
    fn drop(&mut self) {
        /// How long it gets for that.
        const GIVEN_UP: Duration = Duration::from_secs(10);
        // Nothing happens if it has ended.
        if let Some(signal) = P::GIVEN_UP_BY {
            self.running.server().signal(signal);
            let _ = self.running.server().wait_gone(GIVEN_UP);
        }
    }
}
