//! Answers calls when the agent has died: the supervisor's process holds the listener, too, so that
//! no call fails for want of one. docs/notify.md, "When the agent dies".
//!
//! 1. If the agent did anything for a log, the supervisor makes all files plain
//!    ([`Guardian::follow`] is told how): what was acknowledged is synced, and the lane has nothing
//!    that a recovery could write over what comes.
//! 2. Calls that the agent had received are answered by how far they were.
//! 3. All others go on: the program's descriptors are real ones, and so are its syncs. What was
//!    opened to be synced with each write is written here, with that flag.
#![expect(unsafe_code, reason = "a descriptor that was inherited")]

use crate::{
    listener::CallListener,
    plain_calls::plainly,
    slots::{CallPhase, CallSlots, SeenCall},
    unanswered::{how_far, made, move_back},
};
use libc::c_int;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    },
};
use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
    time::Duration,
};

/// Environment of the agent: its end of the guardian's connection, a descriptor.
pub const CONTROL_ENV: &str = "FOREBAY_GUARDIAN";

/// Threads that let calls go on.
const GUARDS: usize = 4;

/// The supervisor's side.
pub struct Guardian {
    own: OwnedFd,
    /// For the agent; closed here once that has it.
    agents: Option<OwnedFd>,
}

/// The fate of an agent.
#[derive(Clone, Default)]
pub struct AgentFate(Arc<AtomicU8>);

const LIVES: u8 = 0;
/// With all of the program, or before it served it.
const ENDED: u8 = 1;
/// And the program goes on without.
const DIED: u8 = 2;

impl AgentFate {
    /// Of an agent that has ended: true if the program goes on without it.
    #[must_use]
    pub fn has_left_program(&self) -> bool {
        loop {
            match self.0.load(Ordering::Acquire) {
                LIVES => thread::sleep(Duration::from_millis(1)),
                fate => return fate == DIED,
            }
        }
    }

    fn set(&self, fate: u8) {
        self.0.store(fate, Ordering::Release);
    }
}

impl Guardian {
    /// # Errors
    /// There is no socket to be had.
    pub fn new() -> Result<Self, Errno> {
        let (own, agents) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok(Self {
            own,
            agents: Some(agents),
        })
    }

    /// The agent's end, which it is to inherit: its name in the agent's environment.
    ///
    /// # Errors
    /// The kernel's.
    pub fn inherited(&self) -> Result<String, Errno> {
        let agents = self.agents.as_ref().ok_or(Errno::BADF)?;
        rustix::io::fcntl_setfd(agents, rustix::io::FdFlags::empty())?;
        Ok(agents.as_raw_fd().to_string())
    }

    /// The agent has its end, and nothing else is to inherit that.
    pub fn agent_started(&mut self) {
        self.agents = None;
    }
}

/// In the agent: its end of the connection, which nothing that it starts is to have.
///
/// # Errors
/// There is none.
pub(crate) fn control() -> Result<BorrowedFd<'static>, Errno> {
    let number = std::env::var(CONTROL_ENV)
        .ok()
        .and_then(|it| it.parse::<c_int>().ok());
    let number = number.ok_or(Errno::NOTCONN)?;
    // SAFETY: inherited for this, and used by nothing else. It is closed when the process ends.
    let control = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(control, rustix::io::FdFlags::CLOEXEC)?;
    Ok(control)
}

/// The first byte of a word between the two. The descriptors of the listener and of the slots go
/// along.
const SERVES: u8 = b's';
/// A reason follows.
const SERVES_NOT: u8 = b'n';
/// Of the guardian: it has the descriptors.
const GUARDED: u8 = b'g';
/// Of the guardian: it cannot have them.
const UNGUARDED: u8 = b'u';

/// In the agent: gives the guardian its descriptors, and waits until it has them.
///
/// # Errors
/// There is none, or it does not take it: why, with a remedy.
pub(crate) fn hand_over(listener: &CallListener, slots: &CallSlots) -> Result<(), String> {
    match give(listener, slots) {
        Ok(GUARDED) => Ok(()),
        Ok(_) => Err("the guardian, a thread of forebay run, cannot get the listener: raise the limit of open files (ulimit -n, LimitNOFILE=)".into()),
        Err(errno) => Err(format!("handing the listener over: {errno}")),
    }
}

/// The guardian's answer to it.
fn give(listener: &CallListener, slots: &CallSlots) -> Result<u8, Errno> {
    let control = control()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut along = SendAncillaryBuffer::new(&mut space);
    let both = [listener.as_fd(), slots.fd()];
    along.push(SendAncillaryMessage::ScmRights(&both));
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(control, &[IoSlice::new(&[SERVES])], &mut along, flags)?;
    let mut word = [0];
    match rustix::io::retry_on_intr(|| rustix::io::read(control, &mut word))? {
        0 => Err(Errno::PIPE),
        _ => Ok(word[0]),
    }
}

/// In the agent: tells the guardian why there is nothing to guard.
pub(crate) fn tell_unserved(why: &str) {
    if let Ok(control) = control() {
        let word = [&[SERVES_NOT], why.as_bytes()].concat();
        let _ = rustix::net::send(control, &word, SendFlags::NOSIGNAL);
    }
}

/// The first word of an agent.
enum AgentWord {
    /// It serves.
    Serves(CallListener, CallSlots),
    /// It cannot, for this reason.
    ServesNot(String),
    /// It would, and its descriptors have not come.
    Lost,
}

/// The agent's word, and that what it hands over has come. None if it has ended.
fn hear(from: &OwnedFd) -> Option<AgentWord> {
    let say = |word: u8| rustix::net::send(from, &[word], SendFlags::NOSIGNAL);
    loop {
        match receive(from)? {
            AgentWord::Lost => say(UNGUARDED).ok()?,
            word @ AgentWord::Serves(..) => return say(GUARDED).ok().map(|_| word),
            word @ AgentWord::ServesNot(_) => return Some(word),
        };
    }
}

fn receive(from: &OwnedFd) -> Option<AgentWord> {
    const REASON_MAX: usize = 1024;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut along = RecvAncillaryBuffer::new(&mut space);
    let mut said = [0; REASON_MAX];
    let parts = &mut [IoSliceMut::new(&mut said)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received =
        rustix::io::retry_on_intr(|| rustix::net::recvmsg(from, parts, &mut along, flags));
    let bytes = received.ok()?.bytes;
    let mut fds = Vec::new();
    for message in along.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    match said[..bytes].split_first()? {
        (&SERVES, _) => {
            // Fewer, if this process may have no more.
            let both = <[OwnedFd; 2]>::try_from(fds).ok();
            let both = both.and_then(|[listener, slots]| {
                let slots = CallSlots::map(slots).ok()?;
                Some(AgentWord::Serves(CallListener::new(listener), slots))
            });
            Some(both.unwrap_or(AgentWord::Lost))
        }
        (_, why) => {
            let why = String::from_utf8_lossy(why);
            Some(AgentWord::ServesNot(why.into_owned()))
        }
    }
}

impl Guardian {
    /// Follows the agent, which was started, by a thread: when it dies before the program, `settle`
    /// makes all files plain if it did anything for a log, and the program's calls go on. If it
    /// cannot serve the program, `unserved` is told why.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn follow(
        self,
        fate: &AgentFate,
        settle: impl FnOnce() + Send + 'static,
        unserved: impl FnOnce(String) + Send + 'static,
    ) -> std::io::Result<()> {
        let says = fate.clone();
        let follow = move || {
            self.watch(&says, settle, unserved);
        };
        let thread = thread::Builder::new().name("guardian".into());
        let begun = thread.spawn(follow).map(drop);
        begun.inspect_err(|_| fate.set(ENDED))
    }

    /// As [`follow`](Self::follow), in this thread: returns when the agent has ended, and if it
    /// died, when nothing of the program is left. True if it did anything for a log.
    pub fn watch(
        mut self,
        fate: &AgentFate,
        settle: impl FnOnce(),
        unserved: impl FnOnce(String),
    ) -> bool {
        self.agent_started();
        let own = self.own;
        let (listener, slots) = match hear(&own) {
            Some(AgentWord::Serves(listener, slots)) => (listener, slots),
            word => {
                if let Some(AgentWord::ServesNot(why)) = word {
                    unserved(why);
                }
                fate.set(ENDED);
                return false;
            }
        };
        let mut wait = [PollFd::new(&own, PollFlags::IN)];
        while rustix::event::poll(&mut wait, None) == Err(Errno::INTR) {}
        if listener.is_unused(&Timespec::default()) {
            fate.set(ENDED);
            return slots.has_served();
        }
        fate.set(DIED);
        let has_served = slots.has_served();
        forebay_pool::complain(match has_served {
            true => {
                "the program's agent has died: acknowledged writes are synced now, and from then on nothing is absorbed and every sync is a real one. \
                 Restart the program to have its logs absorbed again"
            }
            false => {
                "a program's agent has died, and had absorbed nothing: the program goes on, and files absorbed without that agent stay so. \
                 Restart the program to have its own logs absorbed"
            }
        });
        if has_served && !forebay_pool::fault_enabled!("guardian-no-settle") {
            settle();
        }
        if !forebay_pool::fault_enabled!("guardian-gone") {
            guard(&Arc::new((listener, slots)));
        }
        has_served
    }
}

/// Lets the program go on, until nothing of it is left.
fn guard(shared: &Arc<(CallListener, CallSlots)>) {
    let (listener, slots) = &**shared;
    let waiting = || {
        let calls = slots.all().filter_map(|slot| slot.call().zip(Some(slot)));
        calls.filter(|(call, _)| listener.is_waiting(call.id))
    };
    // Before any of them goes on and moves a position itself.
    for (call, slot) in waiting() {
        move_back(slot, call);
    }
    for (call, slot) in waiting() {
        if slot.phase() == CallPhase::Begun && made(slot, call, listener).is_some() {
            continue;
        }
        listener.answer(call.id, how_far(slot, call, slots));
    }
    for _ in 1..GUARDS {
        let shared = Arc::clone(shared);
        let _ = thread::Builder::new()
            .name("guardian".into())
            .spawn(move || let_go_on(&shared.0, &shared.1));
    }
    let_go_on(listener, slots);
}

fn let_go_on(listener: &CallListener, slots: &CallSlots) {
    loop {
        // SAFETY: any bytes are a call.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        if listener.receive(&raw mut call).is_err() {
            if listener.is_unused(&Timespec::default()) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        let seen = SeenCall {
            id: call.id,
            thread: call.pid,
            number: call.data.nr.into(),
            arguments: call.data.args,
        };
        listener.answer(seen.id, plainly(seen, slots));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_without_its_descriptors_is_no_reason() {
        let ends = Guardian::new().unwrap();
        let send = |word: &[u8]| {
            rustix::net::send(ends.agents.as_ref().unwrap(), word, SendFlags::empty()).unwrap();
        };
        send(&[SERVES]);
        send(b"nfor want of it");
        let Some(AgentWord::ServesNot(why)) = hear(&ends.own) else {
            panic!("it is taken for another word");
        };
        assert_eq!(why, "for want of it");
        let mut word = [0];
        assert_eq!(
            rustix::io::read(ends.agents.as_ref().unwrap(), &mut word).unwrap(),
            1
        );
        assert_eq!(word, [UNGUARDED]);
        drop(ends.agents);
        assert!(hear(&ends.own).is_none());
    }
}
