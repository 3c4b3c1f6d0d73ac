//! Logs that the kernel is to go on with: they are plain before, and the kernel knows the flags and
//! bytes that only the client knew.

use super::TrappedCall;
use crate::{
    caller::process_of,
    numbers::OpenNumber,
    plain_calls::{syncs_writes, unsynced},
};
use forebay_files::client;
use libc::c_int;
use rustix::{
    fs::{Mode, OFlags, SeekFrom},
    io::Errno,
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

impl TrappedCall<'_> {
    /// Makes the file of a number plain, if it is a log, before the kernel reads or maps it.
    pub(super) fn retire(&self, number: c_int) -> Result<(), Errno> {
        match self.used(number)? {
            Some(open) => client::retire(open.number()),
            None => Ok(()),
        }
    }

    /// The same before the kernel writes to it by this descriptor, or by a copy of it that the
    /// agent does not see.
    pub(super) fn hand_over(&self, number: c_int) -> Result<(), Errno> {
        match self.used(number)? {
            Some(open) => self.hand_over_open(&open),
            None => self.check_synced(number),
        }
    }

    /// Fails unless the kernel syncs writes to a number that the agent does not know: it may be a
    /// log's of a process that was forked while the number was let go of.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: it does not, and by another number nobody would. `EIO`: it cannot be told.
    pub(super) fn check_synced(&self, number: c_int) -> Result<(), Errno> {
        match unsynced(self.seen.thread, number, &self.agent.slots)? {
            Some(_) => Err(Errno::OPNOTSUPP),
            None => Ok(()),
        }
    }

    /// Makes a log plain. If it was opened to be synced with each write, which the kernel does not
    /// know, the program gets another descriptor by the same number, of which the kernel knows it.
    ///
    /// # Errors
    /// It cannot be made plain; `EOPNOTSUPP` if another descriptor would not be the same, because
    /// of a lock, or of others of the same open file.
    pub(super) fn hand_over_open(&self, open: &OpenNumber) -> Result<(), Errno> {
        let number = open.number();
        client::retire(number)?;
        let hidden = client::hidden_flags(number) & libc::O_SYNC;
        let flags = rustix::fs::fcntl_getfl(open.fd())?;
        if hidden & libc::O_DSYNC == 0 {
            return Ok(());
        }
        let slots = &self.agent.slots;
        if syncs_writes(flags) {
            slots.set_hidden(number, 0);
            return Ok(());
        }
        let state = self.thread().descriptor(number).ok_or(Errno::OPNOTSUPP)?;
        let process = process_of(self.seen.thread);
        if state.is_locked || self.agent.numbers.is_shared(open, process) {
            forebay_pool::complain(
                "a descriptor with O_DSYNC of a log is refused to be duplicated to a number of its own, sent, or hidden with its process (EOPNOTSUPP), since it is locked or has duplicates: \
                 leave the file out of --absorb",
            );
            return Err(Errno::OPNOTSUPP);
        }
        let file = opened_again(open.fd(), hidden)?;
        let _position = open.position.lock();
        rustix::fs::seek(&file, SeekFrom::Start(rustix::fs::tell(open.fd())?))?;
        self.check_waiting()?;
        let listener = &self.agent.listener;
        listener.put(self.seen.id, file.as_fd(), number, state.closes_on_exec)?;
        open.become_other(&file)?;
        slots.set_hidden(number, 0);
        Ok(())
    }
}

/// Another descriptor of a log, with the flags that the kernel did not know (`O_DSYNC`).
///
/// # Errors
/// The kernel's: the file lets nobody open it so any more.
pub(super) fn opened_again(fd: BorrowedFd<'_>, hidden: c_int) -> Result<OwnedFd, Errno> {
    const KEPT: OFlags = OFlags::APPEND
        .union(OFlags::NONBLOCK)
        .union(OFlags::NOATIME)
        .union(OFlags::DIRECT)
        .union(OFlags::RWMODE);
    let hidden = OFlags::from_bits_retain((hidden & libc::O_SYNC).cast_unsigned());
    let flags = rustix::fs::fcntl_getfl(fd)?.intersection(KEPT) | hidden | OFlags::CLOEXEC;
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(link, flags, Mode::empty())
}
