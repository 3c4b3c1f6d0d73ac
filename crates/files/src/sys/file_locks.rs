//! Locks that belong to an open file (`F_OFD_SETLK`): the kernel drops them when its last
//! descriptor is closed and its last mapping is gone.
#![expect(unsafe_code, reason = "commands of fcntl that no library has")]

use super::last_errno;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Of the whole file.
fn request(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Takes a lock that others may have as well.
///
/// # Errors
/// What the kernel says.
pub(crate) fn lock_shared(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let request = request(libc::F_RDLCK);
    // SAFETY: `request` is a valid `struct flock` for the length of the call.
    let taken = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const request) };
    (taken == 0).then_some(()).ok_or_else(last_errno)
}

/// True if another open file has a lock of this file. Whoever may read the file may ask.
///
/// # Errors
/// What the kernel says.
pub(crate) fn is_locked(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut request = request(libc::F_WRLCK);
    // SAFETY: as above.
    let asked = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut request) };
    if asked != 0 {
        return Err(last_errno());
    }
    Ok(libc::c_int::from(request.l_type) != libc::F_UNLCK)
}
