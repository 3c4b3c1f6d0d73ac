//! Emptying a cache: everything goes home, and the guard is lifted.

use super::{
    cache_files::CacheFiles,
    error::SetupError,
    guarded_directory::{find_guarded, with_cache},
    location::{CacheLocation, pool_of},
};
use crate::{
    doublewrite::DoublewriteFile,
    find::{self, HomeSearch},
    home::Homes,
};
use forebay_flash::{Cache, FlushProgress};
use forebay_pool::rights::user;
use serde::{Deserialize, Serialize, Serializer};
use std::{
    collections::BTreeSet,
    fs::File,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The outcome of a flush.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushOutcome {
    /// Pages written to the files.
    pub pages: u64,
    /// Pages that a crash may have torn, and whose files were not found.
    pub not_found: u64,
    /// System tablespaces whose guard was lifted.
    #[serde(serialize_with = "readable")]
    pub lifted: Vec<PathBuf>,
    /// False if the caller stopped it.
    pub complete: bool,
}

/// Paths as they are shown: one that is no text is none in JSON.
fn readable<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

/// Writes everything home, empties the cache, and lifts the guard: the server may be started
/// without Forebay. What is interrupted goes on where it was. `data` are directories to look for
/// files in, beside those where they were; `given_up` files that are not there, and whose pages are
/// not needed. It is done as the user whose cache it is, in a child process if that is another one.
///
/// # Errors
/// See [`SetupError`]; nothing that the cache has is lost.
pub fn flush(
    flash: &Path,
    data: &[PathBuf],
    given_up: &[PathBuf],
    progress: impl FnMut(FlushProgress) -> ControlFlow<()>,
) -> Result<FlushOutcome, SetupError> {
    let place = CacheLocation::of(flash)?;
    with_cache(&CacheFiles::of(&place)?, data, |cache, homes| {
        flush_open(&place, cache, homes, (data, given_up), progress)
    })
}

/// Finds the files that the cache has pages of, and mends pages in them that a crash may have torn:
/// the system tablespace, open, if there is one.
pub(crate) fn attach_guarded(
    place: &CacheLocation,
    cache: &Cache,
    homes: &Arc<Homes>,
    (data, given_up): (&[PathBuf], &[PathBuf]),
) -> Result<Option<(File, PathBuf)>, SetupError> {
    let roots: BTreeSet<PathBuf> = data.iter().cloned().collect();
    let guarded = find_guarded(place.flash(), cache, homes, data)?;
    if let Some((_, path)) = &guarded {
        let data = path.parent().unwrap_or(Path::new("/"));
        let at = HomeSearch {
            data,
            roots,
            skip: None,
            given_up,
        };
        find::attach_all(cache, homes, at)?;
        let copies = DoublewriteFile::new(data, cache.owner()).of_user(user());
        copies.restore(cache, &**homes).map_err(SetupError::io(
            "writing pages again that a crash may have torn in",
            data,
        ))?;
        homes.keep_copies(copies);
    }
    Ok(guarded)
}

/// See [`flush`], with a cache that is open.
fn flush_open(
    place: &CacheLocation,
    cache: &Cache,
    homes: &Arc<Homes>,
    files: (&[PathBuf], &[PathBuf]),
    progress: impl FnMut(FlushProgress) -> ControlFlow<()>,
) -> Result<FlushOutcome, SetupError> {
    let guarded = attach_guarded(place, cache, homes, files)?;
    let flushed = cache.flush(progress)?;
    let mut flushing = FlushOutcome {
        pages: flushed.pages,
        complete: flushed.complete,
        ..FlushOutcome::default()
    };
    if !flushed.complete {
        return Ok(flushing);
    }
    if !flushed.lost.is_empty() {
        return Err(SetupError::Lost {
            flash: place.flash().to_owned(),
            pool: pool_of(place.flash()),
            pages: flushed.lost,
        });
    }
    let _ = cache.empty(|_| ControlFlow::Continue(()))?;
    // Everything that was in the guard file is there durably: the cache is empty.
    if let (Some((tablespace, path)), Some(guard)) = (guarded, homes.take_guard()) {
        guard
            .lift(&tablespace)
            .map_err(SetupError::io("lifting the guard of", &path))?;
        let data = path.parent().unwrap_or(Path::new("/"));
        DoublewriteFile::new(data, cache.owner())
            .remove()
            .map_err(SetupError::io("removing the copies of pages in", data))?;
        flushing.lifted.push(path);
    }
    for file in cache.files() {
        cache.drop_file(&file)?;
    }
    Ok(flushing)
}
