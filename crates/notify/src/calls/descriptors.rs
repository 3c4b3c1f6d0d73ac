//! Calls that make, move or close descriptors. A log never has a number below the window: before
//! one would get there, its file is made plain.
#![expect(unsafe_code, reason = "fcntl with flags as the program has them")]

use super::{CallOutcome, GO_ON, TrappedCall, done};
use crate::{
    listener::last_errno,
    numbers::{OpenNumber, owned},
};
use forebay_files::client;
use libc::c_int;
use rustix::io::Errno;
use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd},
    sync::atomic::Ordering::Relaxed,
};

impl TrappedCall<'_> {
    pub(super) fn close(&self) -> CallOutcome {
        self.closing(self.int(0));
        GO_ON
    }

    /// The thread's process closes a number.
    fn closing(&self, number: c_int) {
        // What is another's is closed, and not written to.
        if let Ok(Some(used)) = self.used(number) {
            drop(used);
            let process = process_of(self.seen.thread);
            let numbers = &self.agent.numbers;
            numbers.held.add(self.seen.thread, self.seen.number, number);
            numbers.closing(number, process);
        }
    }

    pub(super) fn close_range(&self) -> CallOutcome {
        let only_marks = self.argument(2) as u32 & libc::CLOSE_RANGE_CLOEXEC != 0;
        if !only_marks {
            let (first, last) = (self.argument(0) as u32, self.argument(1) as u32);
            for number in self.agent.numbers.between(first, last) {
                self.closing(number);
            }
        }
        GO_ON
    }

    /// `dup`, `F_DUPFD`: the duplicate is a number of the window. If there is none, the kernel
    /// finds another, and the log is plain.
    pub(super) fn duplicate(&self, least: c_int, stays_on_exec: bool) -> CallOutcome {
        let Some(used) = self.used(self.int(0))? else {
            return GO_ON;
        };
        if self.agent.numbers.check_room(self.seen.thread).is_err() {
            return self.hand_over_open(&used).and(GO_ON);
        }
        self.duplicate_open(&used, least, stays_on_exec)
            .map(|()| None)
    }

    fn duplicate_open(
        &self,
        open: &OpenNumber,
        least: c_int,
        stays_on_exec: bool,
    ) -> Result<(), Errno> {
        let numbers = &self.agent.numbers;
        self.check_waiting()?;
        let made = client::duplicating(open.number(), || {
            let made = numbers.duplicate(open.fd(), least, self.seen.thread)?;
            Ok(made.into_raw_fd())
        })?;
        let hidden = client::hidden_flags(made);
        self.agent.slots.set_hidden(made, hidden);
        numbers.add(owned(made), open.appends.load(Relaxed));
        self.inject(made, !stays_on_exec)
    }

    /// Gives the thread a number of the window as the answer.
    ///
    /// # Errors
    /// It cannot have it: the number is taken back.
    pub(super) fn inject(&self, number: c_int, closes_on_exec: bool) -> Result<(), Errno> {
        self.slot.set_number(number);
        self.slot.begin();
        let give = |fd: BorrowedFd<'_>| {
            let listener = &self.agent.listener;
            listener.inject(self.seen.id, fd, number, closes_on_exec)
        };
        let given = self.agent.numbers.giving(number, self.seen.thread, give);
        // Above its limit of open files.
        given.map_err(|errno| match errno {
            Errno::BADF => Errno::MFILE,
            errno => errno,
        })
    }

    /// `dup2`, `dup3`: what would be a log by another number is plain, and what had that number is
    /// closed.
    pub(super) fn replace(&self) -> CallOutcome {
        let (from, to) = (self.int(0), self.int(1));
        if from == to {
            return GO_ON;
        }
        self.hand_over(from)?;
        let numbers = &self.agent.numbers;
        if numbers.window.has(to) {
            numbers.held.add(self.seen.thread, self.seen.number, to);
            self.closing(to);
        }
        GO_ON
    }

    pub(super) fn control(&self) -> CallOutcome {
        let command = self.int(1);
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                return self.duplicate(self.int(2), command == libc::F_DUPFD);
            }
            _ => {}
        }
        let Some(used) = self.used(self.int(0))? else {
            return GO_ON;
        };
        let open = &*used;
        let result = match command {
            libc::F_GETFL => {
                control(open, command, 0).map(|flags| flags | client::hidden_flags(open.number()))
            }
            _ => self.set_flags(open, self.int(2)),
        };
        done(result.map(i64::from))
    }

    fn set_flags(&self, open: &OpenNumber, flags: c_int) -> Result<c_int, Errno> {
        self.begin()?;
        client::changing_flags(open.number(), flags)?;
        let result = control(open, libc::F_SETFL, flags)?;
        client::changed_flags(open.number(), flags);
        open.appends.store(flags & libc::O_APPEND != 0, Relaxed);
        let hidden = client::hidden_flags(open.number());
        self.agent.slots.set_hidden(open.number(), hidden);
        Ok(result)
    }

    /// `pidfd_getfd`: another process's number is copied to one that the kernel finds.
    pub(super) fn take_from_process(&self) -> CallOutcome {
        if let Some(used) = self.agent.numbers.used(self.int(1)) {
            client::retire(used.number())?;
            // By the copy the kernel would not sync what is written.
            if client::hidden_flags(used.number()) & libc::O_DSYNC != 0 {
                return Err(Errno::PERM);
            }
        }
        GO_ON
    }

    /// Before descriptors are sent to another process: logs among them are plain.
    pub(super) fn send(&self) -> CallOutcome {
        if self.agent.numbers.is_empty() {
            return GO_ON;
        }
        let count = match self.seen.number {
            libc::SYS_sendmsg => 1,
            _ => self.argument(2).min(1024),
        };
        for message in 0..count {
            for number in self.sent(message) {
                self.hand_over(number)?;
            }
        }
        GO_ON
    }

    /// The numbers of the window that stand in what is sent beside a message's bytes. What cannot
    /// be read the kernel refuses; what only the agent cannot read may be any log.
    fn sent(&self, message: u64) -> Vec<c_int> {
        let window = self.agent.numbers.window;
        match self.control_of(message) {
            // Whatever may be a descriptor is taken for one.
            Ok(control) => control
                .chunks_exact(4)
                .filter_map(|four| four.try_into().map(c_int::from_ne_bytes).ok())
                .filter(|it| window.has(*it))
                .collect(),
            Err(Errno::FAULT | Errno::SRCH) => Vec::new(),
            Err(_) => {
                client::give_up("the memory of one of its processes cannot be read");
                Vec::new()
            }
        }
    }

    /// What is sent beside a message's bytes.
    fn control_of(&self, message: u64) -> Result<Vec<u8>, Errno> {
        /// Bytes of `struct mmsghdr`, which begins with a `struct msghdr` of seven words.
        const STRIDE: u64 = 64;
        const CONTROL_MAX: u64 = 1 << 16;
        let at = self.argument(1) + message * STRIDE;
        let [_, _, _, _, address, bytes, _] = self.thread().words(at)?;
        match bytes {
            0 => Ok(Vec::new()),
            _ => self
                .thread()
                .read_exactly(address, bytes.min(CONTROL_MAX) as usize),
        }
    }
}

fn control(open: &OpenNumber, command: c_int, flags: c_int) -> Result<c_int, Errno> {
    // SAFETY: both commands take an integer.
    let done = unsafe { libc::fcntl(open.fd().as_fd().as_raw_fd(), command, flags) };
    if done < 0 {
        Err(last_errno())
    } else {
        Ok(done)
    }
}

/// The process that a thread is of.
pub(super) fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}
