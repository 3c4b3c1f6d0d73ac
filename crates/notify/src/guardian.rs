//! What goes on when the agent has died: the supervisor's process holds the listener, too, so that
//! no call fails for want of one. docs/notify.md, "When the agent dies".
//!
//! 1. The supervisor makes all files plain ([`Guardian::follow`] is told how): what was
//!    acknowledged is synced, and the lane has nothing that a recovery could write over what comes.
//! 2. Calls that the agent had received are answered by how far they were.
//! 3. All others go on: the program's descriptors are real ones, and so are its syncs. What was
//!    opened to be synced with each write is written here, with that flag.
#![expect(unsafe_code, reason = "takes a descriptor from a process")]

use crate::{
    caller::{CallerThread, TRANSFER_MAX},
    listener::{CallAnswer, CallListener, last_errno},
    slots::{CallPhase, CallSlot, CallSlots, SeenCall},
};
use libc::c_int;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fs::{Mode, OFlags},
    io::{Errno, ReadWriteFlags},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    },
};
use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::fs::FileExt,
    },
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
    agents: OwnedFd,
}

/// What became of an agent.
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
        Ok(Self { own, agents })
    }

    /// The agent's end, which it is to inherit: what its environment names it by.
    ///
    /// # Errors
    /// The kernel's.
    pub fn inherited(&self) -> Result<String, Errno> {
        rustix::io::fcntl_setfd(&self.agents, rustix::io::FdFlags::empty())?;
        Ok(self.agents.as_raw_fd().to_string())
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

/// In the agent: gives the guardian what it needs.
///
/// # Errors
/// There is none, or it does not take it.
pub(crate) fn hand_over(listener: &CallListener, slots: &CallSlots) -> Result<(), Errno> {
    let control = control()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut along = SendAncillaryBuffer::new(&mut space);
    let both = [listener.as_fd(), slots.fd()];
    along.push(SendAncillaryMessage::ScmRights(&both));
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(control, &[IoSlice::new(b"f")], &mut along, flags).map(drop)
}

fn receive(from: &OwnedFd) -> Option<(CallListener, CallSlots)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut along = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let parts = &mut [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(from, parts, &mut along, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut fds = Vec::new();
    for message in along.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let [listener, slots] = <[OwnedFd; 2]>::try_from(fds).ok()?;
    Some((CallListener::new(listener), CallSlots::map(slots).ok()?))
}

impl Guardian {
    /// Follows the agent, which was started, by a thread: when it dies before the program, `settle`
    /// makes all files plain, and the program's calls go on.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn follow(
        self,
        fate: &AgentFate,
        settle: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let says = fate.clone();
        let own = self.own;
        drop(self.agents);
        let follow = move || {
            let Some((listener, slots)) = receive(&own) else {
                says.set(ENDED);
                return;
            };
            let mut wait = [PollFd::new(&own, PollFlags::IN)];
            while rustix::event::poll(&mut wait, None) == Err(Errno::INTR) {}
            if listener.is_unused(&Timespec::default()) {
                says.set(ENDED);
                return;
            }
            says.set(DIED);
            forebay_pool::complain(
                "the program's agent has died: what was acknowledged is synced now, and from then on nothing is absorbed and every sync is a real one. \
                 Restart the program to have its logs absorbed again",
            );
            settle();
            guard(&Arc::new((listener, slots)));
        };
        let thread = thread::Builder::new().name("guardian".into());
        let begun = thread.spawn(follow).map(drop);
        begun.inspect_err(|_| fate.set(ENDED))
    }
}

/// Lets the program go on, until nothing of it is left.
fn guard(shared: &Arc<(CallListener, CallSlots)>) {
    let (listener, slots) = &**shared;
    for slot in slots.all() {
        if let Some(call) = slot.call().filter(|call| listener.is_waiting(call.id)) {
            if slot.phase() == CallPhase::Begun && made(slot, call, listener).is_some() {
                continue;
            }
            listener.answer(call.id, how_far(slot, call, slots));
        }
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

/// The answer to a call that the agent had received.
fn how_far(slot: &CallSlot, call: SeenCall, slots: &CallSlots) -> CallAnswer {
    match slot.phase() {
        CallPhase::Done => slot.answer(),
        CallPhase::Received | CallPhase::Passed => plainly(call, slots),
        CallPhase::Begun => match slot.before() {
            before @ 0.. => written_since(before, call, slots),
            // It has the number already, and only the answer is missing.
            _ if slot.number() >= 0 && has_number(call.thread, slot.number()) => {
                CallAnswer::Done(slot.number().into())
            }
            _ => again(call, slots),
        },
    }
}

/// Gives the caller a file that the agent has made for it alone (`O_EXCL`), and that the kernel
/// would refuse to make again. None if there is none.
fn made(slot: &CallSlot, call: SeenCall, listener: &CallListener) -> Option<()> {
    let [first, second, third, ..] = call.arguments;
    let (dir, path, flags) = match call.number {
        libc::SYS_openat => (first as c_int, second, third as c_int),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => (libc::AT_FDCWD, first, second as c_int),
        _ => return None,
    };
    let number = slot.number();
    if flags & libc::O_EXCL == 0 || number == -1 || has_number(call.thread, number) {
        return None;
    }
    let thread = CallerThread(call.thread);
    let path = thread.path(path).ok()?;
    let dir = thread.directory(dir).ok()?;
    let again = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC) | libc::O_CLOEXEC;
    let again = OFlags::from_bits_retain(again.cast_unsigned());
    let file = rustix::fs::openat(dir, path, again, Mode::empty()).ok()?;
    let closes_on_exec = flags & libc::O_CLOEXEC != 0;
    listener.give(call.id, file, closes_on_exec).ok()
}

/// A call that was begun, and may have been done: as if it were made again, but that what it was to
/// bring about may be there.
fn again(call: SeenCall, slots: &CallSlots) -> CallAnswer {
    let here = |at: usize| (libc::AT_FDCWD, call.arguments[at]);
    let below = |at: usize| (call.arguments[at] as c_int, call.arguments[at + 1]);
    let gone = match call.number {
        libc::SYS_renameat2 | libc::SYS_renameat | libc::SYS_unlinkat => Some(below(0)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename | libc::SYS_unlink => Some(here(0)),
        _ => {
            let _ = here;
            None
        }
    };
    // What it was to take a name from has none any more.
    if let Some(name) = gone
        && is_free(call.thread, name)
    {
        return CallAnswer::Done(0);
    }
    plainly(call, slots)
}

fn is_free(thread: u32, (dir, address): (c_int, u64)) -> bool {
    let thread = CallerThread(thread);
    let Ok(path) = thread.path(address) else {
        return false;
    };
    let Ok(dir) = thread.directory(dir) else {
        return false;
    };
    let found = rustix::fs::statat(dir, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    found.is_err_and(|errno| errno == Errno::NOENT)
}

/// Whether a write was done: by where the file's position or end was before it, and what stands
/// there now.
fn written_since(before: i64, call: SeenCall, slots: &CallSlots) -> CallAnswer {
    let Ok(fd) = taken(call.thread, call.arguments[0] as c_int) else {
        return plainly(call, slots);
    };
    let appends = rustix::fs::fcntl_getfl(&fd).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    let now = match appends {
        true => rustix::fs::fstat(&fd).map(|stat| stat.st_size),
        false => rustix::fs::tell(&fd).map(u64::cast_signed),
    };
    let wanted = bytes_of(call).unwrap_or_default();
    match now {
        Ok(now) if !wanted.is_empty() && has_since(&fd, before..now, &wanted) => {
            CallAnswer::Done(wanted.len() as i64)
        }
        _ => plainly(call, slots),
    }
}

/// True if these bytes stand in a range of what is open: another thread's may be there instead.
fn has_since(fd: &OwnedFd, range: std::ops::Range<i64>, wanted: &[u8]) -> bool {
    const LOOKED_AT_MAX: u64 = 64 << 20;
    let Ok(bytes) = u64::try_from(range.end - range.start) else {
        return false;
    };
    // By a descriptor of its own: the program's may be for writing only.
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let mut found = vec![0; bytes.min(LOOKED_AT_MAX) as usize];
    let read = std::fs::File::open(link)
        .and_then(|file| file.read_exact_at(&mut found, range.start.unsigned_abs()));
    read.is_ok() && found.windows(wanted.len()).any(|part| part == wanted)
}

/// What a write is to write, as far as it can be read.
fn bytes_of(call: SeenCall) -> Result<Vec<u8>, Errno> {
    let thread = CallerThread(call.thread);
    let parts = match call.number {
        libc::SYS_write | libc::SYS_pwrite64 => {
            vec![(
                call.arguments[1],
                TRANSFER_MAX.min(call.arguments[2] as usize),
            )]
        }
        _ => thread.parts(call.arguments[1], call.arguments[2])?,
    };
    let mut bytes = Vec::new();
    for (address, length) in parts.into_iter().filter(|(_, length)| *length > 0) {
        let mut part = Vec::new();
        thread.read(address, length, &mut part)?;
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

/// What a thread's descriptor is of.
fn taken(thread: u32, number: c_int) -> Result<OwnedFd, Errno> {
    const PIDFD_THREAD: u32 = libc::O_EXCL.cast_unsigned();
    // SAFETY: both calls take numbers; what they return is new.
    unsafe {
        let process = [PIDFD_THREAD, 0].into_iter().find_map(|flags| {
            let fd = libc::syscall(libc::SYS_pidfd_open, thread, flags);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as c_int))
        });
        let process = process.ok_or(Errno::SRCH)?;
        match libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) {
            fd @ 0.. => Ok(OwnedFd::from_raw_fd(fd as c_int)),
            _ => Err(last_errno()),
        }
    }
}

fn has_number(thread: u32, number: c_int) -> bool {
    std::fs::symlink_metadata(format!("/proc/{thread}/fd/{number}")).is_ok()
}

/// What a call is answered without an agent.
fn plainly(call: SeenCall, slots: &CallSlots) -> CallAnswer {
    let number = call.arguments[0] as c_int;
    let hidden = match slots.window().has(number) {
        true => slots.hidden(number),
        false => 0,
    };
    if hidden & libc::O_DSYNC == 0 {
        return CallAnswer::GoOn;
    }
    let offset = match call.number {
        libc::SYS_write | libc::SYS_writev => u64::MAX,
        // -1 is the file position.
        libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_pwritev2 => call.arguments[3],
        _ => return CallAnswer::GoOn,
    };
    let kind = match hidden & libc::O_SYNC == libc::O_SYNC {
        true => ReadWriteFlags::SYNC,
        false => ReadWriteFlags::DSYNC,
    };
    let written = bytes_of(call).and_then(|bytes| {
        let fd = taken(call.thread, number)?;
        rustix::io::pwritev2(&fd, &[IoSlice::new(&bytes)], offset, kind)
    });
    written.map(|bytes| bytes as i64).into()
}
