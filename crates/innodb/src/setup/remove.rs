//! Ending a cache that has nothing any more: for good, or for another one in its place.

use super::{
    cache_files::CacheFiles,
    directory::{CacheDirectory, HeldPath},
    error::SetupError,
    location::CacheLocation,
    retry::retry_in_use,
};
use crate::{
    control_files::{CONTROL, RESIZE, SETTINGS, STATUS},
    descriptor::path_of,
    home::Homes,
};
use forebay_flash::{Cache, Flash};
use forebay_pool::disk_signatures;
use rustix::fd::AsFd;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Endings of the small files beside a flash file.
const BESIDE: [&str; 4] = [STATUS, SETTINGS, RESIZE, CONTROL];

/// Ends the cache on this flash file or device, which was [flushed](super::flush) or never used:
/// the files that are gone. A device stays, blank, and so does the link that names it.
///
/// 1. *Refuse* one that another process has, and one that knows a file: the guard over that goes
///    with a flush only.
/// 2. *End* it: its headers are blank, and its lane is given back.
/// 3. *Blank* the start of a device.
/// 4. *Remove* what is beside the flash file, its metadata, and last that file.
///
/// What the cache says is done as its owner, and no path to it is followed after it was opened. The
/// names go from the directory that it was found in, as root only if root alone may change names
/// there (`directory.rs`). So does metadata that a link in such a directory leads to. Each of the
/// two goes as long as its name is that of what was opened.
///
/// Interrupted after 2, it goes on when it is repeated, as long as there is the metadata, without a
/// lane, which no cache is, or a link to where it was.
///
/// # Errors
/// [`SetupError::NotFlushed`], and whatever keeps a server from using it: nothing was changed. What
/// the operating system says.
pub fn remove(flash: &Path) -> Result<Vec<PathBuf>, SetupError> {
    let place = CacheLocation::of(flash)?;
    let held = CacheFiles::of(&place)?;
    let _alone = held.lock()?;
    held.as_owner(|| {
        let homes = Arc::new(Homes::new());
        match retry_in_use(|| held.open(&homes)) {
            Ok(cache) => end(&place, cache),
            Err(error) if !is_ended(&held) => Err(error),
            Err(_) => Ok(()),
        }
    })?;
    remove_all(&held)
}

fn remove_all(held: &CacheFiles<'_>) -> Result<Vec<PathBuf>, SetupError> {
    let (flash, lane) = (held.place.flash(), held.place.pool_path());
    let mut gone = Vec::new();
    let mut unlink = |dir: &CacheDirectory, path: &Path, found: Option<&HeldPath>| {
        let unlinked = dir.unlink(path, found, held.owner)?;
        gone.extend(unlinked.then(|| path.to_owned()));
        Ok::<_, SetupError>(())
    };
    for file in held.dir.beside(flash, &BESIDE)? {
        unlink(&held.dir, &file, None)?;
    }
    // Before its metadata goes: where that is gone it is blank, and may be another's by now.
    if held.is_on_device() && held.lane.file().is_ok() {
        held.as_owner(|| blank_start(held))?;
    }
    if let Some(far) = &held.lane.far {
        let (dir, path) = far_lane(held, far)?;
        unlink(&dir, &path, Some(far))?;
    }
    unlink(&held.dir, lane, Some(&held.lane.named))?;
    if !held.is_on_device() {
        unlink(&held.dir, flash, Some(&held.flash.named))?;
    }
    Ok(gone)
}

/// The place of the metadata that a link leads to: the directory, and the name.
fn far_lane(
    held: &CacheFiles<'_>,
    far: &HeldPath,
) -> Result<(CacheDirectory, PathBuf), SetupError> {
    let path = path_of(far.fd.as_fd())
        .map_err(|e| SetupError::io("looking for", held.place.pool_path())(e.into()))?;
    Ok((CacheDirectory::of(&path)?.by_link_in(&held.dir), path))
}

fn end(place: &CacheLocation, cache: Cache) -> Result<(), SetupError> {
    let stats = cache.stats();
    if stats.slots_used > 0 || !cache.files().is_empty() {
        return Err(SetupError::NotFlushed {
            flash: place.flash().to_owned(),
            dirty: stats.dirty_pages,
        });
    }
    Ok(cache.remove()?)
}

/// True if it is what is left of a cache that was ended: its headers are blank, and its metadata
/// has no lane, or is gone where a link leads to.
fn is_ended(held: &CacheFiles<'_>) -> bool {
    let has_no_lane = || match held.lane.file() {
        Ok(_) => held.pool().is_ok_and(|pool| pool.lanes().is_empty()),
        Err(_) => true,
    };
    held.is_blank().unwrap_or(false) && has_no_lane()
}

/// A cache is made on a device only if nothing is at its start.
fn blank_start(held: &CacheFiles<'_>) -> Result<(), SetupError> {
    let device = held.open_flash()?;
    let zeros = vec![0; disk_signatures::LOOKED_AT as usize];
    let blanked = device.write_at(&zeros, 0).and_then(|()| device.sync());
    blanked.map_err(SetupError::io("blanking", held.place.flash()))
}

#[cfg(test)]
mod tests;
