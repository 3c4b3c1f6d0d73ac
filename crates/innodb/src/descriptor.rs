//! Open files by the kernel's link to them: a descriptor's path, and the same file opened once
//! more.

use forebay_pool::rights::user;
use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{FileType, Mode, OFlags},
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    io,
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The kernel's link to an open file, by which it is opened once more whatever its name leads to by
/// now.
pub(crate) fn link_to(fd: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).into()
}

/// The path that a descriptor's file has.
///
/// # Errors
/// What the operating system says.
pub(crate) fn path_of(fd: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let path = rustix::fs::readlink(link_to(fd), Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(path.as_bytes())))
}

/// Opens an open file once more, for reading and writing: past the page cache if the file system
/// can and `direct` says so.
pub(crate) fn reopen(fd: impl AsFd, direct: bool) -> Result<File, Errno> {
    let link = link_to(fd);
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

/// Holds the file at `path`, a link to it or not: that needs no right to it and waits for nothing.
///
/// # Errors
/// What the operating system says.
pub(crate) fn hold(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// The regular file of this name in a data directory, only held. Another user may have put
/// something else there: no link is followed, and nothing is opened.
///
/// # Errors
/// What the operating system says; `InvalidInput` of anything else.
pub(crate) fn hold_regular(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::open(path, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&held)?.st_mode);
    if kind != FileType::RegularFile {
        let what = format!(
            "{} is a link, or another thing that is no file: it is not opened",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(held)
}

/// The same, to be written to: with root's own rights only a file without another name, since it
/// may be one that the user who put it there may not write to.
///
/// # Errors
/// As [`hold_regular`].
pub(crate) fn hold_plain(path: &Path) -> io::Result<OwnedFd> {
    let held = hold_regular(path)?;
    check_names(&held, path)?;
    Ok(held)
}

/// See [`hold_plain`].
///
/// # Errors
/// `InvalidInput`; what the operating system says.
pub(crate) fn check_names(file: impl AsFd, path: &Path) -> io::Result<()> {
    if user() == 0 && rustix::fs::fstat(file)?.st_nlink > 1 {
        let what = format!(
            "{} has another name as well (a hard link), and its owner is not known: root writes nothing there. Give it a name of its own (cp -p, and mv), and repeat this",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(())
}

/// Refuses a file that is neither this user's nor root's: another one may have made it up.
///
/// # Errors
/// `PermissionDenied`; what the operating system says.
pub(crate) fn check_owner(file: impl AsFd, user: u32) -> io::Result<()> {
    match rustix::fs::fstat(file)?.st_uid {
        0 => Ok(()),
        owner if owner == user => Ok(()),
        owner => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "forebay.guard and forebay.pages there must be of one user, and one of them belongs to user {owner}, not to user {user}: give them to the server's user (chown)"
            ),
        )),
    }
}

/// The number of descriptors that this process may have.
pub(crate) fn descriptors_max() -> usize {
    let most = getrlimit(Resource::Nofile).current;
    usize::try_from(most.unwrap_or(u64::MAX)).unwrap_or(usize::MAX)
}

/// Lets this process have so many files open beside those that it needs in any case, as far as it
/// may decide that.
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
