//! A pool on an ordinary disk: a file or a block device, behind memory that its processes share.
//! docs/pool-format.md, "Pools on a disk".
//!
//! What is read and written is the memory, a sealed memfd as large as the pool: pages of it that no
//! lane uses are never made. What is durable is the disk:
//!
//! * the tables (everything below [`Media::set_tables`]) go there with every store, block by block,
//!   under a lock of the disk's own, since several processes may have the pool, each with a memory
//!   of its own;
//! * everything else when it is [written back](Media::write_back). Blocks that are durable are
//!   never written again before their segment is released, so that a torn write hurts none of them.
//!
//! A disk that fails once is written to no more ([`Media::check`]): what it has from before stays
//! what a recovery finds. One thing is tried again ([`Media::try_again`]): to say in the tables
//! that a lane is not needed any more.
#![expect(unsafe_code, reason = "writes from, and reads into, mapped memory")]

use super::{
    Media, PoolPersistence,
    durable_file::{read_all, write_durably},
    failed_writes::FailedWrites,
    locks::{LockedFile, TABLES_LOCK},
    mapping::{MappingKind, PoolAccess, SharedMapping},
    sector, table_lines,
};
use crate::{error::PoolError, format::layout::PAGE};
use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, OFlags, SealFlags};
use std::{
    fs::File,
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
};

/// The unit of all writes to the disk: no block that is durable shares one with a later write. A
/// drive that emulates smaller sectors writes as much at once.
pub(crate) const BLOCK: u64 = PAGE;

/// An aligned block, for a disk that is written to past the page cache.
#[repr(C, align(4096))]
struct AlignedBlock([u8; BLOCK as usize]);

/// See the module's head.
pub(crate) struct DiskMedia {
    path: PathBuf,
    disk: LockedFile,
    memory: SharedMapping,
    /// Of the process that made the memory; the others have no use for it.
    memory_fd: Option<OwnedFd>,
    /// The tables end here.
    tables: AtomicU64,
    /// Held while a block of the tables is read, changed and written, or all are read anew.
    writing: Mutex<Box<AlignedBlock>>,
    failed: FailedWrites,
}

impl DiskMedia {
    /// On a disk of `bytes` bytes that is open for reading and writing, or for reading alone by who
    /// stores nothing; with the `memory` of another process that has it, or one of its own.
    ///
    /// # Errors
    /// What the kernel says; a disk whose sectors are larger than a page.
    pub(crate) fn new(
        path: &Path,
        file: File,
        bytes: u64,
        memory: Option<OwnedFd>,
    ) -> Result<Self, PoolError> {
        let fail = |doing| move |e: io::Error| PoolError::io(path, doing, e);
        let sharing = fail("making memory to share");
        let is_joined = memory.is_some();
        if !is_joined {
            sector::check(path, &file)?;
        }
        let memory_fd = match memory {
            Some(memory) => memory,
            None => sealed(bytes).map_err(&sharing)?,
        };
        let memory_file = File::from(memory_fd);
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let memory = SharedMapping::new(
            &memory_file,
            length,
            MappingKind::Shared,
            PoolAccess::ReadWrite,
        )
        .map_err(sharing)?;
        let memory_fd = OwnedFd::from(memory_file);
        // Where that is refused the page cache lies between, which is written through all the same.
        let flags = rustix::fs::fcntl_getfl(&file);
        let _ = flags.and_then(|flags| rustix::fs::fcntl_setfl(&file, flags | OFlags::DIRECT));
        let media = Self {
            path: path.to_owned(),
            disk: LockedFile::new(file),
            memory,
            memory_fd: (!is_joined).then_some(memory_fd),
            // Until it is known where they end, all that is stored goes to the disk.
            tables: AtomicU64::new(u64::MAX),
            writing: Mutex::new(Box::new(AlignedBlock([0; BLOCK as usize]))),
            failed: FailedWrites::default(),
        };
        if !is_joined {
            let superblocks = (2 * PAGE).min(bytes);
            // SAFETY: no other thread has it yet.
            unsafe { media.load_in(0, superblocks) }.map_err(fail("reading the pool"))?;
        }
        Ok(media)
    }

    fn disk(&self) -> BorrowedFd<'_> {
        self.disk.fd()
    }

    /// Writes what is at `offset` in memory, whole blocks, and returns when the disk has it.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let written = match crate::failpoint::error("disk-write") {
            Some(errno) => Err(errno.into()),
            None => write_durably(self.disk(), offset, bytes),
        };
        written.inspect_err(|e| self.failed.note(e))
    }

    /// Stores `bytes` at `offset` in the tables: on the disk first, and in the memory then.
    fn store(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        let mut block = self.writing.lock();
        // Whatever kept it from the disk: no later store or commit is to go on as if it were there.
        (self.store_on_disk(&mut block, offset, bytes)).inspect_err(|e| self.failed.note(e))?;
        // SAFETY: only tables are stored here, under `writing`; nothing lends them out.
        unsafe { self.memory.stream(offset, &[IoSlice::new(bytes)], 0) };
        self.memory.fence();
        Ok(())
    }

    fn store_on_disk(&self, block: &mut AlignedBlock, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.lock(TABLES_LOCK, true)?;
        crate::failpoint!("disk:tables-locked");
        let mut done = 0;
        let mut all = Ok(());
        while done < bytes.len() && all.is_ok() {
            let at = offset + done as u64;
            let skip = (at % BLOCK) as usize;
            let take = (BLOCK as usize - skip).min(bytes.len() - done);
            let part = &bytes[done..done + take];
            all = read_all(self.disk(), at - skip as u64, &mut block.0).and_then(|()| {
                block.0[skip..skip + take].copy_from_slice(part);
                self.write(at - skip as u64, &block.0)
            });
            done += take;
        }
        self.disk.unlock(TABLES_LOCK);
        all
    }
}

/// Memory of so many bytes, none of which is there before it is touched, and whose size no process
/// changes.
pub(super) fn sealed(bytes: u64) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(
        "forebay-pool",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?;
    rustix::fs::ftruncate(&fd, bytes)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

impl Media for DiskMedia {
    crate::forward_media!(mapping memory);
    crate::forward_media!(locks disk);
    crate::forward_media!(failures failed);

    fn durability(&self) -> PoolPersistence {
        PoolPersistence::PowerCutOnceCommitted
    }

    fn describe(&self) -> String {
        format!("disk {}", self.path.display())
    }

    unsafe fn stream(&self, offset: u64, parts: &[IoSlice<'_>], skip: usize) {
        if offset >= self.tables.load(Acquire) {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.memory.stream(offset, parts, skip) };
        }
        // The error is kept: a caller that relies on the disk asks `check`.
        let _ = self.store(offset, &table_lines(parts, skip));
    }

    fn needs_commit(&self) -> bool {
        true
    }

    fn set_tables(&self, end: u64) {
        self.tables.store(end, Release);
    }

    unsafe fn load_in(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let _writing = self.writing.lock();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let to = self.memory.raw(offset, bytes);
        // SAFETY: the range is checked; the caller keeps others out, and `writing` other threads
        // that load it in or store to the tables.
        let to = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
        read_all(self.disk(), offset, to)
    }

    fn settle(&self) -> io::Result<()> {
        // Whatever a process had written when it was killed: the disk may have it in its cache
        // only.
        rustix::fs::fdatasync(self.disk()).map_err(Into::into)
    }

    unsafe fn write_back(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check()?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the caller keeps writers out.
        let from = unsafe { self.memory.slice(offset, bytes) };
        self.write(offset, from)
    }

    fn shared_memory(&self) -> Option<BorrowedFd<'_>> {
        self.memory_fd.as_ref().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: as `a_failing_disk_loses_nothing_committed_and_lets_nobody_wait`.
    #[test]
    fn an_unreadable_block_of_the_tables_is_a_failure_of_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, vec![0; 1 << 16]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let media = DiskMedia::new(&path, file, 1 << 16, None).unwrap();
        let store = |media: &dyn Media| media.store(8192, &[IoSlice::new(&[1; 64])]);
        store(&media);
        media.check().unwrap();
        // What is around the new bytes has to be read first.
        let cut = File::options().write(true).open(&path).unwrap();
        cut.set_len(4096).unwrap();
        store(&media);
        assert!(media.check().is_err(), "the store was lost in silence");
    }
}
