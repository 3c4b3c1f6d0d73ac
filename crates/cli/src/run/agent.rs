//! The agent of `forebay run` for a program that no library can be put before. It is a process of
//! this command between the supervisor and the program. crates/notify has what it does; here are
//! its signals and its exit status, which are the program's.
//!
//! It is started by `forebay run` only, as `forebay notify-agent PATH NAME ARGUMENT…`, and is no
//! subcommand that a user is told of.

use super::{
    child::{self, Signals},
    child_agent, inherited_signals,
    program::{AGENT_COMMAND, RunProgram},
};
use crate::{failure::Failure, standard_error::complain};
use forebay_files::{
    ENV_ABSORB, ENV_GUARD, ENV_IO_URING, ENV_SOCKET, ENV_TABLE, ENV_TOKEN, client,
    supervisor::Supervisor,
};
use forebay_notify::{Agent, AgentFate, CONTROL_ENV, ENTERED_ENV, Guardian, ProgramImage};
use nix::{errno::Errno, sys::signal::SigSet, unistd::Pid};
use std::{
    env,
    ffi::{CString, OsString},
    os::unix::ffi::OsStringExt,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Variables that are the agent's, and not the program's.
const OWN: [&str; 7] = [
    ENV_SOCKET,
    ENV_TOKEN,
    ENV_TABLE,
    ENV_ABSORB,
    ENV_IO_URING,
    ENV_GUARD,
    CONTROL_ENV,
];

/// Announces an agent, the reason, and the price.
pub(super) fn announce(reason: &str) {
    let rights = match forebay_notify::costs_rights() {
        true => " (nothing that it executes gains rights, as sudo does)",
        false => "",
    };
    complain!(
        "forebay: an agent does the program's system calls on logs, and those of the programs that it executes (experimental: docs/notify.md lists the writes that it can \
         lose){rights}: {reason}"
    );
}

/// Runs the program below an agent, which is a member for it; gives its status.
pub(super) fn run_below(
    program: &RunProgram,
    mut environment: Vec<(OsString, OsString)>,
    supervisor: &Supervisor,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let failed = |e| Failure::Failed(format!("preparing for the agent's death: {e}"));
    let guardian = Guardian::new().map_err(failed)?;
    let inherited = guardian.inherited().map_err(failed)?;
    environment.push((CONTROL_ENV.into(), inherited.into()));
    let agent = program.below_agent()?;
    let fate = AgentFate::default();
    let starts = |blocked: &_| {
        let pid = child::start(&agent, environment, blocked)?;
        // It is not let go unguarded: without a thread the connection is closed, and the agent
        // runs the program plainly.
        if let Err(error) =
            guardian.follow(&fate, supervisor.letting_go(), supervisor.without_agent())
        {
            complain!("forebay: preparing for the agent's death: {error}");
        }
        Ok(pid)
    };
    child::follow(program, starts, signals, Some(&fate))
}

/// This program is an agent if its command line says so.
static CAN_BE_AGENT: AtomicBool = AtomicBool::new(false);

/// True if this program is an agent when it is called as one: a laboratory's is not.
pub(super) fn can_be_agent() -> bool {
    CAN_BE_AGENT.load(Relaxed)
}

/// Is the agent, if the command line says so. The program's status.
pub fn main() -> Option<Result<(), Failure>> {
    CAN_BE_AGENT.store(true, Relaxed);
    let mut words = env::args_os().skip(1);
    if words.next()? != AGENT_COMMAND || env::var_os(CONTROL_ENV).is_none() {
        return None;
    }
    if env::var_os(ENTERED_ENV).is_some() {
        return Some(child_agent::run());
    }
    let path = PathBuf::from(words.next()?);
    let program = RunProgram::of_agent(path, words.collect());
    Some(match run(&program) {
        Ok(0) => Ok(()),
        Ok(status) => Err(Failure::Passed(status)),
        Err(failure) => Err(failure),
    })
}

fn run(program: &RunProgram) -> Result<u8, Failure> {
    forebay_files::ignore_signals();
    let mut signals = Signals::block()?;
    client::start();
    let mut agent = None;
    let starts = |blocked: &SigSet| {
        let image = image(program, blocked)?;
        let started = Agent::start(&image, |why| {
            complain!(
                "forebay: {} runs plainly, and nothing of it is absorbed: {}",
                program.name().to_string_lossy(),
                why.0
            );
        });
        let (pid, started) = started.map_err(|e| Errno::from_raw(e.raw_os_error()))?;
        agent = Some(started);
        Ok(Pid::from_raw(pid.as_raw_nonzero().get()))
    };
    let status = child::follow(program, starts, &mut signals, None)?;
    if let Some(agent) = agent {
        child::outlast_agent(program, &agent, &mut signals)?;
    }
    Ok(status)
}

fn image(program: &RunProgram, blocked: &SigSet) -> Result<ProgramImage, Errno> {
    let text = |text: OsString| CString::new(text.into_vec()).map_err(|_| Errno::EINVAL);
    let words = [program.typed().to_owned()];
    let words = words.into_iter().chain(program.arguments().iter().cloned());
    let variables = env::vars_os().filter(|(name, _)| !OWN.iter().any(|own| name == *own));
    let variables = variables.map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        text(name)
    });
    Ok(ProgramImage {
        path: text(program.path().as_os_str().to_owned())?,
        arguments: words.map(text).collect::<Result<_, _>>()?,
        environment: variables.collect::<Result<_, _>>()?,
        blocked: *blocked.as_ref(),
        defaults: inherited_signals::ignored_here()
            .iter()
            .map(|signal| signal as i32)
            .collect(),
    })
}
