//! The cache's way to flash and to the home files: two small traits, so that tests can make each
//! operation fail, tear unsynced writes, and cut the power between any two.
//!
//! [`FlashFile`] and [`HomeFiles`] are the operating system.

mod home;
mod real;
mod workers;

pub use home::HomeFiles;
pub use real::FlashFile;

use crate::file::FileId;
use std::io;

/// The flash device: a file or a block device. Offsets and lengths are bytes.
pub trait Flash: Send + Sync {
    /// Its length.
    ///
    /// # Errors
    /// What the operating system says; so for all methods here.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `to` from `offset`.
    ///
    /// # Errors
    /// As above.
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `from`, which begins at a multiple of 4 KiB in memory, at `offset`.
    ///
    /// # Errors
    /// As above; part may have been written.
    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<()>;

    /// Makes everything written durable.
    ///
    /// # Errors
    /// As above; all that was written since the last sync that succeeded may then be lost, and the
    /// cache writes it again.
    fn sync(&self) -> io::Result<()>;

    /// Makes it so long, durably: new bytes are anything, bytes behind the new end are gone. A
    /// device has the length it has: `bytes` is less then, and only so much of it is used.
    ///
    /// # Errors
    /// As above; it has the length that it had, or the new one.
    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "its length cannot be changed",
        ))
    }

    /// The device in words.
    fn describe(&self) -> String;
}

/// One page on its way home.
#[derive(Clone, Copy)]
pub struct HomePage<'a> {
    /// The file.
    pub file: FileId,
    /// The offset in it, bytes.
    pub offset: u64,
    /// The page; it begins at a multiple of 4 KiB in memory if pages are at least as long.
    pub bytes: &'a [u8],
}

/// The files that the pages belong to.
pub trait Home: Send + Sync {
    /// The *durable* length of the file: if its length is not known to have been synced, syncs it
    /// first. No slot ever refers to a page behind this.
    ///
    /// # Errors
    /// What the operating system says; so for all methods here.
    fn durable_bytes(&self, file: FileId) -> io::Result<u64>;

    /// Writes pages, which are sorted by file and offset and all different; it may have several in
    /// flight.
    ///
    /// # Errors
    /// As above, with the file it happened to; any of the pages may have been written, or torn.
    fn write(&self, pages: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)>;

    /// Before pages are written of which flash has no copy: keeps one, durably, until it is asked
    /// to keep others. What a crash tears is made whole from it before the cache is used again, if
    /// the position `last` is not [recorded](crate::Cache::is_recorded) then. After a failure pages
    /// may be torn that only the copies have whole. So those that were kept before count until
    /// these are durable, which have the same pages, or newer versions, unless the earlier ones are
    /// home. An implementation that keeps none does not protect them from being torn.
    ///
    /// # Errors
    /// As above; none of the pages was written, and the copies that were kept before count, or
    /// these.
    fn protect(&self, last: u64, pages: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)> {
        let _ = (last, pages);
        Ok(())
    }

    /// The copies that [`protect`](Self::protect) keeps do not count any more, durably: pages are
    /// about to be changed past the cache. No page is on its way home then, or may be torn there,
    /// so none needs them. A crash meanwhile leaves all of them or none.
    ///
    /// # Errors
    /// As above; the pages are not changed.
    fn unprotect(&self) -> io::Result<()> {
        Ok(())
    }

    /// Makes all writes to the file durable.
    ///
    /// # Errors
    /// As above; what was written since the last sync that succeeded is then written again.
    fn sync(&self, file: FileId) -> io::Result<()>;

    /// Syncs several different files: each as [`sync`](Self::sync) does. They may be under way at
    /// the same time, so that a device flushes once for all of them.
    fn sync_files(&self, files: &[FileId]) -> Vec<io::Result<()>> {
        files.iter().map(|&file| self.sync(file)).collect()
    }
}
