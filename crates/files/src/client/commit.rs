//! The commit before the kernel syncs by itself: the pool has the same bytes durable then, too.
//! Where an append alone is not durable, a pool on a disk, a recovery would else write over it what
//! the pool has, which is older. docs/files-write.md, "A pool on a disk".

use super::{call_depth::interrupted, session};
use crate::{log::ENDED, sys};
use rustix::io::Errno;
use std::{ffi::c_int, os::fd::BorrowedFd};

/// True if this process appends to a pool that is to be committed. Costs two loads, as a rule.
#[inline]
#[must_use]
pub fn commits() -> bool {
    session::there().is_some_and(|session| session.lane.needs_commit())
}

/// True if it does, and `fd`, of which the client knows nothing, leads to a file that the run
/// absorbs: one that cannot write, for example.
#[must_use]
pub fn is_to_be_committed(fd: c_int) -> bool {
    commits() && sys::borrow(fd).is_some_and(is_known)
}

fn is_known(fd: BorrowedFd<'_>) -> bool {
    let session = session::there();
    let found = session.zip(sys::stat_of(fd).ok());
    found.is_some_and(|(session, stat)| session.find((stat.st_dev, stat.st_ino)).is_some())
}

/// Before a sync of everything. A signal handler does not wait for the call that it interrupted,
/// which may be committing.
///
/// # Errors
/// The pool cannot be committed: what the kernel has is not to be called durable.
pub fn commit() -> Result<(), Errno> {
    let session = session::there().filter(|_| !interrupted());
    match session.map_or(Ok(()), session::MemberSession::commit_all) {
        // Every sync is a real one, or the lane is settled before.
        Err(ENDED) => Ok(()),
        done => done,
    }
}

/// Before a sync by a descriptor of which the client knows nothing.
///
/// # Errors
/// As [`commit`].
pub(super) fn commit_if_known(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    match commits() && is_known(fd) {
        true => commit(),
        false => Ok(()),
    }
}
