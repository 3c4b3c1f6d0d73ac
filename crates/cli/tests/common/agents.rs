//! Servers that an agent serves, on ports of loopback: how they are started, and how the power is
//! cut amid their writes.

use super::{
    Sandbox,
    databases::{PATIENCE, ProcessGroup, boot_anew, moment},
    pools_on_disk,
};
use forebay_bench::data::Random;
use forebay_measure::server::free_port;
use rustix::process::Signal;
use std::{
    fs::{self, File},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Starts on other ports, if another program takes one first.
const TRIES: usize = 3;

/// A running one, with all that stands before it.
pub struct Served {
    run: ProcessGroup,
    /// The port of its clients.
    pub port: u16,
}

impl Served {
    /// Starts what `command` makes of two free ports, of clients and another, with its output in
    /// `errors`, and waits until it `serves` on the first.
    #[track_caller]
    pub fn start(
        command: impl Fn([u16; 2]) -> Command,
        errors: &Path,
        serves: impl Fn(u16) -> bool,
    ) -> Self {
        Self::try_start(command, errors, serves).unwrap_or_else(|said| panic!("{said}"))
    }

    /// As [`Self::start`]; of one that does not serve, what it said.
    pub fn try_start(
        command: impl Fn([u16; 2]) -> Command,
        errors: &Path,
        serves: impl Fn(u16) -> bool,
    ) -> Result<Self, String> {
        for _ in 0..TRIES {
            let ports = [(), ()].map(|()| free_port().unwrap());
            let mut command = command(ports);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(File::create(errors).unwrap());
            let mut served = Self {
                run: ProcessGroup::start(&mut command),
                port: ports[0],
            };
            let begun = Instant::now();
            while !served.run.has_ended() {
                if serves(served.port) {
                    return Ok(served);
                }
                if begun.elapsed() >= PATIENCE {
                    return Err(format!("it does not serve: {}", said(errors)));
                }
                thread::sleep(Duration::from_millis(20));
            }
            if !said(errors).contains("in use") {
                return Err(format!("it ended: {}", said(errors)));
            }
        }
        panic!("no free port: {}", said(errors));
    }

    /// Kills the server, what does its calls, and its supervisor.
    pub fn cut(mut self) {
        self.run.kill();
    }

    /// Stops the server, and all that stands before it: none of them answers any more.
    pub fn stop(&self) {
        self.run.stop();
    }

    /// Has it end in the orderly way.
    pub fn end(self, signal: Signal) -> ExitStatus {
        self.run.end(signal)
    }
}

fn said(errors: &Path) -> String {
    fs::read_to_string(errors).unwrap()
}

/// A program under forebay, which believes that the machine was booted anew.
pub fn under_forebay(sandbox: &Sandbox, pool: &Path, boot: usize, program: &Path) -> Command {
    let mut environment = Vec::new();
    boot_anew(&mut environment, boot);
    let mut command = sandbox.command("run --front-end notify --explain --pool");
    command.arg(pool);
    // The tests' data may lie on the same disk.
    command.args(pools_on_disk().then_some("--absorb-preallocated"));
    command
        .arg("--")
        .arg(program)
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .env("FOREBAY_TEST_SYNCED", sandbox.file("synced"))
        .envs(environment);
    command
}

/// Before a cut that leaves the files as they are: a test puts them back later.
pub fn no_disk(_: &Served) {}

/// Has `write` write, which counts what is acknowledged and returns once the server is gone, and
/// cuts the power at some moment after so many: by `before`, and by killing all. What `write`
/// returns.
pub fn write_and_cut<T: Send>(
    served: Served,
    before: impl FnOnce(&Served),
    (least, random): (u64, &mut Random),
    write: impl FnOnce(&AtomicU64) -> T + Send,
) -> T {
    let acknowledged = AtomicU64::new(0);
    let written = thread::scope(|scope| {
        let writing = scope.spawn(|| write(&acknowledged));
        let begun = Instant::now();
        while acknowledged.load(Relaxed) < least && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(moment(random, 150));
        before(&served);
        served.cut();
        writing.join().unwrap()
    });
    let acknowledged = acknowledged.into_inner();
    assert!(acknowledged >= least, "{acknowledged} acknowledged");
    written
}

/// What a run said: an agent served it by this profile.
#[track_caller]
pub fn was_served(errors: &Path, profile: &str) {
    let said = said(errors);
    assert!(said.contains(&format!("profile {profile}")), "{said}");
    assert!(!said.contains("runs plainly"), "{said}");
}

/// The paths that `--explain` says were absorbed.
pub fn absorbed_paths(said: &str) -> Vec<&str> {
    let words = said.lines().map(|line| line.split_whitespace());
    words
        .filter(|words| words.clone().count() > 4 && words.clone().next_back() == Some("absorbed"))
        .filter_map(|mut words| words.next())
        .collect()
}

/// Copies files and directories of the sandbox below a new directory of it.
pub fn copied(sandbox: &Sandbox, names: &[&str], to: &str) -> std::path::PathBuf {
    let to = sandbox.file(to);
    fs::create_dir(&to).unwrap();
    for name in names {
        let mut copy = Command::new("cp");
        let done = copy.arg("-a").arg(sandbox.file(name)).arg(&to).status();
        assert!(done.unwrap().success(), "{name}");
    }
    to
}
