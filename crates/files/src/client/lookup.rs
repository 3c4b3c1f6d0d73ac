//! The lookup of a name: its file, and the file's number if the run absorbs it.

use super::{
    config::CONFIG,
    session::{self, MemberSession},
};
pub(super) use crate::absorbed::FileKey;
use crate::sys;
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};
use std::{
    ffi::{CStr, OsString, c_int},
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::PathBuf,
};

/// Number and generation of a file that the run absorbs.
pub(super) type AbsorbedNumber = (usize, u32);

/// An absorbed file that was found by a name.
pub(super) struct LookedUpFile {
    pub(super) number: AbsorbedNumber,
    /// Held, not opened: the file, whatever becomes of its name.
    pub(super) seen: OwnedFd,
    /// It has no other.
    pub(super) is_last_name: bool,
}

/// The absorbed file that has a name, or its number, if it cannot be held: there is no descriptor
/// left.
pub(super) fn ours_at(
    session: &MemberSession,
    (dir, path): (c_int, &CStr),
    flags: AtFlags,
) -> Option<Result<LookedUpFile, AbsorbedNumber>> {
    let stat = sys::stat_at(sys::directory(dir), path, flags).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let (number, stamp) = session.find(key(&stat))?;
    let number = (number, stamp.generation);
    let seen = match see(dir, path, flags) {
        Ok(seen) => seen,
        // The name is another's, or gone, meanwhile.
        Err(_) if stat_at(dir, path, flags) != Some(key(&stat)) => return None,
        Err(_) => return Some(Err(number)),
    };
    // Another may have taken the name meanwhile. What cannot be looked at any more has not been
    // seen to be another.
    let is_it = sys::stat_of(&seen).map_or(true, |seen| key(&seen) == key(&stat));
    is_it.then_some(Ok(LookedUpFile {
        number,
        seen,
        is_last_name: stat.st_nlink == 1,
    }))
}

/// Holds what has a name.
fn see(dir: c_int, path: &CStr, flags: AtFlags) -> Result<OwnedFd, Errno> {
    let mut held = OFlags::PATH | OFlags::CLOEXEC;
    if flags.contains(AtFlags::EMPTY_PATH) && path.is_empty() {
        // Not a copy of the descriptor: closing one would drop the database's record locks on the
        // file.
        let open = sys::borrow(dir).ok_or(Errno::BADF)?;
        return rustix::fs::open(sys::link_of(open), held, Mode::empty());
    }
    held.set(OFlags::NOFOLLOW, flags.contains(AtFlags::SYMLINK_NOFOLLOW));
    rustix::fs::openat(sys::directory(dir), path, held, Mode::empty())
}

/// The place that a name leads to, without links on the way; it is no link itself. Needs no
/// descriptor.
pub(super) fn real_path(name: (c_int, &CStr)) -> Option<PathBuf> {
    std::fs::canonicalize(absolute(name)).ok()
}

/// The same of a name that nothing has yet.
pub(super) fn real_parent(name: (c_int, &CStr)) -> Option<PathBuf> {
    let path = absolute(name);
    let parent = std::fs::canonicalize(path.parent()?).ok()?;
    Some(parent.join(path.file_name()?))
}

/// The path, from the root.
pub(super) fn absolute((dir, path): (c_int, &CStr)) -> PathBuf {
    let path = PathBuf::from(OsString::from_vec(path.to_bytes().to_vec()));
    if path.is_absolute() {
        return path;
    }
    let base = match sys::borrow(dir) {
        Some(dir) => std::fs::read_link(sys::link_of(dir)),
        None => std::env::current_dir(),
    };
    base.unwrap_or_default().join(path)
}

/// A file that the run absorbs.
pub(super) enum NamedFile {
    /// And this process is a member of it.
    Ours(AbsorbedNumber),
    /// And this process cannot be.
    Foreign(FileKey),
}

pub(super) fn named(dir: c_int, path: &CStr, flags: AtFlags) -> Option<NamedFile> {
    let config = CONFIG.get()?;
    let key = stat_at(dir, path, flags)?;
    if let Some(session) = session::follower(config, || config.is_absorbed(key))
        && let Some((number, stamp)) = session.find(key)
    {
        return Some(NamedFile::Ours((number, stamp.generation)));
    }
    config.is_absorbed(key).then_some(NamedFile::Foreign(key))
}

pub(super) fn key(stat: &Stat) -> FileKey {
    (stat.st_dev, stat.st_ino)
}

pub(super) fn stat_at(dir: c_int, path: &CStr, flags: AtFlags) -> Option<FileKey> {
    let stat = sys::stat_at(sys::directory(dir), path, flags).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| key(&stat))
}

/// The error by which [`regular`] says that it is something else.
pub(super) const NOT_REGULAR: Errno = Errno::INVAL;

/// The status and key of a descriptor's file, if that is a regular file.
///
/// # Errors
/// [`NOT_REGULAR`]; the kernel's, if that is not known.
pub(super) fn regular(fd: BorrowedFd<'_>) -> Result<(Stat, FileKey), Errno> {
    let stat = sys::stat_of(fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(NOT_REGULAR);
    }
    let key = key(&stat);
    Ok((stat, key))
}
