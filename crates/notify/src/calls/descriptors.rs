//! Calls that make, move or close descriptors. A log never has a number below the window: before
//! one would get there, its file is made plain.
#![expect(unsafe_code, reason = "fcntl with flags as the program has them")]

use super::{CallOutcome, GO_ON, TrappedCall};
use crate::{
    listener::{CallAnswer, last_errno},
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
        if self.used(number).is_some() {
            let process = process_of(self.seen.thread);
            self.agent.numbers.closing(number, process);
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

    /// `dup`, `F_DUPFD`: the duplicate is a number of the window.
    pub(super) fn duplicate(&self, least: c_int, stays_on_exec: bool) -> CallOutcome {
        let Some(used) = self.used(self.int(0)) else {
            return GO_ON;
        };
        let open = &*used;
        Some(CallAnswer::Failed(
            match self.duplicate_open(open, least, stays_on_exec) {
                Ok(()) => return None,
                Err(errno) => errno,
            },
        ))
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
            let made = numbers.duplicate(open.fd(), least)?;
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
        if let Some(used) = self.used(from)
            && let Err(errno) = client::retire(used.number())
        {
            return Some(CallAnswer::Failed(errno));
        }
        self.closing(to);
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
        let Some(used) = self.used(self.int(0)) else {
            return GO_ON;
        };
        let open = &*used;
        let done = match command {
            libc::F_GETFL => {
                control(open, command, 0).map(|flags| flags | client::hidden_flags(open.number()))
            }
            _ => self.set_flags(open, self.int(2)),
        };
        Some(done.map(i64::from).into())
    }

    fn set_flags(&self, open: &OpenNumber, flags: c_int) -> Result<c_int, Errno> {
        self.begin()?;
        client::changing_flags(open.number(), flags)?;
        let done = control(open, libc::F_SETFL, flags)?;
        client::changed_flags(open.number(), flags);
        open.appends.store(flags & libc::O_APPEND != 0, Relaxed);
        let hidden = client::hidden_flags(open.number());
        self.agent.slots.set_hidden(open.number(), hidden);
        Ok(done)
    }

    /// The kernel does it, once the files of the numbers in these arguments are plain.
    pub(super) fn retire_and_go_on(&self, arguments: &[usize]) -> CallOutcome {
        for argument in arguments {
            if let Err(errno) = self.retire(self.int(*argument)) {
                return Some(CallAnswer::Failed(errno));
            }
        }
        GO_ON
    }

    /// Makes the file of a number plain, if it is a log.
    pub(super) fn retire(&self, number: c_int) -> Result<(), Errno> {
        let used = self.used(number);
        match used.as_deref() {
            Some(open) => client::retire(open.number()),
            None => Ok(()),
        }
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
            // What cannot be read the kernel refuses.
            for number in self.sent(message).unwrap_or_default() {
                if let Err(errno) = self.retire(number) {
                    return Some(CallAnswer::Failed(errno));
                }
            }
        }
        GO_ON
    }

    /// The numbers of the window that stand in what is sent beside a message's bytes.
    fn sent(&self, message: u64) -> Option<Vec<c_int>> {
        /// `struct mmsghdr`, `struct msghdr` and where its control bytes are.
        const STRIDE: u64 = 64;
        const HEADER: usize = 56;
        const CONTROL: usize = 32;
        const CONTROL_MAX: u64 = 1 << 16;
        let at = self.argument(1) + message * STRIDE;
        let header = self.thread().read_exactly(at, HEADER).ok()?;
        let word = |at: usize| header[at..at + 8].try_into().map(u64::from_ne_bytes);
        let (address, bytes) = (word(CONTROL).ok()?, word(CONTROL + 8).ok()?);
        if bytes == 0 {
            return None;
        }
        let control = self
            .thread()
            .read_exactly(address, bytes.min(CONTROL_MAX) as usize)
            .ok()?;
        // Whatever may be a descriptor is taken for one.
        let numbers = control
            .chunks_exact(4)
            .filter_map(|four| four.try_into().ok());
        let window = self.agent.numbers.window;
        Some(
            numbers
                .map(c_int::from_ne_bytes)
                .filter(|it| window.has(*it))
                .collect(),
        )
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
