//! Confirms a sync that succeeded. A file system that shuts itself down (ext4 and XFS do, when they
//! cannot write their journal) may count the writes that it gave up as done, and says so when it is
//! asked next.

use rustix::{
    fs::{FileType, SeekFrom},
    io::Errno,
};
use std::{
    fs::File,
    os::fd::{AsFd, BorrowedFd},
};

/// `f_type` of file systems.
pub(crate) const EXT4: i64 = 0xEF53;
const XFS: i64 = 0x5846_5342;

/// After a sync that succeeded: fails if the file system had shut itself down before that was done,
/// asked by a second sync.
///
/// # Errors
/// The file system's: what was synced may not be on the disk.
pub(crate) fn confirm_sync(fd: impl AsFd) -> Result<(), Errno> {
    rustix::fs::fdatasync(fd)
}

/// As [`confirm_sync`], of a file that programs write to meanwhile: later writes are not synced, if
/// the file system can be asked without, by an open directory of it. Opens nothing: who is asked
/// before anything is opened may be waiting for this.
///
/// # Errors
/// As [`confirm_sync`].
pub(crate) fn confirm_sync_of(file: impl AsFd, directory: Option<&File>) -> Result<(), Errno> {
    // XFS refuses this. It would not refuse to sync a directory that did not change.
    let device = super::stat_of(&file)?.st_dev;
    let is_on = |it: &&File| super::stat_of(it).is_ok_and(|stat| stat.st_dev == device);
    match super::kind_of_file_system(&file)? {
        XFS => Ok(()),
        EXT4 => match directory.filter(is_on) {
            Some(directory) => confirm_sync(directory),
            None => confirm_sync(file),
        },
        _ => confirm_sync(file),
    }
}

/// After a sync that succeeded: fails if the file system had shut itself down before that was done.
/// Of a file it is asked without another flush of the disk.
///
/// # Errors
/// The file system's: what was synced may not be on the disk.
pub(crate) fn check_file_system(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    if FileType::from_raw_mode(super::stat_of(fd)?.st_mode).is_dir() {
        return confirm_sync(fd);
    }
    // Each looks before it finds that there is nothing to do: ext4 in the first two, XFS in the
    // last two. One that the descriptor is not open for fails otherwise.
    let asked = [
        rustix::io::pwrite(fd, &[], 0).err(),
        rustix::io::pread(fd, &mut [0u8; 0], 0).err(),
        rustix::fs::seek(fd, SeekFrom::Current(0)).err(),
    ];
    let is_shut_down = |errno: &Errno| matches!(*errno, Errno::IO | Errno::SHUTDOWN);
    let found = asked.into_iter().flatten().find(is_shut_down);
    found.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::test_mount::Mounted;
    use std::{io::Write, process::Command};

    #[test]
    fn a_sync_is_not_confirmed_by_a_file_system_that_was_shut_down() {
        for make in [&["mkfs.ext4", "-q"][..], &["mkfs.xfs", "-q", "-f"]] {
            let Some(disk) = Mounted::made(make) else {
                continue;
            };
            let path = disk.path().join("a.log");
            let mut file = File::create(&path).unwrap();
            file.write_all(b"written").unwrap();
            file.sync_data().unwrap();
            let directory = File::open(disk.path()).unwrap();
            let files =
                [&file, &File::open(&path).unwrap(), &directory].map(|it| it.try_clone().unwrap());
            let check = |file: &File| check_file_system(file.as_fd());
            assert!(files.iter().all(|file| check(file) == Ok(())));
            confirm_sync_of(&file, Some(&directory)).unwrap();
            file.write_all(b"not synced").unwrap();
            confirm_sync_of(&file, Some(&directory)).unwrap();
            let shut_down = ["-x", "-c", "shutdown"];
            let mut shutting = Command::new("xfs_io");
            shutting.args(shut_down).arg(disk.path());
            assert!(shutting.output().unwrap().status.success());
            let said = confirm_sync_of(&file, Some(&directory)).unwrap_err();
            assert_eq!(said, Errno::IO, "{}", make[0]);
            for file in &files {
                assert!(check(file).is_err(), "{}: {file:?}", make[0]);
            }
            // It may have been on another file system, or not be known.
            for other in [None, Some(&File::open("/").unwrap())] {
                assert!(confirm_sync_of(&file, other).is_err(), "{other:?}");
            }
        }
    }
}
