//! Marks of files for when the pool's disk failed and takes nothing: an extended attribute of the
//! file, `user.forebay.void.OWNER` or `user.forebay.failed.OWNER`, by the owner of the lane that
//! has records of it.
//!
//! *Void*: nothing that the lane has of the file is needed. When a pool's disk fails, the run syncs
//! its files and goes on plainly. That the lane is not needed any more is said in the pool, and
//! here where not even that can be written. Otherwise a recovery, once the disk is back, could
//! write older bytes over what is newer. A lane's owner is a number that no other lane ever has, so
//! a mark says nothing of what is absorbed later, and may stay for ever.
//!
//! A pool in other machines' memory has a file on a disk of this one. It is marked as well: it has
//! the mark still when a program has removed the files, as one does that rewrites its log.
//!
//! *Failed*: a sync of the file failed, so that what the kernel has of it may not be on its disk.
//! That matters in this boot, so it is not synced; in another one it is harmless.

use crate::sys;
use rustix::{fs::XattrFlags, io::Errno};
use std::os::fd::{AsFd, BorrowedFd};
use uuid::Uuid;

/// Leads the name of the attribute that says void.
const VOID: &str = "user.forebay.void.";
/// Leads the name of the one that says failed.
const FAILED: &str = "user.forebay.failed.";
/// Their value: by its presence alone each says everything.
const VALUE: &[u8] = b"1";

/// Marks, durably, the records that the lane of `owner` has of an open file as void. The file's
/// content was synced before.
///
/// # Errors
/// The kernel's: of a file system that has no extended attributes, for example. Then it is not
/// said.
pub(crate) fn mark(fd: BorrowedFd<'_>, owner: Uuid) -> Result<(), Errno> {
    if forebay_pool::fault_enabled!("void-mark-write") {
        return Err(Errno::OPNOTSUPP);
    }
    rustix::fs::fsetxattr(fd, format!("{VOID}{owner}"), VALUE, XattrFlags::empty())?;
    rustix::fs::fsync(fd)?;
    sys::confirm_sync(fd)?;
    // A recovery has to be able to read it.
    match is_marked(fd, owner)? {
        true => Ok(()),
        false => Err(Errno::ACCESS),
    }
}

/// Says, for as long as the machine is up at least, that a sync of an open file failed of which the
/// lane of `owner` has records.
///
/// # Errors
/// As [`mark`].
pub(crate) fn mark_failed(fd: BorrowedFd<'_>, owner: Uuid) -> Result<(), Errno> {
    rustix::fs::fsetxattr(fd, format!("{FAILED}{owner}"), VALUE, XattrFlags::empty())
}

/// True if the records that the lane of `owner` has of a file are void. It may be open as a path
/// only.
///
/// # Errors
/// It cannot be told: of a file that may not be read, or a disk that fails.
pub(crate) fn is_marked(file: impl AsFd, owner: Uuid) -> Result<bool, Errno> {
    has(file, &format!("{VOID}{owner}"))
}

/// True if it was [said](mark_failed) that a sync of the file failed. As [`is_marked`].
///
/// # Errors
/// As [`is_marked`].
pub(crate) fn is_failed(file: impl AsFd, owner: Uuid) -> Result<bool, Errno> {
    has(file, &format!("{FAILED}{owner}"))
}

fn has(file: impl AsFd, name: &str) -> Result<bool, Errno> {
    if forebay_pool::fault_enabled!("void-mark-read") {
        return Err(Errno::IO);
    }
    let mut value = [0; VALUE.len()];
    match rustix::fs::getxattr(sys::link_of(file.as_fd()), name, &mut value[..]) {
        Ok(bytes) => Ok(value[..bytes] == *VALUE),
        // Where there are no such attributes none was ever set.
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno),
    }
}
