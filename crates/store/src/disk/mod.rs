//! The store's way to files: a small trait, so that tests can make every operation fail in turn.
//!
//! [`RealDisk`] is the operating system. `faulty::FaultyDisk`, in a build with the feature
//! `failpoints`, wraps another disk and fails or tears the n-th operation.

pub(crate) mod descriptors;
mod directory;
#[cfg(feature = "failpoints")]
pub mod faulty;
mod real;

pub(crate) use directory::HeldDirectory;
pub use real::{RealDisk, SyncMeter};

use std::{fs::File, io, path::Path, sync::Arc};

/// Files by path. A path begins with that of a directory that the disk [holds](Disk::hold), or has
/// [made](Disk::create_dir) below one, and stands for that directory, wherever the path would lead
/// by now.
pub trait Disk: Send + Sync {
    /// The directory that `open` is an open file of is meant by `path` from now on.
    ///
    /// # Errors
    /// What the operating system says; so for all methods here.
    fn hold(&self, path: &Path, open: &File) -> io::Result<()> {
        let _ = (path, open);
        Ok(())
    }

    /// Makes a file that must not exist yet, for reading and writing.
    ///
    /// # Errors
    /// As above.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// As above.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// The names in a directory.
    ///
    /// # Errors
    /// As above.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes a directory and its parents.
    ///
    /// # Errors
    /// As above.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// As above.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Renames a file, replacing any that has the name.
    ///
    /// # Errors
    /// As above.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, which must not exist yet.
    ///
    /// # Errors
    /// As above; `Unsupported`, or what the operating system says, where that cannot be done.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a file.
    ///
    /// # Errors
    /// As above.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// One open file. Offsets and lengths are bytes.
pub trait DiskFile: Send + Sync {
    /// Fills `to` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before; what the operating system says.
    fn read_exact_at(&self, to: &mut [u8], offset: u64) -> io::Result<()>;

    /// As [`read_exact_at`](Self::read_exact_at), if that takes no waiting for the device; false,
    /// and nothing read, if it would.
    ///
    /// # Errors
    /// As [`read_exact_at`](Self::read_exact_at).
    fn read_cached_at(&self, to: &mut [u8], offset: u64) -> io::Result<bool> {
        self.read_exact_at(to, offset).map(|()| true)
    }

    /// Writes all of `from` at `offset`, by way of the page cache.
    ///
    /// # Errors
    /// What the operating system says; part may have been written.
    fn write_all_at(&self, from: &[u8], offset: u64) -> io::Result<()>;

    /// Writes whole, page-aligned pages past the page cache where the file system can.
    ///
    /// # Errors
    /// As [`write_all_at`](Self::write_all_at).
    fn write_pages_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(from, offset)
    }

    /// Makes everything written durable, with what is needed to find it.
    ///
    /// # Errors
    /// As above; what was written since the last successful sync may then be lost.
    fn sync(&self) -> io::Result<()>;

    /// Makes the file `bytes` long with all blocks allocated, so that later syncs carry little
    /// metadata.
    ///
    /// # Errors
    /// `StorageFull` if there is no room.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// Cuts the file to `bytes`.
    ///
    /// # Errors
    /// As above.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// The file's length.
    ///
    /// # Errors
    /// As above.
    fn len(&self) -> io::Result<u64>;

    /// True if the file has no bytes.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Asks for a range to be read into the page cache soon.
    fn will_need(&self, offset: u64, bytes: u64) {
        let _ = (offset, bytes);
    }
}

/// Writes `contents` to a file of that name, replacing it as one durable step.
///
/// # Errors
/// The file is as it was before, or replaced.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    match disk.remove(&temporary) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let file = disk.create(&temporary)?;
    file.write_all_at(contents, 0)?;
    file.sync()?;
    disk.rename(&temporary, path)?;
    disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// The directories to be synced once `dir` and those above it that are not there yet were made:
/// each has one of their names.
pub(crate) fn above_missing(dir: &Path) -> Vec<&Path> {
    let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let made = dir.ancestors().take_while(missing).count();
    let above = dir.ancestors().skip(1).take(made);
    above.map(or_here).collect()
}

/// A directory by its path, which may be empty.
pub(crate) fn or_here(dir: &Path) -> &Path {
    match dir.as_os_str().is_empty() {
        true => Path::new("."),
        false => dir,
    }
}
