//! Where the files of a cache are: by the names that they were registered with, or, since files are renamed, by looking through the data directory.

use crate::{
    home::{Homes, reopen},
    identity, names,
};
use forebay_flash::{Cache, CachedFile, FlashError, Identity};
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
};
use std::{
    collections::{BTreeSet, HashMap},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Directories of a data directory are not nested deeper.
const DEPTH: usize = 2;

/// What goes wrong while the homes of a cache's files are looked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomesError {
    /// A file is not where it can be looked for.
    #[error(
        "{0}, which has pages in the flash cache, is not there, and its directory is empty, or not there either: a file system may not be mounted. Mount it, and repeat; nothing was changed"
    )]
    Missing(String),
    /// It is there and cannot be opened.
    #[error("opening {0}, which has pages in the flash cache: {1}. Nothing was changed")]
    Unopened(String, rustix::io::Errno),
    /// What the cache says.
    #[error(transparent)]
    Flash(#[from] FlashError),
}

/// An open file that is only held.
fn hold(path: &Path) -> Option<(OwnedFd, Identity)> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let held = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let known = identity::of(&held).ok()??;
    Some((held, known.identity))
}

/// Every page file in the directories, by identity.
fn look_through(roots: &BTreeSet<PathBuf>) -> HashMap<Identity, OwnedFd> {
    let mut found = HashMap::new();
    let mut left: Vec<(PathBuf, usize)> = roots.iter().cloned().map(|dir| (dir, 0)).collect();
    while let Some((dir, depth)) = left.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if depth + 1 < DEPTH && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push((path, depth + 1));
            } else if names::is_page_file(path.as_os_str().as_bytes())
                && let Some((held, identity)) = hold(&path)
            {
                found.insert(identity, held);
            }
        }
    }
    found
}

/// True if a file that was not found was deleted, by what became of its directory: `was` is the system tablespace's, as it is registered, and
/// `is` where that is now. A directory that is there and empty may be one where a file system is to be mounted.
fn is_gone(file: &CachedFile, was: &Path, is: &Path) -> bool {
    let Some(parent) = Path::new(file.name()).parent() else {
        return false;
    };
    let is_used = |dir: &Path| fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
    match parent.strip_prefix(was) {
        Ok(rest) => {
            let dir = is.join(rest);
            is_used(&dir) || dir.symlink_metadata().is_err()
        }
        Err(_) => is_used(parent),
    }
}

/// Opens the homes of all files that the cache knows, in the data directory `data`, where the system tablespace was found, below `roots`, and beside where
/// they were; the cache forgets those that were deleted. `skip` is open already.
///
/// # Errors
/// See [`HomesError`]; the cache has lost nothing then.
pub(crate) fn attach_all(
    cache: &Cache,
    homes: &Homes,
    data: &Path,
    mut roots: BTreeSet<PathBuf>,
    skip: Option<Identity>,
) -> Result<(), HomesError> {
    roots.insert(data.to_owned());
    let files = cache.files();
    let system = files
        .iter()
        .find(|file| names::is_system(file.name().as_bytes()));
    let was = system.and_then(|file| Path::new(file.name()).parent());
    let was = was.unwrap_or(data);
    let mut missing = Vec::new();
    for file in &files {
        let identity = file.id().identity;
        if skip == Some(identity) {
            continue;
        }
        let path = Path::new(file.name());
        match hold(path).filter(|(_, found)| *found == identity) {
            Some((held, _)) => attach(homes, file, &held)?,
            None => {
                roots.extend(path.parent().map(Path::to_owned));
                missing.push(file);
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let found = look_through(&roots);
    let mut gone = Vec::new();
    for file in missing {
        match found.get(&file.id().identity) {
            Some(held) => attach(homes, file, held)?,
            None if is_gone(file, was, data) => gone.push(file),
            None => return Err(HomesError::Missing(file.name().to_owned())),
        }
    }
    for file in gone {
        cache.drop_file(file)?;
    }
    Ok(())
}

fn attach(homes: &Homes, file: &CachedFile, held: &OwnedFd) -> Result<(), HomesError> {
    let home =
        reopen(held, true).map_err(|errno| HomesError::Unopened(file.name().to_owned(), errno))?;
    homes.attach(file.id(), home);
    Ok(())
}

#[cfg(test)]
mod tests;
