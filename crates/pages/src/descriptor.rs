//! What is open, by the kernel's link to it: its path, and the same file opened once more.

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd},
    fs::OFlags,
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
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

/// How many descriptors this process may have.
pub(crate) fn descriptors_max() -> usize {
    let most = getrlimit(Resource::Nofile).current;
    usize::try_from(most.unwrap_or(u64::MAX)).unwrap_or(usize::MAX)
}

/// Lets this process have so many files open beside those that it needs in any case, as far as it may decide that.
pub(crate) fn allow(files: usize) {
    const BESIDE: u64 = 256;
    let limit = getrlimit(Resource::Nofile);
    let wanted = files as u64 + BESIDE;
    if limit.current.is_some_and(|most| most < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        // Opening them says what is missing.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}
