//! Finding a file of a lane again: by its paths, by its handle, or close to where it was.

use super::lane_contents::{LoggedFile, LoggedNameLoss};
use crate::{identity, sys};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

/// Directories above a file in which its way is looked for under other names.
const LEVELS: usize = 3;
/// Entries of each that are looked at.
const ENTRIES: usize = 4096;

/// Where a file is.
pub(super) enum FoundFile {
    /// Here; held, not opened.
    Here(OwnedFd),
    /// In no directory any more: it goes when the last process closes it.
    Unlinked,
    /// It was not found; the first thing that stood in the way, if anything did.
    Missing(Option<Errno>),
}

/// What a file's handle says of it to a process that may ask. The paths come from the lane: nothing
/// is opened by them but directories.
pub(super) enum ByHandle {
    Nothing,
    Unlinked,
    Here(OwnedFd),
}

impl ByHandle {
    pub(super) fn of(file: &LoggedFile<'_>) -> Self {
        match identity::look_by_handle(file.identity, &file.paths) {
            None => Self::Nothing,
            Some(seen) if rustix::fs::fstat(&seen).is_ok_and(|stat| stat.st_nlink == 0) => {
                Self::Unlinked
            }
            Some(seen) => Self::Here(seen),
        }
    }

    /// For a thread with fewer rights: only the way to it, which it has to go itself.
    pub(super) fn way(self) -> HandleFinding {
        match self {
            Self::Nothing => HandleFinding::Unknown,
            Self::Unlinked => HandleFinding::Unlinked,
            Self::Here(seen) => rustix::fs::readlink(sys::link_of(seen.as_fd()), Vec::new())
                .ok()
                .map(|path| {
                    use std::os::unix::ffi::OsStringExt;
                    PathBuf::from(std::ffi::OsString::from_vec(path.into_bytes()))
                })
                .map_or(HandleFinding::Unknown, HandleFinding::Path),
        }
    }
}

/// What a process with more rights learned by a file's handle.
pub(super) enum HandleFinding {
    Unknown,
    Unlinked,
    Path(PathBuf),
}

/// Looks for a file with this thread's rights; `way` is what one with more has learned, if there is
/// one.
pub(super) fn find(file: &LoggedFile<'_>, way: Option<&HandleFinding>) -> FoundFile {
    let mut obstacle = None;
    let mut look = |path: &Path| match identity::look(path, file.identity) {
        Ok(seen) => seen,
        Err(errno) => {
            if errno != Errno::NOENT {
                obstacle.get_or_insert(errno);
            }
            None
        }
    };
    if let Some(seen) = file.paths.iter().rev().find_map(|path| look(path)) {
        return FoundFile::Here(seen);
    }
    match way {
        Some(HandleFinding::Unlinked) => return FoundFile::Unlinked,
        Some(HandleFinding::Path(path)) => {
            if let Some(seen) = look(path) {
                return FoundFile::Here(seen);
            }
        }
        Some(HandleFinding::Unknown) => {}
        None => match ByHandle::of(file) {
            ByHandle::Here(seen) => return FoundFile::Here(seen),
            ByHandle::Unlinked => return FoundFile::Unlinked,
            ByHandle::Nothing => {}
        },
    }
    // One that lost its last name is nowhere. One that was about to may have kept it, if the
    // process that was about to take it was killed.
    let renamed = || {
        let mut paths = file.paths.iter().rev();
        paths.find_map(|path| close_to(path, file.identity))
    };
    match (file.gone != LoggedNameLoss::Yes).then(renamed).flatten() {
        Some(seen) => FoundFile::Here(seen),
        None => FoundFile::Missing(obstacle),
    }
}

/// The file, if one part of its path has another name by now: it, or a directory that it is in, was
/// renamed. No rename leads to another mount: what is there has the same identity if it is on a
/// clone of the file's volume.
fn close_to(path: &Path, identity: &[u8]) -> Option<OwnedFd> {
    let mut rest = PathBuf::new();
    let mut at = path;
    let mut held_below: Option<OwnedFd> = None;
    for _ in 0..LEVELS {
        let above = at.parent().filter(|above| above.parent().is_some())?;
        let held = held(above);
        let is_on_it = |seen: &OwnedFd| {
            let held = held.as_ref();
            held.is_some_and(|held| identity::are_on_one_mount(held.as_fd(), seen.as_fd()))
        };
        if held_below.is_some_and(|below| !is_on_it(&below)) {
            return None;
        }
        let entries = std::fs::read_dir(above).into_iter().flatten();
        let found = entries.take(ENTRIES).flatten().find_map(|entry| {
            let mut candidate = entry.path();
            if !rest.as_os_str().is_empty() {
                candidate.push(&rest);
            }
            let seen = identity::look(&candidate, identity).ok().flatten();
            seen.filter(&is_on_it)
        });
        if found.is_some() {
            return found;
        }
        rest = match rest.as_os_str().is_empty() {
            true => PathBuf::from(at.file_name()?),
            false => Path::new(at.file_name()?).join(&rest),
        };
        at = above;
        held_below = held;
    }
    None
}

/// A directory, not opened, if it is there.
fn held(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}
