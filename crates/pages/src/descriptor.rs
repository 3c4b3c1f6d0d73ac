//! What is open, by the kernel's link to it: its path, and the same file opened once more.

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd},
    fs::OFlags,
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::PathBuf,
};

/// The path that a descriptor's file has.
///
/// # Errors
/// What the operating system says.
pub fn path_of(fd: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(path.as_bytes())))
}

/// Opens once more what is open, for reading and writing: past the page cache if the file system can and `direct` says so.
pub(crate) fn reopen(fd: impl AsFd, direct: bool) -> Result<File, Errno> {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    // By the C library, so that a home on an emulated device is one.
    let open = |flags: OFlags| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags.bits().cast_signed())
            .open(&link)
    };
    let opened = match direct {
        true => open(OFlags::DIRECT).or_else(|_| open(OFlags::empty())),
        false => open(OFlags::empty()),
    };
    opened.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}
