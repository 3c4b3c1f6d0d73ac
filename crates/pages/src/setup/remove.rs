//! Ending a cache that has nothing any more: for good, or for another one in its place.

use super::{
    error::SetupError,
    place::{Place, is_device, pool_of},
    retry::retry_in_use,
    rights::{Held, exercise},
};
use crate::{beside, home::Homes, resize::has_blank_headers};
use forebay_flash::{Cache, Flash, FlashFile};
use forebay_pool::{contents, rights::Rights};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Endings of the small files beside a flash file.
const BESIDE: [&str; 3] = [".status", ".settings", ".resize"];

/// Ends the cache on this flash file or device, which was [flushed](super::flush) or never used: the files that are gone. A device stays, blank, and so does the link
/// that names it.
///
/// 1. *Refuse* one that another process has, and one that knows a file: the guard over that goes with a flush only.
/// 2. *End* it: its headers are blank, and its lane is given back.
/// 3. *Blank* the start of a device.
/// 4. *Remove* what is beside the flash file, its metadata, and last that file.
///
/// What the cache says, and what a link beside it leads to, is done with the rights of its owner; the names beside it go with those of who asks, in a directory that
/// may be root's.
///
/// Interrupted after 2, it goes on when it is repeated, as long as there is the metadata: without a lane, which no cache is.
///
/// # Errors
/// [`SetupError::NotFlushed`], and whatever keeps a server from using it: nothing was changed. What the operating system says.
pub fn remove(flash: &Path) -> Result<Vec<PathBuf>, SetupError> {
    let place = Place::of(flash)?;
    let homes = Arc::new(Homes::new());
    let rights = match retry_in_use(|| place.open_as_owner(&homes)) {
        Ok((cache, rights)) => {
            exercise(rights, place.flash(), || end(&place, cache))?;
            rights
        }
        Err(error) => rights_to_ended(&place).ok_or(error)?,
    };
    remove_all(&place, rights)
}

fn remove_all(place: &Place, rights: Rights) -> Result<Vec<PathBuf>, SetupError> {
    let flash = place.flash();
    let on_device = is_device(flash).map_err(SetupError::io("looking at", flash))?;
    let files = beside::all(flash, &BESIDE).map_err(SetupError::io("looking beside", flash))?;
    let mut gone = remove_files(files)?;
    let metadata = pool_of(flash);
    gone.extend(exercise(rights, flash, || {
        if on_device {
            blank_start(place)?;
        }
        // It may be on another disk, by a link.
        let real = metadata.is_symlink().then(|| metadata.canonicalize());
        remove_files(real.and_then(Result::ok).into_iter().collect())
    })?);
    let mut files = vec![metadata];
    if !on_device {
        files.push(flash.to_owned());
    }
    gone.extend(remove_files(files)?);
    Ok(gone)
}

fn end(place: &Place, cache: Cache) -> Result<(), SetupError> {
    let stats = cache.stats();
    if stats.slots_used > 0 || !cache.files().is_empty() {
        return Err(SetupError::NotFlushed {
            flash: place.flash().to_owned(),
            dirty: stats.dirty_pages,
        });
    }
    Ok(cache.remove()?)
}

/// With whose rights what is left of a cache is removed, if it is one that was ended.
fn rights_to_ended(place: &Place) -> Option<Rights> {
    let held = Held::of(place).ok()?;
    let is_blank = File::open(place.flash()).and_then(has_blank_headers);
    let is_ended =
        is_blank.unwrap_or(false) && (held.pool()).is_ok_and(|pool| pool.lanes().is_empty());
    is_ended.then(|| held.rights())
}

/// A cache is made on a device only if nothing is at its start.
fn blank_start(place: &Place) -> Result<(), SetupError> {
    let device = FlashFile::open(place.flash()).map_err(|e| place.busy(e))?;
    let zeros = vec![0; contents::LOOKED_AT as usize];
    let blanked = device.write_at(&zeros, 0).and_then(|()| device.sync());
    blanked.map_err(SetupError::io("blanking", place.flash()))
}

/// Removes those of the files that are there, in their order.
fn remove_files(files: Vec<PathBuf>) -> Result<Vec<PathBuf>, SetupError> {
    let mut gone = Vec::new();
    for file in files {
        match fs::remove_file(&file) {
            Ok(()) => gone.push(file),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(SetupError::io("removing", &file)(e)),
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests;
