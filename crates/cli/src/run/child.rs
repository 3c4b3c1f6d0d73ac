//! The program that is run: starting it, passing signals through, waiting for its end.
//!
//! A program that puts itself into the background (ends with 0 and leaves a child) goes on as that
//! child, the *leader* from then on. Orphans below this process are given to it
//! (`PR_SET_CHILD_SUBREAPER`), so it waits for them, and the supervisor is there when they open
//! their logs.
//!
//! What is absorbed still when the program has ended otherwise is waited for as well, and gets the
//! signals ([`outlast`]): a server whose wrapper was killed, for instance.
//!
//! The program stays in our process group: what the terminal sends (`^C`, `^Z`, a changed window
//! size) reaches it without us, and is not sent again. A signal that is sent to this process only
//! is passed on.

use super::{inherited_signals, program::RunProgram, resource_limits};
use crate::{failure::Failure, standard_error::complain};
use forebay_files::{
    activation,
    supervisor::{ProcessStatus, Supervisor},
};
use forebay_notify::{Agent, AgentFate};
use nix::{
    errno::Errno,
    spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn},
    sys::{
        signal::{SigSet, Signal, kill, raise},
        signalfd::{SfdFlags, SignalFd},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    collections::BTreeMap,
    env,
    ffi::{CString, OsString},
    os::unix::ffi::OsStringExt,
    time::{Duration, Instant},
};

/// Interval of looks for signals while processes that the program left are waited for.
const LOOK: Duration = Duration::from_millis(100);
/// A child that ends this soon after the program is part of its orderly end, and no background.
const ORDERLY: Duration = Duration::from_millis(250);
/// Processes that end this soon after the program are not spoken of.
const SOON: Duration = Duration::from_secs(1);
/// Processes that are named; of more their number is said.
const NAMED_MAX: usize = 5;

/// Signals that are passed on.
const PASSED: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// The signals of this process, from now on read instead of delivered.
pub struct Signals {
    fd: SignalFd,
    /// The signals blocked before: the program starts with those.
    before: SigSet,
    stop: StopRequest,
}

impl Signals {
    /// Takes them over, for this thread and those that it starts. A caller's ignoring SIGCHLD ends
    /// here, for the program too: whether `execve` hands that on, POSIX leaves open.
    pub fn block() -> Result<Self, Failure> {
        forebay_files::hear_of_children();
        let mut set: SigSet = PASSED.into_iter().collect();
        set.add(Signal::SIGCHLD);
        set.add(Signal::SIGTSTP);
        let failed = |e: Errno| Failure::Failed(format!("handling signals: {e}"));
        let before = SigSet::thread_get_mask().map_err(failed)?;
        set.thread_block().map_err(failed)?;
        Ok(Self {
            fd: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC).map_err(failed)?,
            before,
            stop: StopRequest::default(),
        })
    }

    /// True if there is one to be read.
    fn is_there(&self) -> bool {
        self.is_there_within(Duration::ZERO)
    }

    /// The number of the next signal that this process sent, if one is there that is to be passed
    /// on.
    pub fn next_of(&mut self, sender: u32) -> Option<i32> {
        while self.is_there() {
            let Ok(Some(info)) = self.fd.read_signal() else {
                break;
            };
            let number = i32::try_from(info.ssi_signo).ok();
            let number = number.filter(|number| *number != Signal::SIGCHLD as i32);
            if info.ssi_pid == sender && number.is_some() {
                return number;
            }
        }
        None
    }

    fn is_there_within(&self, limit: Duration) -> bool {
        let mut wait = [PollFd::new(&self.fd, PollFlags::IN)];
        let limit = Timespec::try_from(limit).unwrap_or_default();
        poll(&mut wait, Some(&limit)).is_ok_and(|found| found > 0)
    }
}

/// Runs `program` with `environment` on top of ours, as [`follow`] does.
pub fn run(
    program: &RunProgram,
    environment: Vec<(OsString, OsString)>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let starts = |blocked: &SigSet| start(program, environment, blocked);
    follow(program, starts, signals, None)
}

/// Runs the program that `starts` until it has ended, and, if it ended with 0, the processes that
/// it left in the background; gives the status of the last one, as a shell does: 128 and the
/// signal's number if one killed it. If it is an agent, the program that an agent leaves when it
/// dies is followed.
pub fn follow(
    program: &RunProgram,
    starts: impl FnOnce(&SigSet) -> Result<Pid, Errno>,
    signals: &mut Signals,
    agent: Option<&AgentFate>,
) -> Result<u8, Failure> {
    let failed = |e| {
        Failure::Failed(format!(
            "becoming the parent of the processes that the program leaves: {e}"
        ))
    };
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(failed)?;
    let mut leader = starts(&signals.before).map_err(|error| {
        let status = if error == Errno::ENOENT { 127 } else { 126 };
        Failure::NotRun(
            status,
            format!("running {}: {error}", program.path().display()),
        )
    })?;
    resource_limits::raise_open_files();
    // When the program ended with 0, and left a child.
    let mut left: Option<Instant> = None;
    let agent_process = leader;
    loop {
        signals.stop.follow()?;
        match reap()? {
            Some((child, ChildEvent::Ended(status))) if child == leader => {
                let is_orphaned =
                    leader == agent_process && agent.is_some_and(AgentFate::has_left_program);
                match (status, oldest_child()) {
                    (_, Some(next)) if is_orphaned => leader = next,
                    (0, Some(next)) => {
                        left.get_or_insert_with(Instant::now);
                        leader = next;
                    }
                    (status, _) => return Ok(status),
                }
            }
            Some((child, ChildEvent::Stopped(is_stopped))) if child == leader => {
                signals.stop.is_done = is_stopped;
            }
            // An orphan that is not waited for.
            Some(_) => {}
            None => match left {
                Some(since) if since.elapsed() >= ORDERLY => {
                    complain!(
                        "forebay: {} went into the background as process {leader}; forebay stays until that ends",
                        program.name().to_string_lossy()
                    );
                    left = None;
                }
                Some(_) if !signals.is_there_within(LOOK) => {}
                _ => pass_one(&[leader], signals)?,
            },
        }
    }
}

/// Waits for those of the run's processes that have not ended with the program, and passes signals
/// on to them.
pub fn outlast(
    program: &RunProgram,
    supervisor: &Supervisor,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let (begun, mut is_said) = (Instant::now(), false);
    loop {
        let mut left = supervisor.outlast(LOOK);
        if left.is_empty() {
            return Ok(());
        }
        // Orphans of the program are children of this process.
        while let Ok(Some(_)) = reap() {}
        left.retain(|process| !process.ended);
        let pids = left.iter().filter_map(|it| i32::try_from(it.pid).ok());
        let pids: Vec<Pid> = pids.map(Pid::from_raw).collect();
        while signals.is_there() {
            pass_one(&pids, signals)?;
        }
        if !is_said && !left.is_empty() && begun.elapsed() >= SOON {
            complain!(
                "forebay: {} has ended, and these go on under forebay: {}. It passes signals on to them, and stays until they end",
                program.name().to_string_lossy(),
                names(&left)
            );
            is_said = true;
        }
    }
}

/// Waits, as an agent, for those processes of the program that have not ended with it, and passes
/// signals on to them.
pub fn outlast_agent(
    program: &RunProgram,
    agent: &Agent,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let (begun, mut is_said) = (Instant::now(), false);
    while !agent.is_over(LOOK) {
        while let Ok(Some(_)) = reap() {}
        let left: Vec<Pid> = oldest_child().into_iter().collect();
        while signals.is_there() {
            pass_one(&left, signals)?;
        }
        if let Some(pid) = left.first().filter(|_| !is_said && begun.elapsed() >= SOON) {
            complain!(
                "forebay: {} has ended, and left process {pid}. forebay passes signals on to it, and stays until nothing of the program is left",
                program.name().to_string_lossy()
            );
            is_said = true;
        }
    }
    Ok(())
}

/// The first of them, and how many more there are.
fn names(processes: &[ProcessStatus]) -> String {
    let first = processes.iter().take(NAMED_MAX);
    let mut names: Vec<String> = first
        .map(|it| format!("{} (process {})", it.program, it.pid))
        .collect();
    if let more @ 1.. = processes.len().saturating_sub(NAMED_MAX) {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// A child's end, or stop.
enum ChildEvent {
    /// It ended, with a status as a shell gives it.
    Ended(u8),
    /// It was stopped: true if by SIGTSTP. Or it goes on.
    Stopped(bool),
}

/// The event of a child of this thread. Children of the supervisor's threads are theirs.
fn reap() -> Result<Option<(Pid, ChildEvent)>, Failure> {
    let flags = WaitPidFlag::WNOHANG
        | WaitPidFlag::WUNTRACED
        | WaitPidFlag::WCONTINUED
        | WaitPidFlag::__WNOTHREAD;
    let ended = |status: i32| ChildEvent::Ended(u8::try_from(status).unwrap_or(1));
    loop {
        return match waitpid(None, Some(flags)) {
            Ok(WaitStatus::Exited(pid, status)) => Ok(Some((pid, ended(status & 0xff)))),
            Ok(WaitStatus::Signaled(pid, signal, _)) => Ok(Some((pid, ended(128 + signal as i32)))),
            Ok(WaitStatus::Stopped(pid, by)) => {
                Ok(Some((pid, ChildEvent::Stopped(by == Signal::SIGTSTP))))
            }
            Ok(WaitStatus::Continued(pid)) => Ok(Some((pid, ChildEvent::Stopped(false)))),
            Ok(WaitStatus::StillAlive) => Ok(None),
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(error) => Err(Failure::Failed(format!("waiting for the program: {error}"))),
        };
    }
}

/// A stop that the terminal or another process asks for (SIGTSTP). The program decides about it: if
/// this process stopped alone, nothing would empty the lane. Nor does it follow a stop of another
/// kind, which the program alone is continued from.
#[derive(Default)]
struct StopRequest {
    is_asked_for: bool,
    /// The program has stopped.
    is_done: bool,
}

impl StopRequest {
    /// Stops this process, too, once the program has, if that was asked for.
    fn follow(&mut self) -> Result<(), Failure> {
        if !self.is_asked_for || !self.is_done {
            return Ok(());
        }
        *self = Self::default();
        // The shell waits for us to stop; SIGCONT to the job wakes us both. By the same signal,
        // which stops no process in an orphaned process group, which no shell would continue.
        let stop = SigSet::from_iter([Signal::SIGTSTP]);
        raise(Signal::SIGTSTP)
            .and_then(|()| stop.thread_unblock())
            .and_then(|()| stop.thread_block())
            .map_err(|e| Failure::Failed(format!("stopping: {e}")))
    }
}

/// The child that this thread has had longest, which may have ended. None on a kernel that does not
/// tell.
fn oldest_child() -> Option<Pid> {
    let children = std::fs::read_to_string("/proc/thread-self/children").ok()?;
    let first = children.split_whitespace().next()?;
    first.parse().ok().map(Pid::from_raw)
}

/// Starts it: the standard library would leave our signals blocked in it.
pub fn start(
    program: &RunProgram,
    environment: Vec<(OsString, OsString)>,
    blocked: &SigSet,
) -> Result<Pid, Errno> {
    let bytes = |text: OsString| CString::new(text.into_vec()).map_err(|_| Errno::EINVAL);
    let mut variables: BTreeMap<OsString, OsString> = env::vars_os().collect();
    // The library, or the agent, tells the program that it is meant.
    let has_library = (environment.iter())
        .any(|(name, _)| name == "LD_PRELOAD" || name == forebay_notify::CONTROL_ENV);
    variables.extend(environment);
    if has_library {
        activation::hand_over(&mut variables, std::process::id());
    }
    let variables: Vec<CString> = variables
        .into_iter()
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            bytes(name)
        })
        .collect::<Result<_, _>>()?;
    let words =
        std::iter::once(program.typed()).chain(program.arguments().iter().map(OsString::as_os_str));
    let words: Vec<CString> = words
        .map(|word| bytes(word.to_owned()))
        .collect::<Result<_, _>>()?;
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
    )?;
    attributes.set_sigmask(blocked)?;
    attributes.set_sigdefault(&inherited_signals::ignored_here())?;
    posix_spawn(
        program.path(),
        &PosixSpawnFileActions::init()?,
        &attributes,
        &words,
        &variables,
    )
}

fn is_in_our_group(child: Pid) -> bool {
    let child = rustix::process::Pid::from_raw(child.as_raw());
    let group = rustix::process::getpgid(child);
    group.is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Waits for one signal and passes it on to those that have not got it already.
fn pass_one(to: &[Pid], signals: &mut Signals) -> Result<(), Failure> {
    let info = match signals.fd.read_signal() {
        Ok(Some(info)) => info,
        Ok(None) | Err(Errno::EINTR) => return Ok(()),
        Err(error) => return Err(Failure::Failed(format!("waiting for signals: {error}"))),
    };
    let number = i32::try_from(info.ssi_signo).unwrap_or(0);
    let Ok(signal) = Signal::try_from(number) else {
        return Ok(());
    };
    if signal == Signal::SIGCHLD {
        return Ok(());
    }
    // The kernel's are the terminal's, and go to the whole process group. Who left it for the
    // background is ended by them all the same, as what the terminal shows is this process.
    const FROM_KERNEL: i32 = 0x80;
    const ENDING: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];
    let has_got_it =
        |pid| info.ssi_code == FROM_KERNEL && (!ENDING.contains(&signal) || is_in_our_group(pid));
    for pid in to.iter().filter(|pid| !has_got_it(**pid)) {
        match kill(*pid, signal) {
            // It has just ended: the next look at it says so.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => complain!("forebay: passing {signal} on: {error}"),
        }
    }
    match signal {
        Signal::SIGTSTP => signals.stop.is_asked_for = true,
        Signal::SIGCONT => signals.stop = StopRequest::default(),
        _ => {}
    }
    Ok(())
}
