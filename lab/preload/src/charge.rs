//! Waits of reads, writes, syncs and mappings of a descriptor: the device is asked, and the caller
//! waits until it would have been done.

use crate::{
    devices::{borrow, get},
    guard::{self, Mapping},
    table,
};
use forebay::layer::FileEvent;
use forebay_device::{Device, FileKey, Mode, clock};
use forebay_files::client;
use libc::c_int;
use rustix::fs::{FileType, Stat};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The file that was refused last as persistent memory, by its key.
static TAKEN_FOR_MEMORY: AtomicU64 = AtomicU64::new(0);

pub(crate) fn key(stat: &Stat) -> FileKey {
    FileKey::new(stat.st_dev, stat.st_ino)
}

pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// An operation on a descriptor that is on a device.
pub(crate) struct Operation {
    number: usize,
    device: Device<'static>,
    fd: c_int,
    /// When it began, nanoseconds of the monotonic clock.
    begun: u64,
}

impl Operation {
    /// None if `fd` is on no device.
    pub(crate) fn of(fd: c_int, begun: u64) -> Option<Self> {
        let number = table::device(fd)?;
        Some(Self {
            number,
            device: get(number)?,
            fd,
            begun,
        })
    }

    /// Waits as long as it takes.
    pub(crate) fn charge(&self, what: FileEvent) {
        let Some((stat, flags)) = self.look() else {
            return;
        };
        let (key, size) = (key(&stat), stat.st_size.unsigned_abs());
        let is_file = kind(&stat) == FileType::RegularFile;
        match what {
            FileEvent::Read { .. } | FileEvent::Wrote { .. } if !is_file => {}
            FileEvent::Read { offset, bytes } => self.read(key, flags, offset, bytes as u64),
            FileEvent::Wrote {
                offset,
                bytes,
                flags: write_flags,
            } => self.wrote((key, size), (flags, write_flags), offset, bytes as u64),
            FileEvent::Synced { data_only } => clock::wait_until(match kind(&stat) {
                FileType::RegularFile => self.device.sync(key, size, data_only, self.begun),
                FileType::Directory => self.device.sync_directory(self.begun),
                _ => self.begun,
            }),
            FileEvent::Resized(size) => self.device.resized(key, size),
            FileEvent::Allocated => self.device.resized(key, size),
            FileEvent::Dropped { offset, bytes } => self.device.dropped(key, offset, bytes),
            FileEvent::Mapped {
                address,
                bytes,
                offset,
                protection,
                flags,
            } => {
                if is_file && guard::is_readers(protection, flags) {
                    guard::charge(&Mapping {
                        address,
                        bytes,
                        offset,
                        protection,
                        device: self.number,
                        file: key,
                        file_end: size,
                    });
                }
                let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
                if is_shared && protection & libc::PROT_WRITE != 0 {
                    self.device.mapped_to_store(key);
                }
            }
        }
    }

    /// The file, and how it is open.
    fn look(&self) -> Option<(Stat, c_int)> {
        let raw = borrow(self.fd)?;
        let stat = rustix::fs::fstat(raw).ok()?;
        let flags = rustix::fs::fcntl_getfl(raw).ok()?.bits().cast_signed();
        let hidden = table::hidden_flags(self.fd) | client::hidden_flags(self.fd);
        Some((stat, flags | hidden))
    }

    fn position(&self) -> u64 {
        borrow(self.fd).map_or(0, |raw| rustix::fs::tell(raw).unwrap_or(0))
    }

    fn read(&self, key: FileKey, flags: c_int, offset: Option<u64>, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let offset = offset.unwrap_or_else(|| self.position().saturating_sub(bytes));
        let mode = Mode {
            direct: flags & libc::O_DIRECT != 0,
            synced: false,
        };
        clock::wait_until(self.device.read(key, offset, bytes, mode, self.begun));
    }

    fn wrote(
        &self,
        (key, size): (FileKey, u64),
        (flags, write_flags): (c_int, c_int),
        offset: Option<u64>,
        bytes: u64,
    ) {
        if bytes == 0 {
            return;
        }
        let appends = flags & libc::O_APPEND != 0 || write_flags & libc::RWF_APPEND != 0;
        let end = match offset {
            Some(offset) if !appends => offset + bytes,
            Some(_) => size,
            None => self.position(),
        };
        let synced =
            flags & libc::O_DSYNC != 0 || write_flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
        // What is absorbed waits in the page cache for its drain, whatever the flags.
        let absorbed = client::is_in_pool(self.fd);
        let mode = Mode {
            direct: !absorbed && flags & libc::O_DIRECT != 0,
            synced: !absorbed && synced,
        };
        let offset = end.saturating_sub(bytes);
        clock::wait_until(self.device.write(key, offset, bytes, mode, self.begun));
    }

    /// Whether a shared mapping is to be refused, as a file system on a disk refuses it: one by
    /// `MAP_SYNC`, and a later one of the same file that can be stored to. InnoDB asks for both
    /// where its log is in /dev/shm, and then neither writes nor syncs it.
    pub(crate) fn refuses_stores(&self, protection: c_int, flags: c_int) -> bool {
        let Some((stat, _)) = self.look() else {
            return false;
        };
        let key = key(&stat).to_word();
        let asks = flags & libc::MAP_SYNC != 0;
        if asks {
            TAKEN_FOR_MEMORY.store(key, Relaxed);
        }
        let stores = protection & libc::PROT_WRITE != 0;
        asks || stores && TAKEN_FOR_MEMORY.load(Relaxed) == key
    }
}
