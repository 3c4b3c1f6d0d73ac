//! Directories: opening one, and visiting those of a database, in which marks and guards lie.

use crate::guard_name::is_one;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    fs::File,
    io::{Error, ErrorKind, Result},
    path::{Path, PathBuf},
};

/// The directory of the files that `fsck` finds: it is root's, and may be read by no other user, so
/// no database has files there.
const LOST_AND_FOUND: &str = "lost+found";

/// Opens a directory, whatever the path may lead to.
///
/// # Errors
/// What the kernel says: of anything else `ENOTDIR`.
pub(crate) fn open_directory(path: &Path) -> std::result::Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    rustix::fs::open(path, flags, Mode::empty()).map(File::from)
}

/// Visits a directory, those below it, and those that links in them lead to, but nothing below the
/// latter.
///
/// # Errors
/// Of the visit, or of a directory that cannot be read: with its path, and what to do.
pub fn each_directory(
    directory: &Path,
    mut visit: impl FnMut(&File, &Path) -> Result<()>,
) -> Result<()> {
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        match visit_one(&path, &mut visit) {
            Ok(below) => open.extend(below),
            Err(e) if is_denied(&e) && path.ends_with(LOST_AND_FOUND) => {}
            Err(e) => return Err(named(&path, &e)),
        }
    }
    Ok(())
}

/// Visits one, and those that links in it lead to: the directories in it.
fn visit_one(
    path: &Path,
    visit: &mut impl FnMut(&File, &Path) -> Result<()>,
) -> Result<Vec<PathBuf>> {
    visit(&File::open(path)?, path)?;
    let mut below = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && is_one(&entry.file_name()) {
            // No user but root may look into it, and nothing is marked there.
        } else if kind.is_dir() {
            below.push(entry.path());
        } else if kind.is_symlink() && entry.path().is_dir() {
            // PostgreSQL's log may lie elsewhere.
            visit(&File::open(entry.path())?, &entry.path())?;
        }
    }
    Ok(below)
}

fn is_denied(error: &Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied
}

fn named(path: &Path, error: &Error) -> Error {
    let remedy = match is_denied(error) {
        true => ". Repeat this as a user who may read it, the database's or root",
        false => "",
    };
    Error::new(error.kind(), format!("{}: {error}{remedy}", path.display()))
}
