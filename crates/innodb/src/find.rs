//! The search for a cache's files: by the names that they were registered with, or, since files are
//! renamed, by looking through the data directory.

mod held_homes;
mod relocation;

use crate::{
    descriptor::{self, path_of, reopen},
    file_kinds,
    home::Homes,
    recorded_names,
};
use forebay_flash::{Cache, CachedFile, Identity};
pub use held_homes::HomesError;
use held_homes::hold;
use relocation::MovedDirectory;
use rustix::{
    fd::{AsFd, OwnedFd},
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

/// The entries of a directory; none if it is not there, or this process could use no file in it.
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

/// The page files in the directories that are `wanted`, by identity. A database may be a link to a
/// directory elsewhere.
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
            if file_kinds::is_page_file(path.as_os_str().as_bytes()) {
                match hold(&path) {
                    // There may be more of them than this process may have open.
                    Ok(held) => found.extend(
                        held.filter(|(_, known)| wanted.contains(&known.identity))
                            .map(|(held, known)| (known.identity, held)),
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

/// True if a file that was not found was deleted, by what became of its directory: `was` is the
/// system tablespace's, as it is registered, and `is` where that is now. A directory that is there
/// and empty may be one where a file system is to be mounted.
fn is_gone(path: &Path, was: &Path, is: &Path) -> bool {
    let Some(parent) = path.parent() else {
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

/// The search for a cache's files.
pub(crate) struct HomeSearch<'a> {
    /// The data directory, where the system tablespace was found.
    pub(crate) data: &'a Path,
    /// Directories beside it, and beside those where the files were.
    pub(crate) roots: BTreeSet<PathBuf>,
    /// Open already.
    pub(crate) skip: Option<Identity>,
    /// Files that are not there, and whose pages are not needed.
    pub(crate) given_up: &'a [PathBuf],
}

impl HomeSearch<'_> {
    /// Beside a file, and beside its database: it may have been renamed into another.
    fn look_beside(&mut self, path: &Path) {
        let Some(dir) = path.parent() else { return };
        self.roots.insert(dir.to_owned());
        let is_table = file_kinds::is_table(path.as_os_str().as_bytes());
        let all = dir
            .parent()
            .filter(|all| is_table && *all != Path::new("/"));
        self.roots.extend(all.map(Path::to_owned));
    }

    /// The fate of a file that was not found: true if its pages are forgotten.
    fn is_forgotten(
        &self,
        cache: &Cache,
        file: &CachedFile,
        moved: &MovedDirectory<'_>,
    ) -> Result<bool, HomesError> {
        let path = recorded_names::path_of(file);
        let places = moved.places(&path);
        let place = places.first().unwrap_or(&path);
        if recorded_names::is_leaving(file)
            || [&path, place].iter().any(|at| self.given_up.contains(at))
        {
            return Ok(true);
        }
        let name = place.display().to_string();
        if !is_gone(&path, moved.was, moved.is) {
            return Err(HomesError::Missing(name));
        }
        match cache.newer_pages_of(file) {
            0 => Ok(true),
            pages if places.is_empty() => Err(HomesError::Outside {
                name,
                pages,
                is: moved.is.to_owned(),
                was: moved.was.to_owned(),
            }),
            pages => Err(HomesError::Gone {
                name,
                pages,
                replaced: place.symlink_metadata().is_ok(),
            }),
        }
    }
}

/// Opens the homes of all files that the cache knows; the cache forgets those that were deleted.
///
/// # Errors
/// See [`HomesError`]; the cache has lost nothing then.
pub(crate) fn attach_all(
    cache: &Cache,
    homes: &Homes,
    mut at: HomeSearch<'_>,
) -> Result<(), HomesError> {
    at.roots.insert(at.data.to_owned());
    let files = cache.files();
    descriptor::allow(files.len());
    let paths = || files.iter().map(|file| recorded_names::path_of(file));
    let system = paths().find(|path| file_kinds::is_system(path.as_os_str().as_bytes()));
    let was = system.as_deref().and_then(Path::parent).unwrap_or(at.data);
    let dirs = MovedDirectory::new(was, at.data)?;
    let mut missing = Vec::new();
    let mut moved = Vec::new();
    for (file, path) in files.iter().zip(paths()) {
        if at.skip == Some(file.id().identity) {
            continue;
        }
        let places = dirs.places(&path);
        match first_of(&places, file)? {
            Some((held, place)) => {
                attach(homes, file, &held)?;
                moved.push((file, place));
            }
            None => {
                places.iter().for_each(|place| at.look_beside(place));
                missing.push(file);
            }
        }
    }
    let wanted = missing.iter().map(|file| file.id().identity).collect();
    let found = look_through(&at.roots, &wanted)?;
    let mut gone = Vec::new();
    for file in missing {
        match found.get(&file.id().identity) {
            Some(held) => {
                attach(homes, file, held)?;
                moved.extend(path_of(held.as_fd()).ok().map(|path| (file, path)));
            }
            None if at.is_forgotten(cache, file, &dirs)? => gone.push(file),
            None => {}
        }
    }
    for given in at.given_up {
        let is_it = |file: &CachedFile| {
            let path = recorded_names::path_of(file);
            path == *given || dirs.places(&path).first() == Some(given)
        };
        if !gone.iter().any(|file| is_it(file)) {
            return Err(HomesError::NotMissing(given.clone()));
        }
    }
    // The system tablespace's last: by its name it is known where the others were.
    moved.sort_by_key(|(_, path)| file_kinds::is_system(path.as_os_str().as_bytes()));
    for (file, path) in moved {
        recorded_names::is_at(cache, file, &path)?;
    }
    for file in gone {
        cache.drop_file(file)?;
    }
    Ok(())
}

/// The first of these places where the file is.
fn first_of(
    places: &[PathBuf],
    file: &CachedFile,
) -> Result<Option<(OwnedFd, PathBuf)>, HomesError> {
    for place in places {
        let found = hold(place)?.filter(|(_, known)| known.identity == file.id().identity);
        if let Some((held, _)) = found {
            return Ok(Some((held, place.clone())));
        }
    }
    Ok(None)
}

fn attach(homes: &Homes, file: &CachedFile, held: &OwnedFd) -> Result<(), HomesError> {
    let home = reopen(held, true).map_err(|errno| {
        HomesError::Unopened(recorded_names::path_of(file).display().to_string(), errno)
    })?;
    homes.attach(file.id(), home);
    Ok(())
}

#[cfg(test)]
mod tests;
