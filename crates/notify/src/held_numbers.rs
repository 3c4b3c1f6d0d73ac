//! Numbers that a thread was told to close (`close`, `dup2`, `close_range`). The kernel does so
//! after the answer, and does not say when: another log that got the number before would be closed
//! instead.
//!
//! So a placeholder has the number in the agent until the thread is known to have come back: by
//! another call of it, or by where /proc says that it is.

use crate::pending::is_in;
use libc::c_int;
use parking_lot::Mutex;
use rustix::{
    fs::{Mode, OFlags},
    io::{DupFlags, Errno},
};
use std::{
    collections::HashMap,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicUsize, Ordering},
};

/// A call that closes a number, and was let through.
struct ClosingCall {
    thread: u32,
    call: i64,
    number: c_int,
}

#[derive(Default)]
struct HeldState {
    calls: Vec<ClosingCall>,
    placeholders: HashMap<c_int, OwnedFd>,
}

impl HeldState {
    fn is_held(&self, number: c_int) -> bool {
        self.calls.iter().any(|call| call.number == number)
    }

    /// Frees the numbers of calls that are not meant by `stays`.
    fn free(&mut self, stays: impl Fn(&ClosingCall) -> bool) {
        self.calls.retain(stays);
        let calls = &self.calls;
        self.placeholders
            .retain(|number, _| calls.iter().any(|call| call.number == *number));
    }
}

/// All of them.
pub(crate) struct HeldNumbers {
    placeholder: OwnedFd,
    /// The number of calls, so that most calls ask no more than this.
    count: AtomicUsize,
    state: Mutex<HeldState>,
}

impl HeldNumbers {
    /// # Errors
    /// There is no descriptor to be had.
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            placeholder: rustix::fs::open(c"/", flags, Mode::empty())?,
            count: AtomicUsize::new(0),
            state: Mutex::default(),
        })
    }

    /// Something that is open, and is nobody's file.
    pub(crate) fn placeholder(&self) -> BorrowedFd<'_> {
        self.placeholder.as_fd()
    }

    /// A thread's call is about to be let through that closes a number.
    pub(crate) fn add(&self, thread: u32, call: i64, number: c_int) {
        let mut state = self.state.lock();
        state.calls.push(ClosingCall {
            thread,
            call,
            number,
        });
        self.count.store(state.calls.len(), Ordering::SeqCst);
        // What has the number in the agent already keeps it for this.
        if let Ok(made) = rustix::io::fcntl_dupfd_cloexec(&self.placeholder, number)
            && made.as_raw_fd() == number
        {
            state.placeholders.insert(number, made);
        }
    }

    /// Closes a descriptor of the agent. Its number stays taken if a thread is about to close it.
    pub(crate) fn close(&self, fd: OwnedFd) {
        let mut fd = fd;
        let mut state = self.state.lock();
        let number = fd.as_raw_fd();
        if state.is_held(number)
            && rustix::io::dup3(&self.placeholder, &mut fd, DupFlags::CLOEXEC).is_ok()
        {
            state.placeholders.insert(number, fd);
            return;
        }
        drop(state);
        drop(fd);
    }

    /// A thread makes a call: whatever it was to close is closed.
    pub(crate) fn came_back(&self, thread: u32) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.free(|call| call.thread != thread);
        }
    }

    /// Looks where the threads are.
    pub(crate) fn look(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.free(|call| is_in(call.thread, call.call));
        }
    }

    fn free(&self, stays: impl Fn(&ClosingCall) -> bool) {
        let mut state = self.state.lock();
        state.free(stays);
        self.count.store(state.calls.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lowest(from: c_int) -> c_int {
        let held = HeldNumbers::new().unwrap();
        let made = rustix::io::fcntl_dupfd_cloexec(held.placeholder(), from).unwrap();
        made.as_raw_fd()
    }

    #[test]
    fn a_number_is_taken_until_its_closing_thread_is_back() {
        const NUMBER: c_int = 700;
        let held = HeldNumbers::new().unwrap();
        let open = rustix::io::fcntl_dupfd_cloexec(held.placeholder(), NUMBER).unwrap();
        assert_eq!(open.as_raw_fd(), NUMBER);
        let threads = [rustix::thread::gettid().as_raw_nonzero().get() as u32, 1];
        held.add(threads[0], libc::SYS_close, NUMBER);
        held.add(threads[1], libc::SYS_close, NUMBER);
        held.close(open);
        assert_ne!(lowest(NUMBER), NUMBER);
        held.came_back(threads[1]);
        assert_ne!(lowest(NUMBER), NUMBER);
        held.came_back(threads[0]);
        assert_eq!(lowest(NUMBER), NUMBER);
        held.add(threads[0], libc::SYS_close, NUMBER);
        assert_ne!(lowest(NUMBER), NUMBER);
        // This thread reads what /proc says, and closes nothing.
        held.look();
        assert_eq!(lowest(NUMBER), NUMBER);
    }
}
