//! A machine in the namespaces of this machine's kernel: processes, files, network and names of its
//! own, and disks that are loop devices. It boots in a tenth of a second, and runs as fast as this
//! machine.
//!
//! Its root is directories, one over the other, of which it changes nothing that lasts. Its end, in
//! three steps, is a power cut as far as its processes see it: [`NamespaceMachine::doom`] has all
//! of them killed, whoever waits for a disk among them; the disks, which answered nothing
//! meanwhile, may fail now; [`NamespaceMachine::wait_end`] waits until none is left. So no process
//! sees a disk fail that lost its power.

use crate::{Failure, watched::WatchedProcess};
use forebay_device::block::LoopDevice;
use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use std::{
    fs::{self, File},
    io,
    os::{fd::AsFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Builds the root inside the new namespaces.
const BUILD: &str = include_str!("namespace.sh");

/// How long it may take until every process is about to die, or is gone.
const END_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(1);

/// What a machine consists of.
pub struct NamespaceSetup<'a> {
    /// What its root is made of, the uppermost directory first.
    pub layers: &'a [PathBuf],
    /// Its disks, by their names in /dev.
    pub disks: Vec<(&'a str, &'a LoopDevice)>,
    /// A directory that outlives it, and that it has at /mnt/pmem.
    pub memory: &'a Path,
    /// What its /proc/cmdline says.
    pub parameters: &'a str,
    /// An empty directory.
    pub scratch: &'a Path,
    /// Where it prints to.
    pub console: PathBuf,
}

/// A running machine, killed when this is dropped.
pub struct NamespaceMachine {
    /// Its processes, as one, and what they print.
    pub guest: WatchedProcess,
    scratch: PathBuf,
    /// Its first process, once that is known.
    first: Option<FirstProcess>,
}

/// The first process of a machine, by its number on this one.
struct FirstProcess {
    pid: u32,
    /// Its namespace of processes, by name.
    namespace: PathBuf,
    network: Arc<File>,
}

/// The way into a machine's network.
#[derive(Clone)]
pub struct NamespaceNetwork(Arc<File>);

impl NamespaceMachine {
    /// Starts it.
    ///
    /// # Errors
    /// No namespaces can be had; I/O errors.
    pub fn start(setup: NamespaceSetup<'_>) -> Result<Self, Failure> {
        let layers: Vec<_> = setup.layers.iter().map(|it| it.to_string_lossy()).collect();
        let mut output = File::options();
        // Whoever prints, prints behind the others.
        output.create(true).append(true);
        // What an earlier one printed is not this one's.
        let _ = fs::remove_file(&setup.console);
        let output = output.open(&setup.console)?;
        let devices = setup.disks.iter().map(|(name, device)| {
            let (major, minor) = device.numbers();
            format!("{name}:{major}:{minor}")
        });
        let kinds = [
            "--pid",
            "--mount",
            "--ipc",
            "--net",
            "--uts",
            "--fork",
            "--kill-child",
        ];
        let process = Command::new("setpriv")
            // It ends with us, however we end, and ends nothing but itself.
            .args(["--pdeathsig", "KILL", "--bounding-set"])
            .arg("-sys_boot,-sys_module,-sys_time")
            .arg("unshare")
            .args(kinds)
            .args(["--propagation", "private", "sh", "-c", BUILD, "build"])
            .args(devices)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            // As a kernel has it.
            .env("HOME", "/")
            .env("DIR", setup.scratch)
            .env("LAYERS", layers.join(":"))
            .env("MEMORY", setup.memory)
            .env("PARAMETERS", setup.parameters)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // A terminal's interrupt is for us: machines are cut, not ended.
            .process_group(0)
            .spawn()
            .map_err(|e| format!("setpriv: {e}. Install it: apt-get install util-linux"))?;
        Ok(Self {
            guest: WatchedProcess::new(process, setup.console),
            scratch: setup.scratch.to_owned(),
            first: None,
        })
    }

    /// Waits until its first process is about to touch the disks.
    ///
    /// # Errors
    /// As [`WatchedProcess::wait`].
    pub fn wait_up(&mut self, limit: Duration) -> Result<(), Failure> {
        self.guest.wait_up(limit)?;
        let told = fs::read_to_string(self.scratch.join("pid"))?;
        let pid = told.trim().parse()?;
        let of = |name: &str| PathBuf::from(format!("/proc/{pid}/ns/{name}"));
        self.first = Some(FirstProcess {
            pid,
            namespace: fs::read_link(of("pid"))?,
            network: Arc::new(File::open(of("net"))?),
        });
        Ok(())
    }

    /// Its network, once it is up.
    #[must_use]
    pub fn network(&self) -> Option<NamespaceNetwork> {
        let first = self.first.as_ref()?;
        Some(NamespaceNetwork(Arc::clone(&first.network)))
    }

    /// A directory of it, seen from here. None if it is not up, or has ended.
    #[must_use]
    pub fn open(&self, path: &str) -> Option<File> {
        let pid = self.first.as_ref()?.pid;
        File::open(format!("/proc/{pid}/root{path}")).ok()
    }

    /// Kills all processes, and returns when each of them is gone or goes as soon as what it waits
    /// for is over: it does nothing any more. Of a machine that is not known to be up yet, all have
    /// been killed then.
    ///
    /// # Errors
    /// One of them is not; I/O errors.
    pub fn doom(&mut self) -> Result<(), Failure> {
        let Some(first) = &self.first else {
            // Its first process ends with this one, and the others with that.
            return self.guest.kill();
        };
        if let Some(pid) = i32::try_from(first.pid).ok().and_then(Pid::from_raw)
            // Its number may be another's once it has ended.
            && first.is(first.pid)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
        let until = Instant::now() + END_MAX;
        while let Some(pid) = first.lives()? {
            if Instant::now() >= until {
                return Err(format!("process {pid} of a machine outlived {END_MAX:?}").into());
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits until no process is left.
    ///
    /// # Errors
    /// It takes too long.
    pub fn wait_end(&mut self) -> Result<(), Failure> {
        if self.first.is_none() {
            return self.guest.kill();
        }
        self.guest.wait_end(END_MAX)
    }
}

impl NamespaceNetwork {
    /// Does something in that network.
    ///
    /// # Errors
    /// It cannot be entered.
    pub fn enter<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let entered = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(self.0.as_fd(), network)?;
                Ok(act())
            });
            let died = |_| io::Error::other("the thread in the machine's network died");
            entered.join().map_err(died)?
        })
    }
}

impl FirstProcess {
    /// True if this process is of the same machine.
    fn is(&self, pid: u32) -> bool {
        fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|of| of == self.namespace)
    }

    /// A process of the machine that has not been killed.
    fn lives(&self) -> Result<Option<u32>, Failure> {
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if self.is(pid) && !is_doomed(pid) {
                return Ok(Some(pid));
            }
        }
        Ok(None)
    }
}

/// True if a process does nothing any more that is its own: it has ended, ends, or has got SIGKILL.
fn is_doomed(pid: u32) -> bool {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
    match (read("status"), read("stat")) {
        (Ok(status), Ok(stat)) => is_killed(&status) || is_ending(&stat),
        _ => true,
    }
}

/// By /proc/PID/status: SIGKILL is pending, or it is dead.
fn is_killed(status: &str) -> bool {
    const KILL: u64 = 1 << 8;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim()
    };
    let pending = |name| u64::from_str_radix(field(name), 16).is_ok_and(|set| set & KILL != 0);
    let state = field("State:");
    state.starts_with(['Z', 'X']) || pending("SigPnd:") || pending("ShdPnd:")
}

/// By /proc/PID/stat: its flags (the seventh field behind the name) have `PF_EXITING`.
fn is_ending(stat: &str) -> bool {
    const EXITING: u64 = 4;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let flags = fields.split_whitespace().nth(6);
    flags.is_some_and(|flags| flags.parse::<u64>().is_ok_and(|set| set & EXITING != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_doomed_that_ends_or_has_got_sigkill() {
        let status = |state: &str, own: &str, shared: &str| {
            format!("Name:\tetcd\nState:\t{state}\nSigPnd:\t{own}\nShdPnd:\t{shared}\n")
        };
        let none = "0000000000000000";
        assert!(!is_killed(&status(
            "S (sleeping)",
            none,
            "0000000000004000"
        )));
        assert!(is_killed(&status(
            "D (disk sleep)",
            none,
            "0000000000000100"
        )));
        assert!(is_killed(&status(
            "D (disk sleep)",
            "0000000000000102",
            none
        )));
        assert!(is_killed(&status("Z (zombie)", none, none)));
        assert!(is_ending("7 (a) b) D 1 7 7 0 -1 4194564 0"));
        assert!(!is_ending("7 (a) b) D 1 7 7 0 -1 4194560 0"));
    }

    #[test]
    fn this_process_is_not_doomed() {
        assert!(!is_doomed(std::process::id()));
        // Numbers of processes end below it.
        assert!(is_doomed(u32::MAX));
    }
}
