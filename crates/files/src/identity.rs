//! File identity that survives a rename and a reboot, and is never mistaken for another file's.
//!
//! The identity is the file system's handle of the inode (`name_to_handle_at`), which has the
//! inode's generation in it: a file that was made later at the same inode has another one. On a
//! file system without handles it is the inode's number and birth time.
//!
//! Not every file system makes handles that stay one file's. FUSE's have a number in them that its
//! server gives a file when it is looked at first, another one at each mount: there they say
//! nothing. Btrfs counts inodes and generations from the same numbers on, so the first logs of two
//! such file systems have the same handle: there the file system belongs to the identity.
//!
//! Where neither lasts there is no identity, and a file stays plain: FAT and exFAT number a file
//! anew whenever the kernel reads its directory entry. Nor has a network's file system one, though
//! it may have handles and grant a lease: other machines write there, which no run sees.

use crate::sys;
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, StatxFlags},
    io::Errno,
};
use std::{
    ffi::CStr,
    fs::File,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

/// Leads an identity that is a file handle: its type and bytes follow.
const HANDLE: u8 = 1;
/// Leads an identity that is inode number and birth time.
const INODE: u8 = 2;
/// Leads an identity that is the file system's own, and a file handle.
const HANDLE_ON: u8 = 3;

/// `f_type` of file systems.
const FUSE: i64 = 0x6573_5546;
const BTRFS: i64 = 0x9123_683E;
const FAT: i64 = 0x4D44;
const EXFAT: i64 = 0x2011_BAB0;
const NFS: i64 = 0x6969;
const CIFS: i64 = 0xFF53_4D42;
const SMB2: i64 = 0xFE53_4D42;

/// The identity of an open file.
///
/// # Errors
/// `EOPNOTSUPP` where the file system knows neither handles nor birth times, or none that tell
/// which file it is after a reboot.
pub fn of(fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    if sys::kind_of_file_system(fd).is_ok_and(knows_no_file) {
        return Err(Errno::OPNOTSUPP);
    }
    match by_handle(fd) {
        Err(Errno::OPNOTSUPP | Errno::OVERFLOW | Errno::NOSYS | Errno::PERM) => by_birth(fd),
        done => done,
    }
}

/// True for a kind of file system on which no file has an identity.
fn knows_no_file(kind: i64) -> bool {
    [FAT, EXFAT, NFS, CIFS, SMB2].contains(&kind)
}

fn by_handle(fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    match sys::kind_of_file_system(fd)? {
        FUSE => Err(Errno::OPNOTSUPP),
        BTRFS => {
            let number = rustix::fs::fstatvfs(fd)?.f_fsid;
            let mut identity = vec![HANDLE_ON];
            identity.extend(number.to_le_bytes());
            add_handle(identity, fd)
        }
        _ => add_handle(vec![HANDLE], fd),
    }
}

fn add_handle(mut identity: Vec<u8>, fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let (kind, handle) = sys::handle_of(fd)?;
    identity.extend(kind.to_le_bytes());
    identity.extend(handle);
    Ok(identity)
}

fn by_birth(fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
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

/// All identities that a process may know the file by: one that may not ask for handles (seccomp)
/// knows the other.
#[cfg(test)]
pub(crate) fn all_of(fd: BorrowedFd<'_>) -> Vec<Vec<u8>> {
    [by_handle(fd), by_birth(fd)]
        .into_iter()
        .flatten()
        .collect()
}

/// True if the open file is the one with this identity, of whichever kind that is.
pub(crate) fn is(fd: BorrowedFd<'_>, identity: &[u8]) -> bool {
    let found = match identity.first() {
        Some(&(HANDLE | HANDLE_ON)) => by_handle(fd),
        Some(&INODE) => by_birth(fd),
        _ => return false,
    };
    found.as_deref() == Ok(identity)
}

/// The mount that an open file is on: a number that the kernel gives no other mount as long as it
/// runs. As long as a mount is there, so is what the page cache has of its files. `None` where the
/// kernel has no such number (before Linux 6.8).
pub(crate) fn mount(fd: BorrowedFd<'_>) -> Option<u64> {
    /// `STATX_MNT_ID_UNIQUE`, which is younger than the headers.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, UNIQUE).ok()?;
    (stat.stx_mask & UNIQUE.bits() != 0 && stat.stx_mnt_id != 0).then_some(stat.stx_mnt_id)
}

/// True if two open files are on one mount. A file on another may have the same identity: that of a
/// clone of the volume has.
pub(crate) fn are_on_one_mount(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let numbers = [one, other].map(|fd| mount(fd).or_else(|| mount_now(fd)));
    match numbers {
        [Some(one), Some(other)] => one == other,
        _ => {
            let devices = [one, other].map(|fd| sys::stat_of(fd).map(|stat| stat.st_dev));
            matches!(devices, [Ok(one), Ok(other)] if one == other)
        }
    }
}

/// The mount that an open file is on: a number that another one may get when it is gone (from Linux
/// 5.8 on).
fn mount_now(fd: BorrowedFd<'_>) -> Option<u64> {
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// The file system of a file, as long as the machine is up: its device. Each subvolume of btrfs has
/// a device of its own: there it is the part of its number that is the same in all.
///
/// # Errors
/// The kernel's.
pub(crate) fn file_system(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    /// No device has it.
    const NO_DEVICE: u64 = 1 << 63;
    match sys::kind_of_file_system(fd)? {
        BTRFS => Ok(NO_DEVICE | rustix::fs::fstatvfs(fd)?.f_fsid & u64::from(u32::MAX)),
        _ => Ok(sys::stat_of(fd)?.st_dev),
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

/// The regular file at this path, if it is the one with `identity`: not opened, only held, so that
/// it stays this one whatever becomes of the path.
///
/// # Errors
/// What looking the path up says.
pub(crate) fn look(path: &Path, identity: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let seen = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(is_it(seen.as_fd(), identity).then_some(seen))
}

fn is_it(seen: BorrowedFd<'_>, identity: &[u8]) -> bool {
    sys::stat_of(seen)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
        && is(seen, identity)
}

/// The regular file with `identity` by its handle, on the file system that the paths lead to; held,
/// as by [`look`]. `None` if it is not there, has no handle, or this process may not
/// (`CAP_DAC_READ_SEARCH`).
pub(crate) fn look_by_handle(identity: &[u8], paths: &[&Path]) -> Option<OwnedFd> {
    ask_by_handle(identity, paths).ok()
}

/// The answer to asking for a handle.
enum NotThere {
    /// This file system has no such file: it is in no directory any more, and open nowhere.
    On(u64),
    /// Nothing, or nothing that may be known.
    Unknown,
}

fn ask_by_handle(identity: &[u8], paths: &[&Path]) -> Result<OwnedFd, NotThere> {
    let split = identity.split_first().and_then(|(kind, rest)| {
        let rest = match *kind {
            HANDLE => rest,
            HANDLE_ON => rest.split_first_chunk::<8>()?.1,
            _ => return None,
        };
        let (kind, handle) = rest.split_first_chunk()?;
        Some((i32::from_le_bytes(*kind), handle))
    });
    let (kind, handle) = split.ok_or(NotThere::Unknown)?;
    let mut said = NotThere::Unknown;
    for path in paths {
        // The first directory that is there: those above it may be on other file systems.
        let mount = path.parent().and_then(|from| directories_from(from).next());
        let Some(mount) = mount else { continue };
        let seen = sys::open_handle(mount.as_fd(), kind, handle, OFlags::PATH | OFlags::CLOEXEC);
        match seen {
            Ok(seen) if is_it(seen.as_fd(), identity) => return Ok(seen),
            Err(Errno::STALE) => {
                if let Ok(stat) = sys::stat_of(&mount) {
                    said = NotThere::On(stat.st_dev);
                }
            }
            _ => {}
        }
    }
    Err(said)
}

/// A directory, if it is there and may be read, and those above it: the nearest first.
pub(crate) fn directories_from(path: &Path) -> impl Iterator<Item = OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = path.ancestors();
    above.filter_map(move |path| rustix::fs::open(path, flags, Mode::empty()).ok())
}

/// Opens a held file, with the rights of this thread to it.
///
/// # Errors
/// The kernel's.
pub(crate) fn reopen(seen: BorrowedFd<'_>, flags: OFlags) -> Result<File, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(sys::link_of(seen), flags, Mode::empty()).map(File::from)
}

/// Opens the file with `identity`, which is on `device`, for writing: by one of its paths, or,
/// where that is permitted, by its handle on the file system that its paths lead to. `None` if it
/// is not there any more. What has the identity on another device is a clone's.
///
/// # Errors
/// What opening says, if it is there and cannot be opened; `ENOENT` if it has none of these names,
/// and may have another.
pub(crate) fn open(identity: &[u8], paths: &[&Path], device: u64) -> Result<Option<File>, Errno> {
    let is_on_it = |seen: &OwnedFd| sys::stat_of(seen).is_ok_and(|stat| stat.st_dev == device);
    let by_path = paths
        .iter()
        .find_map(|path| look(path, identity).ok().flatten().filter(is_on_it));
    let seen = match by_path {
        Some(seen) => seen,
        None => match ask_by_handle(identity, paths) {
            Ok(seen) if is_on_it(&seen) => seen,
            Ok(_) => return Err(Errno::NOENT),
            Err(NotThere::On(there)) if there == device => return Ok(None),
            Err(_) => return Err(Errno::NOENT),
        },
    };
    // Open elsewhere, but in no directory any more: it goes when it is closed.
    if sys::stat_of(&seen)?.st_nlink == 0 {
        return Ok(None);
    }
    reopen(seen.as_fd(), OFlags::RDWR).map(Some)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::test_mount::Mounted;
    use std::process::Command;

    /// Promise (recovery): A log with the same handle on another btrfs that was made alike, or on a
    /// FUSE that was mounted anew, is not taken for the lane's.
    #[test]
    fn the_logs_of_two_file_systems_that_were_made_alike_are_two() {
        let identities = [(); 2].map(|()| {
            let disk = Mounted::made(&["mkfs.btrfs", "-q", "-f"])?;
            let again = disk.path().join("a.log");
            let file = File::create(&again).unwrap();
            let part = disk.path().join("part");
            let mut make = Command::new("btrfs");
            make.args(["subvolume", "create"]).arg(&part);
            assert!(make.output().unwrap().status.success());
            let part = File::open(part).unwrap();
            assert_ne!(
                sys::stat_of(&part).unwrap().st_dev,
                sys::stat_of(&file).unwrap().st_dev
            );
            assert_eq!(file_system(part.as_fd()), file_system(file.as_fd()));
            let image = disk.image.as_ref().unwrap().as_file();
            assert_ne!(file_system(image.as_fd()), file_system(file.as_fd()));
            let identity = of(file.as_fd()).unwrap();
            assert!(look(&again, &identity).unwrap().is_some());
            assert!(ask_by_handle(&identity, &[&again]).is_ok());
            let handle_alone = add_handle(vec![HANDLE], file.as_fd()).unwrap();
            assert!(!is(file.as_fd(), &handle_alone));
            Some(identity)
        });
        if let [Some(one), Some(other)] = identities {
            assert_ne!(one, other);
        }
    }

    /// Promise (recovery): Logs stay plain on FAT, exFAT and network file systems, where a reboot
    /// leaves no way to tell files apart or other machines write.
    #[test]
    fn files_on_fat_exfat_and_network_file_systems_have_no_identity() {
        // As linux/magic.h has them; ext4, XFS, tmpfs.
        for kind in [0x4D44, 0x2011_BAB0, 0x6969, 0xFF53_4D42, 0xFE53_4D42] {
            assert!(knows_no_file(kind), "{kind:#x}");
        }
        for kind in [0xEF53, 0x5846_5342, BTRFS, 0x0102_1994] {
            assert!(!knows_no_file(kind), "{kind:#x}");
        }
    }

    /// Promise: as `the_logs_of_two_file_systems_that_were_made_alike_are_two`.
    #[test]
    fn a_servers_file_number_for_one_mount_is_no_identity() {
        let shown = tempfile::tempdir().unwrap();
        let Some(fuse) = Mounted::by(&["bindfs"], shown.path()) else {
            return;
        };
        let file = File::create(fuse.path().join("a.log")).unwrap();
        assert_eq!(by_handle(file.as_fd()), Err(Errno::OPNOTSUPP));
        let handle = add_handle(vec![HANDLE], file.as_fd()).unwrap();
        assert!(!is(file.as_fd(), &handle));
    }
}
