//! Processes that are started for a measurement or a test, and are gone when it is over, however it
//! ends.
//!
//! A process is ended through a descriptor of it (pidfd), never by a number that may be another
//! process's by now. One that ends otherwise (a signal) calls [`kill_all`] on its way out.

mod watched;

use watched::END_WAIT;
pub use watched::{Watched, kill_group};

use crate::MeasureError;
use rustix::process::Signal;
use std::{
    env,
    ffi::OsString,
    fs,
    io::Read,
    ops::Deref,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Those that are running.
static ALIVE: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

/// Kills every process of this module and what they started, and waits until they are gone: their
/// files are removed next. For the handler of a signal that ends this one: no other thread goes on
/// with a process of this module, or starts one, from now on.
pub fn kill_all() {
    let processes = alive();
    let killed: Vec<Watched> = processes.iter().flat_map(Watched::kill_tree).collect();
    for process in &killed {
        let _ = process.wait_gone(END_WAIT);
    }
    std::mem::forget(processes);
}

fn alive() -> std::sync::MutexGuard<'static, Vec<Watched>> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process of ours that is killed when this is dropped, if it is not gone by then. Not
/// necessarily a child.
#[derive(Debug)]
pub struct Handle(Watched);

impl Handle {
    /// The process `pid`, which the caller knows to be running, and to be his.
    ///
    /// # Errors
    /// I/O errors; `ESRCH` if it is gone.
    pub fn of(pid: i32) -> std::io::Result<Self> {
        Self::of_known(pid, &mut alive())
    }

    fn of_known(pid: i32, alive: &mut Vec<Watched>) -> std::io::Result<Self> {
        let watched = Watched::of(pid)?;
        alive.push(watched.clone());
        Ok(Self(watched))
    }
}

impl Deref for Handle {
    type Target = Watched;

    fn deref(&self) -> &Watched {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        alive().retain(|watched| !watched.is(self));
    }
}

/// A child process, killed and waited for when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    handle: Handle,
}

impl Process {
    /// Starts `command`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn spawn(command: &mut Command) -> Result<Self, MeasureError> {
        let program = PathBuf::from(command.get_program());
        let failed = || MeasureError::io("starting", &program);
        // Held over both: a process that runs and is not among them yet would outlive `kill_all`.
        let mut alive = alive();
        let mut child = command.spawn().map_err(failed())?;
        let handle = i32::try_from(child.id())
            .map_err(std::io::Error::other)
            .and_then(|pid| Handle::of_known(pid, &mut alive));
        drop(alive);
        match handle {
            Ok(handle) => Ok(Self { child, handle }),
            Err(error) => {
                drop(child.kill());
                drop(child.wait());
                Err(failed()(error))
            }
        }
    }

    /// The process.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The child, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its first child, once there is one that has become another program: for programs that start
    /// one, themselves or by a child that stays the same program (`forebay run` by its agent).
    /// `None` if this one ends before, or `timeout` passes.
    #[must_use]
    pub fn first_child(&mut self, timeout: Duration) -> Option<Handle> {
        let own = fs::read_link(format!("/proc/{}/exe", self.handle.pid())).ok();
        let until = Instant::now() + timeout;
        while Instant::now() < until && self.ended().is_none() {
            let mut pid = self.handle.pid();
            while let Some(first) = first_child_of(pid)
                && let Ok(program) = fs::read_link(format!("/proc/{first}/exe"))
            {
                if Some(program) != own {
                    return Handle::of(first).ok();
                }
                pid = first;
            }
            thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end, but not longer than `timeout`; then it is killed.
    ///
    /// # Errors
    /// [`MeasureError::Child`] if it had to be killed.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus, MeasureError> {
        let failed = || MeasureError::io("waiting for", Path::new("a child process"));
        if self.handle.wait_gone(timeout) {
            return self.child.wait().map_err(failed());
        }
        self.kill();
        Err(MeasureError::Child(format!(
            "{} did not end within {timeout:?} and was killed",
            self.handle.pid()
        )))
    }

    /// Kills it with SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The first child of a process's first thread.
fn first_child_of(pid: i32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// What [`Command::output`] gives, of a process that is killed if this one is told to end.
///
/// # Errors
/// I/O errors.
pub fn output(command: &mut Command) -> Result<Output, MeasureError> {
    let program = PathBuf::from(command.get_program());
    let failed = || MeasureError::io("reading from", &program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = Process::spawn(command)?;
    let errors = process.child().stderr.take().map(|mut errors| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            errors.read_to_end(&mut bytes).map(|_| bytes)
        })
    });
    let mut stdout = Vec::new();
    if let Some(mut output) = process.child().stdout.take() {
        output.read_to_end(&mut stdout).map_err(failed())?;
    }
    let stderr = match errors.map(thread::JoinHandle::join) {
        Some(Ok(read)) => read.map_err(failed())?,
        // It does nothing that could panic.
        Some(Err(_)) | None => Vec::new(),
    };
    let status = process.child().wait().map_err(failed())?;
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

/// A program of a peer: in PATH, or where `scripts/setup.sh` puts what Debian does not have
/// (`peers/bin` beside cargo's output, above this program).
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    find_programs(name).next()
}

/// All of this name, in that order: of some only later or earlier versions will do.
pub fn find_programs(name: &str) -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let own = env::current_exe().ok();
    let above = own.iter().flat_map(|program| program.ancestors().skip(1));
    let mut all: Vec<PathBuf> = env::split_paths(&path).map(|dir| dir.join(name)).collect();
    all.extend(above.map(|dir| dir.join("peers/bin").join(name)));
    all.into_iter().filter(|program| program.is_file())
}

/// Where Debian has the programs of each version, which are not on the path.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The directory of the PostgreSQL to use, if it is to be another than the newest installed: its
/// `bin`.
const ENV_POSTGRES: &str = "FOREBAY_POSTGRES_BIN";

/// A program of PostgreSQL: of the directory that the environment names (`FOREBAY_POSTGRES_BIN`),
/// of the newest version installed, or where `scripts/setup.sh` unpacks it.
///
/// # Errors
/// In words, that it is not installed, and the remedy.
pub fn find_of_postgres(name: &str) -> Result<PathBuf, String> {
    if let Some(bin) = env::var_os(ENV_POSTGRES).filter(|bin| !bin.is_empty()) {
        let program = Path::new(&bin).join(name);
        return match program.is_file() {
            true => Ok(program),
            false => Err(format!(
                "there is no {}: {ENV_POSTGRES} names PostgreSQL's directory of programs",
                program.display()
            )),
        };
    }
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let numbered = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut numbers: Vec<u32> = numbered.collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers
        .iter()
        .map(|number| Path::new(VERSIONS).join(format!("{number}/bin/{name}")))
        .find(|program| program.is_file())
        .or_else(|| find_program(name))
        .ok_or_else(|| format!("{name} is not installed: scripts/setup.sh test"))
}

/// The programs of a PostgreSQL newer than Debian's, where `scripts/setup.sh suites` unpacks it.
#[must_use]
pub fn find_newer_postgres() -> Option<PathBuf> {
    let own = env::current_exe().ok()?;
    own.ancestors()
        .map(|dir| dir.join("peers/postgresql-17/bin"))
        .find(|bin| bin.join("postgres").is_file())
}

/// libeatmydata, which makes fsync do nothing.
#[must_use]
pub fn find_eatmydata() -> Option<PathBuf> {
    let triple = format!("{}-linux-gnu", env::consts::ARCH);
    [
        format!("/usr/lib/{triple}/libeatmydata.so"),
        "/usr/lib64/libeatmydata.so".to_owned(),
        "/usr/lib/libeatmydata.so".to_owned(),
    ]
    .into_iter()
    .map(PathBuf::from)
    .find(|library| library.is_file())
}

/// `library` before what is to be loaded before a program anyway: a value for `LD_PRELOAD`.
#[must_use]
pub fn preload(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Pid;

    #[test]
    fn a_process_is_gone_when_its_guard_is() {
        let process = Process::spawn(Command::new("sleep").arg("600")).unwrap();
        let pid = process.handle().pid();
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn the_child_of_a_child_is_found_and_killed_too() {
        let mut process =
            Process::spawn(Command::new("sh").args(["-c", "sleep 600 & wait"])).unwrap();
        let child = process.first_child(Duration::from_secs(10)).unwrap();
        process.kill();
        let watch = child.clone();
        drop(child);
        assert!(watch.wait_gone(Duration::from_secs(10)));
    }

    #[test]
    fn a_group_that_is_killed_is_gone_when_that_returns() {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sh");
        command
            .args(["-c", "sleep 600 & sleep 600 & wait"])
            .process_group(0);
        let mut process = Process::spawn(&mut command).unwrap();
        let child = process.first_child(Duration::from_secs(10)).unwrap();
        assert!(kill_group(Pid::from_child(process.child())));
        assert!(child.wait_gone(Duration::ZERO));
    }

    #[test]
    fn both_outputs_of_a_process_are_read_however_long_they_are() {
        let script = "for n in $(seq 20000); do echo out$n; echo err$n >&2; done; exit 3";
        let said = output(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(said.status.code(), Some(3));
        assert!(said.stdout.ends_with(b"out20000\n") && said.stderr.ends_with(b"err20000\n"));
    }

    #[test]
    fn a_process_that_does_not_end_is_an_error() {
        let mut process = Process::spawn(Command::new("sleep").arg("600")).unwrap();
        assert!(process.wait(Duration::from_millis(10)).is_err());
        let mut process = Process::spawn(&mut Command::new("true")).unwrap();
        assert!(process.wait(Duration::from_secs(60)).unwrap().success());
    }
}
