//! Where the files of a cache are: by the names that they were registered with, or, since files are renamed, by looking through the data directory.

use crate::{descriptor::reopen, home::Homes, identity, names};
use forebay_flash::{Cache, CachedFile, FlashError, Identity};
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs, io,
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
    Unopened(String, Errno),
    /// Whether it is there cannot be told.
    #[error(
        "looking for the files that have pages in the flash cache: {}: {source}. Nothing was changed",
        path.display()
    )]
    Unseen {
        /// Where it was looked for.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: Errno,
    },
    /// What the cache says.
    #[error(transparent)]
    Flash(#[from] FlashError),
}

impl HomesError {
    fn unseen(path: &Path, source: Errno) -> Self {
        Self::Unseen {
            path: path.to_owned(),
            source,
        }
    }
}

/// The file of this path, open, only to be held. None if there is none, or no regular one.
///
/// # Errors
/// Whether it is one that is looked for cannot be told: nothing may be taken for deleted.
fn hold(path: &Path) -> Result<Option<(OwnedFd, Identity)>, HomesError> {
    let unseen = |source| HomesError::unseen(path, source);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let held = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(held) => held,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(unseen(errno)),
    };
    let known = identity::of(&held).map_err(unseen)?;
    Ok(known.map(|known| (held, known.identity)))
}

/// What is in a directory; nothing if it is not there, or this process could use no file in it.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, HomesError> {
    let unseen =
        |e: io::Error| HomesError::unseen(dir, Errno::from_io_error(&e).unwrap_or(Errno::IO));
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if is_nothing(&e) => return Ok(Vec::new()),
        // `lost+found`, for example.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !is_searchable(dir) => {
            return Ok(Vec::new());
        }
        Err(e) => return Err(unseen(e)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<io::Result<_>>().map_err(unseen)
}

fn is_nothing(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// True of a link to one as well.
fn is_directory(path: &Path) -> Result<bool, HomesError> {
    match fs::metadata(path) {
        Ok(meta) => Ok(meta.is_dir()),
        Err(e) if is_nothing(&e) || e.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(e) => match Errno::from_io_error(&e) {
            Some(Errno::LOOP) => Ok(false),
            errno => Err(HomesError::unseen(path, errno.unwrap_or(Errno::IO))),
        },
    }
}

fn is_searchable(dir: &Path) -> bool {
    !fs::metadata(dir.join(".")).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
}

/// The page files in the directories that are `wanted`, by identity. A database may be a link to a directory elsewhere.
pub(crate) fn look_through(
    roots: &BTreeSet<PathBuf>,
    wanted: &HashSet<Identity>,
) -> Result<HashMap<Identity, OwnedFd>, HomesError> {
    let mut found = HashMap::new();
    if wanted.is_empty() {
        return Ok(found);
    }
    let mut left: Vec<(PathBuf, usize)> = roots.iter().cloned().map(|dir| (dir, 0)).collect();
    while let Some((dir, depth)) = left.pop() {
        for path in entries(&dir)? {
            if names::is_page_file(path.as_os_str().as_bytes()) {
                match hold(&path) {
                    // There may be more of them than this process may have open.
                    Ok(held) => found.extend(
                        held.filter(|(_, identity)| wanted.contains(identity))
                            .map(|(held, identity)| (identity, held)),
                    ),
                    // A file system that does not say when files were born has none of a cache.
                    Err(HomesError::Unseen { source, .. }) if source == Errno::OPNOTSUPP => {}
                    Err(error) => return Err(error),
                }
            } else if depth + 1 < DEPTH && is_directory(&path)? {
                left.push((path, depth + 1));
            }
        }
    }
    Ok(found)
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
            is_used(&dir) || dir.symlink_metadata().is_err_and(|e| is_nothing(&e))
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
        match hold(path)?.filter(|(_, found)| *found == identity) {
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
    let wanted = missing.iter().map(|file| file.id().identity).collect();
    let found = look_through(&roots, &wanted)?;
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
