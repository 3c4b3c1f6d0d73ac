//! One value-log file: a header page, then segments verbatim. docs/store-format.md, "Value-log
//! file".
//!
//! ```text
//!  0  magic "FVLG"    4
//!  4  CRC-32C         4   over bytes 8..48
//!  8  version         4
//! 12  reserved        4   zero
//! 16  start           8   log address of the byte at file offset 4096
//! 24  bytes           8   size the file was made for, header not counted
//! 32  store           16  uuid of the store
//! 48  zero, to 4096
//! ```
//! The file's name is its start in sixteen hexadecimal digits and `.vlog`.

use crate::{
    disk::{Disk, DiskFile},
    error::StoreError,
};
use forebay_pool::{Lsn, crc32c, format::layout::LSN_MAX};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};
use uuid::Uuid;

/// Bytes of a file's header.
pub(crate) const FILE_HEADER: u64 = 4096;
const MAGIC: &[u8; 4] = b"FVLG";
const VERSION: u32 = 1;
/// The end of a file that is being written.
const GROWING: u64 = u64::MAX;

/// A value-log file.
pub(crate) struct VlogFile {
    pub(crate) path: PathBuf,
    /// Log address of its first byte behind the header.
    pub(crate) start: Lsn,
    /// Bytes it was made for.
    pub(crate) bytes: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    end: AtomicU64,
    /// It is shorter than it was made for: a close gave back the rest.
    is_short: AtomicBool,
}

pub(crate) fn file_name(start: Lsn) -> String {
    format!("{start:016x}.vlog")
}

impl VlogFile {
    /// Makes a file for `bytes` bytes of log from `start` on, durably, but for its name in the
    /// directory.
    pub(crate) fn create(
        disk: &dyn Disk,
        dir: &Path,
        start: Lsn,
        bytes: u64,
        store: Uuid,
    ) -> Result<Self, StoreError> {
        let path = dir.join(file_name(start));
        // What an interrupted creation left is used: a manifest whose writing failed half-way may
        // name it already.
        let left = match Self::open(disk, dir, start, None, store) {
            Ok(file) => Some(file),
            // Missing, or not made as far as a manifest could name it.
            Err(StoreError::ValueLog { .. }) => None,
            Err(error) => return Err(error),
        };
        let make = || {
            let file = match &left {
                Some(left) => Arc::clone(&left.file),
                None => {
                    match disk.remove(&path) {
                        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                        _ => {}
                    }
                    disk.create(&path)?
                }
            };
            file.allocate(FILE_HEADER + bytes)?;
            file.write_all_at(&header(start, bytes, store), 0)?;
            file.sync()?;
            Ok(file)
        };
        let file = make().inspect_err(|_| {
            // What was allocated goes back, or a full disk stays full: the manifest that retires
            // files has no room then. The next try finds it again, or makes it anew.
            let _ = match &left {
                Some(left) => left.file.truncate(FILE_HEADER),
                None => disk.remove(&path),
            };
        });
        let file = file.map_err(StoreError::io("creating", &path))?;
        Ok(Self {
            path,
            start,
            bytes,
            file,
            end: AtomicU64::new(GROWING),
            is_short: AtomicBool::new(false),
        })
    }

    /// Opens the file that the manifest says starts at `start`, and checks that it is that.
    pub(crate) fn open(
        disk: &dyn Disk,
        dir: &Path,
        start: Lsn,
        end: Option<Lsn>,
        store: Uuid,
    ) -> Result<Self, StoreError> {
        let path = dir.join(file_name(start));
        let wrong = |what: String| StoreError::ValueLog {
            path: path.clone(),
            what,
        };
        let file = disk.open(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => wrong("is missing".to_owned()),
            _ => StoreError::io("opening", &path)(e),
        })?;
        let mut header = [0; 48];
        let length = file.len().map_err(StoreError::io("reading", &path))?;
        if length < FILE_HEADER {
            return Err(wrong(format!(
                "is truncated: it has {length} bytes, less than its header"
            )));
        }
        file.read_exact_at(&mut header, 0)
            .map_err(StoreError::io("reading", &path))?;
        let u64_at = |at: usize| {
            header[at..at + 8]
                .iter()
                .rev()
                .fold(0u64, |value, &b| value << 8 | u64::from(b))
        };
        let crc = crc32c([&header[8..]]);
        if &header[0..4] != MAGIC || u64_at(0) >> 32 != u64::from(crc) {
            return Err(wrong(
                "has a damaged header, or is no value-log file".to_owned(),
            ));
        }
        let owner = Uuid::from_slice(&header[32..48]).unwrap_or_default();
        if owner != store {
            return Err(wrong(format!(
                "belongs to another store ({owner}, not {store})"
            )));
        }
        if u64_at(16) != start {
            return Err(wrong(format!(
                "starts at log address {}, not {start}",
                u64_at(16)
            )));
        }
        let bytes = u64_at(24);
        if bytes > LSN_MAX || start > LSN_MAX {
            return Err(wrong(format!(
                "has an impossible header: {bytes} bytes from log address {start} on"
            )));
        }
        let needed = FILE_HEADER + end.map_or(0, |end| end.saturating_sub(start));
        if length < needed {
            return Err(wrong(format!(
                "is truncated: it has {length} bytes, {needed} are needed"
            )));
        }
        Ok(Self {
            start,
            bytes,
            file,
            end: AtomicU64::new(end.unwrap_or(GROWING)),
            is_short: AtomicBool::new(end.is_none() && length < FILE_HEADER + bytes),
            path,
        })
    }

    /// True if the file at `path` is one whose making was cut before its header was written.
    pub(crate) fn was_never_made(disk: &dyn Disk, path: &Path) -> std::io::Result<bool> {
        let file = disk.open(path)?;
        let mut start = vec![0; usize::try_from(file.len()?.min(1 << 20)).unwrap_or(0)];
        file.read_exact_at(&mut start, 0)?;
        Ok(start.iter().all(|&byte| byte == 0))
    }

    /// Log address behind the last segment, once the file is complete.
    pub(crate) fn end(&self) -> Option<Lsn> {
        let end = self.end.load(SeqCst);
        (end != GROWING).then_some(end)
    }

    /// Bytes of log that it holds, or is made for while it grows.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.end().map_or(self.bytes, |end| end - self.start)
    }

    /// The file is complete; it ends at `end`. Gives back what was allocated behind.
    pub(crate) fn complete(&self, end: Lsn) {
        self.end.store(end, SeqCst);
        // Space only: if it fails, the file stays longer than it need be.
        let _ = self.file.truncate(FILE_HEADER + (end - self.start));
    }

    /// The store is closed, and the log ends at `end`: gives back what was allocated behind that,
    /// until the log goes on.
    pub(crate) fn give_back_room(&self, end: Lsn) {
        // Space only.
        let _ = self.file.truncate(self.offset(end.max(self.start)));
    }

    /// The log goes on in this file, and nothing was written to it yet: allocates again what a
    /// close gave back, unless the disk `is_full`. Without room for it a write will say so.
    pub(crate) fn take_room(&self, is_full: bool) {
        // The first time only: later another thread may be writing behind `length`.
        if !self.is_short.swap(false, SeqCst) || is_full {
            return;
        }
        if let Ok(length) = self.file.len()
            && length < FILE_HEADER + self.bytes
            && self.file.allocate(FILE_HEADER + self.bytes).is_err()
        {
            // What it got would be the next to lack.
            let _ = self.file.truncate(length);
        }
    }

    /// Takes away what stands at `end` and behind, and allocates the room again.
    pub(crate) fn cut(&self, end: Lsn) -> std::io::Result<()> {
        let length = self.file.len()?;
        let kept = self.offset(end);
        if length > kept {
            self.file.truncate(kept)?;
            // Room only: if there is none, a write will say so.
            let _ = self.file.allocate(length);
        }
        Ok(())
    }

    /// Writes the log bytes of a range again, as they are.
    pub(crate) fn write_again(&self, from: Lsn, to: Lsn) -> Result<(), StoreError> {
        const BLOCK: u64 = 1 << 20;
        let mut block = Vec::new();
        let mut at = from;
        while at < to {
            block.resize(usize::try_from((to - at).min(BLOCK)).unwrap_or(0), 0);
            self.read(at, &mut block)?;
            self.file
                .write_all_at(&block, self.offset(at))
                .map_err(StoreError::io("writing", &self.path))?;
            at += block.len() as u64;
        }
        Ok(())
    }

    /// The log goes on in this file after all.
    pub(crate) fn reopen(&self) {
        self.end.store(GROWING, SeqCst);
    }

    /// True if the log address lies in this file.
    pub(crate) fn holds(&self, lsn: Lsn) -> bool {
        (self.start..self.end.load(SeqCst)).contains(&lsn)
    }

    /// Offset of a log address in the file.
    pub(crate) fn offset(&self, lsn: Lsn) -> u64 {
        debug_assert!(lsn >= self.start);
        FILE_HEADER + (lsn - self.start)
    }

    /// Reads log bytes.
    pub(crate) fn read(&self, lsn: Lsn, to: &mut [u8]) -> Result<(), StoreError> {
        let read = self.file.read_exact_at(to, self.offset(lsn));
        read.map_err(|e| self.unreadable(lsn + to.len() as u64, e))
    }

    /// Reads log bytes that need not be waited for; false if they would have to be.
    pub(crate) fn read_cached(&self, lsn: Lsn, to: &mut [u8]) -> Result<bool, StoreError> {
        let read = self.file.read_cached_at(to, self.offset(lsn));
        read.map_err(|e| self.unreadable(lsn + to.len() as u64, e))
    }

    fn unreadable(&self, end: Lsn, error: std::io::Error) -> StoreError {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                StoreError::damaged(&self.path, format!("it ends before log address {end}"))
            }
            _ => StoreError::io("reading", &self.path)(error),
        }
    }
}

/// A file's header page.
pub(crate) fn header(start: Lsn, bytes: u64, store: Uuid) -> Vec<u8> {
    let mut page = vec![0; usize::try_from(FILE_HEADER).unwrap_or(4096)];
    page[0..4].copy_from_slice(MAGIC);
    page[8..12].copy_from_slice(&VERSION.to_le_bytes());
    page[16..24].copy_from_slice(&start.to_le_bytes());
    page[24..32].copy_from_slice(&bytes.to_le_bytes());
    page[32..48].copy_from_slice(store.as_bytes());
    let crc = crc32c([&page[8..48]]);
    page[4..8].copy_from_slice(&crc.to_le_bytes());
    page
}
