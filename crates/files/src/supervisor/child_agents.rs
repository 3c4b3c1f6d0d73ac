//! Agents of children: programs that a process with the library executes, and that the library does
//! not fit. Each has an agent of its own, which the command makes. Here is who gets one, and what
//! is known of them. docs/notify.md, "A child of a program with the library".

use super::{ChildAgentStatus, SupervisorState};
use crate::sys;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::{
    collections::HashMap,
    ffi::OsString,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// Agents of a run at a time: each has a few threads.
const LIVING_MAX: usize = 64;
/// A program that ends sooner, and opened no log, was not worth its agent.
const SHORT: Duration = Duration::from_secs(1);
/// So often in a row, and it gets none any more.
const SHORT_MAX: u32 = 16;
/// Programs of which that is counted.
const COUNTED_MAX: usize = 256;

/// A process that is to have an agent.
pub struct ChildAgentRequest {
    /// Its connection, which the agent gets.
    pub connection: OwnedFd,
    /// Variables that the agent's environment has beside the supervisor's.
    pub environment: Vec<(OsString, OsString)>,
    /// Makes all files plain: the agent has died, and did something for them.
    pub settle: Box<dyn FnOnce() + Send>,
}

/// The outcome for an agent.
pub struct ChildAgentOutcome {
    /// It did something for a log.
    pub has_served: bool,
    /// The reason that none can be had here, if that was found out.
    pub unserved: Option<String>,
}

/// Starts an agent, and returns when it has ended, and its program if it died before that.
pub type ChildAgentStarter =
    dyn Fn(ChildAgentRequest) -> Result<ChildAgentOutcome, Errno> + Send + Sync;

/// The state of children's agents.
#[derive(Default)]
pub(super) struct ChildAgents {
    maker: OnceLock<AgentMaker>,
    /// The reason that none can be had.
    unserved: OnceLock<String>,
    state: Mutex<AgentCounts>,
}

/// The maker of a process's agent.
struct AgentMaker {
    /// The command that asks for it.
    command: PathBuf,
    /// Variables that the agent's environment has beside the supervisor's.
    environment: Vec<(OsString, OsString)>,
    starter: Box<ChildAgentStarter>,
}

#[derive(Default)]
struct AgentCounts {
    living: Vec<ChildAgentStatus>,
    /// The number of times in a row that a program did not need its agent.
    unneeded: HashMap<PathBuf, u32>,
    is_full_said: bool,
}

impl ChildAgents {
    pub(super) fn set_maker(
        &self,
        command: PathBuf,
        environment: Vec<(OsString, OsString)>,
        starter: Box<ChildAgentStarter>,
    ) {
        let _ = self.maker.set(AgentMaker {
            command,
            environment,
            starter,
        });
    }

    /// None can be had, for this reason.
    pub(super) fn set_unserved(&self, why: String) {
        let _ = self.unserved.set(why);
    }

    /// The reason that none can be had, if that is so.
    pub(super) fn unserved(&self) -> Option<&str> {
        self.unserved.get().map(String::as_str)
    }

    /// The command by which a process asks for an agent.
    pub(super) fn command(&self) -> Option<&PathBuf> {
        self.maker.get().map(|maker| &maker.command)
    }

    /// Programs that have one.
    pub(super) fn living(&self) -> Vec<ChildAgentStatus> {
        self.state.lock().living.clone()
    }

    /// Notes that a program at this path is to get one: in any case if its process is filtered
    /// already.
    ///
    /// # Errors
    /// It gets none.
    fn begin(&self, pid: u32, path: &PathBuf, is_filtered: bool) -> Result<(), String> {
        let mut state = self.state.lock();
        if !is_filtered {
            self.refuse(&mut state, pid, path)?;
        }
        let program = path.file_name().unwrap_or(path.as_os_str());
        state.living.push(ChildAgentStatus {
            pid,
            program: program.to_string_lossy().into_owned(),
        });
        Ok(())
    }

    /// # Errors
    /// A program at this path gets none.
    fn refuse(&self, state: &mut AgentCounts, pid: u32, path: &PathBuf) -> Result<(), String> {
        if let Some(why) = self.unserved.get() {
            return Err(why.clone());
        }
        if state
            .unneeded
            .get(path)
            .is_some_and(|times| *times >= SHORT_MAX)
        {
            return Err("it has never opened a log".to_owned());
        }
        if state.living.len() >= LIVING_MAX {
            if !state.is_full_said {
                state.is_full_said = true;
                sys::complain(&format!(
                    "{} (process {pid}) runs plainly, as others may: {LIVING_MAX} programs of this run have an agent each already, which is as many as it gives",
                    path.display()
                ));
            }
            return Err("as many programs as may be have an agent".to_owned());
        }
        Ok(())
    }

    /// Notes that it has none any more, and whether it needed it.
    fn end(&self, pid: u32, path: PathBuf, is_needed: bool) {
        let mut state = self.state.lock();
        if let Some(at) = state.living.iter().position(|it| it.pid == pid) {
            state.living.swap_remove(at);
        }
        if is_needed {
            state.unneeded.remove(&path);
        } else if state.unneeded.len() < COUNTED_MAX || state.unneeded.contains_key(&path) {
            let times = state.unneeded.entry(path.clone()).or_default();
            *times += 1;
            if *times == SHORT_MAX {
                sys::complain(&format!(
                    "{} has no agent any more, and its logs are plain: {SHORT_MAX} times in a row it ended within a second and opened no log. \
                     To have it served in any case: forebay run --front-end notify",
                    path.display()
                ));
            }
        }
    }
}

/// A process of this user asks for an agent for the program at this path.
///
/// # Errors
/// It gets none.
pub(super) fn admit(
    shared: &SupervisorState,
    (pid, uid): (u32, u32),
    path: &PathBuf,
    is_filtered: bool,
) -> Result<(), String> {
    if uid != rustix::process::geteuid().as_raw() {
        return Err("it is another user's".to_owned());
    }
    shared.child_agents.begin(pid, path, is_filtered)
}

/// Has an agent serve the process, which was [admitted](admit), until that has ended.
pub(super) fn serve(shared: &Arc<SupervisorState>, connection: OwnedFd, pid: u32, path: PathBuf) {
    let agents = &shared.child_agents;
    let Some(maker) = agents.maker.get() else {
        return agents.end(pid, path, true);
    };
    let settles = Arc::clone(shared);
    let request = ChildAgentRequest {
        connection,
        environment: maker.environment.clone(),
        settle: Box::new(move || settles.let_go_of_all()),
    };
    let begun = Instant::now();
    let started = (maker.starter)(request);
    let mut is_needed = begun.elapsed() >= SHORT;
    match started {
        Ok(outcome) => {
            is_needed |= outcome.has_served;
            if let Some(why) = outcome.unserved {
                agents.set_unserved(why);
            }
        }
        Err(errno) => {
            let what = format!("a program runs plainly: starting an agent for it: {errno}");
            sys::complain_repeated(&what, &what);
        }
    }
    agents.end(pid, path, is_needed);
}

/// A path as it comes in a message.
pub(super) fn path_of(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_never_opens_a_log_gets_no_agent_at_last() {
        let agents = ChildAgents::default();
        let tool = PathBuf::from("/bin/tool");
        for _ in 0..SHORT_MAX {
            agents.begin(7, &tool, false).unwrap();
            agents.end(7, tool.clone(), false);
        }
        agents.begin(7, &tool, false).unwrap_err();
        let server = PathBuf::from("/bin/server");
        for round in 0..3 * SHORT_MAX {
            agents.begin(8, &server, false).unwrap();
            agents.end(8, server.clone(), round % SHORT_MAX == 5);
        }
    }

    #[test]
    fn agents_are_no_more_than_may_be() {
        let agents = ChildAgents::default();
        let server = PathBuf::from("/bin/server");
        for pid in 0..LIVING_MAX as u32 {
            agents.begin(pid, &server, false).unwrap();
        }
        agents.begin(1000, &server, false).unwrap_err();
        agents.end(3, server.clone(), true);
        agents.begin(1000, &server, false).unwrap();
        agents.set_unserved("for want of it".to_owned());
        agents.end(1000, server.clone(), true);
        assert_eq!(
            agents.begin(1000, &server, false).unwrap_err(),
            "for want of it"
        );
    }

    #[test]
    fn a_process_with_the_filter_gets_an_agent_in_any_case() {
        let agents = ChildAgents::default();
        let tool = PathBuf::from("/bin/tool");
        for pid in 0..SHORT_MAX {
            agents.begin(pid, &tool, false).unwrap();
            agents.end(pid, tool.clone(), false);
        }
        for pid in 0..LIVING_MAX as u32 {
            agents.begin(pid, &tool, true).unwrap();
        }
        agents.set_unserved("for want of it".to_owned());
        agents.begin(1000, &tool, false).unwrap_err();
        agents.begin(1000, &tool, true).unwrap();
    }
}
