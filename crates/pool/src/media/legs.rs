//! A pool in other machines' memory: its legs, behind memory that its processes share.
//! docs/legs.md.
//!
//! What is read and written is the memory, as for a pool on a disk (`disk`). What is durable is on
//! the legs: the tables with every store, everything else when it is written back.
//!
//! One process has connections to the legs: its *owner*, which opened the pool by its file. It only
//! reads until it claims a lane; then it becomes the pool's one writer ([`WRITER_LOCK`]). The
//! others were sent its memory: they *ask* it to write back ([`PostBox`]), and store no tables.
#![expect(unsafe_code, reason = "writes from, and reads into, mapped memory")]

mod serve;

use super::{
    Media, PoolPersistence,
    disk::sealed,
    failed_writes::FailedWrites,
    locks::{LockedFile, WRITER_LOCK},
    table_lines,
};
use crate::{
    error::{PoolError, PoolErrorKind},
    format::layout::PAGE,
    legs::{LegGroup, LegMask, LegsFile},
    stack::quiet_thread,
};
use parking_lot::Mutex;
use serve::{SharedParts, post_bytes, serve, write_and_wait};
use std::{
    fs::File,
    io::{self, IoSlice},
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    thread::JoinHandle,
};

/// This process's part in the pool.
enum LegsRole {
    Owner(LegsOwner),
    Member { is_orphan: OnceLock<fn() -> bool> },
}

/// What the owner has for its part.
struct LegsOwner {
    group: Arc<LegGroup>,
    memory_fd: OwnedFd,
    /// Answers posts.
    server: Mutex<Option<JoinHandle<()>>>,
    is_over: Arc<AtomicBool>,
}

/// See the module's head.
pub(crate) struct LegsMedia {
    path: PathBuf,
    file: LockedFile,
    shared: Arc<SharedParts>,
    /// The tables end here.
    tables: AtomicU64,
    /// Held while tables are stored, or read anew.
    writing: Mutex<()>,
    failed: FailedWrites,
    role: LegsRole,
}

impl LegsMedia {
    /// Opens the pool of a file that is open for reading and writing.
    ///
    /// # Errors
    /// The legs cannot be reached, or none can be believed.
    pub(crate) fn open(
        path: &Path,
        file: File,
        legs: LegsFile,
        lost: &[String],
    ) -> Result<Self, PoolError> {
        let given_up = lost
            .iter()
            .map(|url| legs.named(url))
            .collect::<io::Result<LegMask>>()
            .map_err(|e| PoolError::io(path, "giving up a leg", e))?;
        let group = LegGroup::open(&path.display().to_string(), legs, given_up)
            .map_err(|e| PoolError::io(path, "opening its legs", e))?;
        let media = Self::owned(path, file, group)?;
        media
            .fetch_superblocks()
            .map_err(|e| PoolError::io(path, "reading the pool", e))?;
        Ok(media)
    }

    /// Makes a pool on the legs.
    ///
    /// # Errors
    /// As [`LegGroup::create`].
    pub(crate) fn create(
        path: &Path,
        file: File,
        legs: LegsFile,
        force: bool,
    ) -> Result<Self, PoolError> {
        let failed = |e| PoolError::io(path, "making the pool", e);
        let group = LegGroup::create(&path.display().to_string(), legs, force).map_err(failed)?;
        let media = Self::owned(path, file, group)?;
        media.own().map_err(failed)?;
        Ok(media)
    }

    fn owned(path: &Path, file: File, group: Arc<LegGroup>) -> Result<Self, PoolError> {
        let sharing = |e| PoolError::io(path, "making memory to share", e);
        let bytes = group.bytes();
        if bytes > 1 << 46 || !bytes.is_multiple_of(PAGE) {
            let reason = format!("its legs say that it has {bytes} bytes");
            return Err(PoolError::new(path, PoolErrorKind::BadSize { reason }));
        }
        let memory_fd = sealed(bytes + post_bytes()).map_err(sharing)?;
        let memory_file = File::from(memory_fd);
        let shared = SharedParts::map(&memory_file, bytes).map_err(sharing)?;
        let is_over = Arc::new(AtomicBool::new(false));
        group.note_in(&file).map_err(sharing)?;
        Ok(Self::new(
            path,
            file,
            shared,
            LegsRole::Owner(LegsOwner {
                group,
                memory_fd: memory_file.into(),
                server: Mutex::default(),
                is_over,
            }),
        ))
    }

    /// A member, in the memory of the owner.
    ///
    /// # Errors
    /// It is no such memory.
    pub(crate) fn join(path: &Path, file: File, memory: OwnedFd) -> Result<Self, PoolError> {
        let failed = |e| PoolError::io(path, "mapping the pool's memory", e);
        let memory = File::from(memory);
        let stat = rustix::fs::fstat(&memory).map_err(|e| failed(e.into()))?;
        let whole = stat.st_size.unsigned_abs();
        let bytes = whole.checked_sub(post_bytes()).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        let shared = SharedParts::map(&memory, bytes).map_err(failed)?;
        let is_orphan = OnceLock::new();
        Ok(Self::new(
            path,
            file,
            shared,
            LegsRole::Member { is_orphan },
        ))
    }

    fn new(path: &Path, file: File, shared: SharedParts, role: LegsRole) -> Self {
        Self {
            path: path.to_owned(),
            file: LockedFile::new(file),
            shared: Arc::new(shared),
            // Until it is known where they end, all that is stored goes to the legs.
            tables: AtomicU64::new(u64::MAX),
            writing: Mutex::default(),
            failed: FailedWrites::default(),
            role,
        }
    }

    /// This process's part, if it is the owner.
    fn owner(&self) -> Option<&LegsOwner> {
        match &self.role {
            LegsRole::Owner(owner) => Some(owner),
            LegsRole::Member { .. } => None,
        }
    }

    fn fetch_superblocks(&self) -> io::Result<()> {
        // SAFETY: tables, which nothing lends out.
        unsafe { self.load_in(0, (2 * PAGE).min(self.bytes())) }
    }

    /// Becomes the pool's writer, unless it is that already.
    fn own(&self) -> io::Result<()> {
        let Some(owner) = self.owner() else {
            return Ok(());
        };
        let group = &owner.group;
        let mut server = owner.server.lock();
        if server.is_some() {
            return Ok(());
        }
        // With the open file it is kept until no process of the pool is left.
        self.file.lock(WRITER_LOCK, false).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => io::Error::other(
                "another process of this machine writes the pool, and one on legs has one writer: wait until it ends, or make this program a pool of its own",
            ),
            _ => e,
        })?;
        if !group.is_writer() {
            group
                .take_over()
                .inspect_err(|_| self.file.unlock(WRITER_LOCK))?;
        }
        self.shared.tell_degraded(group);
        let (shared, group) = (Arc::clone(&self.shared), Arc::clone(group));
        let is_over = Arc::clone(&owner.is_over);
        *server = Some(quiet_thread("forebay-posts", move || {
            serve(&shared, &group, &is_over)
        })?);
        Ok(())
    }

    /// Writes what is at `offset`, and returns when it is durable.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let done = match self.owner() {
            Some(owner) => write_and_wait(&owner.group, offset, bytes),
            // The owner writes what lies in the memory; tables are its own.
            None => Err(io::Error::from_raw_os_error(libc::ENOTCONN)),
        };
        done.inspect_err(|e| self.failed.note(e))
    }

    /// Stores `lines` at `offset` in the tables: on the legs first, and in the memory then.
    fn store(&self, offset: u64, lines: &[u8]) -> io::Result<()> {
        self.check()?;
        self.own().inspect_err(|e| self.failed.note(e))?;
        let _one = self.writing.lock();
        let from = offset / PAGE * PAGE;
        let end = (offset + lines.len() as u64).next_multiple_of(PAGE);
        let mut pages = vec![0; usize::try_from(end - from).unwrap_or(usize::MAX)];
        self.shared.memory.load(from, &mut pages);
        let at = (offset - from) as usize;
        pages[at..at + lines.len()].copy_from_slice(lines);
        self.write(from, &pages)?;
        // SAFETY: only tables are stored here, under `writing`; nothing lends them out.
        unsafe { self.shared.memory.stream(offset, &[IoSlice::new(lines)], 0) };
        self.shared.memory.fence();
        Ok(())
    }
}

impl Drop for LegsMedia {
    fn drop(&mut self) {
        let Some(owner) = self.owner() else {
            return;
        };
        owner.is_over.store(true, Release);
        self.shared.posts.wake_owner();
        if let Some(server) = owner.server.lock().take() {
            let _ = server.join();
        }
        owner.group.close();
    }
}

impl Media for LegsMedia {
    crate::forward_media!(mapping shared.memory);
    crate::forward_media!(locks file);
    crate::forward_media!(failures failed);

    fn durability(&self) -> PoolPersistence {
        PoolPersistence::MachineLossOnceCommitted
    }

    fn describe(&self) -> String {
        match self.owner() {
            Some(owner) => owner.group.describe(),
            None => format!("legs of {}", self.path.display()),
        }
    }

    fn degradation(&self) -> Option<String> {
        let Some(LegsOwner { group, .. }) = self.owner() else {
            return self.shared.posts.is_degraded().then(String::new);
        };
        let told = || {
            format!(
                "the pool has fewer copies than it is to have, so every sync is a real one: {}",
                group.describe()
            )
        };
        group.is_degraded().then(told)
    }

    fn is_degraded(&self) -> bool {
        match self.owner() {
            Some(owner) => owner.group.is_degraded(),
            None => self.shared.posts.is_degraded(),
        }
    }

    fn lost_legs(&self) -> Vec<String> {
        self.owner()
            .map_or_else(Vec::new, |owner| owner.group.given_up())
    }

    fn is_elsewhere(&self) -> bool {
        true
    }

    unsafe fn stream(&self, offset: u64, parts: &[IoSlice<'_>], skip: usize) {
        if offset >= self.tables.load(Acquire) {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.shared.memory.stream(offset, parts, skip) };
        }
        // The error is kept: a caller that relies on the legs asks `check`.
        let _ = self
            .store(offset, &table_lines(parts, skip))
            .inspect_err(|e| self.failed.note(e));
    }

    fn needs_commit(&self) -> bool {
        true
    }

    fn begin_writing(&self) -> io::Result<()> {
        self.own()
    }

    fn posts_memory(&self) -> Range<usize> {
        self.shared.posts.memory()
    }

    fn set_tables(&self, end: u64) {
        self.tables.store(end, Release);
    }

    unsafe fn load_in(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let Some(LegsOwner { group, .. }) = self.owner() else {
            // The owner's memory is this one.
            return Ok(());
        };
        let _one = self.writing.lock();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let to = self.shared.memory.raw(offset, bytes);
        // SAFETY: the range is checked; the caller keeps others out, and `writing` other threads
        // that load it in or store to the tables.
        let to = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
        match group.is_writer() {
            true => group.read_equal(offset, to),
            false => group.read(offset, to),
        }
    }

    unsafe fn write_back(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check()?;
        if let LegsRole::Member { is_orphan } = &self.role {
            let is_orphan = || is_orphan.get().is_some_and(|is| is());
            let asked = self.shared.posts.ask(&(offset..offset + bytes), is_orphan);
            return asked.inspect_err(|e| self.failed.note(e));
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the caller keeps writers out.
        let from = unsafe { self.shared.memory.slice(offset, bytes) };
        self.own().inspect_err(|e| self.failed.note(e))?;
        self.write(offset, from)
    }

    fn shared_memory(&self) -> Option<BorrowedFd<'_>> {
        self.owner().map(|owner| owner.memory_fd.as_fd())
    }

    fn ask_owner(&self, orphaned: fn() -> bool) {
        if let LegsRole::Member { is_orphan } = &self.role {
            let _ = is_orphan.set(orphaned);
        }
    }
}
