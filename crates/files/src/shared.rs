//! The page that a client and its supervisor share: ordinary memory, for what happens too often for messages.
//!
//! The client counts; the supervisor says how far the lane is drained, and what went wrong. docs/files-protocol.md, "Shared page".
#![expect(unsafe_code, reason = "memory shared with another process")]

use crate::FILES_MAX;
use rustix::{
    fs::{MemfdFlags, SealFlags},
    io::Errno,
    mm::{MapFlags, ProtFlags},
    thread::futex,
};
use std::{
    ops::Deref,
    os::fd::{BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::{
        AtomicI32, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
    time::Duration,
};

/// What the two share about one file.
#[repr(C, align(64))]
pub struct SharedFile {
    /// Supervisor: the error with which the file could not be synced; 0 if none.
    pub errno: AtomicI32,
    /// Supervisor: another process opens the file for writing; the client is to retire it.
    pub retire: AtomicU32,
    /// Client: writes absorbed.
    pub writes: AtomicU64,
    /// Client: bytes absorbed.
    pub bytes: AtomicU64,
    /// Client: syncs absorbed.
    pub syncs: AtomicU64,
    /// Client: log address behind the last record.
    pub end: AtomicU64,
}

/// The shared page.
#[repr(C)]
pub struct Shared {
    /// Supervisor: everything in the lane below this address is durable in the files.
    drained: AtomicU64,
    /// Supervisor: counts changes of `drained` and of errors; the client waits on it.
    changes: AtomicU32,
    /// Supervisor: number of files with an error.
    failing: AtomicU32,
    /// Supervisor: the file that it is syncing, plus one; 0 for none.
    syncing: AtomicU32,
    /// Client: log address behind the last record it handed over.
    pub handed_over: AtomicU64,
    /// Client: times that it waited for the drain because the lane was full.
    pub waits: AtomicU64,
    /// By file number.
    pub files: [SharedFile; FILES_MAX],
}

impl Shared {
    /// Log address below which everything is durable in the files.
    pub fn drained(&self) -> u64 {
        self.drained.load(Acquire)
    }

    /// Supervisor: everything below `lsn` is durable in the files.
    pub fn set_drained(&self, lsn: u64) {
        self.drained.store(lsn, Release);
        self.wake();
    }

    /// True if any file cannot be synced.
    #[inline]
    pub fn failing(&self) -> bool {
        self.failing.load(Relaxed) != 0
    }

    /// Supervisor: `file` could not be synced.
    pub fn fail(&self, file: usize, errno: Errno) {
        if self.files[file].errno.swap(errno.raw_os_error(), Relaxed) == 0 {
            self.failing.fetch_add(1, Release);
        }
        self.wake();
    }

    /// Supervisor: `file` is being synced.
    pub fn begin_sync(&self, file: usize) {
        self.syncing
            .store(u32::try_from(file + 1).unwrap_or(0), Release);
    }

    /// Supervisor: it was, and what came of it is said.
    pub fn end_sync(&self) {
        self.syncing.store(0, Release);
    }

    /// Client, when the supervisor is gone: the file that was being synced, of which nobody knows what came of it.
    pub fn take_syncing(&self) -> Option<usize> {
        let file = self.syncing.swap(0, AcqRel) as usize;
        file.checked_sub(1).filter(|file| *file < FILES_MAX)
    }

    /// The file is sound again.
    pub fn recovered(&self, file: usize) {
        if self.files[file].errno.swap(0, Relaxed) != 0 {
            self.failing.fetch_sub(1, Release);
        }
        self.wake();
    }

    fn wake(&self) {
        self.changes.fetch_add(1, Release);
        // An unwoken client looks again after its time-out.
        let _ = futex::wake(&self.changes, futex::Flags::empty(), u32::MAX);
    }

    /// The number to give to [`wait`](Self::wait), read before looking at what is waited for.
    pub fn changes(&self) -> u32 {
        self.changes.load(Acquire)
    }

    /// Waits until something changes after `seen`, or `limit` is over.
    pub fn wait(&self, seen: u32, limit: Duration) {
        let limit = rustix::time::Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        // Woken, changed already, interrupted, too late: the caller looks again in any case.
        let _ = futex::wait(&self.changes, futex::Flags::empty(), seen, Some(&limit));
    }
}

/// Memory that is shared with other processes.
///
/// # Safety
/// It consists of atomics: every bit pattern is valid, and others may change it.
pub(crate) unsafe trait Atomics {}

// SAFETY: atomics only.
unsafe impl Atomics for Shared {}
// SAFETY: atomics only.
unsafe impl Atomics for crate::absorbed::Page {}

/// A mapping of a `T`.
pub(crate) struct Mapped<T: Atomics>(NonNull<T>);

// SAFETY: it has atomics only.
unsafe impl<T: Atomics> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Atomics> Sync for Mapped<T> {}

impl<T: Atomics> Mapped<T> {
    /// Maps the file. Where `protection` does not let it be written to, nothing may be stored.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` for something smaller than a `T`.
    pub(crate) fn map_as(fd: BorrowedFd<'_>, protection: ProtFlags) -> Result<Self, Errno> {
        if rustix::fs::fstat(fd)?.st_size < size_of::<T>() as i64 {
            return Err(Errno::INVAL);
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let page = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                size_of::<T>(),
                protection,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        NonNull::new(page.cast()).map(Self).ok_or(Errno::NOMEM)
    }
}

/// A mapping of the page.
pub(crate) type SharedPage = Mapped<Shared>;

impl SharedPage {
    /// A new page, and the descriptor to send to the client. Its size is sealed: the other side cannot take memory away under us.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new() -> Result<(Self, OwnedFd), Errno> {
        let fd =
            rustix::fs::memfd_create("forebay", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, size_of::<Shared>() as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::map(rustix::fd::AsFd::as_fd(&fd))?, fd))
    }

    /// The page that the supervisor sent.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` for something smaller than the page.
    pub fn map(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        Self::map_as(fd, ProtFlags::READ | ProtFlags::WRITE)
    }
}

impl<T: Atomics> Deref for Mapped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping has the size of a `T`, which consists of atomics, for which every bit pattern is valid; it lives as
        // long as `self`.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Atomics> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}
