//! The agent of a program that a process with the library executes: its start, and its work beside
//! serving. docs/notify.md, "A child of a program with the library".

use super::{
    child::{self, Signals},
    program::{AGENT_COMMAND, RunProgram},
};
use crate::failure::Failure;
use forebay_files::{
    client,
    supervisor::{ChildAgentOutcome, ChildAgentRequest, Supervisor},
};
use forebay_notify::{Agent, AgentFate, CONTROL_ENV, ENTERED_ENV, Guardian};
use nix::sys::{signal::SigSet, wait::waitpid};
use rustix::{
    io::{Errno, FdFlags},
    process::{Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal},
};
use std::{
    env,
    os::fd::AsRawFd,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Environment of such an agent: its program may give up gaining rights.
const CONSENT_ENV: &str = "FOREBAY_COSTS_RIGHTS";
const CONSENT: &str = "yes";

/// Has such programs served, if that can be; else their logs are plain, and the status says why.
pub(super) fn serve_children(supervisor: &Supervisor, may_cost_rights: bool) {
    let command = match forebay_notify::can_serve_children(may_cost_rights) {
        Ok(()) => env::current_exe().map_err(|e| format!("finding this program: {e}")),
        Err(why) => Err(why.0),
    };
    match command {
        Ok(command) => {
            let agent = command.clone();
            let starter = move |request| start(&agent, request, may_cost_rights);
            supervisor.serve_children(command, Box::new(starter));
        }
        Err(why) => supervisor.serve_no_children(why),
    }
}

/// Held while an agent inherits what no other is to have.
static INHERITS: Mutex<()> = Mutex::new(());

/// Starts an agent, as a child of this thread, and outlasts it.
fn start(
    command: &Path,
    request: ChildAgentRequest,
    may_cost_rights: bool,
) -> Result<ChildAgentOutcome, Errno> {
    let mut guardian = Guardian::new()?;
    let mut environment = request.environment;
    let one = INHERITS.lock().unwrap_or_else(PoisonError::into_inner);
    environment.push((CONTROL_ENV.into(), guardian.inherited()?.into()));
    rustix::io::fcntl_setfd(&request.connection, FdFlags::empty())?;
    let number = request.connection.as_raw_fd().to_string();
    environment.push((ENTERED_ENV.into(), number.into()));
    let consent = if may_cost_rights { CONSENT } else { "" };
    environment.push((CONSENT_ENV.into(), consent.into()));
    let words = vec!["forebay".into(), AGENT_COMMAND.into()];
    let agent = RunProgram::of_agent(command.to_owned(), words);
    let started = child::start(&agent, environment, &SigSet::empty());
    // Its end is to be heard of: nothing else has the other ends.
    guardian.agent_started();
    drop(request.connection);
    drop(one);
    let agent = started.map_err(|e| Errno::from_raw_os_error(e as i32))?;
    let mut unserved = None;
    let fate = AgentFate::default();
    let has_served = guardian.watch(&fate, request.settle, |why| unserved = Some(why));
    while waitpid(agent, None) == Err(nix::errno::Errno::EINTR) {}
    Ok(ChildAgentOutcome {
        has_served,
        unserved,
    })
}

/// Is such an agent.
pub(super) fn run() -> Result<(), Failure> {
    forebay_files::ignore_signals();
    // What ends or stops its process group leaves it to its program.
    let mut signals = Signals::block()?;
    client::start();
    let may_cost_rights = env::var_os(CONSENT_ENV).is_some_and(|is| is == CONSENT);
    if let Some((program, agent)) = Agent::enter(may_cost_rights) {
        outlast(program, &agent, &mut signals);
    }
    Ok(())
}

/// Waits until nothing of the program is left, and passes the supervisor's signals on to its first
/// process. What others send to this process group that gets itself.
fn outlast(program: Pid, agent: &Agent, signals: &mut Signals) {
    /// Interval of looks for signals.
    const LOOK: Duration = Duration::from_millis(100);
    let supervisor = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    let first = pidfd_open(program, PidfdFlags::empty());
    while !agent.is_over(LOOK) {
        while let Some(number) = supervisor.and_then(|pid| signals.next_of(pid)) {
            if let (Ok(first), Some(signal)) = (&first, Signal::from_named_raw(number)) {
                let _ = pidfd_send_signal(first, signal);
            }
        }
    }
}
