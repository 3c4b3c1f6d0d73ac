//! Detects a server that runs with a data directory: InnoDB has a lock on its system tablespace
//! from when it opens that until it ends.

use rustix::{fs::FlockOperation, io::Errno};
use std::{fs::File, path::Path};

/// Takes that lock for this process, so that no other begins with the directory. It lasts until
/// this process closes a descriptor of the tablespace.
///
/// # Errors
/// In words: another process has it, and writes these files by a cache of its own.
pub(crate) fn claim(tablespace: &File, path: &Path, flash: &Path) -> Result<(), String> {
    match rustix::fs::fcntl_lock(tablespace, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN | Errno::ACCESS) => Err(format!(
            "a server runs with {}, and not with the flash cache {}: a copy of its cache has older pages, which would replace newer ones. Stop the server first. If this cache is of a snapshot that has the data directory as well, say where that is (--data). Nothing was changed",
            path.display(),
            flash.display()
        )),
        // A file system without locks: a server has none there either.
        _ => Ok(()),
    }
}
