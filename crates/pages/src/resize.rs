//! Another size for a cache that no server has: with what is in it. docs/flash-tier.md, "Another size"; the protocol is the cache's own.
//!
//! Before, what a crash may have torn in the files is made whole, as by a flush: which pages these are is known by their positions, and all get others.

use crate::{
    home::Homes,
    request::{Resized, request_of, take_back},
    setup::{
        Held, Place, SetupError, Warm, attach_guarded, create, exercise, pool_of, rights_to,
        rights_to_data,
    },
};
use forebay_flash::{Progress, layout::CHECKPOINTS};
use forebay_pool::{LaneCheck, PoolErrorKind};
use rustix::fs::OFlags;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    ops::ControlFlow,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Gives the cache on this flash file or device `bytes` bytes. `data` are directories to look for files in, beside those where they were. It has the rights
/// of the user whose cache it is, never more.
///
/// # Errors
/// See [`SetupError`]; nothing that the cache has is lost, and the resize may be repeated.
pub fn resize(
    flash: &Path,
    bytes: u64,
    data: &[PathBuf],
    progress: impl FnMut(Progress) -> ControlFlow<()> + Send,
) -> Result<Resized, SetupError> {
    if is_ended(flash)? {
        return make_anew(flash, bytes);
    }
    let (_, resized) = resize_found(flash, bytes, data, progress)?;
    Ok(resized)
}

/// The same of what is a cache without a doubt. What was in it before is given back as well.
///
/// # Errors
/// See [`resize`].
pub fn resize_found(
    flash: &Path,
    bytes: u64,
    data: &[PathBuf],
    progress: impl FnMut(Progress) -> ControlFlow<()> + Send,
) -> Result<(Warm, Resized), SetupError> {
    let homes = Arc::new(Homes::new());
    let place = Place::of(flash)?;
    let (cache, rights) = place.open_as_owner(&homes)?;
    let before = Warm::of(&cache);
    let is_of_size = cache.is_of_size(bytes)?;
    // What was asked of a server that is gone. One that another user has left is not in the way of a cache that is as it should be.
    take_back(place.flash()).or_else(|source| match is_of_size {
        true => Ok(()),
        false => Err(SetupError::RequestLeft {
            request: request_of(place.flash()),
            source,
        }),
    })?;
    let rights = match is_of_size {
        true => rights,
        false => rights_to_data(&cache, data, rights)?,
    };
    let resized = exercise(rights, place.flash(), || {
        let _tablespace = match is_of_size {
            true => None,
            false => attach_guarded(&place, &cache, &homes, (data, &[]))?,
        };
        Ok(cache.resize(bytes, progress)?)
    })?;
    let resized = Resized {
        pages: resized.pages,
        now: Warm::of(&cache),
        complete: resized.complete,
    };
    Ok((before, resized))
}

/// True if it is the rest of a cache that the version before ended, to make one of another size; or of one that was being made. Nothing is in it.
pub(crate) fn is_ended(flash: &Path) -> Result<bool, SetupError> {
    let fail = |e| SetupError::io("looking at", flash)(e);
    let mut options = OpenOptions::new();
    // What is no file makes no one wait.
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.read(true).open(flash).map_err(fail)?;
    let meta = file.metadata().map_err(fail)?;
    if !meta.is_file() {
        return Ok(false);
    }
    // A longer one is told from any file of zeros by the lane beside it.
    let is_shortened = meta.len() == CHECKPOINTS;
    if !is_shortened && pool_of(flash).symlink_metadata().is_err() {
        return Ok(false);
    }
    has_blank_headers(file).map_err(fail)
}

/// True if a cache was ended on this flash, or none was made to the end.
pub(crate) fn has_blank_headers(flash: File) -> io::Result<bool> {
    let mut bytes = Vec::new();
    flash.take(CHECKPOINTS).read_to_end(&mut bytes)?;
    Ok(bytes.len() as u64 == CHECKPOINTS && bytes.iter().all(|&byte| byte == 0))
}

/// True if the metadata beside blank headers says that a server has used the cache: then these were written over, and pages may be in it. Making a cache
/// claims its lane once, and appends nothing; ending it gives the lane back.
fn was_used(place: &Place) -> Result<bool, SetupError> {
    let pool = match Held::of(place)?.pool() {
        // It was not made to the end.
        Err(SetupError::Pool(e))
            if matches!(
                e.kind,
                PoolErrorKind::Empty | PoolErrorKind::NotAPool { .. }
            ) =>
        {
            return Ok(false);
        }
        pool => pool?,
    };
    let is_new = |lane: u32| matches!(pool.check_lane(lane), LaneCheck::Whole { records: 0, .. });
    let mut lanes = pool.lanes().into_iter();
    Ok(lanes.any(|lane| lane.damage.is_some() || lane.epoch > 1 || !is_new(lane.lane)))
}

/// What is left of a cache that was ended goes, and a new one is made.
fn make_anew(flash: &Path, bytes: u64) -> Result<Resized, SetupError> {
    let length = fs::metadata(flash).map_err(SetupError::io("looking at", flash))?;
    if length.len() > CHECKPOINTS {
        let place = Place::of(flash)?;
        if was_used(&place)? {
            return Err(place.unmade());
        }
    }
    // The server's user is to have the new one as well.
    exercise(rights_to(flash)?, flash, || replace(flash, bytes))
}

fn replace(flash: &Path, bytes: u64) -> Result<Resized, SetupError> {
    // The flash file last: while it is there, this is repeated. What that version had begun beside it, PATH.new, may be another cache by now.
    for left in [&pool_of(flash), &flash.to_owned()] {
        match fs::remove_file(left) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(SetupError::io("removing", left)(e));
            }
            _ => {}
        }
    }
    Ok(Resized {
        now: create(flash, bytes)?,
        complete: true,
        ..Resized::default()
    })
}

#[cfg(test)]
mod tests;
