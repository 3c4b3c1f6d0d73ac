//! The open file of a medium, and its locks: single bytes of it, which the kernel gives back when
//! their holder is gone. docs/pool-format.md, "Locks".
//!
//! Members of a shared lane are sent the open file. It holds the lane's lock, which so lasts until
//! the last of them ends. The pool's lock and that of a disk's tables are held for a moment and
//! waited for: they have to end with the process that took one, however many others have the file.
//! So where it is shared these two are held
//!
//! * by the lane's owner with another open file, which no process is sent;
//! * by a member as a process (POSIX). It may have neither the right nor the `/proc` to open the
//!   file again, and its forked children would have that open file, too. The kernel drops such a
//!   lock also when the process closes any descriptor of the file: the client that a member is
//!   closes none meanwhile.
#![expect(
    unsafe_code,
    reason = "keeps a descriptor by its number, and asks the kernel for locks"
)]

use super::{DescriptorSharing, held_locks::HeldLocks};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
    sync::{
        OnceLock,
        atomic::{
            AtomicI32,
            Ordering::{Acquire, Release},
        },
    },
};

/// The lock that guards who owns which lane and segment.
pub(crate) const POOL_LOCK: u32 = 0;
/// The lock under which a block of a disk's tables is read, changed and written: above those of any
/// lane.
pub(super) const TABLES_LOCK: u32 = 1 << 20;
/// The lock of the one process that writes to a pool's legs: above those of any recovery.
pub(super) const WRITER_LOCK: u32 = 1 << 22;
/// Those that are held for a moment and waited for, in the order in which they are taken.
const MOMENTARY: [u32; 2] = [POOL_LOCK, TABLES_LOCK];

/// See the module's head.
pub(super) struct LockedFile {
    /// The program that a member lives in may want its number (see
    /// [`Media::moved`](super::Media::moved)).
    fd: AtomicI32,
    held: HeldLocks,
    /// The holder of the [`MOMENTARY`] locks; the open file itself as long as it is not shared. Set
    /// while none of them is held.
    momentary: OnceLock<MomentaryLock>,
}

enum MomentaryLock {
    OwnFile(File),
    Process,
}

/// The file that a lock belongs to.
#[derive(Clone, Copy)]
enum LockHolder {
    OpenFile,
    Process,
}

/// The command of [`lock_byte`].
#[derive(Clone, Copy)]
enum LockCommand {
    Try,
    Wait,
    Release,
}

impl LockedFile {
    pub(super) fn new(file: File) -> Self {
        Self {
            fd: AtomicI32::new(file.into_raw_fd()),
            held: HeldLocks::default(),
            momentary: OnceLock::new(),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is ours, and open as long as `self`; the caller of `moved` keeps others from
        // using it meanwhile.
        unsafe { BorrowedFd::borrow_raw(self.fd.load(Acquire)) }
    }

    /// See [`Media::moved`](super::Media::moved).
    pub(super) fn moved(&self, to: RawFd) {
        self.fd.store(to, Release);
    }

    /// See [`Media::share`](super::Media::share).
    ///
    /// # Errors
    /// The owner cannot open it once more.
    pub(super) fn share(&self, sharing: DescriptorSharing) -> io::Result<()> {
        if self.momentary.get().is_some() {
            return Ok(());
        }
        let momentary = match sharing {
            DescriptorSharing::IsReceived => MomentaryLock::Process,
            DescriptorSharing::IsSent => {
                // By the descriptor: its path may lead elsewhere by now.
                let link = format!("/proc/self/fd/{}", self.fd().as_raw_fd());
                let file = File::options().read(true).write(true).open(link);
                MomentaryLock::OwnFile(file?)
            }
        };
        // A lock has to be given back where it was taken, and other threads may have one now.
        for lock in MOMENTARY {
            self.held.take(lock, true)?;
        }
        let _ = self.momentary.set(momentary);
        for lock in MOMENTARY {
            self.held.give(lock);
        }
        Ok(())
    }

    /// See [`Media::abandon`](super::Media::abandon). The number is kept, for what holds it and
    /// closes it in the end.
    pub(super) fn abandon(&self) {
        let Ok(other) = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC) else {
            return;
        };
        // SAFETY: the number is ours; whatever is done with it from now on fails.
        let _ = unsafe { libc::dup3(other.as_raw_fd(), self.fd.load(Acquire), libc::O_CLOEXEC) };
    }

    fn holder(&self, lock: u32) -> (BorrowedFd<'_>, LockHolder) {
        let momentary = self.momentary.get();
        match momentary.filter(|_| MOMENTARY.contains(&lock)) {
            Some(MomentaryLock::OwnFile(file)) => (file.as_fd(), LockHolder::OpenFile),
            Some(MomentaryLock::Process) => (self.fd(), LockHolder::Process),
            None => (self.fd(), LockHolder::OpenFile),
        }
    }

    /// See [`Media::lock`](super::Media::lock).
    pub(super) fn lock(&self, lock: u32, wait: bool) -> io::Result<()> {
        self.held.take(lock, wait)?;
        let command = if wait {
            LockCommand::Wait
        } else {
            LockCommand::Try
        };
        lock_byte(self.holder(lock), lock, command).inspect_err(|_| self.held.give(lock))
    }

    /// Gives `lock` back.
    pub(super) fn unlock(&self, lock: u32) {
        // Releasing a lock we hold cannot fail; if it did, its holder's end drops it anyway.
        let _ = lock_byte(self.holder(lock), lock, LockCommand::Release);
        self.held.give(lock);
    }

    /// Leaves `lock` to the open file.
    pub(super) fn leave(&self, lock: u32) {
        self.held.give(lock);
    }

    /// See [`Media::is_free`](super::Media::is_free).
    pub(super) fn is_free(&self, lock: u32) -> io::Result<bool> {
        if self.held.has(lock) {
            return Ok(false);
        }
        let mut request = request(libc::F_WRLCK, lock);
        let (file, _) = self.holder(lock);
        // SAFETY: `request` is a valid `struct flock` for the length of the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut request) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(libc::c_int::from(request.l_type) == libc::F_UNLCK)
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // SAFETY: it is ours, and not used any more.
        drop(unsafe { OwnedFd::from_raw_fd(*self.fd.get_mut()) });
    }
}

/// Of one byte. The kernel wants 0 where it is to know the process itself.
fn request(kind: libc::c_int, byte: u32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: libc::off_t::from(byte),
        l_len: 1,
        l_pid: 0,
    }
}

/// Takes or gives back the lock on one byte of the file that belongs to the holder: the kernel
/// drops it when the last descriptor of the open file is closed, or the process ends.
fn lock_byte(
    (file, holder): (BorrowedFd<'_>, LockHolder),
    byte: u32,
    command: LockCommand,
) -> io::Result<()> {
    let (kind, waits) = match command {
        LockCommand::Try => (libc::F_WRLCK, false),
        LockCommand::Wait => (libc::F_WRLCK, true),
        LockCommand::Release => (libc::F_UNLCK, false),
    };
    let call = match (holder, waits) {
        (LockHolder::OpenFile, false) => libc::F_OFD_SETLK,
        (LockHolder::OpenFile, true) => libc::F_OFD_SETLKW,
        (LockHolder::Process, false) => libc::F_SETLK,
        (LockHolder::Process, true) => libc::F_SETLKW,
    };
    let request = request(kind, byte);
    loop {
        // SAFETY: `request` is a valid `struct flock` for the length of the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), call, &raw const request) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN | libc::EACCES) => return Err(io::ErrorKind::WouldBlock.into()),
            _ => return Err(error),
        }
    }
}
