//! The page that a client and its supervisor share: ordinary memory, for what happens too often for messages.
//!
//! The client counts; the supervisor says how far the lane is drained, and what went wrong. docs/files-protocol.md, "Shared page".
#![expect(unsafe_code, reason = "memory shared with another process")]

use crate::FILES_MAX;
use forebay_pool::media::{self, Atomics, Mapped};
use rustix::io::Errno;
use std::{
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
        // An unwoken client looks again after its time-out.
        media::wake(&self.changes);
    }

    /// The number to give to [`wait`](Self::wait), read before looking at what is waited for.
    pub fn changes(&self) -> u32 {
        self.changes.load(Acquire)
    }

    /// Waits until something changes after `seen`, or `limit` is over.
    pub fn wait(&self, seen: u32, limit: Duration) {
        // Woken, changed already, interrupted, too late: the caller looks again in any case.
        media::wait(&self.changes, seen, limit);
    }
}

// SAFETY: atomics only.
unsafe impl Atomics for Shared {}
// SAFETY: atomics only.
unsafe impl Atomics for crate::absorbed::Page {}

/// A mapping of the page.
pub(crate) type SharedPage = Mapped<Shared>;
