//! In tests: copies of files as they were synced last, the worst that a power cut could leave.

use crate::sys;
use forebay_pool::failpoint;
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};

/// The ending of a copy's name while a supervisor writes it, which a test can hold up there, and
/// while a member does.
const OF_SUPERVISOR: &str = ".partial";
const OF_MEMBER: &str = ".settled";

/// Keeps one of a file that the supervisor synced, if there are to be any.
pub(crate) fn keep(path: &Path, file: BorrowedFd<'_>) {
    if let Some(to) = failpoint::synced_copies() {
        copy(to, path, OF_SUPERVISOR, file);
    }
}

/// The same of one that a member synced, by the path that it has now.
pub(crate) fn keep_open(file: BorrowedFd<'_>) {
    if let Some(to) = failpoint::synced_copies()
        && let Ok(path) = std::fs::read_link(sys::link_of(file))
    {
        copy(to, &path, OF_MEMBER, file);
    }
}

/// Copies a file's content below `to`, at its own path; whole or not at all.
fn copy(to: &Path, path: &Path, ending: &str, file: BorrowedFd<'_>) {
    let kept = || -> std::io::Result<()> {
        let target = to.join(path.strip_prefix("/").unwrap_or(path));
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let mut bytes = Vec::new();
        // Its own open file: the position of the database's is not ours to move.
        File::open(sys::link_of(file))?.read_to_end(&mut bytes)?;
        let mut name = target.clone().into_os_string();
        name.push(ending);
        let partial = PathBuf::from(name);
        File::create(&partial)?.write_all(&bytes)?;
        std::fs::rename(partial, target)
    };
    if let Err(e) = kept() {
        sys::complain(&format!("keeping a copy of {}: {e}", path.display()));
    }
}
