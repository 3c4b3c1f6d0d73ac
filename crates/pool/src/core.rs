//! The base of lanes and of the pool: the medium, the superblock and tables on it, and its
//! locks.
//!
//! A [`Core`] outlives the [`Pool`](crate::Pool) that opened it, for as long as a lane, or a member
//! of a shared one, has it. It is the one place that takes the medium's locks and that makes parts
//! of it zero. Format: docs/pool-format.md.
//!
//! Lock order:
//!
//! 1. the lock of who recovers a lane (2^21 + lane), taken without waiting;
//! 2. the pool lock (lock 0 of the medium), held while lanes and segments change hands;
//! 3. a lane's lock (1 + lane), held by its owner for as long as it lives;
//! 4. that of a disk's tables (2^20), the medium's own.
//!
//! All die with their process, but for the lock of a shared lane, which lasts until no process has
//! the pool's open file. A lane's lock is taken under the pool lock only, and without waiting; the
//! pool lock is waited for.

use crate::{
    error::{AppendError, PoolError, PoolErrorKind},
    format::{layout::PAGE, superblock::Superblock, table::PoolTables},
    media::{LockGuard, Media, POOL_LOCK, PoolAccess, ProcessMark},
};
use std::{
    io::{ErrorKind, IoSlice},
    os::fd::BorrowedFd,
    path::PathBuf,
    sync::Arc,
};

/// The lock of a lane.
const fn lane_lock(lane: u32) -> u32 {
    1 + lane
}

/// The lock of who recovers a lane: behind those of all lanes, and that of a disk.
const fn recovery_lock(lane: u32) -> u32 {
    (1 << 21) + lane
}

/// The parts of a pool that a lane needs.
pub(crate) struct Core {
    pub(crate) path: PathBuf,
    pub(crate) media: Arc<dyn Media>,
    pub(crate) superblock: Superblock,
    /// The process that opened it.
    pub(crate) process: ProcessMark,
    /// Its file had a name then.
    pub(crate) is_named: bool,
    /// The right to change or lock anything.
    pub(crate) access: PoolAccess,
}

/// True if a medium is a file that has a name, or a device.
pub(crate) fn has_name(media: &dyn Media) -> bool {
    let stat = media.descriptor().and_then(|it| rustix::fs::fstat(it).ok());
    stat.is_some_and(|stat| stat.st_nlink > 0)
}

impl Core {
    pub(crate) fn tables(&self) -> PoolTables<'_> {
        PoolTables {
            media: &*self.media,
            geometry: self.superblock.geometry,
            pool: self.superblock.uuid,
        }
    }

    pub(crate) fn fail(&self, kind: PoolErrorKind) -> PoolError {
        PoolError::new(&self.path, kind)
    }

    /// Refuses to do anything in a child that was forked from the process that opened the pool.
    /// Before any lock is taken.
    pub(crate) fn check_process(&self) -> Result<(), PoolError> {
        match self.process.is_here() {
            true => Ok(()),
            false => Err(self.fail(PoolErrorKind::Forked)),
        }
    }

    /// The same for work on a lane.
    #[inline]
    pub(crate) fn check_own(&self) -> Result<(), AppendError> {
        match self.process.is_here() {
            true => Ok(()),
            false => Err(AppendError::Forked),
        }
    }

    /// The pool's open file, if the pool's bytes do not lie there, but on legs.
    pub(crate) fn file_elsewhere(&self) -> Option<BorrowedFd<'_>> {
        let file = self.media.descriptor();
        file.filter(|_| self.media.is_elsewhere())
    }

    /// Refuses to change or lock anything of a pool that was opened for reading.
    pub(crate) fn check_writable(&self) -> Result<(), PoolError> {
        match self.access {
            PoolAccess::ReadWrite => Ok(()),
            PoolAccess::Read => Err(self.fail(PoolErrorKind::OpenedToRead)),
        }
    }

    /// Waits for the pool lock.
    pub(crate) fn lock_pool(&self) -> Result<LockGuard, PoolError> {
        self.check_process()?;
        self.check_writable()?;
        let guard = LockGuard::take(&self.media, POOL_LOCK, true)
            .map_err(|e| PoolError::io(&self.path, "locking the pool", e))?;
        self.load_tables()?;
        Ok(guard)
    }

    /// Before the pool lock is taken to claim a lane.
    pub(crate) fn begin_writing(&self) -> Result<(), PoolError> {
        self.check_process()?;
        self.check_writable()?;
        let begun = self.media.begin_writing();
        begun.map_err(|e| PoolError::io(&self.path, "becoming its writer", e))
    }

    /// Refuses a pool whose file was removed since it was opened: writes to it are gone with this
    /// process. Under the pool lock, which who removes it has (`Pool::lock`).
    pub(crate) fn check_named(&self) -> Result<(), PoolError> {
        if !self.is_named || has_name(&*self.media) {
            return Ok(());
        }
        let removed = std::io::Error::new(ErrorKind::NotFound, "its file was removed meanwhile");
        Err(PoolError::io(&self.path, "claiming a lane", removed))
    }

    /// Sees other processes' writes to the tables.
    pub(crate) fn load_tables(&self) -> Result<(), PoolError> {
        self.check_process()?;
        let loaded = self.media.fetch(0, self.superblock.geometry.data());
        loaded.map_err(|e| PoolError::io(&self.path, "reading the pool's tables", e))
    }

    /// Takes the lock of `lane`, if it is free. The caller has the pool lock: so it is refused by
    /// an owner, not by a process that only looks.
    pub(crate) fn try_lock_lane(&self, lane: u32) -> Result<Option<LockGuard>, PoolError> {
        match LockGuard::take(&self.media, lane_lock(lane), false) {
            Ok(guard) => {
                // Until now its owner may have written its entry.
                self.load_tables()?;
                Ok(Some(guard))
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(PoolError::io(&self.path, "locking a lane", e)),
        }
    }

    /// True if no process has the lock of `lane`, which stays so as long as the caller has the pool
    /// lock. Who only reads is told without a lock.
    pub(crate) fn is_lane_free(&self, lane: u32) -> Result<bool, PoolError> {
        let free = self.media.is_free(lane_lock(lane));
        free.map_err(|e| PoolError::io(&self.path, "looking at the lock of a lane", e))
    }

    /// Takes the lock of who recovers `lane`, if no process does. Before any other lock.
    pub(crate) fn try_lock_recovery(&self, lane: u32) -> Result<Option<LockGuard>, PoolError> {
        self.check_process()?;
        self.check_writable()?;
        match LockGuard::take(&self.media, recovery_lock(lane), false) {
            Ok(guard) => Ok(Some(guard)),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(PoolError::io(&self.path, "locking a recovery", e)),
        }
    }

    /// Maps a part of the medium, see [`Media::prepare`].
    pub(crate) fn prepare(&self, offset: u64, bytes: u64, write: bool) -> Result<(), PoolError> {
        let done = self.media.prepare(offset, bytes, write);
        done.map_err(|e| PoolError::io(&self.path, "mapping the pool's memory", e))
    }

    /// Fails unless everything that was written to the tables is durable.
    pub(crate) fn check(&self) -> Result<(), PoolError> {
        let done = self.media.check();
        done.map_err(|e| PoolError::io(&self.path, "writing the pool's tables", e))
    }

    /// Makes `bytes` bytes at `offset`, both multiples of a line, zero, durably.
    pub(crate) fn zero(&self, offset: u64, bytes: u64) -> Result<(), PoolError> {
        let zeros = vec![0; 1 << 20];
        let mut done = 0;
        while done < bytes {
            let now = (bytes - done).min(zeros.len() as u64);
            let part = &zeros[..usize::try_from(now).unwrap_or(zeros.len())];
            self.media.store(offset + done, &[IoSlice::new(part)]);
            done += now;
        }
        self.media.fence();
        // Whole pages: what lies before it in the first one stays what it is, and nothing is
        // written there meanwhile.
        let from = offset / PAGE * PAGE;
        let written = self.media.commit_pages(from, offset + bytes - from);
        written.map_err(|e| match e.kind() {
            ErrorKind::StorageFull => self.fail(PoolErrorKind::NoBlocks {
                bytes: self.superblock.geometry.pool_bytes,
            }),
            _ => PoolError::io(&self.path, "erasing a part of the pool", e),
        })
    }
}
