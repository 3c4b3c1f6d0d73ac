//! Room on the disk for the whole file, before the first copy is kept.
//!
//! A sparse file gets its blocks when pages go home around flash, which they do for as long as a
//! server runs. A disk that is full by then would fail the server's sync, and end the server.

use super::{DoublewriteFile, HALF, OpenCopies};
use crate::guard::sync_directory;
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

/// Of both halves.
const BYTES: u64 = 2 * HALF as u64;
/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;
const WRITTEN_BYTES: usize = 1 << 20;

impl DoublewriteFile {
    /// Makes the file with all of its blocks, or gives the one that is there those that it lacks.
    ///
    /// # Errors
    /// In words, with what to do. A file that was not there before is not there afterwards either.
    pub(crate) fn make_room(&self) -> Result<(), String> {
        self.open_or_make().map(drop).map_err(|e| {
            format!(
                "{} cannot be given its {} MiB: {e}. Without them a page that goes around flash \
                 cannot be written to its file once that disk is full. Make room there, and start \
                 the server again",
                self.path.display(),
                BYTES >> 20
            )
        })
    }

    /// See [`DoublewriteFile::make_room`].
    pub(super) fn make(&self) -> io::Result<OpenCopies> {
        let file = self.open_or_make()?;
        let newest = self.newest(&file)?;
        Ok(OpenCopies::of(file, newest.as_ref()))
    }

    fn open_or_make(&self) -> io::Result<File> {
        let Some(file) = self.open()? else {
            return self.make_whole();
        };
        let now = file.metadata()?;
        if now.len() < BYTES || now.blocks() * BLOCK_BYTES < BYTES {
            // What is in it counts still: only holes are filled.
            allocate(&file)?;
            file.set_len(BYTES)?;
            file.sync_all()?;
        }
        Ok(file)
    }

    fn make_whole(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&self.path)?;
        let made = allocate(&file).and_then(|()| write_zeros(&file));
        if let Err(e) = made.and_then(|()| self.sync_name()) {
            // It has nothing yet. If it cannot be removed, the next start goes on with it.
            let _ = self.remove();
            return Err(e);
        }
        Ok(file)
    }

    fn sync_name(&self) -> io::Result<()> {
        sync_directory(self.path.parent().unwrap_or(Path::new("/")))
    }
}

/// Reserves blocks where the file has none. A file system that cannot reserve any gives them when
/// the zeros are written.
fn allocate(file: &File) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, BYTES) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Blocks that were written need no change of the file system's metadata when a copy is.
fn write_zeros(file: &File) -> io::Result<()> {
    let zeros = vec![0; WRITTEN_BYTES];
    let mut at = 0;
    while at < BYTES {
        let bytes = (BYTES - at).min(WRITTEN_BYTES as u64) as usize;
        file.write_all_at(&zeros[..bytes], at)?;
        at += bytes as u64;
    }
    file.sync_all()
}
