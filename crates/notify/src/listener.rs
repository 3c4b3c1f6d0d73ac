//! The listener of a filter: calls come by it, and are answered. `seccomp_unotify(2)`.
#![expect(unsafe_code, reason = "ioctls that no library has")]

use libc::{c_int, c_ulong, c_void, seccomp_notif, seccomp_notif_addfd, seccomp_notif_resp};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A call that was received, as the kernel numbers it.
pub(crate) type CallId = u64;

/// The answer to a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallAnswer {
    /// The kernel does the call.
    GoOn,
    /// It was done, with this result.
    Done(i64),
    /// It was done, and failed.
    Failed(Errno),
}

impl From<Result<i64, Errno>> for CallAnswer {
    fn from(result: Result<i64, Errno>) -> Self {
        result.map_or_else(Self::Failed, Self::Done)
    }
}

/// The listener.
pub(crate) struct CallListener(OwnedFd);

impl CallListener {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Waits for a call, and writes it to `into`, which is all zeros.
    ///
    /// # Errors
    /// `ENOENT` if the thread is gone again.
    pub(crate) fn receive(&self, into: *mut seccomp_notif) -> Result<(), Errno> {
        self.ioctl(libc::SECCOMP_IOCTL_NOTIF_RECV as c_ulong, into.cast())
            .map(drop)
    }

    /// True while the thread waits for the answer.
    pub(crate) fn is_waiting(&self, id: CallId) -> bool {
        let mut id = id;
        let request = libc::SECCOMP_IOCTL_NOTIF_ID_VALID as c_ulong;
        self.ioctl(request, (&raw mut id).cast()).is_ok()
    }

    /// Answers a call. A thread that is gone needs none.
    pub(crate) fn answer(&self, id: CallId, answer: CallAnswer) {
        let (val, error, flags) = match answer {
            CallAnswer::GoOn => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            CallAnswer::Done(value) => (value, 0, 0),
            CallAnswer::Failed(errno) => (0, -errno.raw_os_error(), 0),
        };
        let mut response = seccomp_notif_resp {
            id,
            val,
            error,
            flags,
        };
        let request = libc::SECCOMP_IOCTL_NOTIF_SEND as c_ulong;
        let _ = self.ioctl(request, (&raw mut response).cast());
    }

    /// Gives the thread a descriptor of the file that is open as `fd` by this number, and answers.
    ///
    /// Not in one (`SECCOMP_ADDFD_FLAG_SEND`): if the agent is killed while the kernel waits for
    /// the thread to take the descriptor, the thread gets none, and its call returns 0 all the
    /// same.
    ///
    /// # Errors
    /// `ENOENT` if the thread is gone; what the kernel would say to the thread (`EMFILE`, `EBADF`).
    /// The call is not answered then.
    pub(crate) fn inject(
        &self,
        id: CallId,
        fd: BorrowedFd<'_>,
        number: c_int,
        closes_on_exec: bool,
    ) -> Result<(), Errno> {
        self.put(id, fd, number, closes_on_exec)?;
        self.answer(id, CallAnswer::Done(number.into()));
        Ok(())
    }

    /// Gives the thread `fd`, of which no copy is left when it hears of that, by its lowest free
    /// number, as the answer.
    ///
    /// # Errors
    /// As [`inject`](Self::inject).
    pub(crate) fn give(&self, id: CallId, fd: OwnedFd, closes_on_exec: bool) -> Result<(), Errno> {
        let number = self.add_fd(id, fd.as_fd(), (0, 0), closes_on_exec)?;
        drop(fd);
        self.answer(id, CallAnswer::Done(number.into()));
        Ok(())
    }

    /// Gives the thread a descriptor of the file that is open as `fd` in the place of this number,
    /// and no answer yet.
    ///
    /// # Errors
    /// As [`inject`](Self::inject).
    pub(crate) fn put(
        &self,
        id: CallId,
        fd: BorrowedFd<'_>,
        number: c_int,
        closes_on_exec: bool,
    ) -> Result<(), Errno> {
        let flags = libc::SECCOMP_ADDFD_FLAG_SETFD;
        self.add_fd(id, fd, (number, flags), closes_on_exec)
            .map(drop)
    }

    fn add_fd(
        &self,
        id: CallId,
        fd: BorrowedFd<'_>,
        (number, flags): (c_int, c_ulong),
        closes_on_exec: bool,
    ) -> Result<c_int, Errno> {
        let mut wanted = seccomp_notif_addfd {
            id,
            flags: flags as u32,
            srcfd: fd.as_raw_fd().cast_unsigned(),
            newfd: number.cast_unsigned(),
            newfd_flags: if closes_on_exec {
                libc::O_CLOEXEC.cast_unsigned()
            } else {
                0
            },
        };
        let request = libc::SECCOMP_IOCTL_NOTIF_ADDFD as c_ulong;
        self.ioctl(request, (&raw mut wanted).cast())
    }

    /// The thread that answers goes on where the caller was, which halves the time of a call.
    /// Linux 6.6; elsewhere calls take longer.
    pub(crate) fn wake_on_this_cpu(&self) {
        /// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`, given as the argument itself.
        const SYNC_WAKE_UP: usize = 1;
        let request = libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS as c_ulong;
        let _ = self.ioctl(request, std::ptr::without_provenance_mut(SYNC_WAKE_UP));
    }

    /// True if no process has the filter any more; waits so long for that.
    pub(crate) fn is_unused(&self, limit: &Timespec) -> bool {
        let mut wait = [PollFd::new(&self.0, PollFlags::empty())];
        let found = rustix::event::poll(&mut wait, Some(limit));
        found.is_ok() && wait[0].revents().contains(PollFlags::HUP)
    }

    fn ioctl(&self, request: c_ulong, argument: *mut c_void) -> Result<c_int, Errno> {
        loop {
            // SAFETY: each request is given the structure that it reads or writes.
            let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument) };
            match result {
                0.. => return Ok(result),
                _ => match last_errno() {
                    Errno::INTR => {}
                    errno => return Err(errno),
                },
            }
        }
    }
}

impl AsFd for CallListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The thread's errno.
pub(crate) fn last_errno() -> Errno {
    // SAFETY: the C library's own variable of this thread.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}
