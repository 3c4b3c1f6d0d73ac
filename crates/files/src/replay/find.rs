//! Finding a file of a lane again: by its paths, by its handle, or close to where it was.

use super::lane_contents::{LoggedFile, LoggedNameLoss};
use crate::{identity, pending_records, sys};
use forebay_pool::Pool;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    collections::HashMap,
    ffi::OsString,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
};

/// Directories above a file in which its way is looked for under other names.
const LEVELS: usize = 3;
/// Entries of each that are looked at.
const ENTRIES: usize = 4096;

/// The place of a file.
pub(super) enum FoundFile {
    /// Here; held, not opened.
    Here(OwnedFd),
    /// In no directory any more: it goes when the last process closes it.
    Unlinked,
    /// It was not found; the first thing that stood in the way, if anything did.
    Missing(Option<Errno>),
}

/// The answer of a file's handle to a process that may ask. The paths come from the lane: nothing
/// is opened by them but directories.
enum ByHandle {
    Nothing,
    Unlinked,
    Here(OwnedFd),
}

impl ByHandle {
    fn of(identity: &[u8], paths: &[&Path]) -> Self {
        match identity::look_by_handle(identity, paths) {
            None => Self::Nothing,
            Some(seen) if rustix::fs::fstat(&seen).is_ok_and(|stat| stat.st_nlink == 0) => {
                Self::Unlinked
            }
            Some(seen) => Self::Here(seen),
        }
    }
}

/// The places at which a process with more rights has seen the files of a pool by their handles, by
/// identity. The process that recovers them may not ask for those. It gets only a path, which it
/// has to go itself, or none of a file that has no name.
#[derive(Default)]
pub(super) struct LearnedPlaces(HashMap<Vec<u8>, Option<PathBuf>>);

impl LearnedPlaces {
    /// Those of all files of lanes that no process has.
    pub(super) fn of(pool: &Pool) -> Self {
        let mut learned = HashMap::new();
        for (identity, paths) in pending_records::files(pool) {
            let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
            let place = match ByHandle::of(&identity, &paths) {
                ByHandle::Nothing => continue,
                ByHandle::Unlinked => None,
                ByHandle::Here(seen) => {
                    match rustix::fs::readlink(sys::link_of(seen.as_fd()), Vec::new()) {
                        Ok(path) => Some(OsString::from_vec(path.into_bytes()).into()),
                        Err(_) => continue,
                    }
                }
            };
            learned.insert(identity, place);
        }
        Self(learned)
    }
}

/// Looks for a file with this process's rights; one with more has `learned` where to.
pub(super) fn find(file: &LoggedFile<'_>, learned: &LearnedPlaces) -> FoundFile {
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
    match ByHandle::of(file.identity, &file.paths) {
        ByHandle::Here(seen) => return FoundFile::Here(seen),
        ByHandle::Unlinked => return FoundFile::Unlinked,
        ByHandle::Nothing => {}
    }
    match learned.0.get(file.identity) {
        Some(None) => return FoundFile::Unlinked,
        Some(Some(path)) => {
            if let Some(seen) = look(path) {
                return FoundFile::Here(seen);
            }
        }
        None => {}
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
