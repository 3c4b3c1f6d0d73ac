//! A flash file or block device of the operating system.

use super::Flash;
use crate::buffer::ALIGN;
use forebay_pool::{failpoint, rewrite::RewrittenFile};
use rustix::{
    fs::{FallocateFlags, OFlags, fallocate},
    io::Errno,
};
use std::os::fd::{AsFd, BorrowedFd};
use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom},
    os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

/// In tests: an error instead of a call to the device.
#[inline]
fn fault(what: &str) -> io::Result<()> {
    failpoint::error(what).map_or(Ok(()), |errno| Err(errno.into()))
}

/// A file or block device, past the page cache where the file system can.
pub struct FlashFile {
    path: PathBuf,
    buffered: File,
    /// The file through the page cache, whose writes may be repeated after a sync that failed.
    rewritten: RewrittenFile,
    direct: Option<File>,
    /// False once the file system has refused it.
    past_cache: AtomicBool,
    bytes: AtomicU64,
    is_device: bool,
}

impl FlashFile {
    /// Opens an existing one.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let kind = std::fs::metadata(path)?.file_type();
        // A device that is mounted, part of an array, or a cache in use is busy.
        let exclusive = if kind.is_block_device() {
            OFlags::EXCL
        } else {
            OFlags::empty()
        };
        let mut buffered = (OpenOptions::new().read(true).write(true))
            .custom_flags(exclusive.bits().cast_signed())
            .open(path)?;
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "neither a regular file nor a block device",
            ));
        }
        // A block device has no length in its metadata.
        let bytes = buffered.seek(SeekFrom::End(0))?;
        let direct = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0))
            .open(path)
            .ok();
        Ok(Self {
            path: path.to_owned(),
            past_cache: AtomicBool::new(direct.is_some()),
            buffered,
            rewritten: RewrittenFile::default(),
            direct,
            bytes: AtomicU64::new(bytes),
            is_device: kind.is_block_device(),
        })
    }

    /// Makes a file of `bytes` bytes that must not exist yet, all allocated.
    ///
    /// # Errors
    /// What the operating system says; a file that was made is removed again.
    pub fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let made = || -> io::Result<Self> {
            file.set_len(bytes)?;
            match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(e) => return Err(e.into()),
            }
            file.sync_all()?;
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
            Self::open(path)
        };
        // Nothing is in it yet; the error that matters is the first one.
        made().inspect_err(|_| drop(std::fs::remove_file(path)))
    }

    /// A file becomes so long, all allocated; a device must have so much.
    fn set_length(&self, bytes: u64) -> io::Result<()> {
        if self.is_device {
            let there = (&self.buffered).seek(SeekFrom::End(0))?;
            return match there >= bytes {
                true => Ok(()),
                false => Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("the device has {there} bytes, and {bytes} were asked for"),
                )),
            };
        }
        let now = self.buffered.metadata()?.len();
        if bytes > now {
            match fallocate(&self.buffered, FallocateFlags::empty(), now, bytes - now) {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP) => self.buffered.set_len(bytes)?,
                Err(e) => {
                    // What was allocated of it is given back.
                    let _ = self.buffered.set_len(now);
                    return Err(e.into());
                }
            }
        } else if bytes < now {
            self.buffered.set_len(bytes)?;
        }
        self.buffered.sync_all()
    }

    /// The descriptor to use for `bytes` bytes at `memory` and `offset`.
    fn file(&self, memory: *const u8, bytes: usize, offset: u64) -> &File {
        let aligned = memory.align_offset(ALIGN) == 0
            && bytes.is_multiple_of(ALIGN)
            && offset.is_multiple_of(ALIGN as u64);
        match &self.direct {
            Some(direct) if aligned && self.past_cache.load(Relaxed) => direct,
            _ => &self.buffered,
        }
    }

    /// Does it, and once more by way of the page cache if the file system refuses to go past it.
    fn either(&self, file: &File, mut io: impl FnMut(&File) -> io::Result<()>) -> io::Result<()> {
        match io(file) {
            Err(e) if Errno::from_io_error(&e) == Some(Errno::INVAL) => {
                self.past_cache.store(false, Relaxed);
                io(&self.buffered)
            }
            done => done,
        }
    }
}

impl AsFd for FlashFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.buffered.as_fd()
    }
}

impl Flash for FlashFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes.load(Relaxed))
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        fault("flash-read")?;
        let file = self.file(to.as_ptr(), to.len(), offset);
        self.either(file, |file| file.read_exact_at(to, offset))
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        fault("flash-write")?;
        let file = self.file(from.as_ptr(), from.len(), offset);
        self.either(file, |file| {
            match std::ptr::eq(file, &raw const self.buffered) {
                true => self.rewritten.write(file, from, offset),
                false => file.write_all_at(from, offset),
            }
        })
    }

    fn sync(&self) -> io::Result<()> {
        fault("flash-write")?;
        self.rewritten.sync(&self.buffered, File::sync_data)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        fault("flash-write")?;
        self.set_length(bytes)?;
        self.bytes.store(bytes, Relaxed);
        Ok(())
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}
