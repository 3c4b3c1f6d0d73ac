//! Who a file is, whatever it is called: found again after a reboot, never mistaken for another.
//!
//! The identity is the file system's handle of the inode (`name_to_handle_at`), which has the inode's generation in it: a file that
//! was made later at the same inode has another one. On a file system without handles it is the inode's number and birth time.

use crate::sys;
use rustix::{
    fs::{AtFlags, Mode, OFlags, StatxFlags},
    io::Errno,
};
use std::{
    ffi::CStr,
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

/// Leads an identity that is a file handle: its type and bytes follow.
const HANDLE: u8 = 1;
/// Leads an identity that is inode number and birth time.
const INODE: u8 = 2;

/// The identity of an open file.
///
/// # Errors
/// `EOPNOTSUPP` where the file system knows neither handles nor birth times.
pub fn of(fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    match sys::handle_of(fd) {
        Ok((kind, handle)) => {
            let mut identity = vec![HANDLE];
            identity.extend(kind.to_le_bytes());
            identity.extend(handle);
            Ok(identity)
        }
        Err(Errno::OPNOTSUPP | Errno::OVERFLOW | Errno::NOSYS | Errno::PERM) => {
            let wanted = StatxFlags::INO | StatxFlags::BTIME;
            let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted)?;
            if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
                return Err(Errno::OPNOTSUPP);
            }
            let mut identity = vec![INODE];
            identity.extend(stat.stx_ino.to_le_bytes());
            identity.extend(stat.stx_btime.tv_sec.to_le_bytes());
            identity.extend(stat.stx_btime.tv_nsec.to_le_bytes());
            Ok(identity)
        }
        Err(errno) => Err(errno),
    }
}

/// The identity of the file with this name.
///
/// # Errors
/// As [`of`], and what looking the name up says.
pub fn at(dir: BorrowedFd<'_>, path: &CStr, flags: AtFlags) -> Result<Vec<u8>, Errno> {
    let mut open = OFlags::PATH | OFlags::CLOEXEC;
    open.set(OFlags::NOFOLLOW, flags.contains(AtFlags::SYMLINK_NOFOLLOW));
    of(rustix::fs::openat(dir, path, open, Mode::empty())?.as_fd())
}

/// Opens the file with `identity` for writing: by one of its paths, or, where that is permitted, by its handle on the file system
/// that its paths lead to. `None` if it is not there any more.
///
/// # Errors
/// What opening says, if it is there and cannot be opened.
pub fn open(identity: &[u8], paths: &[&Path]) -> Result<Option<File>, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    for path in paths {
        // Looked at before it is opened for writing: that could wait for another file's lease, or be a device's doing.
        let Ok(seen) = rustix::fs::open(*path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        else {
            continue;
        };
        if of(seen.as_fd()).as_deref() != Ok(identity) {
            continue;
        }
        let file = rustix::fs::open(*path, flags, Mode::empty())?;
        if of(file.as_fd()).as_deref() == Ok(identity) {
            return Ok(Some(file.into()));
        }
    }
    let Some((&HANDLE, handle)) = identity.split_first() else {
        return Ok(None);
    };
    let Some((kind, handle)) = handle.split_first_chunk() else {
        return Ok(None);
    };
    for mount in paths.iter().flat_map(|path| path.ancestors().skip(1)) {
        let Ok(mount) = rustix::fs::open(mount, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        else {
            continue;
        };
        match sys::open_handle(mount.as_fd(), i32::from_le_bytes(*kind), handle, flags) {
            Ok(file) => {
                let file = File::from(file);
                // Open elsewhere, but in no directory any more: it goes when it is closed.
                let linked = rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_nlink > 0);
                return Ok(linked.then_some(file));
            }
            Err(_) => break,
        }
    }
    Ok(None)
}
