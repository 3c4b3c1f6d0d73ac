//! Syncs of absorbed files: by the pool if the lane has all of the file, by the kernel otherwise.

use super::{
    bypass::claim_inherited,
    call_depth::interrupted,
    commit::commit_if_known,
    fd_table::{self, FdEntry},
    in_signal_handler, order,
    process::{self, lock, make_plain},
    retire::leave,
    session::{self, MemberSession},
    sync_kind::{SyncKind, SyncOutcome},
};
use crate::{
    shared::{DueSync, FileState, Stamp},
    sys,
};
use rustix::io::Errno;
use std::{
    ffi::c_int,
    os::fd::BorrowedFd,
    sync::atomic::Ordering::{Acquire, Relaxed},
};

fn really(fd: BorrowedFd<'_>) -> Result<SyncOutcome, Errno> {
    rustix::fs::fsync(fd).map(|()| SyncOutcome::Really)
}

/// `fsync`, `fdatasync`, `sync_file_range`, `msync` of an absorbed `fd`: everything that any
/// process wrote to it is durable when this returns.
///
/// # Errors
/// The kernel's, if the file cannot be synced.
pub fn sync(fd: c_int, durability: SyncKind) -> Result<SyncOutcome, Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let entry = fd_table::entry(fd);
    if let Some(entry) = entry.filter(|entry| entry.is_inherited()) {
        claim_inherited(fd, entry)?;
        return sync(fd, durability);
    }
    let Some(number) = entry.and_then(FdEntry::file) else {
        commit_if_known(raw)?;
        return really(raw);
    };
    if interrupted() {
        return in_signal_handler::sync(number, raw).map(|()| SyncOutcome::Really);
    }
    let Some(session) = session::current() else {
        leave(raw, number)?;
        return really(raw);
    };
    let file = &session.page.files[number];
    let wanted = process::generation(number);
    let stamp = file.stamp();
    if fd_table::entry(fd) != entry {
        // Its file is plain by now, and another has the number.
        return sync(fd, durability);
    }
    match stamp.state {
        _ if session.is_orphan() => {
            let settled = session.settle(number);
            make_plain(number, wanted);
            settled.and_then(|()| really(raw))
        }
        FileState::Absorbed if stamp.generation == wanted => {
            file.syncs.fetch_add(1, Relaxed);
            match session.sync_absorbed((number, stamp), raw, durability)? {
                Some(outcome) => Ok(outcome),
                None => sync(fd, durability),
            }
        }
        state if state.leaves() && stamp.generation == wanted => {
            file.syncs.fetch_add(1, Relaxed);
            if file.error().is_some() {
                session.repair(number)?;
            }
            session.retire(number, wanted)?;
            really(raw)
        }
        FileState::Damaged if session.is_current() => {
            session.give_up_lane(number, wanted)?;
            sync(fd, durability)
        }
        // It is plain.
        _ => really(raw),
    }
}

impl MemberSession {
    /// By the pool, of a file that is absorbed. None if it is in another state by now, which is to
    /// be looked at anew.
    fn sync_absorbed(
        &'static self,
        (number, stamp): (usize, Stamp),
        raw: BorrowedFd<'_>,
        durability: SyncKind,
    ) -> Result<Option<SyncOutcome>, Errno> {
        let (file, wanted) = (&self.page.files[number], stamp.generation);
        if file.error().is_some() {
            self.repair(number)?;
        }
        if file.lock.is_held() {
            // Of a write that is under way, another thread's or another process's, the kernel may
            // have what the lane has not: a caller that has seen that waits until it is logged. If
            // its process is dead it never is: then the supervisor syncs it, or says that it could
            // not.
            drop(lock(self, number));
            if file.lock.is_damaged() {
                self.give_up_lane(number, wanted)?;
            }
            if self.is_orphan() || file.stamp() != stamp || file.error().is_some() {
                return Ok(None);
            }
        }
        if !file.is_logged() {
            // It is durable by that, or the file is plain.
            self.wait_for_first_sync(number, wanted);
            if file.stamp() != stamp || !file.is_logged() {
                return Ok(None);
            }
        }
        let is_real = order::before_sync(self, (number, wanted), raw, durability)?;
        match self.commit(file.end.load(Acquire)) {
            Ok(()) if is_real => Ok(Some(SyncOutcome::Really)),
            // The pool has fewer copies of it than were asked for: the disk has it, too.
            // Or this process is no member any more, and what it looks at says nothing.
            Ok(()) if self.lane.is_degraded() || !self.is_current() => really(raw).map(Some),
            Ok(()) => Ok(Some(SyncOutcome::InPool)),
            Err(_) => {
                // The pool's disk failed, or the run ended: the file is plain next.
                if !self.is_orphan() {
                    file.stray(wanted);
                }
                Ok(None)
            }
        }
    }
}

/// After a change that the lane has not, since the file's first sync is to come: that covers it. It
/// is durable when a sync says so, as without Forebay: many files are written, and never synced.
///
/// # Errors
/// As [`sync`].
#[cold]
pub(super) fn not_logged(
    session: &'static MemberSession,
    (fd, number): (c_int, usize),
    sync_as: Option<SyncKind>,
) -> Result<(), Errno> {
    if let Some(durability) = sync_as {
        return sync(fd, durability).map(drop);
    }
    session.page.ask_first_sync(number, DueSync::Soon);
    Ok(())
}

impl MemberSession {
    /// Has the supervisor do a file's first sync, and returns when it is done, or the file is no
    /// longer absorbed, or there is no supervisor. Without any lock of it.
    #[cold]
    pub(super) fn wait_for_first_sync(&self, number: usize, generation: u32) {
        let is_over = || !self.is_current() || self.is_orphan();
        self.page.wait_for_first_sync(number, generation, is_over);
    }
}
