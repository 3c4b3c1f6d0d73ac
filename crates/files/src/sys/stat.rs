//! `fstat` and `stat`, by whichever system call a process may make. A filter (seccomp) that was
//! written for another C library refuses the one or the other, and what cannot be looked at would
//! be taken for no log.

use rustix::{
    fs::{AtFlags, Stat, Statx, StatxFlags},
    io::Errno,
};
use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd},
};

/// Of a descriptor.
///
/// # Errors
/// The kernel's.
pub(crate) fn stat_of(fd: impl AsFd) -> Result<Stat, Errno> {
    let fd = fd.as_fd();
    match rustix::fs::fstat(fd) {
        Err(errno) if errno != Errno::BADF => stat_at(fd, c"", AtFlags::EMPTY_PATH),
        done => done,
    }
}

/// Of a name.
///
/// # Errors
/// The kernel's.
pub(crate) fn stat_at(dir: BorrowedFd<'_>, path: &CStr, flags: AtFlags) -> Result<Stat, Errno> {
    match rustix::fs::statat(dir, path, flags) {
        Err(errno @ (Errno::PERM | Errno::NOSYS | Errno::ACCESS)) => {
            let found = rustix::fs::statx(dir, path, flags, StatxFlags::BASIC_STATS);
            found.map(|found| stat_from(&found)).map_err(|_| errno)
        }
        done => done,
    }
}

/// The kind of the file system that a descriptor's file is on: the kernel's number (`f_type`).
///
/// # Errors
/// The kernel's.
pub(crate) fn kind_of_file_system(fd: impl AsFd) -> Result<i64, Errno> {
    #[allow(clippy::unnecessary_cast, reason = "its type is the architecture's")]
    Ok(rustix::fs::fstatfs(fd)?.f_type as i64)
}

#[expect(
    unsafe_code,
    reason = "the kernel's structure has fields that are not set here"
)]
fn stat_from(found: &Statx) -> Stat {
    // SAFETY: all its fields are numbers.
    let mut stat: Stat = unsafe { std::mem::zeroed() };
    stat.st_dev = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    stat.st_rdev = rustix::fs::makedev(found.stx_rdev_major, found.stx_rdev_minor);
    stat.st_ino = found.stx_ino;
    stat.st_nlink = found.stx_nlink as _;
    stat.st_mode = found.stx_mode.into();
    stat.st_uid = found.stx_uid;
    stat.st_gid = found.stx_gid;
    stat.st_size = found.stx_size.cast_signed();
    stat.st_blksize = found.stx_blksize as _;
    stat.st_blocks = found.stx_blocks.cast_signed();
    stat.st_atime = found.stx_atime.tv_sec as _;
    stat.st_atime_nsec = found.stx_atime.tv_nsec.into();
    stat.st_mtime = found.stx_mtime.tv_sec as _;
    stat.st_mtime_nsec = found.stx_mtime.tv_nsec.into();
    stat.st_ctime = found.stx_ctime.tv_sec as _;
    stat.st_ctime_nsec = found.stx_ctime.tv_nsec.into();
    stat
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_statx_says_is_what_stat_says() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(12_345).unwrap();
        let meta = file.metadata().unwrap();
        let basic = StatxFlags::BASIC_STATS;
        let found = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, basic).unwrap();
        let stat = stat_from(&found);
        assert_eq!(
            (stat.st_dev, stat.st_ino, stat.st_mode, stat.st_size as u64),
            (meta.dev(), meta.ino(), meta.mode(), meta.size())
        );
        assert_eq!(
            super::super::modified(&stat),
            meta.mtime() as u64 * 1_000_000_000 + meta.mtime_nsec() as u64
        );
        let again = stat_at(file.as_fd(), c"", AtFlags::EMPTY_PATH).unwrap();
        assert_eq!((again.st_dev, again.st_ino), (stat.st_dev, stat.st_ino));
    }
}
