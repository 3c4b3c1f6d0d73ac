//! [`DiskLeg`]: a leg that is a disk of this machine, or a file on one. It is asked as an export is:
//! requests wait in a queue, one thread does them, and a write is durable when it is answered.
//!
//! A process that writes to it holds a lock on the file until the last write is over, also if its
//! process is killed in the middle: what was under way may not come behind its successor's writes.

use super::handshake::ExportInfo;
use crate::{
    disk_signatures,
    format::layout::PAGE,
    media::{
        durable_file::{read_all, write_durably},
        sector,
    },
};
use parking_lot::Mutex;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

/// The most bytes of one request.
const AT_ONCE: usize = 1 << 20;
/// For how long a writer waits for the lock: one that was killed has it until its write is over.
const LOCK_MAX: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A request, and the number by which its answer is known.
pub(super) struct DiskRequest {
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) act: DiskAct,
}

pub(super) enum DiskAct {
    Read { bytes: usize },
    Write { payload: Vec<u8> },
}

/// See the module's head.
pub(super) struct DiskLeg {
    path: PathBuf,
    file: Mutex<LegFile>,
    /// The queue of requests; none before there is a thread, and once it is over.
    queue: Mutex<Option<Sender<DiskRequest>>>,
}

/// The open file, and memory that is aligned as a disk wants it.
struct LegFile {
    file: File,
    memory: Vec<u8>,
    is_locked: bool,
}

impl DiskLeg {
    /// Opens it.
    ///
    /// # Errors
    /// There is none, or it can be no leg.
    pub(super) fn open(path: &Path) -> io::Result<(Self, ExportInfo)> {
        // To open some devices is to begin something.
        let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
            return Err(io::Error::other("it is neither a file nor a block device"));
        }
        let same = format!("/proc/self/fd/{}", place.as_raw_fd());
        let file = OpenOptions::new().read(true).write(true).open(same)?;
        sector::check(path, &file).map_err(io::Error::other)?;
        let bytes = (&file).seek(SeekFrom::End(0))?;
        // Where that is refused the page cache lies between, which is written through all the same.
        let flags = rustix::fs::fcntl_getfl(&file)?;
        let _ = rustix::fs::fcntl_setfl(&file, flags | OFlags::DIRECT);
        let file = LegFile {
            file,
            memory: vec![0; AT_ONCE + PAGE as usize],
            is_locked: false,
        };
        let leg = Self {
            path: path.to_owned(),
            file: Mutex::new(file),
            queue: Mutex::default(),
        };
        let payload_max = AT_ONCE as u32;
        Ok((leg, ExportInfo { bytes, payload_max }))
    }

    /// From now on requests wait for who reads them here.
    pub(super) fn begin_queue(&self) -> Receiver<DiskRequest> {
        let (queue, requests) = channel();
        *self.queue.lock() = Some(queue);
        requests
    }

    /// Nothing waits any more.
    pub(super) fn end_queue(&self) {
        *self.queue.lock() = None;
    }

    /// Has a request wait. False if there is no queue any more.
    pub(super) fn send(&self, request: DiskRequest) -> bool {
        let queue = self.queue.lock();
        queue.as_ref().is_some_and(|it| it.send(request).is_ok())
    }

    /// Performs a request, and gives the bytes that were read.
    ///
    /// # Errors
    /// What the disk says; another process writes to it.
    pub(super) fn perform(&self, request: &DiskRequest) -> io::Result<Vec<u8>> {
        let mut file = self.file.lock();
        match &request.act {
            DiskAct::Read { bytes } => file.read(request.offset, *bytes),
            DiskAct::Write { payload } => {
                file.lock()?;
                file.write(request.offset, payload).map(|()| Vec::new())
            }
        }
    }

    /// As [`LegLink::claim`](super::link::LegLink::claim): nothing is read or written for that, so
    /// no disk that hangs is waited for.
    pub(super) fn claim(&self) -> io::Result<()> {
        let mut file = self.file.lock();
        match rustix::fs::flock(&file.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => file.is_locked = true,
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(in_use()),
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// As [`LegLink::check_unused`](super::link::LegLink::check_unused).
    pub(super) fn check_unused(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let about = fs::metadata(&self.path)?;
        if about.file_type().is_block_device() {
            // One that is mounted, or part of anything, is refused so.
            options.custom_flags(libc::O_EXCL);
        }
        let mut file = options.read(true).open(&self.path)?;
        let size = file.seek(SeekFrom::End(0))?;
        let found = disk_signatures::find(&file, size)?;
        match found.is_empty() {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "it holds {}: its name leads to another disk than before, or it was used for something else",
                disk_signatures::words(&found)
            ))),
        }
    }

    #[cfg(test)]
    pub(super) fn hang(&self) -> impl Drop + '_ {
        /// So that it is something that is dropped.
        struct HungDisk<'a>(#[expect(dead_code)] parking_lot::MutexGuard<'a, LegFile>);
        impl Drop for HungDisk<'_> {
            fn drop(&mut self) {}
        }
        HungDisk(self.file.lock())
    }

    /// It is written to no more from here: another process may.
    pub(super) fn unlock(&self) {
        let mut file = self.file.lock();
        if std::mem::take(&mut file.is_locked) {
            let _ = rustix::fs::flock(&file.file, FlockOperation::Unlock);
        }
    }
}

fn in_use() -> io::Error {
    io::Error::other(
        "another process writes to it, or one that was killed still does: wait until that has ended",
    )
}

impl LegFile {
    /// An aligned part of the memory.
    fn aligned(&mut self, bytes: usize) -> (&File, &mut [u8]) {
        let from = self.memory.as_ptr().align_offset(PAGE as usize);
        (&self.file, &mut self.memory[from..from + bytes])
    }

    fn read(&mut self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let (file, memory) = self.aligned(bytes);
        read_all(file.as_fd(), offset, memory)?;
        Ok(memory.to_vec())
    }

    fn write(&mut self, offset: u64, payload: &[u8]) -> io::Result<()> {
        let (file, memory) = self.aligned(payload.len());
        memory.copy_from_slice(payload);
        write_durably(file.as_fd(), offset, memory)
    }

    fn lock(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        while !self.is_locked {
            match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => self.is_locked = true,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < LOCK_MAX => {
                    thread::sleep(LOCK_PAUSE);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(in_use()),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}
