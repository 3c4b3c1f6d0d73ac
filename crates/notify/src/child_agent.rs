//! The agent of a child: it is started by the supervisor, beside the process that is to become the
//! program ([`enter`](crate::agent_entry)), and not above it. docs/notify.md, "A child of a program
//! with the library".
#![expect(unsafe_code, reason = "a descriptor that was inherited")]

use crate::{
    agent::{Agent, prepare, start_workers},
    agent_state::AgentState,
    caller::{AgentStatus, CallerThread},
    entry_words::{EntryWord, ReadyProcess},
    guardian,
    number_window::NumberWindow,
    open_files::taken,
    preconditions::{check_looks, is_lasting, window},
    serving_stage::ServingStage,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
    process::{Pid, Resource, Rlimit, getrlimit, setrlimit},
};
use std::{
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::Arc,
};

/// Environment of such an agent: the process's connection, a descriptor.
pub const ENTERED_ENV: &str = "FOREBAY_ENTERED";

/// The connection, which this process has inherited.
fn connection() -> Option<OwnedFd> {
    let number = std::env::var(ENTERED_ENV).ok()?.parse().ok()?;
    // SAFETY: inherited for this, and used by nothing else.
    let connection = unsafe { OwnedFd::from_raw_fd(number) };
    let flags = rustix::io::FdFlags::CLOEXEC;
    rustix::io::fcntl_setfd(&connection, flags).ok()?;
    Some(connection)
}

/// The reason that a process gets no agent.
enum EntryRefusal {
    /// None can be had by any.
    Unserved(String),
    /// This one gets none.
    Plain(String),
    /// It is gone, or has said so itself.
    Silent,
}

impl From<Errno> for EntryRefusal {
    fn from(_: Errno) -> Self {
        Self::Silent
    }
}

impl Agent {
    /// Serves the process whose connection this one has inherited ([`ENTERED_ENV`]), and which then
    /// executes its program. None if it does not; what was found is said, and to the guardian. With
    /// `costs_rights`, the process may give up gaining rights for it. This process must have one
    /// thread; the client has begun.
    #[must_use]
    pub fn enter(costs_rights: bool) -> Option<(Pid, Self)> {
        let connection = &connection()?;
        // Without it there is nobody to hand over to, which is found out below.
        let _ = guardian::control();
        let peer = rustix::net::sockopt::socket_peercred(connection).ok()?;
        let thread = CallerThread(peer.pid.as_raw_nonzero().get().cast_unsigned());
        match serve(connection, thread, costs_rights) {
            Ok(state) => Some((peer.pid, Self::of(state))),
            Err(refusal) => {
                let _ = EntryWord::Unserved.send(connection);
                match refusal {
                    EntryRefusal::Unserved(why) => guardian::tell_unserved(&why),
                    EntryRefusal::Plain(why) => forebay_pool::complain(&format!(
                        "process {} runs plainly, and nothing of it is absorbed: {why}",
                        thread.0
                    )),
                    EntryRefusal::Silent => {}
                }
                None
            }
        }
    }
}

fn serve(
    connection: &OwnedFd,
    thread: CallerThread,
    costs_rights: bool,
) -> Result<Arc<AgentState>, EntryRefusal> {
    let EntryWord::Ready(ready) = EntryWord::receive(connection)? else {
        return Err(EntryRefusal::Silent);
    };
    forebay_pool::failpoint!("notify:ready");
    let window = check(connection, thread, &ready)?;
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    let number = match ready.filtered {
        Some((number, _)) => number,
        None => {
            let words = EntryWord::Window {
                window,
                costs_rights,
            };
            words.send(connection)?;
            let number = heard_listener(connection)?;
            forebay_pool::failpoint!("notify:entered");
            number
        }
    };
    let listener = taken(thread.0, number)?;
    let state = prepare(window, &listener, ServingStage::idle());
    let state = Arc::new(state.map_err(EntryRefusal::Plain)?);
    if ready.filtered.is_some() {
        // The guardian of the agent that has died answers its calls, too.
        state.stage.lie_dormant();
    }
    // It has the filter: without a guardian it is served all the same, by letting all calls go on.
    if let Err(why) = guardian::hand_over(&state.listener, &state.slots) {
        state.stage.lie_dormant();
        forebay_pool::complain(&format!(
            "process {}: nothing of it is absorbed: {why}",
            thread.0
        ));
    }
    start_workers(&state);
    EntryWord::Go.send(connection)?;
    Ok(state)
}

/// Checks that the process can be served: gives the window.
fn check(
    connection: &OwnedFd,
    thread: CallerThread,
    ready: &ReadyProcess,
) -> Result<NumberWindow, EntryRefusal> {
    let of_both = window(ready.limit).map_err(EntryRefusal::Plain)?;
    let window = ready.filtered.map_or(of_both, |(_, window)| window);
    if window.end > of_both.end {
        return Err(EntryRefusal::Plain("its limit of open files rose".into()));
    }
    let numbers = (ready.number, connection.as_raw_fd());
    let looked = check_looks(thread.0, numbers, (ready.address, ready.word));
    looked.map_err(|refused| match refused.is_for_all() {
        _ if has_hung_up(connection) => EntryRefusal::Silent,
        true => EntryRefusal::Unserved(refused.why),
        false => EntryRefusal::Plain(refused.why),
    })?;
    let own = AgentStatus::read()
        .ok_or_else(|| EntryRefusal::Plain("/proc/self/status cannot be read".to_owned()))?;
    own.umask_of(thread)
        .map_err(|why| EntryRefusal::Plain(why.into()))?;
    Ok(window)
}

/// True if the process is gone, or waits no more.
fn has_hung_up(connection: &OwnedFd) -> bool {
    let mut wait = [PollFd::new(connection, PollFlags::empty())];
    let found = rustix::event::poll(&mut wait, Some(&Timespec::default()));
    found.is_ok() && !wait[0].revents().is_empty()
}

/// The number of the process's listener.
fn heard_listener(connection: &OwnedFd) -> Result<i32, EntryRefusal> {
    match EntryWord::receive(connection)? {
        EntryWord::Listener(number) => Ok(number),
        EntryWord::Unfiltered(errno) => {
            let errno = Errno::from_raw_os_error(errno);
            Err(match errno {
                Errno::ACCESS => EntryRefusal::Plain(
                    "it has not the rights of forebay (CAP_SYS_ADMIN), and a filter would keep it from gaining any (allow that by --no-new-privs)".into(),
                ),
                // It is below an agent, or another listener, already.
                Errno::BUSY => EntryRefusal::Silent,
                errno if !is_lasting(errno) => EntryRefusal::Plain(format!("installing the filter: {errno}")),
                errno => EntryRefusal::Unserved(format!(
                    "the kernel or the container refuses the filter (seccomp user notification, Linux 5.19): {errno}. In a container, allow seccomp (docker run --security-opt seccomp=…)"
                )),
            })
        }
        _ => Err(EntryRefusal::Silent),
    }
}
