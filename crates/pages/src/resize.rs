//! Another size for a cache: everything goes home, and the cache is made anew. docs/flash-tier.md, "Another size".
//!
//! 1. *Flush*: everything home, the guard lifted. What is interrupted here is a flush, and goes on as one.
//! 2. *End* the cache: its headers are zeros, durably. From here on nothing is in it, and the files are all there is.
//! 3. *Shorten* the flash file to these zeros, so that the new one has room beside it.
//! 4. *Make* the new one beside it, `PATH.new` with `PATH.new.lane`.
//! 5. *Rename* the lane, then the flash file.
//!
//! Repeated after a crash it goes on: a flash file of zeros that long is one that was ended.

use crate::setup::{Place, SetupError, create, flush_open, look, pool_of};
use crate::{guard::sync_directory, home::Homes};
use forebay_flash::{Options, Progress, layout::CHECKPOINTS};
use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What a resize did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resized {
    /// Pages written to the files.
    pub pages: u64,
    /// Slots that it has now.
    pub slots: u64,
}

/// Gives the cache on this flash file `bytes` bytes. `data` are directories to look for files in, beside those where they were.
///
/// # Errors
/// See [`SetupError`]; nothing that the cache has is lost, and the resize may be repeated.
pub fn resize(
    flash: &Path,
    bytes: u64,
    data: &[PathBuf],
    progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Resized, SetupError> {
    check_size(flash, bytes)?;
    let mut resized = Resized::default();
    if !is_ended(flash)? {
        let place = Place::of(flash)?;
        let homes = Arc::new(Homes::new());
        let (cache, _) = place.open(&homes, &Options::default())?;
        let flushed = flush_open(&place, &cache, &homes, data, progress)?;
        resized.pages = flushed.pages;
        if !flushed.complete {
            return Ok(resized);
        }
        cache.remove()?;
    }
    shorten(flash)?;
    resized.slots = replace(flash, bytes)?;
    Ok(resized)
}

/// Refuses a size that makes no cache, or a device, before anything is changed.
fn check_size(flash: &Path, bytes: u64) -> Result<(), SetupError> {
    let meta = fs::metadata(flash).map_err(SetupError::io("looking at", flash))?;
    if !meta.is_file() {
        return Err(SetupError::io("resizing", flash)(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file: a device has the size it has",
        )));
    }
    crate::setup::check_size(bytes)
}

/// True if it is the rest of a cache that was ended.
fn is_ended(flash: &Path) -> Result<bool, SetupError> {
    let fail = |e| SetupError::io("looking at", flash)(e);
    let file = fs::File::open(flash).map_err(fail)?;
    // A longer one is told from any file of zeros by the lane beside it.
    let is_shortened = file.metadata().map_err(fail)?.len() == CHECKPOINTS;
    if !is_shortened && pool_of(flash).symlink_metadata().is_err() {
        return Ok(false);
    }
    let mut bytes = Vec::new();
    file.take(CHECKPOINTS)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    Ok(bytes.len() as u64 == CHECKPOINTS && bytes.iter().all(|&byte| byte == 0))
}

fn shorten(flash: &Path) -> Result<(), SetupError> {
    let file = OpenOptions::new().write(true).open(flash);
    file.and_then(|file| file.set_len(CHECKPOINTS).and_then(|()| file.sync_all()))
        .map_err(SetupError::io("shortening", flash))
}

/// Steps 4 and 5: how many slots it has.
fn replace(flash: &Path, bytes: u64) -> Result<u64, SetupError> {
    let mut new = flash.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let [lane, new_lane] = [pool_of(flash), pool_of(&new)];
    // Its lane was renamed, and it was not.
    let is_made = Place::between(&new, &lane)
        .open(&Arc::new(Homes::new()), &Options::default())
        .is_ok();
    if !is_made {
        for left in [&new, &new_lane] {
            match fs::remove_file(left) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(SetupError::io("removing", left)(e));
                }
                _ => {}
            }
        }
        create(&new, bytes)?;
        fs::rename(&new_lane, &lane).map_err(SetupError::io("renaming", &new_lane))?;
    }
    let dir = flash.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new("."));
    sync_directory(dir).map_err(SetupError::io("syncing", dir))?;
    fs::rename(&new, flash).map_err(SetupError::io("renaming", &new))?;
    sync_directory(dir).map_err(SetupError::io("syncing", dir))?;
    Ok(look(flash)?.slots)
}

#[cfg(test)]
mod tests;
