//! A database server that runs as a child process, mostly under a program that starts it.

use crate::{
    MeasureError,
    processes::{Handle, Process},
};
use rustix::process::Signal;
use std::{
    ffi::OsString,
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Longer than a start, with a recovery, or an orderly end takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// The beginning of a server's command line: what stands before it, and its program.
#[must_use]
pub fn command_line(
    before: impl IntoIterator<Item = OsString>,
    wrapper: &[OsString],
    program: &Path,
) -> Command {
    let wrapper = wrapper.iter().cloned();
    let mut words = before.into_iter().chain(wrapper).chain([program.into()]);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// The words that keep what follows on these processors, as `taskset` has them.
pub fn pinned(processors: Option<&String>) -> impl Iterator<Item = OsString> {
    processors
        .into_iter()
        .flat_map(|list| ["taskset", "--cpu-list", list].map(OsString::from))
}

/// A load program, on this processor only if there is one.
#[must_use]
pub fn on_processor(processor: Option<usize>, program: &Path) -> Command {
    let list = processor.map(|processor| processor.to_string());
    command_line(pinned(list.as_ref()), &[], program)
}

/// An option with a path behind it.
#[must_use]
pub fn option(name: &str, value: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}

/// A running server, killed when this is dropped, and what stands before it too.
#[derive(Debug)]
pub struct Running {
    /// The program's name.
    name: &'static str,
    output: PathBuf,
    /// The server, if something else started it.
    server: Option<Handle>,
    /// What we started.
    process: Process,
}

/// Of two lines, as those of a log with times and processes.
fn differ_in_numbers_only(one: &str, other: &str) -> bool {
    let [one, other] =
        [one, other].map(|line| line.chars().filter(|letter| !letter.is_ascii_digit()));
    one.eq(other)
}

impl Running {
    /// Starts it, its output going to the file `output`, and waits until it is ready. `is_wrapped`:
    /// what `command` starts is not the server, but starts it.
    ///
    /// # Errors
    /// I/O errors, and [`MeasureError::Child`] with what it said if it ends or does not serve.
    pub fn start(
        name: &'static str,
        mut command: Command,
        output: PathBuf,
        is_wrapped: bool,
        is_ready: impl Fn() -> bool,
    ) -> Result<Self, MeasureError> {
        let file = File::create(&output).map_err(MeasureError::io("creating", &output))?;
        let copy = file
            .try_clone()
            .map_err(MeasureError::io("opening", &output))?;
        command.stdin(Stdio::null()).stdout(file).stderr(copy);
        let mut server = Self {
            name,
            output,
            server: None,
            process: Process::spawn(&mut command)?,
        };
        if is_wrapped {
            server.server = server.process.first_child(PATIENCE);
        }
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = server.process.ended() {
                return Err(server.said(&format!("ended with {status}")));
            }
            if is_ready() {
                return Ok(server);
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(server.said("did not serve within two minutes"))
    }

    fn said(&self, what: &str) -> MeasureError {
        let said = self.output();
        let mut lines: Vec<&str> = said.lines().collect();
        // A server says of each attempt to reach it that it is starting up.
        lines.dedup_by(|line, before| differ_in_numbers_only(line, before));
        // One that aborts prints its reason before a screen of its state.
        let last = &lines[lines.len().saturating_sub(80)..];
        MeasureError::Child(format!(
            "({}) {what} and said: {}",
            self.name,
            last.join(" | ")
        ))
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
        fs::read_to_string(&self.output)
            .map(|text| text.replace('\0', ""))
            .unwrap_or_default()
    }

    /// Has the server end by `signal`, which is a way to end for it, and waits for the end of all.
    /// Gives what they have printed.
    ///
    /// # Errors
    /// [`MeasureError::Child`] if they do not end, or end with an error.
    pub fn stop(&mut self, signal: Signal) -> Result<String, MeasureError> {
        self.server().signal(signal);
        let status = self.process.wait(PATIENCE)?;
        match status.success() {
            true => Ok(self.output()),
            false => Err(self.said(&format!("ended with {status}"))),
        }
    }

    /// Waits for the end of all without asking for it.
    ///
    /// # Errors
    /// [`MeasureError::Child`] if they do not end.
    pub fn wait(&mut self) -> Result<ExitStatus, MeasureError> {
        let status = self.process.wait(PATIENCE)?;
        if !self.server().wait_gone(PATIENCE) {
            return Err(self.said("did not end"));
        }
        Ok(status)
    }
}

/// What stands before a command to have it run under `forebay`, with a pool of which it gets so
/// many segments, or with none, and with further options.
#[must_use]
pub fn forebay_run(
    forebay: &Path,
    pool: Option<(&Path, u16)>,
    options: impl IntoIterator<Item = (&'static str, OsString)>,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![forebay.into(), "run".into()];
    match pool {
        Some((pool, segments)) => words.extend([
            "--pool".into(),
            pool.into(),
            "--segments".into(),
            segments.to_string().into(),
        ]),
        None => words.push("--no-pool".into()),
    }
    for (name, value) in options {
        words.extend([name.into(), value]);
    }
    words.push("--".into());
    words
}

/// A port of loopback that no program has at the moment.
///
/// # Errors
/// I/O errors.
pub fn free_port() -> Result<u16, MeasureError> {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(MeasureError::io("looking for", Path::new("a free port")))
}

/// The standard output of a program that succeeded.
///
/// # Errors
/// [`MeasureError::Child`] with what it said if it did not.
pub fn said_by(program: &str, done: Output) -> Result<String, MeasureError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match done.status.success() {
        true => Ok(text(&done.stdout)),
        false => Err(MeasureError::Child(format!(
            "({program}) ended with {} and said: {} {}",
            done.status,
            text(&done.stdout).trim(),
            text(&done.stderr).trim()
        ))),
    }
}

/// Copies a data directory that no server has open.
///
/// # Errors
/// I/O errors.
pub fn copy(from: &Path, to: &Path) -> Result<(), MeasureError> {
    let mut command = Command::new("cp");
    command.args(["-a", "--"]).args([from, to]);
    said_by("cp", crate::processes::output(&mut command)?).map(drop)
}
