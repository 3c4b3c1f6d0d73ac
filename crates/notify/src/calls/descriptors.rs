//! Calls that make, move or close descriptors. A log never has a number below the window: before
//! one would get there, its file is made plain.
#![expect(unsafe_code, reason = "fcntl with flags as the program has them")]

use super::{CallOutcome, GO_ON, TrappedCall, done};
use crate::{
    caller::process_of,
    listener::last_errno,
    numbers::{OpenNumber, owned},
    open_files::taken,
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
        let numbers = &self.agent.numbers;
        let process = process_of(self.seen.thread);
        let is_log = match numbers.used_by(self.seen.thread, number) {
            Ok(Some(used)) => {
                if used.was_cut_off {
                    client::before_closing(number);
                    client::changed_on(None);
                }
                true
            }
            Ok(None) => false,
            // It cannot be seen any more, and had the log when it could.
            Err(used) => used.was_of(process),
        };
        // What is another's is closed, and not written to.
        if is_log {
            numbers.held.add(self.seen.thread, self.seen.number, number);
            numbers.closing(number, process);
        }
    }

    pub(super) fn close_range(&self) -> CallOutcome {
        // With others the kernel refuses it.
        const CLOSING: u32 = libc::CLOSE_RANGE_UNSHARE;
        if self.argument(2) as u32 & !CLOSING == 0 {
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
        let into_window = self.agent.numbers.window.has(least);
        let plainly = || match into_window {
            true => self.duplicate_other(least, stays_on_exec),
            false => self.check_synced(self.int(0)).and(GO_ON),
        };
        let Some(used) = self.used(self.int(0))? else {
            return plainly();
        };
        if self.agent.numbers.check_room(self.seen.thread).is_err() {
            self.hand_over_open(&used)?;
            return plainly();
        }
        // The one after this may have to be given another open file.
        let _opening = self.agent.openings.read();
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
        let slots = &self.agent.slots;
        slots.set_hidden(made, slots.hidden(open.number()));
        let appends = open.appends.load(Relaxed);
        numbers.add(owned(made), appends, open.was_cut_off);
        self.inject(made, !stays_on_exec)
    }

    /// `F_DUPFD` of something that is no log, from a number of the window on: the agent finds the
    /// number, since one that the kernel finds could be given to a log at that moment.
    fn duplicate_other(&self, least: c_int, stays_on_exec: bool) -> CallOutcome {
        let file = taken(self.seen.thread, self.int(0));
        if let Err(errno @ (Errno::BADF | Errno::SRCH)) = file {
            return Err(errno);
        }
        if least as u64 >= self.thread().numbers_limit() {
            return Err(Errno::INVAL);
        }
        // As if none were left.
        let file = file.map_err(|_| Errno::MFILE)?;
        let numbers = &self.agent.numbers;
        // As long as the agent has the number, no log gets it.
        let made = numbers.duplicate(file.as_fd(), least, self.seen.thread)?;
        // It may have been a log's that was let go of: then it stays what it was.
        let slots = &self.agent.slots;
        let hidden = slots.hidden(self.int(0));
        slots.set_hidden(made.as_raw_fd(), hidden);
        if hidden & libc::O_DSYNC != 0 {
            numbers.spent.add(made.as_raw_fd());
        }
        let listener = &self.agent.listener;
        let given = listener.inject(self.seen.id, made.as_fd(), made.as_raw_fd(), !stays_on_exec);
        match given {
            Ok(()) => Ok(None),
            Err(Errno::BADF) => Err(Errno::MFILE),
            Err(errno) => Err(errno),
        }
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

    /// `dup2`, `dup3`: a log that would have another number is plain, and the file that had that
    /// number is closed, unless the kernel will refuse it.
    pub(super) fn replace(&self) -> CallOutcome {
        let (from, to) = (self.int(0), self.int(1));
        if from == to {
            return GO_ON;
        }
        self.hand_over(from)?;
        let numbers = &self.agent.numbers;
        if numbers.window.has(to) {
            numbers.held.add(self.seen.thread, self.seen.number, to);
            if self.can_replace(from, to) {
                self.closing(to);
            }
        }
        GO_ON
    }

    /// False if the kernel will refuse a `dup2` or `dup3`: then the second number stays what it is.
    /// If another thread opens the first one meanwhile, that is found out as the number is used.
    fn can_replace(&self, from: c_int, to: c_int) -> bool {
        let flags = match self.seen.number {
            libc::SYS_dup3 => self.int(2),
            _ => 0,
        };
        let limit = self.thread().numbers_limit();
        flags & !libc::O_CLOEXEC == 0
            && (limit == 0 || (to as u64) < limit)
            && !matches!(self.thread().directory(from), Err(Errno::BADF))
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
        Ok(result)
    }

    /// `pidfd_getfd`: another process's number is copied to one that the kernel finds.
    pub(super) fn take_from_process(&self) -> CallOutcome {
        let number = self.int(1);
        if let Some(used) = self.agent.numbers.used(number) {
            client::retire(used.number())?;
        }
        // By the copy the kernel would not sync what is written.
        match self.agent.slots.hidden(number) & libc::O_DSYNC {
            0 => GO_ON,
            _ => Err(Errno::PERM),
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
            for number in self.sent(message)? {
                self.hand_over(number)?;
            }
        }
        GO_ON
    }

    /// The numbers of the window that stand in what is sent beside a message's bytes. What cannot
    /// be read the kernel refuses; what only the agent cannot read may be any log.
    ///
    /// # Errors
    /// `ENOBUFS`: there is more of it than a kernel takes.
    fn sent(&self, message: u64) -> Result<Vec<c_int>, Errno> {
        let window = self.agent.numbers.window;
        match self.control_of(message) {
            // Whatever may be a descriptor is taken for one.
            Ok(control) => Ok(control
                .chunks_exact(4)
                .filter_map(|four| four.try_into().map(c_int::from_ne_bytes).ok())
                .filter(|it| window.has(*it))
                .collect()),
            Err(Errno::FAULT | Errno::SRCH) => Ok(Vec::new()),
            Err(Errno::NOBUFS) => Err(Errno::NOBUFS),
            Err(_) => {
                client::give_up("the memory of one of its processes cannot be read");
                Ok(Vec::new())
            }
        }
    }

    /// The control data sent beside a message's bytes.
    fn control_of(&self, message: u64) -> Result<Vec<u8>, Errno> {
        /// Bytes of `struct mmsghdr`, which begins with a `struct msghdr` of seven words.
        const STRIDE: u64 = 64;
        /// The most that kernels take is `net.core.optmem_max`, of 128 KiB; one that is set to take
        /// more than this does not here.
        const CONTROL_MAX: u64 = 16 << 20;
        let at = self.argument(1) + message * STRIDE;
        let [_, _, _, _, address, bytes, _] = self.thread().words(at)?;
        match bytes {
            0 => Ok(Vec::new()),
            1..=CONTROL_MAX => self.thread().read_exactly(address, bytes as usize),
            _ => Err(Errno::NOBUFS),
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
