//! The kernel's leases: they tell if a file is open elsewhere.
#![expect(unsafe_code, reason = "commands of fcntl that no library has")]

use super::last_errno;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Asks for a lease on an open file, and gives it back: true if it is open nowhere else on this
/// machine (`F_SETLEASE`).
///
/// # Errors
/// That cannot be told: it is not our file, or the file system knows no leases.
pub(crate) fn alone(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    // SAFETY: both commands take an integer.
    let taken = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
    if taken == 0 {
        // SAFETY: as above.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
        return Ok(true);
    }
    match last_errno() {
        Errno::AGAIN => Ok(false),
        errno => Err(errno),
    }
}

/// Of the kernel's headers, where the libc crate has neither.
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// `struct f_owner_ex`.
#[repr(C)]
struct LeaseOwner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// Takes the lease of [`alone`] and keeps it until the file is closed: no process opens it
/// meanwhile without waiting.
///
/// The signal by which the kernel says that a process waits for it is this thread's: its process,
/// which may be any program, would end by it.
pub(crate) fn take_lease(fd: BorrowedFd<'_>) -> bool {
    let owner = LeaseOwner {
        kind: F_OWNER_TID,
        id: rustix::thread::gettid().as_raw_nonzero().get(),
    };
    // SAFETY: the command reads an owner. Without it, there is no lease.
    if unsafe { libc::fcntl(fd.as_raw_fd(), F_SETOWN_EX, &raw const owner) } != 0 {
        return false;
    }
    // SAFETY: the command takes an integer.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0 }
}

/// Gives the lease of [`take_lease`] back.
pub(crate) fn give_lease(fd: BorrowedFd<'_>) {
    // SAFETY: the command takes an integer.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
}
