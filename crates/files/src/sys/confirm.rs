//! Whether a sync that succeeded was one. A file system that shuts itself down (ext4 and XFS do, when they cannot write their journal) may take what it
//! gave up for written, and says so when it is asked next.

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

/// `f_type` of file systems.
const EXT4: i64 = 0xEF53;
const XFS: i64 = 0x5846_5342;

/// After a sync that succeeded: whether the file system had not shut itself down before that was done, asked by a second sync.
///
/// # Errors
/// The file system's: what was synced may not be on the disk.
pub(crate) fn confirm_sync(fd: impl AsFd) -> Result<(), Errno> {
    rustix::fs::fdatasync(fd)
}

/// As [`confirm_sync`], of a file at `path` that programs write to meanwhile: what they wrote since is not synced, where the file system can be asked
/// without.
///
/// # Errors
/// As [`confirm_sync`].
pub(crate) fn confirm_sync_of(file: impl AsFd, path: &Path) -> Result<(), Errno> {
    // XFS refuses this. It would not refuse to sync a directory that did not change.
    let device = super::stat_of(&file)?.st_dev;
    match super::kind_of_file_system(&file)? {
        XFS => Ok(()),
        EXT4 => match directory_on(device, path) {
            Some(directory) => confirm_sync(directory),
            None => confirm_sync(file),
        },
        _ => confirm_sync(file),
    }
}

/// The directory that a path leads to a file in, if it is on this device.
fn directory_on(device: u64, path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path.parent()?, flags, Mode::empty()).ok()?;
    let found = super::stat_of(&directory).ok()?;
    (found.st_dev == device).then_some(directory)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::mounted::Mounted;
    use std::{fs::File, io::Write, process::Command};

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
            confirm_sync_of(&file, &path).unwrap();
            file.write_all(b"not synced").unwrap();
            confirm_sync_of(&file, &path).unwrap();
            let shut_down = ["-x", "-c", "shutdown"];
            let mut shutting = Command::new("xfs_io");
            shutting.args(shut_down).arg(disk.path());
            assert!(shutting.output().unwrap().status.success());
            let said = confirm_sync_of(&file, &path).unwrap_err();
            assert_eq!(said, Errno::IO, "{}", make[0]);
            // The path may lead elsewhere by now.
            for path in ["/", "/gone/a.log", "/proc/version"] {
                assert!(confirm_sync_of(&file, Path::new(path)).is_err(), "{path}");
            }
        }
    }
}
